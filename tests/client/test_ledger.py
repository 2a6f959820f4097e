"""A data holder's ledger that was tampered with is found when its state is opened."""

import sqlite3
from pathlib import Path

import pytest
from pyroaring import BitMap

from shoal_holder import ledger
from shoal_holder.state import State
from shoal_protocol.privacy.accounting import NOTHING, Cost
from shoal_protocol.privacy.ledger import verify_chain
from shoal_protocol.wire.encoding import encode_clients
from tests.world.clock import NOW

JOB, OTHER_JOB = "a" * 64, "b" * 64
ROUNDS = ["c" * 64, "d" * 64]
AUTHORITY = "e" * 64
COSTS = [Cost.gaussian(0.3), Cost.pure(0.25)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A state with three entries: of one round for used and unused slots, and of another."""
    path = tmp_path / "holder.sqlite"
    state = State(path, authority=AUTHORITY)
    for job in (JOB, OTHER_JOB):
        slots = BitMap(range(4))
        state.add_job(job, b"request", cost=Cost.gaussian(0.5), slots=slots, join=b"join")
    for number, round_id in enumerate(ROUNDS):
        state.add_round(round_id, JOB, number, b"spec", None)
    for round_id, cost, unused in ((ROUNDS[0], COSTS[0], (2, 3)), (ROUNDS[1], COSTS[1], ())):
        slots = {"used": BitMap((0, 1)), "unused": BitMap(unused)}
        state.record_answer(round_id, cost, NOW, **slots, envelopes={0: b"e"})
    state.close()
    return path


def tamper(path: Path, *statements: str) -> None:
    """Do what somebody can do who has the file: drop the triggers first."""
    database = sqlite3.connect(path)
    for rule in ("keeps", "stays", "adds"):
        database.execute(f"DROP TRIGGER ledger_{rule}")
    database.execute("DROP TRIGGER ledger_head_keeps")
    for statement in statements:
        database.execute(statement)
    database.commit()
    database.close()


def reopen(path: Path) -> State:
    return State(path, authority=AUTHORITY)


def test_what_was_charged_is_one_unbroken_chain(path: Path) -> None:
    state = reopen(path)
    entries = ledger.entries(state.file, after=0, count=9)
    assert verify_chain(entries).head.number == 3
    assert [(each.round, each.clients, each.cost) for each in entries] == [
        (ROUNDS[0], 2, COSTS[0]),
        (ROUNDS[0], 2, NOTHING),
        (ROUNDS[1], 2, COSTS[1]),
    ]
    assert ledger.entries(state.file, after=1, count=1) == entries[1:2]
    state.close()


CHANGES = {
    "number": "UPDATE ledger SET number = 7 WHERE number = 3",
    "previous": "UPDATE ledger SET previous = digest WHERE number = {}",
    "kind": "UPDATE ledger SET kind = 'return' WHERE number = {}",
    "round": f"UPDATE ledger SET round = '{'f' * 64}' WHERE number = {{}}",
    "job": f"UPDATE ledger SET job = '{OTHER_JOB}' WHERE number = {{}}",
    "mu": "UPDATE ledger SET mu = mu * (1 - 1e-15) + (mu = 0) * 1e-300 WHERE number = {}",
    "epsilon": "UPDATE ledger SET epsilon = 0.125 WHERE number = {}",
    "at": "UPDATE ledger SET at = replace(at, '2026', '2027') WHERE number = {}",
    "an unreadable time": "UPDATE ledger SET at = 'x' WHERE number = {}",
    "digest": "UPDATE ledger SET digest = previous WHERE number = {}",
    "other clients": f"UPDATE ledger SET population = '{encode_clients([9])}' WHERE number = {{}}",
    "no bitmap": "UPDATE ledger SET population = 'x' WHERE number = {}",
    "how many clients": "UPDATE ledger SET clients = clients + 1 WHERE number = {}",
    "the round's place": "UPDATE ledger SET place = 5 WHERE number = {}",
    "no place": "UPDATE ledger SET place = NULL WHERE number = {}",
    "an entry is gone": "DELETE FROM ledger WHERE number = {}",
}


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("name", CHANGES)
def test_any_change_of_any_row_is_found_at_the_start(path: Path, name: str, number: int) -> None:
    tamper(path, CHANGES[name].format(number))
    with pytest.raises(ValueError, match="ledger"):
        reopen(path)


def test_the_last_entry_removed_with_its_clients_is_found_by_the_head(path: Path) -> None:
    tamper(path, "DELETE FROM ledger WHERE number = 3")
    with pytest.raises(ValueError, match=r"entries were removed|does not hold the entry"):
        reopen(path)


EMPTIED = "UPDATE ledger_head SET number = 0, digest = lower(hex(zeroblob(32)))"


def test_a_ledger_that_was_emptied_consistently_is_found_by_the_answers(path: Path) -> None:
    tamper(path, "DELETE FROM ledger", EMPTIED)
    with pytest.raises(
        ValueError, match=r"an answer on file is not in the ledger.*restore|does not hold the entry"
    ):
        reopen(path)


def test_the_last_entry_removed_consistently_is_found_by_the_answers(path: Path) -> None:
    tamper(
        path,
        "DELETE FROM ledger WHERE number = 3",
        "UPDATE ledger_head SET number = 2, digest = (SELECT digest FROM ledger WHERE number = 2)",
    )
    with pytest.raises(
        ValueError, match=r"an answer on file is not in the ledger|does not hold the entry"
    ):
        reopen(path)


@pytest.mark.parametrize("change", ["DELETE FROM rounds", f"UPDATE rounds SET job = '{OTHER_JOB}'"])
def test_a_charge_without_its_round_is_found(path: Path, change: str) -> None:
    tamper(path, change)
    with pytest.raises(ValueError, match=r"entry 1 charges a round.* not on file"):
        reopen(path)


def test_a_ledger_without_its_head_is_found(path: Path) -> None:
    tamper(path, "DELETE FROM ledger_head")
    with pytest.raises(ValueError, match="head is gone"):
        reopen(path)


def test_entries_that_changed_places_are_found(path: Path) -> None:
    tamper(
        path,
        "UPDATE ledger SET number = 9 WHERE number = 1",
        "UPDATE ledger SET number = 1 WHERE number = 2",
        "UPDATE ledger SET number = 2 WHERE number = 9",
    )
    with pytest.raises(ValueError, match="ledger"):
        reopen(path)
