"""A simulated crowd at a real trainer over TLS: what was acknowledged is in a chain, once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.crowd import run
from bench.drive import SITE, quickstart
from shoal_consortium.processes import Federation

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


def test_an_operator_loads_a_trainer_by_one_command(tmp_path: Path) -> None:
    home = tmp_path / "federation"
    services = quickstart(
        home, clients={SITE: PHONES}, nodes=2, options=["--maximum-local-epsilon", "1"]
    )
    arguments = [
        *("--holder-key", home / "clients" / SITE / "holder.key"),
        *("--consortium", home / "consortium", "--analyst", home / "parties" / "analyst"),
    ]
    with Federation() as federation:
        federation.start(services[-1])
        command = [sys.executable, "-m", "bench.load", "crowd", *arguments, "--clients", "20"]
        few = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert (few["acknowledged"], few["account"]["linked"]) == (20, 20)
    assert few["requests"]["draw"]["count"] == few["requests"]["submission"]["count"] == 20
    assert few["account"]["lost"] == few["account"]["counted_twice"] == 0
