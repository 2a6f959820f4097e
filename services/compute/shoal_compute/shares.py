"""Transactions on the shares that this node holds.

Every function here runs inside one transaction of the caller, which makes it durable.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from operator import attrgetter
from typing import Final

from pyroaring import BitMap
from sqlalchemy import Connection, func, select, update

from shoal_compute import machines
from shoal_compute.schema import rounds, shares
from shoal_hosting.storage.database import insert_ignoring
from shoal_protocol.rounds.attestations import StoredAnswers
from shoal_protocol.sharing.envelope import epoch_of
from shoal_protocol.sharing.shares import Share, ShareKind
from shoal_protocol.wire.phases import ROUND, Event, Phase, after

# of payloads erased in one transaction, so that uploads do not wait long behind it
_ERASED_BYTES: Final = 8 << 20
_ERASED_PAYLOADS: Final = 500
# Databases bound the number of values in one statement.
MOST_VALUES: Final = 5_000


@dataclass(frozen=True, slots=True)
class AcceptedShare:
    """One data holder's share that passed every check, with the proof that the holder sent it."""

    round_id: str
    holder: int
    answer: bytes
    digest: bytes
    signature: bytes
    share: Share


class Outcome(Enum):
    """The outcome of storing a share."""

    STORED = auto()
    STORED_BEFORE = auto()  # the same envelope
    CONFLICTING = auto()  # the holder's other envelope is stored, and stays
    CLOSED = auto()  # the round is frozen, or further
    ABANDONED = auto()
    UNKNOWN_ROUND = auto()
    SUPERSEDED = auto()  # the holder has restored its state on another machine
    BEFORE_RESTORE = auto()  # the round was here before, so the lost machine may have answered it


def add_shares(db: Connection, batch: Sequence[AcceptedShare]) -> list[Outcome]:
    """Store the shares that their rounds still take; return each share's outcome, in order.

    The phase is read in the same transaction and kept from changing until its end, so a share is
    either among the holdings that a freeze attests, or refused.
    """
    by_round: dict[str, list[int]] = defaultdict(list)
    for position, share in enumerate(batch):
        by_round[share.round_id].append(position)
    outcomes = [Outcome.UNKNOWN_ROUND] * len(batch)
    for round_id, number, phase_name in _lock_rounds(db, list(by_round)):
        positions, phase = by_round[round_id], Phase(phase_name)
        offered = [batch[position] for position in positions]
        if (phase, Event.SHARE_STORED) in ROUND or phase is Phase.COLLECTING:
            results = _store(db, number, offered)
            if phase is Phase.ANNOUNCED and Outcome.STORED in results:
                moved = after(ROUND, phase, Event.SHARE_STORED)
                db.execute(update(rounds).where(rounds.c.number == number).values(phase=moved))
        else:
            closed = Outcome.ABANDONED if phase is Phase.ABANDONED else Outcome.CLOSED
            stored = _digests(db, number, [share.holder for share in offered])
            results = [
                Outcome.STORED_BEFORE if stored.get(share.holder) == share.digest else closed
                for share in offered
            ]
        for position, outcome in zip(positions, results, strict=True):
            outcomes[position] = outcome
    return outcomes


def _lock_rounds(db: Connection, round_ids: list[str]) -> list[tuple[str, int, str]]:
    """Return id, number and phase of rounds, which keep their phase until the transaction ends.

    Replicas share the lock, except on the first shares of a round: those move it on. All take
    their locks in the same order, so that none waits for another that waits for it.
    """
    chosen = rounds.c.id.in_(round_ids)
    announced = select(rounds.c.id).where(chosen, rounds.c.phase == Phase.ANNOUNCED)
    to_be_moved = db.execute(announced.limit(1)).first() is not None
    states = select(rounds.c.id, rounds.c.number, rounds.c.phase).where(chosen)
    states = states.order_by(rounds.c.number)
    # FOR NO KEY UPDATE or FOR SHARE, neither in the way of rows that refer to the round
    locked = states.with_for_update(read=not to_be_moved, key_share=to_be_moved)
    return [(round_id, number, phase) for round_id, number, phase in db.execute(locked)]


def _store(db: Connection, number: int, offered: list[AcceptedShare]) -> list[Outcome]:
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
            "kind": int(share.share.kind),
            "payload": share.share.payload,
        }
        for share in sorted(first.values(), key=attrgetter("holder"))  # as every replica does
    ]
    insert = insert_ignoring(db)(shares).on_conflict_do_nothing().returning(shares.c.holder)
    inserted = set(db.execute(insert, rows).scalars()) if rows else set()
    others = {share.holder for share in offered} - inserted
    before = _digests(db, number, sorted(others))
    results = []
    for share in offered:
        if share.holder in inserted and first[share.holder] is share:
            results.append(Outcome.STORED)
        elif share.digest in void:
            stored = before.get(share.holder) == share.digest
            results.append(Outcome.STORED_BEFORE if stored else void[share.digest])
        else:
            kept = before.get(share.holder, first[share.holder].digest)
            same = kept == share.digest
            results.append(Outcome.STORED_BEFORE if same else Outcome.CONFLICTING)
    return results


def _void(db: Connection, number: int, offered: Sequence[AcceptedShare]) -> dict[bytes, Outcome]:
    """Return, by digest, the shares that do not count, since their holder restored its state."""
    counting = machines.counting(db, [share.holder for share in offered])
    found = {}
    for share in offered:
        machine, epoch = counting.get(share.holder), epoch_of(share.answer)
        if machine is not None and epoch < machine.epoch:
            found[share.digest] = Outcome.SUPERSEDED
        elif machine is not None and epoch == machine.epoch and number <= machine.rounds:
            found[share.digest] = Outcome.BEFORE_RESTORE
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


def holds(db: Connection, round_id: str, holder: int) -> bool:
    """Tell whether a share of a data holder is, or was, stored in a round."""
    query = select(shares.c.holder).join(rounds, shares.c.round == rounds.c.number)
    found = query.where(rounds.c.id == round_id, shares.c.holder == holder)
    return db.execute(found).first() is not None


def held_holders(db: Connection, number: int) -> BitMap:
    """Return the data holders whose shares are stored in the round with this number."""
    return BitMap(db.execute(select(shares.c.holder).where(shares.c.round == number)).scalars())


def held_answers(db: Connection, number: int) -> StoredAnswers:
    """Return the same holders with the tags of their answers."""
    query = select(shares.c.holder, shares.c.answer).where(shares.c.round == number)
    rows = db.execute(query.order_by(shares.c.holder)).all()
    return StoredAnswers.of((holder, answer) for holder, answer in rows)


def count_held(db: Connection, number: int) -> int:
    """Return how many data holders' shares are stored in the round with this number."""
    query = select(func.count()).select_from(shares).where(shares.c.round == number)
    return int(db.execute(query).scalar_one())


def read_shares(db: Connection, round_id: str, holders: Sequence[int]) -> list[Share]:
    """Return the shares of `holders`, of those whose payload is stored, in any order."""
    number = select(rounds.c.number).where(rounds.c.id == round_id).scalar_subquery()
    query = (
        select(shares.c.kind, shares.c.payload)
        .where(shares.c.round == number, shares.c.holder.in_(holders))
        .where(shares.c.payload.is_not(None))
    )
    return [Share(ShareKind(kind), payload) for kind, payload in db.execute(query)]


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
