"""`shoal ledger verify` tells a whole ledger from one that was changed, cut off or set back."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from shoal_command import connection
from shoal_protocol.privacy.ledger import LedgerEntry
from shoal_protocol.privacy.round_charges import charge_of
from tests.command.running import run
from tests.protocol.test_ledger import LEDGER, ledger
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


def test_a_whole_ledger_is_found_whole(tmp_path: Path) -> None:
    found = verify(tmp_path, exported(LEDGER))
    assert found.exit_code == 0
    assert "compute-0 is one unbroken chain of 5 entries" in found.output
    assert LEDGER[-1].digest in found.output


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


@pytest.mark.parametrize("head", [[], 5, "2", {}, {"number": "2", "digest": LEDGER[1].digest}])
def test_a_head_that_is_none_is_one_line(tmp_path: Path, head: Any) -> None:
    found = verify(tmp_path, exported(LEDGER[:2]) | {"head": head})
    assert (found.exit_code, found.output.count("\n")) == (1, 1)
    assert "head" in found.output


def test_a_ledger_that_does_not_hold_is_told_without_a_remedy_for_programs(tmp_path: Path) -> None:
    found = verify(tmp_path, exported(LEDGER[1:]))
    assert found.exit_code == 1
    assert "Encode" not in found.output


@pytest.mark.parametrize("field", ["mu", "at", "round", "digest", "previous", "clients"])
@pytest.mark.parametrize("place", range(len(LEDGER)))
def test_a_change_of_any_entry_is_found(tmp_path: Path, place: int, field: str) -> None:
    value, other = exported(LEDGER), exported(ledger("compute-1"))
    changed = {"mu": 0.2, "clients": 11, "at": "2026-03-02T12:00:00.000Z"}
    digest = other["entries"][place]["digest"]
    value["entries"][place][field] = changed.get(field, digest)
    found = verify(tmp_path, value)
    if (place, field) == (0, "previous"):
        assert (found.exit_code, "names none before it" in found.output) == (1, True)
        return
    assert found.exit_code == 1
    assert f"entry {place + 1}" in found.output


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


def test_what_is_no_ledger_is_one_line(tmp_path: Path) -> None:
    for value in ({"entries": [{"number": 1}]}, [], {"rounds": []}):
        found = verify(tmp_path, value)
        assert (found.exit_code, found.output.count("\n")) == (1, 1)
    file = tmp_path / "other.json"
    file.write_text("{")
    found = run("ledger", "verify", file)
    assert (found.exit_code, "is not JSON" in found.output) == (1, True)


def released(tmp_path: Path) -> tuple[Path, list[LedgerEntry]]:
    """Return a certificate of two rounds, and the ledger of compute-1 that it anchors."""
    certificate = Making().make()
    file = tmp_path / "certificate.json"
    file.write_bytes(certificate.encode())
    every = [entry for each in certificate.body.rounds for entry in each.ledger_entries]
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


def test_a_ledger_that_was_cut_off_is_found_by_a_release(tmp_path: Path) -> None:
    certificate, entries = released(tmp_path)
    assert verify(tmp_path, exported(entries[:1])).exit_code == 0
    found = verify(tmp_path, exported(entries[:1]), "--certificate", certificate)
    assert found.exit_code == 1
    assert "cut off or set back" in found.output


def test_a_ledger_that_was_set_back_and_written_on_is_found_by_a_release(tmp_path: Path) -> None:
    certificate, entries = released(tmp_path)
    other = charge_of(
        examples.spec(number=9),
        ledger="compute-1",
        after=entries[0].head,
        at=entries[0].at,
        job_rounds=2,
    )
    found = verify(tmp_path, exported([entries[0], other]), "--certificate", certificate)
    assert found.exit_code == 1
    assert "set back and written anew" in found.output


def test_a_ledger_that_a_release_does_not_anchor_is_not_called_whole(tmp_path: Path) -> None:
    certificate, _ = released(tmp_path)
    other = examples.charge(examples.SPEC, "holder")
    found = verify(tmp_path, exported([other]), "--certificate", certificate)
    assert found.exit_code == 1
    assert "shows nothing" in found.output
