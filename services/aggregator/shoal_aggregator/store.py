"""The aggregator's transactions, for `StorageThread.run`; each leaves a round in one of its phases.

A round's row is locked first, so that of two decisions only one is made.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, NamedTuple

from sqlalchemy import BindParameter, ColumnElement, Connection, bindparam, func, select

from shoal_aggregator.schema import WORD, journal, received, rounds
from shoal_protocol.journal import Link
from shoal_protocol.rounds.attestations import END, Abandonment, PartialSum, Result
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.errors import UnknownRound
from shoal_protocol.wire.phases import AGGREGATION, AggregationEvent, Phase, after
from shoal_protocol.wire.service_errors import ConflictingDocument
from shoal_service.keeping import sortable
from shoal_service.storage.database import insert_new
from shoal_service.storage.journal import JournalWriter

AttestEnd = Callable[[Link], Signed[Result] | Signed[Abandonment]]
EPOCH: Final = datetime.fromtimestamp(0, UTC)  # with committees no further sum is waited for
OPEN: Final = (Phase.ANNOUNCED, Phase.COLLECTING)

# built once: building them takes longer than SQLite takes to carry them out
_ROUND_ID: Final[BindParameter[str]] = bindparam("round_id")
_IS_ROUND: Final = rounds.c.id == _ROUND_ID
_LOCKED: Final = (
    select(rounds.c.phase, rounds.c.nodes, rounds.c.threshold).where(_IS_ROUND).with_for_update()
)
_KNOWN: Final = select(rounds.c.id).where(_IS_ROUND)
_RECEIVED: Final = received.insert()
_MOVED: Final = (
    rounds.update()
    .where(_IS_ROUND, rounds.c.phase == bindparam("before"))
    .values(phase=bindparam("following"))
)
_WORDS: Final = select(
    received.c.node, received.c.standing, received.c.digest, received.c.over
).where(received.c.round == _ROUND_ID, received.c.slot == WORD)
NEWEST_FIRST: Final = (received.c.place.desc(), rounds.c.id)


class Standing(StrEnum):
    """What a Compute node's document is to its round."""

    OPEN = "open"  # a partial sum, and there is no result yet
    USED = "used"  # the result is made of this sum and others
    LATE = "late"  # the sum agrees with the result, and came after it
    WRONG = "wrong"  # the sum contradicts those that the result is made of
    GAVE_UP = "gave_up"  # an abandonment
    EVIDENCE = "evidence"  # not the node's first document


_SUMS: Final = (Standing.OPEN, Standing.USED, Standing.LATE, Standing.WRONG)


class Locked(NamedTuple):
    """A round's phase, how many Compute nodes it has, and how many it needs."""

    phase: Phase
    nodes: int
    needed: int


class Word(NamedTuple):
    """The first document of a Compute node on a round; `over` is what a sum is over."""

    node: str
    standing: Standing
    digest: str
    over: str


def lock(db: Connection, round_id: str) -> Locked:
    """Return what the round's row says, and lock it until the commit.

    Raises:
        UnknownRound
    """
    row = db.execute(_LOCKED, {"round_id": round_id}).one_or_none()
    if row is None:
        raise UnknownRound
    return Locked(Phase(row.phase), row.nodes, row.threshold)


def move(db: Connection, round_id: str, phase: Phase, event: AggregationEvent) -> None:
    """Move a round on that is locked in a phase."""
    following = after(AGGREGATION, phase, event)
    states = {"before": phase.value, "following": following.value}
    db.execute(_MOVED, {"round_id": round_id} | states)


def words(db: Connection, round_id: str) -> list[Word]:
    """Return the first document of each Compute node that sent one."""
    found = db.execute(_WORDS, {"round_id": round_id})
    return [Word(node, Standing(standing), *rest) for node, standing, *rest in found]


def over(body: PartialSum | Abandonment) -> str:
    """Return what a sum is over, as it is stored: its cohort and, with committees, its nodes."""
    if isinstance(body, Abandonment):
        return ""
    return " ".join((body.cohort, str(body.cohort_size), *(body.nodes or ())))


def keep(
    db: Connection,
    signed: Signed[PartialSum] | Signed[Abandonment],
    standing: Standing,
    *,
    needed: int,
) -> None:
    """Store a Compute node's document; evidence only if there is none of its kind yet."""
    body = signed.body
    named = body.nodes if isinstance(body, PartialSum) else None
    row = {
        "round": body.round,
        "node": signed.signer,
        "slot": body.kind if standing is Standing.EVIDENCE else WORD,
        "standing": standing.value,
        "digest": signed.digest,
        "over": over(body),
        "awaited": needed if named is None else len(named),
        "place": sortable(body),
        "document": signed.encode(),
    }
    if standing is Standing.EVIDENCE:
        insert_new(db, received, **row)
    else:
        db.execute(_RECEIVED, row)


def milliseconds(moment: datetime) -> int:
    """Return a moment as it is stored."""
    return round(moment.timestamp() * 1000)


@dataclass(frozen=True)
class RoundRecord:
    """A round's state: its signed spec, its phase and counts."""

    spec: bytes
    phase: Phase
    partial_sums: int
    evidence: int


def add_round(db: Connection, signed: Signed[RoundSpec]) -> bool:
    """Store an announced round; False if it is known.

    Raises:
        ConflictingDocument: another round of its job has its number, or a higher one.
    """
    body, columns = signed.body, rounds.c
    is_new = insert_new(
        db,
        rounds,
        id=signed.digest,
        job=body.job,
        number=body.number,
        spec=signed.encode(),
        phase=Phase.ANNOUNCED.value,
        nodes=len(body.compute_nodes),
        threshold=body.threshold,
        proceed_at=milliseconds(body.proceed_at if body.sharing.committee is None else EPOCH),
        give_up_at=milliseconds(body.give_up_at),
    )
    here = (columns.job == body.job) & (columns.number >= body.number)
    if is_new or not knows_round(db, signed.digest):
        other = here & (columns.id != signed.digest)
        if db.execute(select(columns.id).where(other).limit(1)).first() is not None:
            raise ConflictingDocument("the job had a round with this number, or a higher one")
    return is_new


def find_phase(db: Connection, round_id: str) -> Phase:
    """Return a round's phase.

    Raises:
        UnknownRound
    """
    phase = db.execute(select(rounds.c.phase).where(_IS_ROUND), {"round_id": round_id}).scalar()
    if phase is None:
        raise UnknownRound
    return Phase(phase)


def knows_round(db: Connection, round_id: str) -> bool:
    """Tell whether the round was announced."""
    return db.execute(_KNOWN, {"round_id": round_id}).first() is not None


def find_round(db: Connection, round_id: str) -> RoundRecord:
    """Return a round.

    Raises:
        UnknownRound
    """
    row = db.execute(select(rounds.c.spec, rounds.c.phase).where(_IS_ROUND), {"round_id": round_id})
    if (found := row.one_or_none()) is None:
        raise UnknownRound
    query = select(received.c.standing).where(received.c.round == round_id)
    standings = [Standing(each) for each in db.execute(query).scalars()]
    return RoundRecord(
        spec=found.spec,
        phase=Phase(found.phase),
        partial_sums=sum(each in _SUMS for each in standings),
        evidence=sum(each in (Standing.EVIDENCE, Standing.WRONG) for each in standings),
    )


def complete_rounds(db: Connection, now: datetime) -> Sequence[str]:
    """Return the open rounds with enough partial sums over one cohort for a result.

    Enough is one of each node or, from the round's `proceed_at` on, its threshold; of sums that
    name the nodes, one of each of these.
    """
    may_proceed = rounds.c.proceed_at <= milliseconds(now)
    most_sums = func.coalesce(_of_a_cohort(func.count(), func.count().desc()), 0)
    is_enough = (most_sums == rounds.c.nodes) | ((_lacking() <= 0) & may_proceed)
    return _open_rounds(db, is_enough)


def overdue_rounds(db: Connection, now: datetime) -> Sequence[str]:
    """Return the open rounds that are past `give_up_at` and lack partial sums."""
    is_over = rounds.c.give_up_at <= milliseconds(now)
    return _open_rounds(db, is_over & (_lacking() > 0))


def oldest_open_round(db: Connection) -> bytes | None:
    """Return the signed spec of the open round that gives up first; None: none is open."""
    query = select(rounds.c.spec).where(rounds.c.phase.in_([phase.value for phase in OPEN]))
    return db.execute(query.order_by(rounds.c.give_up_at).limit(1)).scalar()


def publish(
    writer: JournalWriter,
    round_id: str,
    attest: AttestEnd,
    *,
    stored: int,
    used: Collection[str],
    wrong: Collection[str],
) -> bool:
    """Sign the result of `stored` partial sums and end the round with it.

    It is made of those of the nodes `used`; those of the nodes `wrong` are left out, for they
    contradict the others. False if the round has ended already, or more partial sums have come
    meanwhile: they must be compared first.
    """
    db = writer.db
    phase = lock(db, round_id).phase
    if phase not in OPEN or count_sums(db, round_id) != stored:
        return False
    for standing, nodes in ((Standing.USED, used), (Standing.WRONG, wrong)):
        here = (received.c.round == round_id) & (received.c.slot == WORD)
        here &= received.c.node.in_(nodes)
        db.execute(received.update().where(here).values(standing=standing.value))
    end(writer, round_id, phase, AggregationEvent.ENOUGH_PARTIAL_SUMS_STORED, attest)
    return True


def abandon(writer: JournalWriter, round_id: str, attest: AttestEnd, *, stored: int | None) -> bool:
    """End a round without a release; False if it has ended.

    `stored` is how many partial sums the decision was based on: False if there are more now. None
    means that they are too few for a result: False if they are not.
    """
    db = writer.db
    phase = lock(db, round_id).phase
    if stored is None:
        holds = db.execute(select(_lacking() > 0).where(rounds.c.id == round_id)).scalar_one()
    else:
        holds = count_sums(db, round_id) == stored
    if phase not in OPEN or not holds:
        return False
    end(writer, round_id, phase, AggregationEvent.GIVEN_UP, attest)
    return True


def end(
    writer: JournalWriter, round_id: str, phase: Phase, event: AggregationEvent, attest: AttestEnd
) -> None:
    """Sign the aggregator's only word on a round, which is locked in an open phase."""
    move(writer.db, round_id, phase, event)
    writer.append(END, round_id, attest)


def find_partial_sums(
    db: Connection, round_id: str, standing: Standing | None = None
) -> Sequence[bytes]:
    """Return the round's signed partial sums, of one standing or all, ordered by node."""
    wanted = _SUMS if standing is None else (standing,)
    query = select(received.c.document).where(
        received.c.round == round_id, received.c.standing.in_([each.value for each in wanted])
    )
    return db.execute(query.order_by(received.c.node)).scalars().all()


def count_sums(db: Connection, round_id: str) -> int:
    """Return how many Compute nodes' partial sums are on file."""
    return sum(each.standing in _SUMS for each in words(db, round_id))


def find_newest_sum(db: Connection, node: str) -> bytes | None:
    """Return the newest partial sum of a published round in the node's journal, signed, if any."""
    query = (
        select(received.c.document)
        .join(rounds, rounds.c.id == received.c.round)
        .where(received.c.node == node, is_published_sum())
        .order_by(*NEWEST_FIRST)
        .limit(1)
    )
    return db.execute(query).scalar_one_or_none()


def is_published_sum() -> ColumnElement[bool]:
    """Return SQL for a row of `received`, joined with its round: a sum of a published round."""
    is_sum = received.c.standing.in_([each.value for each in _SUMS])
    return is_sum & (rounds.c.phase == Phase.PUBLISHED.value)


def find_end(
    db: Connection, round_id: str, standing: Standing | None = None
) -> tuple[bytes | None, bytes | None, Sequence[bytes]]:
    """Return a round's result or else the aggregator's abandonment, None while it is open.

    With a `standing`, and a result, also its partial sums of that standing.

    Raises:
        UnknownRound
    """
    found = journal.find(db, END, round_id)
    if find_phase(db, round_id) is Phase.ABANDONED:
        return None, found, ()
    sums = () if standing is None or found is None else find_partial_sums(db, round_id, standing)
    return found, None, sums


def _lacking() -> ColumnElement[int]:
    """Return SQL for how many partial sums a round lacks at least for a total."""
    lacking = func.max(received.c.awaited) - func.count()
    return func.coalesce(_of_a_cohort(lacking, lacking), rounds.c.threshold)


def _of_a_cohort(value: ColumnElement[int], order: ColumnElement[int]) -> ColumnElement[int]:
    """Return SQL for a value of the partial sums over one cohort, which is the first by `order`."""
    return (
        select(value)
        .where(received.c.round == rounds.c.id, received.c.standing == Standing.OPEN.value)
        .group_by(received.c.over)
        .correlate(rounds)
        .order_by(order)
        .limit(1)
        .scalar_subquery()
    )


def _open_rounds(db: Connection, condition: ColumnElement[bool]) -> Sequence[str]:
    is_open = rounds.c.phase.in_([phase.value for phase in OPEN])
    query = select(rounds.c.id).where(is_open & condition)
    return db.execute(query.order_by(rounds.c.give_up_at)).scalars().all()
