"""Transactions on rounds, documents and charges; each either happens as a whole or not at all.

Every step of a round is a compare-and-swap on its phase, and a unique constraint keeps a node to
one holdings and one vote per round for ever. It decides nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from pyroaring import BitMap
from sqlalchemy import Connection, Row, delete, select, update
from sqlalchemy.sql.dml import ReturningInsert

from shoal_compute.schema import charges, documents, rounds
from shoal_compute.shares import held_clients, insert_ignoring
from shoal_protocol.attestations import Abandonment, Holdings, PartialSum, Vote
from shoal_protocol.documents import Signed, decode
from shoal_protocol.phases import FINISHED, ROUND, Event, Phase, after
from shoal_protocol.rounds import RoundSpec

SignedAttestation = Signed[Any]  # of one of KINDS
KINDS = (Holdings, Vote, PartialSum, Abandonment)


class LostRace(Exception):
    """The round is no longer in the phase from which the step was taken; nothing changed."""


@dataclass(frozen=True)
class StoredRound:
    """A round as it is on file."""

    number: int
    spec: Signed[RoundSpec]
    phase: Phase
    reason: str | None
    reported: bool
    erased: bool
    documents: tuple[SignedAttestation, ...]
    second: frozenset[str]  # digests of those kept as evidence against a first one

    @property
    def id(self) -> str:
        """Return the round's id."""
        return self.spec.digest


@dataclass(frozen=True)
class Charge:
    """What a round may cost each client of its population, as squared GDP parameter."""

    mu_squared: float
    population: BitMap


class Kept(Enum):
    """As what a party's document is on file."""

    FIRST = auto()  # the one that counts
    EVIDENCE = auto()  # it differs from the signer's first one
    SURPLUS = auto()  # not at all: there is evidence of the same already


def add_round(db: Connection, spec: Signed[RoundSpec], charge: Charge) -> bool:
    """Store a round with its charge; False if it is on file already."""
    number = db.execute(_insert_round(db, spec)).scalar()
    if number is None:
        return False
    population = charge.population.serialize()
    db.execute(
        charges.insert().values(round=number, mu_squared=charge.mu_squared, population=population)
    )
    return True


def is_on_file(db: Connection, spec: Signed[RoundSpec]) -> bool:
    """Tell whether a round is stored, even if a connection that broke is yet to commit it.

    A row of the same id waits for that commit, where a query would not see it.
    """
    with db.begin_nested() as savepoint:
        number = db.execute(_insert_round(db, spec)).scalar()
        savepoint.rollback()
    return number is None


def all_charges(db: Connection) -> list[Charge]:
    """Return every charge that stands."""
    query = select(charges.c.mu_squared, charges.c.population)
    return [Charge(mu2, BitMap.deserialize(population)) for mu2, population in db.execute(query)]


def get_round(db: Connection, round_id: str) -> StoredRound | None:
    """Return a round, or None if it was never added."""
    row = db.execute(select(rounds).where(rounds.c.id == round_id)).one_or_none()
    return None if row is None else _read(db, row)


def rounds_with_work(db: Connection) -> list[StoredRound]:
    """Return the rounds in which something is left to do."""
    finished = rounds.c.phase.in_(FINISHED) & rounds.c.reported & rounds.c.erased
    return [_read(db, row) for row in db.execute(select(rounds).where(~finished)).all()]


def count_phases(db: Connection) -> dict[Phase, int]:
    """Return how many rounds are in each phase."""
    counts = dict.fromkeys(Phase, 0)
    for phase in db.execute(select(rounds.c.phase)).scalars():
        counts[Phase(phase)] += 1
    return counts


def _insert_round(db: Connection, spec: Signed[RoundSpec]) -> ReturningInsert[tuple[int]]:
    row = {
        "id": spec.digest,
        "spec": spec.encode(),
        "phase": Phase.ANNOUNCED,
        "reported": False,
        "erased": False,
    }
    insert = insert_ignoring(db)(rounds).values(row).on_conflict_do_nothing()
    return insert.returning(rounds.c.number)


def _read(db: Connection, row: Row[Any]) -> StoredRound:
    query = select(documents.c.encoded, documents.c.occurrence)
    order = (documents.c.kind, documents.c.signer, documents.c.occurrence)
    found = db.execute(query.where(documents.c.round == row.number).order_by(*order)).all()
    signed = [(decode(encoded, *KINDS), occurrence) for encoded, occurrence in found]
    return StoredRound(
        number=row.number,
        spec=decode(row.spec, RoundSpec),
        phase=Phase(row.phase),
        reason=row.reason,
        reported=row.reported,
        erased=row.erased,
        documents=tuple(document for document, _ in signed),
        second=frozenset(document.digest for document, occurrence in signed if occurrence),
    )


def freeze(
    db: Connection, round_id: str, old: Phase, attest: Callable[[BitMap], Signed[Holdings]]
) -> tuple[BitMap, Signed[Holdings]]:
    """Take no more shares, and keep the signed holdings of what is durable at this moment.

    Raises:
        LostRace: the round has left the phase `old`.
    """
    number = _move(db, round_id, old, Event.FROZEN)
    held = held_clients(db, number)
    holdings = attest(held)
    _add_own(db, number, holdings)
    return held, holdings


def cast(db: Connection, round_id: str, vote: Signed[Vote]) -> None:
    """Keep this node's vote, the only one that it ever casts in this round.

    Raises:
        LostRace: the round is not frozen, or a vote was cast.
    """
    query = select(rounds.c.number).where(rounds.c.id == round_id, rounds.c.phase == Phase.FROZEN)
    number = db.execute(query.with_for_update()).scalar()
    if number is None:
        raise LostRace
    _add_own(db, number, vote)


def agree(db: Connection, round_id: str, partial_sum: Signed[PartialSum]) -> None:
    """Keep the partial sum over the agreed cohort; from here on it may leave the node.

    Raises:
        LostRace: the round is not frozen.
    """
    number = _move(db, round_id, Phase.FROZEN, Event.COHORT_AGREED)
    _add_own(db, number, partial_sum)


def publish(db: Connection, round_id: str) -> None:
    """Note that the aggregator has the partial sum.

    Raises:
        LostRace: the round is not agreed.
    """
    _move(db, round_id, Phase.AGREED, Event.SUM_PUBLISHED, reported=True)


def give_up(
    db: Connection, round_id: str, old: Phase, reason: str, own: Signed[Abandonment]
) -> None:
    """Abandon the round by this node's own decision, which it signed.

    Raises:
        LostRace: the round has left the phase `old`.
    """
    number = _move(db, round_id, old, Event.GIVEN_UP, reason=reason)
    _insert(db, number, own, 0)  # after a restored backup, peers may have handed it back already
    _return_charge(db, number, old)


def call_off(db: Connection, round_id: str, old: Phase, reason: str) -> None:
    """Abandon the round on the word of the aggregator, which is on file.

    Raises:
        LostRace: the round has left the phase `old`.
    """
    number = _move(db, round_id, old, Event.CALLED_OFF, reason=reason, reported=True)
    _return_charge(db, number, old)


def mark_reported(db: Connection, round_id: str) -> None:
    """Note that the aggregator knows that this node gave up, or never will."""
    db.execute(update(rounds).where(rounds.c.id == round_id).values(reported=True))


def keep(db: Connection, round_id: str, signed: Sequence[SignedAttestation]) -> list[Kept]:
    """Keep verified documents, and tell as what each is on file now, in order."""
    number = db.execute(select(rounds.c.number).where(rounds.c.id == round_id)).scalar_one()
    return [_keep(db, number, document) for document in signed]


def _keep(db: Connection, number: int, signed: SignedAttestation) -> Kept:
    for occurrence in (0, 1):
        if _insert(db, number, signed, occurrence):
            break
    on_file = select(documents.c.occurrence).where(documents.c.digest == signed.digest)
    occurrence_on_file = db.execute(on_file).scalar()
    if occurrence_on_file is None:
        return Kept.SURPLUS
    return Kept.EVIDENCE if occurrence_on_file else Kept.FIRST


def _move(db: Connection, round_id: str, old: Phase, event: Event, **values: object) -> int:
    new = after(ROUND, old, event)
    current = (rounds.c.id == round_id) & (rounds.c.phase == old)
    swap = update(rounds).where(current).values(phase=new, **values).returning(rounds.c.number)
    number: int | None = db.execute(swap).scalar()
    if number is None:
        raise LostRace
    return number


def _add_own(db: Connection, number: int, signed: SignedAttestation) -> None:
    if not _insert(db, number, signed, 0):
        raise LostRace


def _insert(db: Connection, number: int, signed: SignedAttestation, occurrence: int) -> bool:
    row = {
        "digest": signed.digest,
        "round": number,
        "kind": signed.body.kind,
        "signer": signed.signer,
        "occurrence": occurrence,
        "encoded": signed.encode(),
    }
    insert = insert_ignoring(db)(documents).values(row).on_conflict_do_nothing()
    return db.execute(insert.returning(documents.c.digest)).scalar() is not None


def _return_charge(db: Connection, number: int, old: Phase) -> None:
    # Without a share there can be no partial sum, so the round can no longer cost anyone.
    if old is Phase.ANNOUNCED:
        db.execute(delete(charges).where(charges.c.round == number))
