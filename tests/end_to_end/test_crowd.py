"""A simulated crowd at a real trainer over TLS: what was acknowledged is in a chain, once."""

import pytest

from bench.crowd import run

PHONES = 60


@pytest.mark.essential
def test_every_phone_of_a_crowd_contributes_once_and_finds_that_the_trainer_kept_its_word() -> None:
    found = run(contributions=PHONES, together=7, concurrency=4)  # so groups of 7, and one of 4
    assert found["contributions acknowledged"] == PHONES
    assert found["refused"] == found["errors"] == {}
    checked = found["checked"]
    assert checked["links in all chains"] == checked["draws"] == PHONES
    faults = (
        "acknowledged and lost",
        "counted twice",
        "draws that are not as the seed says",
        "draws of what no instance was",
    )
    assert [checked[fault] for fault in faults] == [0, 0, 0, 0]
