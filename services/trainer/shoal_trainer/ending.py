"""Ends jobs, with a posterior or without, and frees the unspent part of clients' budgets."""

import asyncio

import structlog
from prometheus_client import Counter
from pyroaring import BitMap

from shoal_protocol.certificates.study_request import StudyRequest
from shoal_protocol.rounds.attestations import Abandonment
from shoal_protocol.studies import Posterior
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.encoding import decode_clients
from shoal_protocol.wire.phases import JobEvent
from shoal_trainer import store
from shoal_trainer.progress import RunningJob
from shoal_trainer.releases import conclude, find_losses, find_releases, finish_job
from shoal_trainer.resources import Resources
from shoal_trainer.store import JobRecord

log = structlog.get_logger()


class Endings:
    """Ends running jobs, each once."""

    def __init__(self, resources: Resources, ends: Counter) -> None:
        """Count jobs in `ends` by their end."""
        self._resources = resources
        self._ends = ends

    async def finish(self, job: RunningJob, posterior: Posterior) -> None:
        """End a job with its posterior and report; its certificate follows.

        Raises:
            ValueError: these rounds make no report.
        """
        own = self._resources
        report = await asyncio.to_thread(
            conclude,
            job.encoded,
            await own.storage.run(find_releases, job.id),
            await own.storage.run(find_losses, job.id),
            population=job.population,
            posterior=posterior,
            trainer=own.name,
            key=own.key_in(job.request.manifest),
        )
        await own.storage.run(finish_job, report)
        self._ends.labels("finished").inc()
        log.info("job finished", job=job.id)
        await self._settle(job)

    async def fail(
        self,
        job: RunningJob,
        code: str,
        reason: str,
        *,
        abandoned_round: str | None = None,
        abandonment: Signed[Abandonment] | None = None,
    ) -> None:
        """End a job without a posterior; what rounds cost that clients were told of stays."""
        own = self._resources
        await own.storage.run(
            store.fail_job,
            job.id,
            JobEvent.ROUND_ABANDONED,
            reason,
            at=own.clock(),
            abandoned_round=abandoned_round,
            abandonment=abandonment,
        )
        self._ends.labels("failed").inc()
        log.info("job failed", job=job.id, reason=code)  # its text may be in a peer's words
        await self._settle(job)

    async def expire(self, record: JobRecord) -> None:
        """End a job whose time is over, whatever it waits for; only its id is needed."""
        own = self._resources
        reason = "the job was not done by the end of its time"
        await own.storage.run(
            store.fail_job, record.job, JobEvent.TIME_OVER, reason, at=own.clock()
        )
        self._ends.labels("failed").inc()
        log.info("job failed", job=record.job, reason="time_over")
        request = decode(record.request, StudyRequest).body
        await self._let_go(record.job, decode_clients(record.population or ""), request)

    async def _settle(self, job: RunningJob) -> None:
        await self._let_go(job.id, job.population, job.request)

    async def _let_go(self, job: str, population: BitMap, request: StudyRequest) -> None:
        """Free the part of clients' budgets that the job reserved and did not spend."""
        own = self._resources
        spent = await own.storage.run(store.kept_charges, job)
        own.committed.take_back(population, request.privacy.cost)
        for clients, cost in spent:
            own.committed.add(clients, cost)
        own.job_ended(job)
