"""A data holder's journal that was tampered with is found when its state is opened."""

import sqlite3
from pathlib import Path

import pytest
from pyroaring import BitMap

from shoal_agent.status import checked_journal
from shoal_holder import journal
from shoal_holder.state import State
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.wire.encoding import decode_clients, encode_clients
from shoal_protocol.wire.errors import MalformedDocument
from tests.world.clock import NOW

JOB, OTHER_JOB = "a" * 64, "b" * 64
ROUNDS = ["c" * 64, "d" * 64]
AUTHORITY = "e" * 64
COSTS = [Cost.gaussian(0.3), Cost.pure(0.25)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A state with four entries: two joins, an answer with unused slots, and another answer."""
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
        database.execute(f"DROP TRIGGER journal_{rule}")
    for statement in statements:
        database.execute(statement)
    database.commit()
    database.close()


def reopen(path: Path) -> State:
    return State(path, authority=AUTHORITY)


def test_R3_what_was_done_is_one_unbroken_chain(path: Path) -> None:
    state = reopen(path)
    entries = journal.entries(state.file, after=0, count=9)
    assert checked_journal(entries) == state.file.head()
    said = [each.statement for each in entries if each.statement is not None]
    assert [(each.kind, each.subject) for each in said] == [
        ("join", JOB),
        ("join", OTHER_JOB),
        ("answer", ROUNDS[0]),
        ("answer", ROUNDS[1]),
    ]
    assert [
        (Cost.stated(each.document["mu"], each.document["epsilon"]), each.document["number"])
        for each in said[2:]
    ] == [(COSTS[0], 0), (COSTS[1], 1)]
    assert set(decode_clients(said[2].document["unused"])) == {2, 3}
    assert journal.entries(state.file, after=1, count=1) == entries[1:2]
    state.close()


def test_entries_that_were_changed_after_they_were_shown_are_found(path: Path) -> None:
    state = reopen(path)
    entries = journal.entries(state.file, after=0, count=9)
    state.close()
    said = entries[2].statement
    assert said is not None
    cheaper = said.model_copy(update={"document": said.document | {"mu": 0.1}})
    for changed in (
        [*entries[:2], entries[2].model_copy(update={"statement": cheaper}), *entries[3:]],
        [*entries[:2], entries[2].model_copy(update={"statement": None}), *entries[3:]],
        [*entries[:2], *entries[3:]],
    ):
        with pytest.raises(MalformedDocument):
            checked_journal(changed)


CHANGES = {
    "number": "UPDATE journal SET number = 7 WHERE number = {}",
    "epoch": "UPDATE journal SET epoch = '1' || epoch WHERE number = {}",
    "no epoch": "UPDATE journal SET epoch = 'x' WHERE number = {}",
    "salt": "UPDATE journal SET salt = substr(salt, 3) || '00' WHERE number = {}",
    "no salt": "UPDATE journal SET salt = 'x' WHERE number = {}",
    "kind": "UPDATE journal SET kind = 'leave' WHERE number = {}",
    "subject": f"UPDATE journal SET subject = '{'f' * 64}' WHERE number = {{}}",
    "cost": "UPDATE journal SET body = replace(body, '\"mu\":0', '\"mu\":1') WHERE number = {}",
    "another body": "UPDATE journal SET body = '{{}}' WHERE number = {}",
    "no body": "UPDATE journal SET body = '[]' WHERE number = {}",
    "other slots": f"UPDATE journal SET body = json_set(body, '$.slots', '{encode_clients([9])}')"
    " WHERE number = {}",
    "hash": f"UPDATE journal SET hash = '{'0' * 64}' WHERE number = {{}}",
    "an entry is gone": "DELETE FROM journal WHERE number = {}",
}


@pytest.mark.parametrize("number", [1, 3, 4])
@pytest.mark.parametrize("name", CHANGES)
def test_any_change_of_any_row_is_found_at_the_start(path: Path, name: str, number: int) -> None:
    tamper(path, CHANGES[name].format(number))
    with pytest.raises(ValueError, match="journal"):
        reopen(path)


@pytest.mark.parametrize("kept", [0, 3])
def test_R4_entries_removed_from_the_end_are_found_by_the_mark_and_by_the_answers(
    path: Path, kept: int
) -> None:
    tamper(path, f"DELETE FROM journal WHERE number > {kept}")
    with pytest.raises(ValueError, match=r"journal ends with entry .* has entry 4"):
        reopen(path)
    with pytest.raises(ValueError, match="not what the journal has"):
        State(path, authority=AUTHORITY, is_restored=True)


def test_entries_that_changed_places_are_found(path: Path) -> None:
    tamper(
        path,
        "UPDATE journal SET number = 9 WHERE number = 1",
        "UPDATE journal SET number = 1 WHERE number = 2",
        "UPDATE journal SET number = 2 WHERE number = 9",
    )
    with pytest.raises(ValueError, match="journal"):
        reopen(path)
