"""Transactions on rounds and documents; each either happens as a whole or not at all.

Every step of a round is a compare-and-swap on its phase, and a unique constraint keeps a node to
one holdings and one vote per round for ever.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import Enum, auto
from functools import cache
from typing import Any, Final

from pyroaring import BitMap
from sqlalchemy import Connection, Row, bindparam, func, select, update
from sqlalchemy.sql.dml import ReturningUpdate

from shoal_compute.schema import documents, ledger, rounds
from shoal_compute.shares import erase_payloads, held_answers
from shoal_protocol.privacy.ledger import LedgerEntry
from shoal_protocol.rounds.attestations import (
    Abandonment,
    Holdings,
    PartialSum,
    StoredAnswers,
    Vote,
)
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.phases import FINISHED, ROUND, Event, Phase, after
from shoal_protocol.wire.service_errors import ConflictingDocument
from shoal_service.storage.database import insert_new, inserting_new

SignedAttestation = Signed[Any]  # of one of KINDS
KINDS = (Holdings, Vote, PartialSum, Abandonment)


_FINISHED = rounds.c.phase.in_(FINISHED) & rounds.c.reported & rounds.c.erased

# built once: building a statement takes longer than SQLite takes to carry it out
_IS_ROUND: Final = rounds.c.id == bindparam("round_id")
_NUMBER: Final = select(rounds.c.number).where(_IS_ROUND)
_FROZEN: Final = _NUMBER.where(rounds.c.phase == Phase.FROZEN).with_for_update(key_share=True)


@cache
def _moving(columns: tuple[str, ...]) -> ReturningUpdate[int]:
    """Return the statement that moves a round on, and sets these columns."""
    moved = update(rounds).where(_IS_ROUND, rounds.c.phase == bindparam("old"))
    values: dict[str, Any] = {name: bindparam(f"new_{name}") for name in columns}
    return moved.values(values).returning(rounds.c.number)


class LostRace(Exception):
    """The round is no longer in the phase from which the step was taken; nothing changed."""


class Kept(Enum):
    """The status of a party's document on file."""

    FIRST = auto()  # the one that counts
    EVIDENCE = auto()  # it differs from the signer's first one
    SURPLUS = auto()  # not at all: there is evidence of the same already


def add_round(db: Connection, spec: Signed[RoundSpec]) -> bool:
    """Store a round; False if it is on file already.

    Raises:
        ConflictingDocument: another round of its job with its number is.
    """
    is_new = insert_new(
        db,
        rounds,
        id=spec.digest,
        job=spec.body.job,
        place=spec.body.number,
        spec=spec.encode(),
        phase=Phase.ANNOUNCED,
        reported=False,
        erased=False,
    )
    if not is_new and not on_file(db, [spec.digest], 1):
        raise ConflictingDocument("the job has another round with this number")
    return is_new


def get_round(db: Connection, round_id: str) -> Row[Any] | None:
    """Return a round's row, or None if it was never added."""
    return db.execute(select(rounds).where(rounds.c.id == round_id)).one_or_none()


def on_file(db: Connection, round_ids: Sequence[str], most: int) -> Sequence[str]:
    """Return up to `most` of these rounds, no more than one message names, that are on file."""
    query = select(rounds.c.id).where(rounds.c.id.in_(round_ids)).limit(most)
    return db.execute(query).scalars().all()


def rounds_with_work(db: Connection) -> Sequence[Row[Any]]:
    """Return the rows of the rounds in which something is left to do."""
    return db.execute(select(rounds).where(~_FINISHED)).all()


def glance(db: Connection) -> dict[str, tuple[Phase, bool, bool, int]]:
    """Return what changes of each unfinished round, by id, to compare copies in memory with.

    It is its phase, whether it is reported and erased, and how many documents it has.
    """
    count = select(func.count()).where(documents.c.round == rounds.c.number).scalar_subquery()
    query = select(rounds.c.id, rounds.c.phase, rounds.c.reported, rounds.c.erased, count)
    return {
        round_id: (Phase(phase), reported, erased, documents)
        for round_id, phase, reported, erased, documents in db.execute(query.where(~_FINISHED))
    }


def documents_of(db: Connection, number: int) -> list[tuple[SignedAttestation, Kept]]:
    """Return the documents of the round with this number, each with its status."""
    query = select(documents.c.encoded, documents.c.occurrence)
    order = (documents.c.kind, documents.c.signer, documents.c.occurrence)
    rows = db.execute(query.where(documents.c.round == number).order_by(*order))
    return [
        (decode(encoded, *KINDS), Kept.EVIDENCE if occurrence else Kept.FIRST)
        for encoded, occurrence in rows
    ]


def freeze(
    db: Connection, round_id: str, old: Phase, attest: Callable[[StoredAnswers], Signed[Holdings]]
) -> tuple[BitMap, Signed[Holdings]]:
    """Take no more shares, and keep the signed holdings of what is durable at this moment.

    Raises:
        LostRace: the round has left the phase `old`.
    """
    number = _move(db, round_id, old, Event.FROZEN)
    held = held_answers(db, number)
    holdings = attest(held)
    _add_own(db, number, holdings)
    return held.holders, holdings


def cast(db: Connection, round_id: str, vote: Signed[Vote]) -> None:
    """Keep this node's vote, the only one that it ever casts in this round.

    Raises:
        LostRace: the round is not frozen, or a vote was cast.
    """
    number = db.execute(_FROZEN, {"round_id": round_id}).scalar()
    if number is None:
        raise LostRace
    _add_own(db, number, vote)


def keep_and_cast(
    db: Connection, round_id: str, signed: Sequence[SignedAttestation], vote: Signed[Vote]
) -> list[Kept]:
    """Do what `keep` does, and `cast` the vote that follows once all of them count.

    Raises:
        LostRace: one of them does not, or as `cast`; nothing was stored.
    """
    kept = keep(db, round_id, signed)
    if set(kept) != {Kept.FIRST}:
        raise LostRace
    cast(db, round_id, vote)
    return kept


def agree(
    db: Connection, round_id: str, attest: Callable[[LedgerEntry], Signed[PartialSum]]
) -> Signed[PartialSum]:
    """Keep the partial sum that `attest` signs, with what the round was charged by.

    It is over the agreed cohort; from here on it may leave the node.

    Raises:
        LostRace: the round is not frozen.
        LedgerBroken
    """
    number = _move(db, round_id, Phase.FROZEN, Event.COHORT_AGREED)
    partial_sum = attest(ledger.charge_of(db, round_id))
    _add_own(db, number, partial_sum)
    return partial_sum


def publish(db: Connection, round_id: str, most: int) -> bool:
    """Note that the aggregator has the partial sum, and erase up to `most` payloads of shares.

    Tell whether none is left.

    Raises:
        LostRace: the round is not agreed.
    """
    _move(db, round_id, Phase.AGREED, Event.SUM_PUBLISHED, reported=True)
    return erase_payloads(db, round_id, most) is None


def give_up(
    db: Connection,
    round_id: str,
    old: Phase,
    own: Signed[Abandonment],
    *,
    at: datetime,
) -> None:
    """Abandon the round by this node's own decision, which it signed.

    Raises:
        LostRace: the round has left the phase `old`.
        LedgerBroken
    """
    number = _move(db, round_id, old, Event.GIVEN_UP)
    _insert(db, number, [own], 0)  # after a restored backup, peers may have handed it back already
    _return_charge(db, round_id, old, at)


def call_off(db: Connection, round_id: str, old: Phase, *, at: datetime) -> None:
    """Abandon the round on the word of the aggregator, which is on file.

    Raises:
        LostRace: the round has left the phase `old`.
        LedgerBroken
    """
    _move(db, round_id, old, Event.CALLED_OFF, reported=True)
    _return_charge(db, round_id, old, at)


def mark_reported(db: Connection, round_id: str) -> None:
    """Note that the aggregator knows that this node gave up, or never will."""
    db.execute(update(rounds).where(rounds.c.id == round_id).values(reported=True))


def keep(db: Connection, round_id: str, signed: Sequence[SignedAttestation]) -> list[Kept]:
    """Store verified documents; return the status of each on file, in order."""
    number = db.execute(_NUMBER, {"round_id": round_id}).scalar_one()
    # all replicas in the same order, so that none waits for another that waits for it
    order = sorted(signed, key=lambda document: (document.body.kind, document.signer))
    new = _insert(db, number, order, 0)
    kept = {
        document.digest: Kept.FIRST if document.digest in new else _status(db, number, document)
        for document in order
    }
    return [kept[document.digest] for document in signed]


def _status(db: Connection, number: int, signed: SignedAttestation) -> Kept:
    """Return the status of a document that is not its signer's first; a second one is evidence."""
    _insert(db, number, [signed], 1)
    on_file = select(documents.c.occurrence).where(documents.c.digest == signed.digest)
    occurrence_on_file = db.execute(on_file).scalar()
    if occurrence_on_file is None:
        return Kept.SURPLUS
    return Kept.EVIDENCE if occurrence_on_file else Kept.FIRST


def _move(db: Connection, round_id: str, old: Phase, event: Event, **values: object) -> int:
    values["phase"] = after(ROUND, old, event)
    new = {f"new_{name}": value for name, value in values.items()}
    swap = _moving(tuple(values))
    number: int | None = db.execute(swap, {"round_id": round_id, "old": old} | new).scalar()
    if number is None:
        raise LostRace
    return number


def _add_own(db: Connection, number: int, signed: SignedAttestation) -> None:
    if not _insert(db, number, [signed], 0):
        raise LostRace


def _insert(
    db: Connection, number: int, signed: Sequence[SignedAttestation], occurrence: int
) -> frozenset[str]:
    """Store those of which there is none such on file; return their digests."""
    rows = [
        {
            "digest": each.digest,
            "round": number,
            "kind": each.body.kind,
            "signer": each.signer,
            "occurrence": occurrence,
            "encoded": each.encode(),
        }
        for each in signed
    ]
    if not rows:
        return frozenset()
    insert = inserting_new(db.dialect.name, documents.c.digest)
    return frozenset(db.execute(insert, rows).scalars())


def _return_charge(db: Connection, round_id: str, old: Phase, at: datetime) -> None:
    # Without a share there can be no partial sum, so the round can no longer cost anyone: unless
    # the other nodes can release without this one.
    encoded = db.execute(select(rounds.c.spec).where(rounds.c.id == round_id)).scalar_one()
    spec = decode(encoded, RoundSpec).body
    others_can = spec.threshold < len(spec.compute_nodes)
    if old is Phase.ANNOUNCED and not others_can:
        ledger.give_back(db, round_id, at=at)
