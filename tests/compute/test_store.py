"""What the node's transactions promise, on SQLite and on PostgreSQL."""

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from pyroaring import BitMap
from sqlalchemy import Connection, select, update

from shoal_compute import store
from shoal_compute.node import take_lease
from shoal_compute.schema import VERSION, charges, journal, lease, metadata, received, shares
from shoal_compute.shares import (
    AcceptedShare,
    add_shares,
    erase_payloads,
    held_answers,
    read_shares,
    stored_digests,
)
from shoal_compute.store import LostRace
from shoal_protocol.journal import EMPTY, Link
from shoal_protocol.rounds.attestations import (
    CHARGE,
    Abandonment,
    AbandonmentReason,
    Holdings,
    StoredAnswers,
    Vote,
    charge_body,
)
from shoal_protocol.sharing.shares import ShareKind
from shoal_protocol.wire.documents import Signed, decode, sign
from shoal_protocol.wire.errors import UnknownRound
from shoal_protocol.wire.phases import Phase
from shoal_protocol.wire.service_errors import ConflictingDocument, TooLate
from shoal_service.storage.database import open_engine
from shoal_service.storage.database_schema import check_schema
from shoal_service.storage.journal import JournalWriter
from shoal_service.storage.thread import StorageThread
from tests.world import examples
from tests.world.around_node import holdings, vote
from tests.world.examples import POPULATION, signing_key

SPEC = sign(examples.SPEC, "trainer", signing_key("trainer"))
ROUND = SPEC.digest


@pytest.fixture
async def storage(database_url: str) -> Iterator[StorageThread]:
    engine = open_engine(database_url)
    check_schema(engine, metadata, VERSION)
    opened = StorageThread(engine)
    opened.run_here(add, SPEC)
    yield opened
    await opened.close()


def add(db: Connection, spec: Signed) -> None:
    assert store.add_round(db, spec)
    writer = JournalWriter(journal, db, EMPTY)
    writer.lock()  # all charges here are of one job
    writer.note(CHARGE, spec.digest, charge_body(len(charged(db)) + 1))


def charged(db: Connection) -> list[tuple[str, str]]:
    return [(each.kind, each.spec.digest) for each in charges.after(db, 0)]


def share(client: int, *, attempt: int = 0, round_id: str = ROUND) -> AcceptedShare:
    digest = bytes([client, attempt]) * 16
    payload = bytes([client]) * 32
    return AcceptedShare(
        round_id,
        client,
        examples.answer_id(client, str(attempt)),
        digest,
        bytes(64),
        ShareKind.SEED,
        payload,
    )


def payloads(storage: StorageThread, holders: Iterable[int]) -> list[bytes]:
    """Return what is stored of these holders, all of it seeds, in ascending order."""
    found = []
    for packed in storage.run_here(read_shares, ROUND, BitMap(holders)):
        assert packed.kind is ShareKind.SEED
        found += [packed.payloads[start : start + 32] for start in range(0, 32 * packed.shares, 32)]
    return sorted(found)


def journalled(storage: StorageThread, transaction: Callable[..., Any], *given: Any, **named: Any):
    """Do a transaction that appends to the journal."""
    return storage.run_here(
        lambda db: transaction(JournalWriter(journal, db, EMPTY), *given, **named)
    )


def frozen(storage: StorageThread, clients: range = range(12)) -> Signed:
    storage.run_here(add_shares, [share(client) for client in clients])
    old = phase(storage)
    return journalled(storage, store.freeze, ROUND, old, attest)[1]


def attest(held: StoredAnswers, entry: Link) -> Signed:
    return sign(
        Holdings.attest(
            held,
            POPULATION,
            manifest=SPEC.body.manifest,
            round_id=ROUND,
            node="compute-0",
            entry=entry,
        ),
        "compute-0",
        signing_key("compute-0"),
    )


def give_up(storage: StorageThread, old: Phase) -> None:
    journalled(
        storage,
        store.give_up,
        *(ROUND, old, abandonment),
        own="compute-0",
    )


def phase(storage: StorageThread) -> Phase:
    return Phase(storage.run_here(store.get_round, ROUND).phase)


def abandonment(entry: Link) -> Signed:
    code, party = "votes_missing", "compute-0"
    body = Abandonment(
        manifest=SPEC.body.manifest,
        round=ROUND,
        party=party,
        reason=AbandonmentReason(code=code),
        entry=entry,
    )
    return sign(body, party, signing_key(party))


def test_the_first_share_of_a_client_stays(storage: StorageThread) -> None:
    batch = [share(1), share(2), share(1), share(2, attempt=1)]
    assert storage.run_here(add_shares, batch) == [
        201,
        201,
        200,
        ConflictingDocument,
    ]
    again = [share(2, attempt=1), share(1), share(3)]
    assert storage.run_here(add_shares, again) == [
        ConflictingDocument,
        200,
        201,
    ]
    assert storage.run_here(held_answers, 1).holders == BitMap([1, 2, 3])
    assert storage.run_here(stored_digests, ROUND, [1, 2, 9]) == {
        1: share(1).digest,
        2: share(2).digest,
    }


def test_a_frozen_round_takes_no_share_but_knows_those_it_has(storage: StorageThread) -> None:
    storage.run_here(add_shares, [share(client) for client in (1, 2, 3)])
    assert frozen(storage, range(0)).body.held(POPULATION).holders == BitMap([1, 2, 3])
    known, closed = 200, TooLate
    offered = [share(client) for client in (1, 2, 4, 5)]
    assert storage.run_here(add_shares, offered) == [known, known, closed, closed]
    unknown = [share(client, round_id="0" * 64) for client in range(3)]
    assert storage.run_here(add_shares, unknown) == [UnknownRound] * 3


def test_holdings_and_phase_change_together_or_not_at_all(storage: StorageThread) -> None:
    def fail(held: StoredAnswers, entry: Link) -> Signed:
        raise RuntimeError("the key is gone")

    storage.run_here(add_shares, [share(1)])
    with pytest.raises(RuntimeError):
        journalled(storage, store.freeze, ROUND, Phase.COLLECTING, fail)
    assert phase(storage) is Phase.COLLECTING


def test_a_node_attests_its_holdings_once_for_ever(storage: StorageThread) -> None:
    handed_back = [holdings(SPEC.body, "compute-0", range(5))]
    storage.run_here(lambda db: store.keep(db, ROUND, handed_back, own="compute-0"))
    with pytest.raises(LostRace):
        journalled(storage, store.freeze, ROUND, Phase.ANNOUNCED, attest)
    assert phase(storage) is Phase.ANNOUNCED


def test_the_database_itself_refuses_a_second_vote(storage: StorageThread) -> None:
    frozen(storage)

    def voting(members: range) -> Callable[[Link], Signed]:
        def attest(entry: Link) -> Signed:
            body = vote(SPEC.body, "compute-0", members).body.model_copy(update={"entry": entry})
            return sign(body, "compute-0", signing_key("compute-0"))

        return attest

    first = journalled(storage, store.cast, ROUND, voting(range(12)))
    with pytest.raises(LostRace):
        journalled(storage, store.cast, ROUND, voting(range(11)))
    other = vote(SPEC.body, "compute-0", range(11))

    def keep(*votes: Signed) -> list[store.Kept]:
        return storage.run_here(lambda db: store.keep(db, ROUND, votes, own="compute-0"))

    assert keep(first, other) == [store.Kept.FIRST, store.Kept.EVIDENCE]
    evidence = select(received.c.digest).where(received.c.occurrence == 1)
    assert storage.run_here(lambda db: db.execute(evidence).scalars().all()) == [other.digest]


def test_of_rivals_that_freeze_at_once_one_wins(database_url: str, storage: StorageThread) -> None:
    outcomes: list[str] = []
    start = threading.Barrier(4)

    def rival() -> None:
        own = StorageThread(open_engine(database_url))
        start.wait()
        try:
            journalled(own, store.freeze, ROUND, Phase.ANNOUNCED, attest)
            outcomes.append("won")
        except LostRace:
            outcomes.append("lost")
        own._engine.dispose()

    threads = [threading.Thread(target=rival) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["lost"] * 3 + ["won"]
    assert phase(storage) is Phase.FROZEN


def test_a_charge_is_returned_only_if_no_share_was_stored(storage: StorageThread) -> None:
    other = sign(examples.spec(number=1), "trainer", signing_key("trainer"))
    storage.run_here(add, other)
    give_up(storage, Phase.ANNOUNCED)
    found = storage.run_here(charged)
    assert found == [("charge", ROUND), ("charge", other.digest), ("return", ROUND)]
    storage.run_here(add_shares, [share(1, round_id=other.digest)])
    journalled(storage, store.call_off, other.digest, Phase.COLLECTING)
    assert storage.run_here(charged) == found


def test_erasure_takes_the_payload_and_leaves_digest_and_signature(storage: StorageThread) -> None:
    storage.run_here(add_shares, [share(1)])
    storage.run_here(erase_payloads, ROUND, 10)

    def row(db: Connection) -> tuple:
        return tuple(db.execute(select(shares)).one())

    stored = share(1)
    assert storage.run_here(row) == (1, 1, stored.answer, stored.digest, bytes(64), 0, None)
    assert payloads(storage, [1]) == []
    assert storage.run_here(stored_digests, ROUND, [1]) == {1: share(1).digest}


def test_the_lease_is_one_replicas_until_it_runs_out(storage: StorageThread) -> None:
    assert storage.run_here(take_lease, "first", 1e6)
    assert storage.run_here(take_lease, "first", 1e6)
    assert not storage.run_here(take_lease, "second", 1e6)
    storage.run_here(lambda db: db.execute(update(lease).values(until=0.0)))
    assert storage.run_here(take_lease, "second", -1.0)  # which has run out already
    assert storage.run_here(take_lease, "first", 1e6)
    assert not storage.run_here(take_lease, "second", 1e6)


def test_the_newest_vote_of_another_node_is_the_last_in_its_journal(storage: StorageThread) -> None:
    """However many rounds were announced later, and whatever it signed in an epoch that is over."""
    name, specs = "compute-1", [SPEC]
    for number in range(1, 20):
        body = examples.SPEC.model_copy(update={"number": number})
        specs.append(sign(body, "trainer", signing_key("trainer")))
        storage.run_here(add, specs[-1])
    last = Link(epoch=f"2-{'0' * 32}", number=5, previous="1" * 64)
    for spec in specs:
        entry = last if spec is SPEC else examples.PLACE
        body = vote(spec.body, name, range(12)).body.model_copy(update={"entry": entry})
        signed = sign(body, name, signing_key(name))
        storage.run_here(store.keep, spec.digest, [signed], own="compute-0")
    found = storage.run_here(store.newest_of, name)
    assert found is not None
    assert decode(found, Vote).body.round == ROUND
    assert storage.run_here(store.newest_of, "compute-2") is None
