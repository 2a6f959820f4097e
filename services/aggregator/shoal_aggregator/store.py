"""The aggregator's transactions, for `StorageThread.run`; each leaves a round in one of its phases.

A round's row is locked first, so that of two decisions only one is made.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

from sqlalchemy import BindParameter, ColumnElement, Connection, Select, bindparam, select

from shoal_aggregator.schema import WORD, journal, received, rounds
from shoal_protocol.journal import Link
from shoal_protocol.rounds.attestations import END, Abandonment, PartialSum, Result
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.errors import UnknownRound
from shoal_protocol.wire.phases import Phase
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
_STATE: Final = select(rounds.c.phase, rounds.c.nodes, rounds.c.threshold).where(_IS_ROUND)
_LOCKED: Final = _STATE.with_for_update()
_RECEIVED: Final = received.insert()
_MOVED: Final = rounds.update().where(_IS_ROUND).values(phase=bindparam("following"))
_OF_WORD: Final = (received.c.node, received.c.standing, received.c.digest, received.c.over)
_WORDS: Final = select(*_OF_WORD).where(received.c.round == _ROUND_ID, received.c.slot == WORD)
_OPEN_WORDS: Final = (
    select(received.c.round, *_OF_WORD)
    .join(rounds, rounds.c.id == received.c.round)
    .where(rounds.c.phase.in_(OPEN), received.c.slot == WORD)
)
NEWEST_FIRST: Final = (received.c.place.desc(), rounds.c.id)


class Standing(StrEnum):
    """What a Compute node's document is to its round."""

    OPEN = "open"  # a partial sum, and there is no result yet
    USED = "used"  # the result is made of this sum and others
    LATE = "late"  # the sum came after the result, and nothing shows that it contradicts it
    WRONG = "wrong"  # the sum contradicts those that the result is made of
    GAVE_UP = "gave_up"  # an abandonment
    EVIDENCE = "evidence"  # not the node's first document


_SUMS: Final = (Standing.OPEN, Standing.USED, Standing.LATE, Standing.WRONG)


class State(NamedTuple):
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


def state_of(db: Connection, round_id: str, query: Select[Any] = _STATE) -> State:
    """Return what the round's row says.

    Raises:
        UnknownRound
    """
    row = db.execute(query, {"round_id": round_id}).one_or_none()
    if row is None:
        raise UnknownRound
    return State(Phase(row.phase), row.nodes, row.threshold)


def lock(db: Connection, round_id: str) -> State:
    """Do what `state_of` does, and lock the round's row until the commit."""
    return state_of(db, round_id, _LOCKED)


def move(db: Connection, round_id: str, following: Phase) -> None:
    """Move a round on that is locked."""
    db.execute(_MOVED, {"round_id": round_id, "following": following.value})


def words(db: Connection, round_id: str) -> list[Word]:
    """Return the first document of each Compute node that sent one."""
    found = db.execute(_WORDS, {"round_id": round_id})
    return [Word(node, Standing(standing), *rest) for node, standing, *rest in found]


def over(body: PartialSum | Abandonment) -> str:
    """Return what a sum is over, as it is stored: its cohort and, with committees, its nodes."""
    if isinstance(body, Abandonment):
        return ""
    return " ".join((body.cohort, str(body.cohort_size), *(body.nodes or ())))


def lacking(said: Iterable[Word], needed: int) -> int:
    """Return how many partial sums a round lacks at least for a total.

    Over one cohort `needed` are enough or, of sums that name the nodes, one of each of these.
    """
    cohorts = Counter(each.over for each in said if each.standing is Standing.OPEN)
    left = ((len(each.split()[2:]) or needed) - count for each, count in cohorts.items())
    return min(left, default=needed)


def is_hopeless(said: Iterable[Word], spare: int) -> bool:
    """Tell whether more Compute nodes gave a round up than it can spare."""
    return sum(each.standing is Standing.GAVE_UP for each in said) > spare


def keep(
    db: Connection, signed: Signed[PartialSum] | Signed[Abandonment], standing: Standing
) -> None:
    """Store a Compute node's document; evidence only if there is none of its kind yet."""
    body = signed.body
    row = {
        "round": body.round,
        "node": signed.signer,
        "slot": body.kind if standing is Standing.EVIDENCE else WORD,
        "standing": standing.value,
        "digest": signed.digest,
        "over": over(body),
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


def knows_round(db: Connection, round_id: str) -> bool:
    """Tell whether the round was announced."""
    return db.execute(_STATE, {"round_id": round_id}).first() is not None


def find_spec(db: Connection, round_id: str) -> bytes:
    """Return a round's signed spec.

    Raises:
        UnknownRound
    """
    query = select(rounds.c.spec).where(_IS_ROUND)
    encoded: bytes | None = db.execute(query, {"round_id": round_id}).scalar()
    if encoded is None:
        raise UnknownRound
    return encoded


def due_rounds(db: Connection, now: datetime) -> tuple[list[str], list[str]]:
    """Return which open rounds have enough partial sums, and which will have no total.

    Enough is one of each node or, from the round's `proceed_at` on, as many as `lacking` asks for.
    A round that lacks some is over at its `give_up_at`, which is no earlier, or once
    it is hopeless.
    """
    columns, complete, lost = rounds.c, list[str](), list[str]()
    at, said = milliseconds(now), defaultdict[str, list[Word]](list)
    for round_id, node, standing, *rest in db.execute(_OPEN_WORDS):
        said[round_id].append(Word(node, Standing(standing), *rest))
    query = select(columns.id, columns.nodes, columns.threshold, columns.proceed_at)
    query = query.add_columns(columns.give_up_at).where(columns.phase.in_(OPEN))
    for row in db.execute(query.order_by(columns.give_up_at)):
        enough = row.threshold if row.proceed_at <= at else row.nodes
        if lacking(said[row.id], enough) <= 0:
            complete.append(row.id)
        elif row.give_up_at <= at or is_hopeless(said[row.id], row.nodes - row.threshold):
            lost.append(row.id)
    return complete, lost


def oldest_open_round(db: Connection) -> bytes | None:
    """Return the signed spec of the open round that gives up first; None: none is open."""
    query = select(rounds.c.spec).where(rounds.c.phase.in_(OPEN))
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
    if lock(db, round_id).phase not in OPEN or count_sums(db, round_id) != stored:
        return False
    judge(db, round_id, Standing.USED, used)
    judge(db, round_id, Standing.WRONG, wrong)
    end(writer, round_id, Phase.PUBLISHED, attest)
    return True


def judge(db: Connection, round_id: str, standing: Standing, nodes: Collection[str]) -> None:
    """Note what these nodes' partial sums are to their round."""
    here = (received.c.round == round_id) & (received.c.slot == WORD)
    judged = received.update().where(here, received.c.node.in_(nodes))
    db.execute(judged.values(standing=standing.value))


def abandon(writer: JournalWriter, round_id: str, attest: AttestEnd, *, stored: int | None) -> bool:
    """End a round without a release; False if it has ended.

    `stored` is how many partial sums the decision was based on: False if there are more now. None
    means that they are too few for a result: False if they are not.
    """
    db = writer.db
    phase, _, needed = lock(db, round_id)
    if stored is None:
        holds = lacking(words(db, round_id), needed) > 0
    else:
        holds = count_sums(db, round_id) == stored
    if phase not in OPEN or not holds:
        return False
    end(writer, round_id, Phase.ABANDONED, attest)
    return True


def end(writer: JournalWriter, round_id: str, phase: Phase, attest: AttestEnd) -> None:
    """Sign the aggregator's only word on a round, which is locked and open."""
    move(writer.db, round_id, phase)
    writer.append(END, round_id, attest)


def find_words(db: Connection, round_id: str, standing: Standing | None = None) -> Sequence[bytes]:
    """Return nodes' signed words on a round of one standing, or all partial sums, by node."""
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


def find_outcome(db: Connection, round_id: str) -> list[bytes] | None:
    """Return the aggregator's signed word on a round, and the sums that a result is made of.

    None while the round is open, or once it is forgotten.

    Raises:
        UnknownRound
    """
    state_of(db, round_id)
    word = journal.find(db, END, round_id)
    return None if word is None else [word, *find_words(db, round_id, Standing.USED)]
