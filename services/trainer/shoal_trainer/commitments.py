"""What jobs on file commit clients to: the price of those that run, and what others did cost."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyroaring import BitMap
from sqlalchemy import Connection, select

from shoal_protocol.accounting import Cost
from shoal_protocol.documents import decode
from shoal_protocol.jobs import JobRequest
from shoal_protocol.phases import JobPhase
from shoal_trainer import schema
from shoal_trainer.store import all_jobs, job_record


@dataclass(frozen=True)
class Commitment:
    """What a job may cost each of its clients; of one that has ended, what it did cost whom."""

    job: str
    phase: JobPhase
    population: str | None
    allowed: Cost
    spent: Sequence[tuple[BitMap, Cost]]


def commitments(db: Connection) -> Sequence[Commitment]:
    """Return what every job that has or may have a price commits its clients to."""
    open_phases = {JobPhase.ENROLLING, JobPhase.RUNNING}
    return [
        Commitment(
            each.job,
            each.phase,
            each.population,
            decode(each.request, JobRequest).body.privacy.cost,
            () if each.phase in open_phases else kept_charges(db, each.job),
        )
        for each in map(job_record, db.execute(all_jobs()).all())
    ]


def kept_charges(db: Connection, job: str) -> Sequence[tuple[BitMap, Cost]]:
    """Return whom a job's rounds charged how much, but for what was given back."""
    ledger = schema.ledger.entries.c
    returned = select(ledger.round).where(ledger.job == job, ledger.kind == "return")
    kept = (ledger.job == job) & (ledger.kind == "charge") & ledger.round.not_in(returned)
    query = select(ledger.population, ledger.mu, ledger.epsilon).where(kept)
    return [
        (BitMap.deserialize(population), Cost.stated(mu, epsilon))
        for population, mu, epsilon in db.execute(query)
    ]
