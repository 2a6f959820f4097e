"""Transactions on the shares that this node holds.

Every function here runs inside one transaction of the caller, which makes it durable.
"""

from collections import defaultdict
from collections.abc import Sequence
from operator import attrgetter
from typing import Final

import numpy as np
from pyroaring import BitMap
from sqlalchemy import Connection, bindparam, select, update

from shoal_compute import machines
from shoal_compute.bulks import (
    BULK_BYTES,
    AcceptedShare,
    Packed,
    Place,
    bulks_with,
    chosen_of,
    digests_in_bulks,
    insert_bulk,
)
from shoal_compute.schema import bulks, rounds, shares
from shoal_protocol.rounds.attestations import TAG_BYTES, StoredAnswers
from shoal_protocol.sharing.envelope import ANSWER_BYTES, epoch_of
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

SMALLEST_BULK: Final = 64  # fewer are stored in a row each: every bulk may be looked through
_READ_BYTES: Final = 4 << 20  # of payloads that are read together
_RESTORED: Final = "SELECT 1 FROM machines WHERE epoch > 0 AND holder BETWEEN ? AND ? LIMIT 1"
_SINGLY: Final = "SELECT holder FROM shares WHERE round = ? AND holder BETWEEN ? AND ?"
# of payloads erased in one transaction, so that uploads do not wait long behind it
_ERASED_BYTES: Final = 8 << 20
_ERASED_PAYLOADS: Final = 500
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
_IN_BULKS: Final = select(bulks.c.holders, bulks.c.answers).where(
    bulks.c.round == bindparam("number")
)
_HELD_SINGLY: Final = select(shares.c.holder, shares.c.answer).where(
    shares.c.round == bindparam("number")
)


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
            if _store_in_bulks(db, number, offered):
                results = [201] * len(offered)
            else:
                results = _store_singly(db, number, offered)
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


def _store_in_bulks(db: Connection, number: int, offered: Sequence[AcceptedShare]) -> bool:
    """Store many shares in few rows, unless one of them needs individual checks."""
    if db.dialect.name != "sqlite" or len(offered) < SMALLEST_BULK:
        return False
    holders = BitMap([share.holder for share in offered])
    between = (holders.min(), holders.max())
    if len(holders) < len(offered) or db.exec_driver_sql(_RESTORED, between).first():
        return False
    held_near = db.exec_driver_sql(_SINGLY, (number, *between)).scalars()
    if any(each in holders for each in held_near) or any(bulks_with(db, number, holders)):
        return False
    for kind in ShareKind:
        of_kind = [share for share in offered if share.kind is kind]
        if of_kind:
            insert_bulk(db, number, of_kind)
    return True


def _store_singly(db: Connection, number: int, offered: list[AcceptedShare]) -> list[Outcome]:
    """Store each share in a row of its own, if its data holder may still send it."""
    first: dict[int, AcceptedShare] = {}
    void = _void(db, number, offered)
    in_bulks = digests_in_bulks(db, number, BitMap(share.holder for share in offered))
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
        if share.holder not in in_bulks
    ]
    insert = inserting_new(db.dialect.name, shares.c.holder)
    inserted = set(db.execute(insert, rows).scalars()) if rows else set()
    others = {share.holder for share in offered} - inserted
    before = _digests(db, number, sorted(others)) | in_bulks
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
    found = digests_in_bulks(db, number, BitMap(holders))
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
    holders, tags = [np.empty(0, np.uint32)], [np.empty(0, f"V{TAG_BYTES}")]
    answer = np.dtype([("tag", f"V{TAG_BYTES}"), ("rest", f"V{ANSWER_BYTES - TAG_BYTES}")])
    for encoded, answers in db.execute(_IN_BULKS, {"number": number}):
        holders.append(np.frombuffer(encoded, "<u4"))
        tags.append(np.frombuffer(answers, answer)["tag"])
    rows = db.execute(_HELD_SINGLY, {"number": number}).all()
    holders.append(np.array([holder for holder, _ in rows], np.uint32))
    tags.append(np.frombuffer(b"".join(each[:TAG_BYTES] for _, each in rows), f"V{TAG_BYTES}"))
    all_holders = np.concatenate(holders)
    order = np.argsort(all_holders)
    return StoredAnswers(BitMap(all_holders), np.concatenate(tags)[order].tobytes())


def places_of(db: Connection, round_id: str, holders: BitMap, dimension: int) -> list[Place]:
    """Return where the shares of `holders` are, so that each place is read at once."""
    number = db.execute(select(rounds.c.number).where(rounds.c.id == round_id)).scalar_one()
    found = [Place(bulk, some) for bulk, some in bulks_with(db, number, holders)]
    singly = holders.difference(*(place.holders for place in found))
    together = max(1, min(MOST_VALUES, _READ_BYTES // (8 * dimension)))
    parts = (singly[start : start + together] for start in range(0, len(singly), together))
    return found + [Place(None, part) for part in parts]


def read_shares(db: Connection, round_id: str, place: Place) -> list[Packed]:
    """Return the shares at a place, of those whose payload is stored, in any order."""
    if place.bulk is not None:
        row = db.execute(select(bulks).where(bulks.c.number == place.bulk)).one()
        return [] if row.payloads is None else [chosen_of(row, place.holders)]
    number = select(rounds.c.number).where(rounds.c.id == round_id).scalar_subquery()
    query = (
        select(shares.c.kind, shares.c.payload)
        .where(shares.c.round == number, shares.c.holder.in_(list(place.holders)))
        .where(shares.c.payload.is_not(None))
    )
    by_kind: dict[int, list[bytes]] = defaultdict(list)
    for kind, payload in db.execute(query):
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
    left = (bulks.c.round == number) & bulks.c.payloads.is_not(None)
    some = select(bulks.c.number).where(left).limit(max(1, _ERASED_BYTES // BULK_BYTES))
    if db.execute(update(bulks).where(bulks.c.number.in_(some)).values(payloads=None)).rowcount:
        return after
    due = (shares.c.round == number) & (shares.c.holder > after) & shares.c.payload.is_not(None)
    in_order = select(shares.c.holder).where(due).order_by(shares.c.holder)
    last: int | None = db.execute(in_order.offset(most - 1).limit(1)).scalar()
    if last is not None:
        due &= shares.c.holder <= last
    db.execute(update(shares).where(due).values(payload=None))
    if last is None:
        db.execute(update(rounds).where(rounds.c.number == number).values(erased=True))
    return last
