"""Carries running jobs from round to round; whatever it knows of a job can be read from the store.

What is due is done again after a crash: announcing and asking change nothing when repeated, and
a round is on file, and charged, before anybody hears of it.
"""

import asyncio
from enum import Enum, auto
from typing import Final

import structlog
from prometheus_client import Counter
from pyroaring import BitMap

from shoal_hosting.logs import describe_exception
from shoal_learning.contract import RequestedRound
from shoal_protocol.attestations import Abandonment
from shoal_protocol.documents import Signed, sign
from shoal_protocol.errors import StorageUnavailable
from shoal_protocol.manifest import Consortium
from shoal_protocol.phases import JobPhase, Phase
from shoal_trainer import store
from shoal_trainer.conducting import Conductor, Ended, Opened, Published, Waiting
from shoal_trainer.ending import Endings
from shoal_trainer.jobs import next_spec
from shoal_trainer.peers import Peers
from shoal_trainer.progress import RunningJob, read_job
from shoal_trainer.resources import Resources
from shoal_trainer.store import JobRecord

log = structlog.get_logger()

# How long a step waits for jobs that wait for a service, such as one that is frozen.
PATIENCE_SECONDS: Final = 5.0
_NO_ANSWER: Final = "the method could not compute an answer from the task and the sums so far"


class Next(Enum):
    """When there is more to do for a job."""

    AT_ONCE = auto()
    LATER = auto()  # when a service has answered
    NEVER = auto()  # it has ended


class Runner:
    """Runs jobs whose population is fixed; each waits for slow services by itself.

    `long_polls` is as in `Conductor`.
    """

    def __init__(
        self, resources: Resources, peers: Peers, ends: Counter, *, long_polls: bool
    ) -> None:
        """Go on from what the storage holds; `ends` counts jobs by their end."""
        self._resources = resources
        self._conductor = Conductor(resources, peers, long_polls=long_polls)
        self._endings = Endings(resources, ends)
        self._jobs: dict[str, RunningJob] = {}
        self._under_way: dict[str, asyncio.Task[None]] = {}  # by job

    async def step(self) -> None:
        """Take every running job as far as it goes now.

        A job that still waits for a service after `PATIENCE_SECONDS` goes on beside later steps.

        Raises:
            StorageUnavailable
        """
        jobs = await self._resources.storage.run(store.open_jobs)
        running = [job for job in jobs if job.phase is JobPhase.RUNNING]
        if begun := [self._begin(job) for job in running if job.job not in self._under_way]:
            await asyncio.wait(begun, timeout=PATIENCE_SECONDS)

    async def close(self) -> None:
        """Take back what is under way, the open questions too."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._conductor.close()

    def _begin(self, record: JobRecord) -> asyncio.Task[None]:
        task = asyncio.create_task(self._carry_on(record))
        self._under_way[record.job] = task
        task.add_done_callback(lambda _: self._under_way.pop(record.job))
        return task

    async def _carry_on(self, record: JobRecord) -> None:
        """Take a job as far as it goes; a fault in one job must not stop the others."""
        job = self._jobs.pop(record.job, None)  # after a fault it is read anew
        try:
            if job is None:
                rounds = await self._resources.storage.run(store.filed_rounds, record.job)
                job = await asyncio.to_thread(read_job, record, rounds)
            following = Next.AT_ONCE
            while following is Next.AT_ONCE:
                following = await self._advance(job)
            if following is Next.LATER:
                self._jobs[record.job] = job
        except StorageUnavailable:
            log.warning("storage unavailable: the job waits", job=record.job)
        except Exception as error:  # noqa: BLE001 -- logged; the job is tried again at the next step
            log.error("a job could not go on", job=record.job, **describe_exception(error))

    async def _advance(self, job: RunningJob) -> Next:
        """Do the next thing for a running job; return when there is more to do."""
        current = job.current
        if current is None or current.phase is Phase.PUBLISHED:
            return await self._ask_learner(job)
        match await self._conductor.conduct(current):
            case Opened():
                job.open()
                self._resources.changes.tell(job.id)
            case Published(result):
                job.publish(result)
            case Ended() as end:
                abandoned = current.id if end.released_nothing else None
                return await self._fail(
                    job,
                    end.code,
                    end.reason,
                    abandoned_round=abandoned,
                    abandonment=end.abandonment,
                )
            case Waiting():
                return Next.LATER
        return Next.AT_ONCE

    async def _ask_learner(self, job: RunningJob) -> Next:
        consortium = self._resources.book.current
        population = job.population & consortium.roster.enrolled_set
        size = job.first_population_size or max(1, len(population))
        try:
            wanted = await asyncio.to_thread(job.learner.next, size, job.sums)
        except Exception as error:  # noqa: BLE001 -- logged; it would fail again: a learner is pure
            log.error("the method failed", job=job.id, **describe_exception(error))
            said = str(error) if type(error) is ValueError else _NO_ANSWER
            return await self._fail(job, "refused_by_method", said)
        try:
            if isinstance(wanted, RequestedRound):
                return await self._begin_round(job, wanted, consortium, population)
            await self._endings.finish(job, wanted)
            return Next.NEVER
        except ValueError as error:  # of `next_spec`, in words of our own
            return await self._fail(job, "refused_by_method", str(error))

    async def _begin_round(
        self, job: RunningJob, wanted: RequestedRound, consortium: Consortium, population: BitMap
    ) -> Next:
        own = self._resources
        if len(population) < job.request.minimum_population:
            reason = "too many clients of the population were revoked"
            return await self._fail(job, "population_too_small", reason)
        spec = await asyncio.to_thread(
            next_spec,
            job.request,
            consortium,
            population,
            number=job.next_number,
            wanted=wanted,
            spent=job.participation.largest(population),
            now=max(filter(None, (own.clock(), job.opened_at))),
        )
        signed = sign(spec, own.name, own.signing_key)
        await own.storage.run(store.add_round, signed, own.ledger, at=own.clock())
        job.begin(signed)
        log.info("round begins", job=job.id, round=spec.digest, number=spec.number)
        return Next.AT_ONCE

    async def _fail(
        self,
        job: RunningJob,
        code: str,
        reason: str,
        *,
        abandoned_round: str | None = None,
        abandonment: Signed[Abandonment] | None = None,
    ) -> Next:
        await self._endings.fail(
            job, code, reason, abandoned_round=abandoned_round, abandonment=abandonment
        )
        return Next.NEVER
