"""A simulated crowd at a real trainer over TLS: what was acknowledged is in a chain, once."""

from pathlib import Path

import pytest

from bench.crowd import measure

PHONES = 60


@pytest.mark.essential
def test_every_phone_of_a_crowd_contributes_once_and_finds_that_the_trainer_kept_its_word(
    tmp_path: Path,
) -> None:
    found = measure(tmp_path, contributions=PHONES, concurrency=4)
    assert found["acknowledged"] == found["draws"] == found["account"]["linked"] == PHONES
    assert found["refused"] == found["errors"] == {}
    faults = ("lost", "counted_twice", "misdrawn", "forged")
    assert [found["account"][fault] for fault in faults] == [0, 0, 0, 0]
