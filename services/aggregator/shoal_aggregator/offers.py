"""Transactions that store a Compute node's partial sum or abandonment and decide its round.

Each locks the round's row first, so that of two decisions only one is made.
"""

from enum import StrEnum
from typing import Final

from sqlalchemy import Connection, bindparam, select

from shoal_aggregator import schema
from shoal_aggregator.store import (
    OPEN,
    Standing,
    count,
    find_abandonment,
    insert_abandonment,
    insert_new,
    insert_partial_sum,
    lock,
    move,
    named,
)
from shoal_protocol.rounds.attestations import Abandonment, PartialSum
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.phases import AggregationEvent, Phase
from shoal_protocol.wire.service_errors import ConflictingDocument, RoundAbandoned, WrongCohort

_SUMS: Final = schema.partial_sums.c
_OFFERED: Final = select(
    _SUMS.node, _SUMS.digest, _SUMS.cohort, _SUMS.cohort_size, _SUMS.nodes
).where(_SUMS.round == bindparam("round_id"))


class Outcome(StrEnum):
    """The outcome of an offered document."""

    STORED = "stored"
    ENOUGH = "enough"  # stored, and with it there are enough for a result once its time comes
    COMPLETE = "complete"  # stored, and no further partial sum over its cohort can come
    ENDED = "ended"  # stored, and the round ended with it
    KNOWN = "known"  # the same document is on file
    CONFLICTING = "conflicting"  # another one of this party is; the first such is evidence
    OTHER_COHORT = "other_cohort"  # than the round's; the first such is evidence
    LATE = "late"  # not stored: the round is published; to be compared with its sums first
    ABANDONED = "abandoned"


def refuse(outcome: Outcome) -> None:
    """Raise the refusal of a document that was not taken.

    Raises:
        ConflictingDocument, WrongCohort, RoundAbandoned
    """
    match outcome:
        case Outcome.CONFLICTING:
            raise ConflictingDocument
        case Outcome.OTHER_COHORT:
            raise WrongCohort("another node's partial sum on file is over another cohort")
        case Outcome.ABANDONED:
            raise RoundAbandoned


def offer_partial_sum(db: Connection, signed: Signed[PartialSum]) -> Outcome:
    """Store a partial sum that was checked, unless something on file contradicts it.

    Sums over several cohorts may be on file as long as each cohort could still have a threshold
    of them: a node that lies first must not keep the others out.

    Raises:
        UnknownRound
    """
    body = signed.body
    phase, nodes, needed = lock(db, body.round)
    rows = db.execute(_OFFERED, {"round_id": body.round}).all()
    own = {row.node: row.digest for row in rows}.get(body.node)
    if own is not None and own != signed.digest:
        return _keep_as_evidence(db, signed, Outcome.CONFLICTING)
    if phase is Phase.ABANDONED:  # also if the sum is on file: its node must learn of the end
        return Outcome.ABANDONED
    if own is not None:
        return Outcome.KNOWN
    if find_abandonment(db, body.round, body.node) is not None:
        return _keep_as_evidence(db, signed, Outcome.CONFLICTING)
    cohorts = [(row.cohort, row.cohort_size, row.nodes) for row in rows]
    here = cohorts.count((body.cohort, body.cohort_size, named(body)))
    if len(cohorts) - here > nodes - needed:
        return _keep_as_evidence(db, signed, Outcome.OTHER_COHORT)
    if phase is Phase.PUBLISHED:
        return Outcome.LATE
    move(db, body.round, phase, AggregationEvent.PARTIAL_SUM_STORED)
    insert_partial_sum(db, signed, Standing.OPEN, needed=needed)
    if here + 1 >= (nodes if body.nodes is None else len(body.nodes)):
        return Outcome.COMPLETE
    return Outcome.ENOUGH if body.nodes is None and here + 1 >= needed else Outcome.STORED


def add_late_sum(db: Connection, signed: Signed[PartialSum], standing: Standing) -> Outcome:
    """Store a partial sum that was `Outcome.LATE`, with the result of comparing it."""
    body, table = signed.body, schema.partial_sums
    needed = lock(db, body.round).needed
    mine = (table.c.round == body.round) & (table.c.node == body.node)
    own = db.execute(select(table.c.digest).where(mine)).scalar_one_or_none()
    if own is None:
        insert_partial_sum(db, signed, standing, needed=needed)
        return Outcome.LATE
    if own != signed.digest:
        return _keep_as_evidence(db, signed, Outcome.CONFLICTING)
    return Outcome.KNOWN


def offer_abandonment(
    db: Connection, signed: Signed[Abandonment], decision: Signed[Abandonment]
) -> Outcome:
    """Store a Compute node's abandonment and, if too few nodes are left, with it our `decision`.

    A node whose partial sum is on file can abandon no more: that conflicts.

    Raises:
        UnknownRound
    """
    body, sums = signed.body, schema.partial_sums
    phase, nodes, needed = lock(db, body.round)
    stored = find_abandonment(db, body.round, body.party)
    if stored is not None and stored.digest == signed.digest:
        return Outcome.KNOWN
    summed = select(sums.c.node).where((sums.c.round == body.round) & (sums.c.node == body.party))
    if stored is not None or db.execute(summed).first() is not None:
        return _keep_as_evidence(db, signed, Outcome.CONFLICTING)
    insert_abandonment(db, signed)
    lost = count(db, schema.abandonments, body.round)  # nodes: the round has no end yet
    if phase not in OPEN or lost <= nodes - needed:
        return Outcome.STORED
    move(db, body.round, phase, AggregationEvent.GIVEN_UP)
    insert_abandonment(db, decision)
    return Outcome.ENDED


def _keep_as_evidence(
    db: Connection, signed: Signed[PartialSum] | Signed[Abandonment], outcome: Outcome
) -> Outcome:
    insert_new(
        db,
        schema.evidence,
        round=signed.body.round,
        party=signed.signer,
        kind=signed.body.kind,
        digest=signed.digest,
        document=signed.encode(),
    )
    return outcome
