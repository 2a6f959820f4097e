"""Transactions on rounds and documents; each either happens as a whole or not at all.

Every step of a round is a compare-and-swap on its phase. What this node signs is in its journal,
which keeps it to one holdings, one vote and one end of a round for ever; what others signed is in
`received`.
"""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import cache, partial
from typing import Any, Final

from pyroaring import BitMap
from sqlalchemy import Connection, Row, bindparam, func, select, update
from sqlalchemy.sql.dml import ReturningUpdate

from shoal_compute.schema import charges, journal, received, rounds
from shoal_compute.shares import held_answers
from shoal_protocol.journal import Link
from shoal_protocol.rounds.attestations import (
    END,
    Abandonment,
    Charge,
    Holdings,
    PartialSum,
    StoredAnswers,
    Vote,
)
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.phases import FINISHED, ROUND, Event, Phase, after
from shoal_protocol.wire.service_errors import ConflictingDocument
from shoal_service.keeping import sortable
from shoal_service.storage.database import insert_new, inserting_new
from shoal_service.storage.journal import JournalWriter, StatementT

SignedAttestation = Signed[Any]  # of one of KINDS
KINDS = (Holdings, Vote, PartialSum, Abandonment)
HOLDINGS, VOTE, ABANDONMENT = (
    str(each.model_fields["kind"].default) for each in (Holdings, Vote, Abandonment)
)
OWN = (HOLDINGS, VOTE, END)  # what the journal has of a round

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


def newest_of(db: Connection, service: str) -> bytes | None:
    """Return the newest vote or abandonment on file in the journal of another service."""
    columns = received.c
    query = select(columns.encoded).where(
        columns.signer == service,
        columns.kind.in_((VOTE, ABANDONMENT)),
        columns.occurrence == 0,
    )
    return db.execute(query.order_by(columns.place.desc()).limit(1)).scalar()


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
    entries = journal.entries.c
    others = select(func.count()).where(received.c.round == rounds.c.number).scalar_subquery()
    is_of_round = (entries.subject == rounds.c.id) & entries.kind.in_(OWN)
    own = select(func.count()).where(is_of_round).scalar_subquery()
    query = select(rounds.c.id, rounds.c.phase, rounds.c.reported, rounds.c.erased, others + own)
    return {
        round_id: (Phase(phase), reported, erased, documents)
        for round_id, phase, reported, erased, documents in db.execute(query.where(~_FINISHED))
    }


def documents_of(
    db: Connection, number: int, round_id: str
) -> list[tuple[SignedAttestation, Kept]]:
    """Return the documents of a round, each with its status; what this node signed comes first."""
    own = [journal.find(db, kind, round_id) for kind in OWN]
    query = select(received.c.encoded, received.c.occurrence)
    order = (received.c.kind, received.c.signer, received.c.occurrence)
    rows = db.execute(query.where(received.c.round == number).order_by(*order))
    return [(decode(each, *KINDS), Kept.FIRST) for each in own if each is not None] + [
        (decode(encoded, *KINDS), Kept.EVIDENCE if occurrence else Kept.FIRST)
        for encoded, occurrence in rows
    ]


def freeze(
    writer: JournalWriter,
    round_id: str,
    old: Phase,
    attest: Callable[[StoredAnswers, Link], Signed[Holdings]],
) -> tuple[BitMap, Signed[Holdings]]:
    """Take no more shares, and keep the signed holdings of what is durable at this moment.

    Raises:
        LostRace: the round has left the phase `old`.
    """
    number = _move(writer.db, round_id, old, Event.FROZEN)
    held = held_answers(writer.db, number)
    return held.holders, _add_own(writer, number, HOLDINGS, round_id, partial(attest, held))


def cast(
    writer: JournalWriter, round_id: str, attest: Callable[[Link], Signed[Vote]]
) -> Signed[Vote]:
    """Keep this node's vote, the only one that it ever casts in this round.

    Raises:
        LostRace: the round is not frozen, or a vote was cast.
    """
    number = writer.db.execute(_FROZEN, {"round_id": round_id}).scalar()
    if number is None:
        raise LostRace
    return _add_own(writer, number, VOTE, round_id, attest)


def agree(
    writer: JournalWriter,
    round_id: str,
    attest: Callable[[Charge, Link], Signed[PartialSum]],
) -> Signed[PartialSum]:
    """Keep the partial sum that `attest` signs, with what the round was charged by.

    It is over the agreed cohort; from here on it may leave the node.

    Raises:
        LostRace: the round is not frozen.
        LedgerBroken
    """
    number = _move(writer.db, round_id, Phase.FROZEN, Event.COHORT_AGREED)
    charge = charges.of_round(writer.db, round_id)
    return _add_own(writer, number, END, round_id, partial(attest, charge))


def publish(db: Connection, round_id: str) -> None:
    """Note that the aggregator has the partial sum: the payloads of shares may be erased.

    Raises:
        LostRace: the round is not agreed.
    """
    _move(db, round_id, Phase.AGREED, Event.SUM_PUBLISHED, reported=True)


def give_up(
    writer: JournalWriter,
    round_id: str,
    old: Phase,
    attest: Callable[[Link], Signed[Abandonment]],
    *,
    own: str,
) -> None:
    """Abandon the round by the decision of this node, `own`, which it signs.

    Raises:
        LostRace: the round has left the phase `old`.
        LedgerBroken
    """
    number = _move(writer.db, round_id, old, Event.GIVEN_UP)
    _return_charge(writer, round_id, old)
    # after a restored backup, peers may have handed it back already
    if not _is_handed_back(writer.db, number, ABANDONMENT, own):
        _add_own(writer, number, END, round_id, attest)


def call_off(writer: JournalWriter, round_id: str, old: Phase) -> None:
    """Abandon the round on the word of the aggregator, which is on file.

    Raises:
        LostRace: the round has left the phase `old`.
        LedgerBroken
    """
    _move(writer.db, round_id, old, Event.CALLED_OFF, reported=True)
    _return_charge(writer, round_id, old)


def mark_reported(db: Connection, round_id: str) -> None:
    """Note that the aggregator knows that this node gave up, or never will."""
    db.execute(update(rounds).where(rounds.c.id == round_id).values(reported=True))


def keep(
    db: Connection, round_id: str, signed: Sequence[SignedAttestation], *, own: str
) -> list[Kept]:
    """Store verified documents; return the status of each on file, in order.

    One that this node, `own`, signed and does not have in its journal is kept like any other's: it
    was signed before the node was set back.
    """
    number = db.execute(_NUMBER, {"round_id": round_id}).scalar_one()
    # all replicas in the same order, so that none waits for another that waits for it
    order = sorted(signed, key=lambda document: (document.body.kind, document.signer))
    mine = {
        each.digest: on_file
        for each in order
        if each.signer == own and (on_file := journal.find(db, each.body.slot, round_id))
    }
    new = _insert(db, number, [each for each in order if each.digest not in mine], 0)
    new |= {each.digest for each in order if mine.get(each.digest) == each.encode()}
    kept = {
        document.digest: Kept.FIRST if document.digest in new else _status(db, number, document)
        for document in order
    }
    return [kept[document.digest] for document in signed]


def _status(db: Connection, number: int, signed: SignedAttestation) -> Kept:
    """Return the status of a document that is not its signer's first; a second one is evidence."""
    _insert(db, number, [signed], 1)
    on_file = select(received.c.occurrence).where(received.c.digest == signed.digest)
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


def _add_own(
    writer: JournalWriter,
    number: int,
    kind: str,
    round_id: str,
    attest: Callable[[Link], Signed[StatementT]],
) -> Signed[StatementT]:
    signed = writer.append_new(kind, round_id, attest)
    if signed is None or _is_handed_back(writer.db, number, signed.body.kind, signed.signer):
        raise LostRace
    return signed


def _is_handed_back(db: Connection, number: int, kind: str, own: str) -> bool:
    """Tell whether peers handed a document back that this node signed before it was set back."""
    here = (received.c.round == number) & (received.c.kind == kind) & (received.c.signer == own)
    return db.execute(select(received.c.digest).where(here).limit(1)).first() is not None


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
            "place": sortable(each.body),
            "encoded": each.encode(),
        }
        for each in signed
    ]
    if not rows:
        return frozenset()
    insert = inserting_new(db.dialect.name, received.c.digest)
    return frozenset(db.execute(insert, rows).scalars())


def _return_charge(writer: JournalWriter, round_id: str, old: Phase) -> None:
    # Without a share there can be no partial sum, so the round can no longer cost anyone: unless
    # the other nodes can release without this one.
    query = select(rounds.c.spec).where(rounds.c.id == round_id)
    spec = decode(writer.db.execute(query).scalar_one(), RoundSpec).body
    others_can = spec.threshold < len(spec.compute_nodes)
    if old is Phase.ANNOUNCED and not others_can:
        charges.give_back(writer, round_id)
