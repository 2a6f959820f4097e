"""`shoal ledger verify` tells a whole ledger from one that was changed, cut off or set back."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from shoal_command import connection
from shoal_protocol.privacy.ledger import LedgerEntry
from tests.command.running import run
from tests.protocol.test_ledger import LEDGER
from tests.world import examples
from tests.world.certified import Making


def exported(entries: list[LedgerEntry]) -> dict[str, Any]:
    """Return what a ledger command prints with --json."""
    lines = [each.model_dump(mode="json") | {"digest": each.digest} for each in entries]
    return {"entries": lines, "spent": {"clients": 12}}


def verify(path: Path, value: Any, *options: object) -> Result:
    file = path / "ledger.json"
    file.write_text(json.dumps(value))
    return run("ledger", "verify", file, *options)


def head_of(entries: list[LedgerEntry]) -> dict[str, Any]:
    return {"number": len(entries), "digest": entries[-1].digest}


@pytest.mark.parametrize(
    "head",
    [
        head_of(LEDGER),
        head_of(LEDGER[:1]),
        head_of(LEDGER[:2]) | {"digest": LEDGER[0].digest},
        head_of(LEDGER[:2]) | {"number": 3},
        None,
    ],
)
def test_a_ledger_that_does_not_end_at_its_head_does_not_hold(tmp_path: Path, head: Any) -> None:
    found = verify(tmp_path, exported(LEDGER[:2]) | {"head": head})
    assert found.exit_code == 1
    assert "does not hold: the head beside the entries is not the last of them, 2" in found.output
    assert "unbroken" not in found.output


def test_a_file_without_an_end_is_not_read_until_memory_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LARGEST_FILE", 2 << 20)
    ledger_file = tmp_path / "ledger.json"
    ledger_file.write_text(json.dumps(exported(LEDGER)))
    for arguments in (["/dev/zero"], [str(ledger_file), "--certificate", "/dev/zero"]):
        found = run("ledger", "verify", *arguments)
        assert (found.exit_code, "/dev/zero has more than 2 MiB" in found.output) == (1, True)
    found = run("ledger", "verify", "-", typed=b"0" * (3 << 20))
    assert (found.exit_code, "piped in has more than 2 MiB" in found.output) == (1, True)


def released(tmp_path: Path) -> tuple[Path, list[LedgerEntry]]:
    """Return a certificate of two rounds, and the ledger of compute-1 that it anchors."""
    certificate = Making().make()
    file = tmp_path / "certificate.json"
    file.write_bytes(certificate.encode())
    every = [entry for each in certificate.rounds for entry in each.ledger_entries]
    entries = [entry for entry in every if entry.ledger == "compute-1"]
    assert [each.number for each in entries] == [1, 2]
    return file, entries


def test_a_ledger_that_holds_what_a_release_anchors_is_found_whole(tmp_path: Path) -> None:
    certificate, entries = released(tmp_path)
    later = entries[1].returned(after=entries[1].head, at=entries[1].at)
    for whole in (entries, [*entries, later]):
        found = verify(tmp_path, exported(whole), "--certificate", certificate)
        assert found.exit_code == 0
        assert "the release holds of the ledger, 2 entries, is in it" in found.output


def test_a_ledger_that_a_release_does_not_anchor_is_not_called_whole(tmp_path: Path) -> None:
    certificate, _ = released(tmp_path)
    other = examples.charge(examples.SPEC, "holder")
    found = verify(tmp_path, exported([other]), "--certificate", certificate)
    assert found.exit_code == 1
    assert "shows nothing" in found.output
