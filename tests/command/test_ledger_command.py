"""`shoal ledger verify` tells a data holder's whole ledger from one that was cut off."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from shoal_command import connection
from shoal_protocol.privacy.ledger import EMPTY, HOLDER, LedgerEntry, population_digest
from tests.command.running import run
from tests.world import examples


def ledger() -> list[LedgerEntry]:
    """Return a data holder's ledger of three rounds."""
    entries, head = [], EMPTY
    for spec in (examples.spec(number=number) for number in range(3)):
        entry = LedgerEntry(
            ledger=HOLDER,
            number=head.number + 1,
            previous=head.digest,
            kind="charge",
            round=spec.digest,
            job=spec.job,
            job_rounds=None,
            population=population_digest(spec.population),
            clients=spec.population_size,
            mu=spec.mu,
            epsilon=spec.epsilon,
            at=spec.opened_at,
        )
        entries.append(entry)
        head = entry.head
    return entries


LEDGER = ledger()


def exported(entries: list[LedgerEntry]) -> dict[str, Any]:
    """Return what a ledger command prints with --json."""
    lines = [each.model_dump(mode="json") | {"digest": each.digest} for each in entries]
    return {"entries": lines, "spent": {"clients": 12}}


def verify(path: Path, value: Any) -> Result:
    file = path / "ledger.json"
    file.write_text(json.dumps(value))
    return run("ledger", "verify", file)


def head_of(entries: list[LedgerEntry]) -> dict[str, Any]:
    return {"number": len(entries), "digest": entries[-1].digest}


def test_a_whole_ledger_holds_and_one_with_a_gap_does_not(tmp_path: Path) -> None:
    found = verify(tmp_path, exported(LEDGER))
    assert (found.exit_code, "one unbroken chain of 3 entries" in found.output) == (0, True)
    found = verify(tmp_path, exported([LEDGER[0], LEDGER[2]]))
    assert (found.exit_code, "entry 2 is missing" in found.output) == (1, True)


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
    found = run("ledger", "verify", "/dev/zero")
    assert (found.exit_code, "/dev/zero has more than 2 MiB" in found.output) == (1, True)
    found = run("ledger", "verify", "-", typed=b"0" * (3 << 20))
    assert (found.exit_code, "piped in has more than 2 MiB" in found.output) == (1, True)
