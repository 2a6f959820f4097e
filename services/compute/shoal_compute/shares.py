"""Transactions on the shares that this node holds.

Every function here runs inside one transaction of the caller, which makes it durable.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from pyroaring import BitMap
from sqlalchemy import Connection, bindparam, select, text, update

from shoal_compute import machines
from shoal_compute.schema import rounds, shares
from shoal_protocol.rounds.attestations import TAG_BYTES, StoredAnswers
from shoal_protocol.sharing.envelope import epoch_of
from shoal_protocol.sharing.shares import ShareKind
from shoal_protocol.wire.errors import ProtocolError, UnknownRound
from shoal_protocol.wire.phases import ROUND, TAKES_SHARES, Event, Phase, after
from shoal_protocol.wire.service_errors import (
    BeforeRestore,
    ConflictingDocument,
    RoundAbandoned,
    Superseded,
    TooLate,
)
from shoal_service.storage.database import inserting_new

_READ_BYTES: Final = 4 << 20  # of payloads that are read together
# of payloads erased in one transaction, so that uploads do not wait long behind it
_ERASED_BYTES: Final = 8 << 20
_ERASED_PAYLOADS: Final = 2_000
# Databases bound the number of values in one statement.
MOST_VALUES: Final = 5_000


# built once: building a statement takes longer than SQLite takes to carry it out
_CHOSEN: Final = rounds.c.id.in_(bindparam("round_ids", expanding=True))
_ANNOUNCED: Final = select(rounds.c.id).where(_CHOSEN, rounds.c.phase == Phase.ANNOUNCED).limit(1)
_STATES: Final = (
    select(rounds.c.id, rounds.c.number, rounds.c.phase).where(_CHOSEN).order_by(rounds.c.number)
)
# FOR SHARE or FOR NO KEY UPDATE, neither in the way of rows that refer to the round
_TO_STAY: Final = _STATES.with_for_update(read=True)
_TO_BE_MOVED: Final = _STATES.with_for_update(key_share=True)
_OF_ROUND: Final = shares.c.round == bindparam("number")
_HELD: Final = select(shares.c.holder, shares.c.answer).where(_OF_ROUND).order_by(shares.c.holder)
# of rows in memory together: the collector of garbage looks through all objects if many stay
_ROWS: Final = 200
_NUMBER: Final = select(rounds.c.number).where(rounds.c.id == bindparam("round_id"))
_STORED: Final = select(shares.c.kind, shares.c.payload).where(
    shares.c.round == _NUMBER.scalar_subquery(), shares.c.payload.is_not(None)
)
# a list in one value is taken in faster than a value for each of its thousands
_LISTED: Final = {
    "sqlite": "SELECT value FROM json_each(:holders)",
    "postgresql": "SELECT CAST(value AS bigint)"
    " FROM json_array_elements_text(CAST(:holders AS json))",
}
_PAYLOADS: Final = {
    dialect: _STORED.where(shares.c.holder.in_(text(listed))) for dialect, listed in _LISTED.items()
}


class AcceptedShare(NamedTuple):
    """One data holder's share that passed every check, with the proof that the holder sent it."""

    round_id: str
    holder: int
    answer: bytes
    digest: bytes
    signature: bytes
    kind: ShareKind
    payload: bytes

    def __repr__(self) -> str:
        return f"AcceptedShare({self.kind.name}, {len(self.payload)} bytes)"


class Packed(NamedTuple):
    """Payloads of so many shares of one kind, one behind another."""

    kind: ShareKind
    shares: int
    payloads: bytes


Outcome = int | type[ProtocolError]
"""201 for a share that is new, 200 for one whose envelope is on file, or why it is refused."""


def add_shares(db: Connection, batch: Sequence[AcceptedShare]) -> list[Outcome]:
    """Store the shares that their rounds still take; return each share's outcome, in order.

    The phase is read in the same transaction and kept from changing until its end, so a share is
    either among the holdings that a freeze attests, or refused.
    """
    by_round: dict[str, list[int]] = defaultdict(list)
    for position, share in enumerate(batch):
        by_round[share.round_id].append(position)
    outcomes: list[Outcome] = [UnknownRound] * len(batch)
    results: list[Outcome]
    for round_id, number, phase_name in _lock_rounds(db, list(by_round)):
        positions, phase = by_round[round_id], Phase(phase_name)
        offered = [batch[position] for position in positions]
        if phase in TAKES_SHARES:
            results = _store(db, number, offered)
            if phase is Phase.ANNOUNCED and 201 in results:
                moved = after(ROUND, phase, Event.SHARE_STORED)
                db.execute(update(rounds).where(rounds.c.number == number).values(phase=moved))
        else:
            closed = RoundAbandoned if phase is Phase.ABANDONED else TooLate
            stored = _digests(db, number, [share.holder for share in offered])
            results = [
                200 if stored.get(share.holder) == share.digest else closed for share in offered
            ]
        for position, outcome in zip(positions, results, strict=True):
            outcomes[position] = outcome
    return outcomes


def _lock_rounds(db: Connection, round_ids: list[str]) -> list[tuple[str, int, str]]:
    """Return id, number and phase of rounds, which keep their phase until the transaction ends.

    Replicas share the lock, except on the first shares of a round: those move it on. All take
    their locks in the same order, so that none waits for another that waits for it.
    """
    chosen = {"round_ids": round_ids}
    to_be_moved = db.execute(_ANNOUNCED, chosen).first() is not None
    locked = _TO_BE_MOVED if to_be_moved else _TO_STAY
    return [(round_id, number, phase) for round_id, number, phase in db.execute(locked, chosen)]


def _store(db: Connection, number: int, offered: list[AcceptedShare]) -> list[Outcome]:
    """Store each share that its data holder may still send."""
    first: dict[int, AcceptedShare] = {}
    void = _void(db, number, offered)
    for share in offered:
        if share.digest not in void:
            first.setdefault(share.holder, share)
    rows = [
        {
            "round": number,
            "holder": share.holder,
            "answer": share.answer,
            "digest": share.digest,
            "signature": share.signature,
            "kind": int(share.kind),
            "payload": share.payload,
        }
        for share in sorted(first.values(), key=attrgetter("holder"))  # as every replica does
    ]
    insert = inserting_new(db.dialect.name, shares.c.holder)
    inserted = set(db.execute(insert, rows).scalars()) if rows else set()
    others = {share.holder for share in offered} - inserted
    before = _digests(db, number, sorted(others))
    results: list[Outcome] = []
    for share in offered:
        if share.holder in inserted and first[share.holder] is share:
            results.append(201)
        elif share.digest in void:
            stored = before.get(share.holder) == share.digest
            results.append(200 if stored else void[share.digest])
        else:
            kept = before.get(share.holder, first[share.holder].digest)
            same = kept == share.digest
            results.append(200 if same else ConflictingDocument)
    return results


def _void(db: Connection, number: int, offered: Sequence[AcceptedShare]) -> dict[bytes, Outcome]:
    """Return, by digest, the shares that do not count, since their holder restored its state."""
    counting = machines.counting(db, [share.holder for share in offered])
    found: dict[bytes, Outcome] = {}
    for share in offered:
        machine, epoch = counting.get(share.holder), epoch_of(share.answer)
        if machine is not None and epoch < machine.epoch:
            found[share.digest] = Superseded
        elif machine is not None and epoch == machine.epoch and number <= machine.rounds:
            found[share.digest] = BeforeRestore
    return found


def _digests(db: Connection, number: int, holders: Sequence[int]) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for start in range(0, len(holders), MOST_VALUES):
        chosen = shares.c.holder.in_(holders[start : start + MOST_VALUES])
        query = select(shares.c.holder, shares.c.digest).where(shares.c.round == number, chosen)
        found.update((holder, digest) for holder, digest in db.execute(query))
    return found


def stored_digests(db: Connection, round_id: str, holders: Sequence[int]) -> dict[int, bytes]:
    """Return the envelope digests that are on file for `holders`."""
    number = db.execute(select(rounds.c.number).where(rounds.c.id == round_id)).scalar()
    return {} if number is None else _digests(db, number, holders)


def held_answers(db: Connection, number: int) -> StoredAnswers:
    """Return whose shares are stored in the round with this number, with their answers' tags."""
    holders, tags = BitMap(), bytearray()
    for rows in db.execute(_HELD, {"number": number}).partitions(_ROWS):
        holders.update([holder for holder, _ in rows])
        tags += b"".join([answer[:TAG_BYTES] for _, answer in rows])
    return StoredAnswers(holders, bytes(tags))


def parts_of(holders: BitMap, dimension: int) -> list[BitMap]:
    """Return `holders` in parts, so that the shares of each are read at once."""
    together = max(1, min(MOST_VALUES, _READ_BYTES // (8 * dimension)))
    return [holders[start : start + together] for start in range(0, len(holders), together)]


def read_shares(db: Connection, round_id: str, holders: BitMap) -> list[Packed]:
    """Return the shares of these holders whose payload is stored, in any order."""
    chosen = {"round_id": round_id, "holders": json.dumps(holders.to_array().tolist())}
    by_kind: dict[int, list[bytes]] = defaultdict(list)
    for kind, payload in db.execute(_PAYLOADS[db.dialect.name], chosen):
        by_kind[kind].append(payload)
    return [Packed(ShareKind(kind), len(each), b"".join(each)) for kind, each in by_kind.items()]


def erased_at_once(dimension: int) -> int:
    """Return how many payloads of this length to erase in one transaction."""
    return max(1, min(_ERASED_PAYLOADS, _ERASED_BYTES // (8 * dimension)))


def erase_payloads(db: Connection, round_id: str, most: int, after: int = -1) -> int | None:
    """Erase up to `most` payloads of a finished round, of holders above `after`.

    Return the last of them if there may be more, for the next call, and None if none is left.
    Digests and signatures stay: they show what was received, and hold no secret.
    """
    number = db.execute(select(rounds.c.number).where(rounds.c.id == round_id)).scalar_one()
    due = (shares.c.round == number) & (shares.c.holder > after) & shares.c.payload.is_not(None)
    in_order = select(shares.c.holder).where(due).order_by(shares.c.holder)
    last: int | None = db.execute(in_order.offset(most - 1).limit(1)).scalar()
    if last is not None:
        due &= shares.c.holder <= last
    db.execute(update(shares).where(due).values(payload=None))
    if last is None:
        db.execute(update(rounds).where(rounds.c.number == number).values(erased=True))
    return last
