"""Carries running jobs from round to round; all that it keeps of a job is in the store, too.

After a crash, steps are repeated: announcing and asking are idempotent, and a round is on file,
and charged, before anybody hears of it.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from enum import Enum, auto
from typing import Final

import structlog
from prometheus_client import Counter
from pyroaring import BitMap
from sqlalchemy import Connection, select

from shoal_hosting.installed_models import ModelNotUsable
from shoal_hosting.server.logs import describe_exception
from shoal_hosting.work import Work
from shoal_learning.contract import LearnerOfManyRounds, NoReliablePosterior, RequestedRound
from shoal_protocol.certificates.study_request import StudyRequest
from shoal_protocol.rounds.attestations import Abandonment
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.studies import Posterior
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.errors import WrongPhase
from shoal_protocol.wire.phases import FINISHED, JobPhase
from shoal_protocol.wire.service_errors import StorageUnavailable
from shoal_trainer import schema, store
from shoal_trainer.conducting import Conductor, Ended, Opened, Published, Waiting
from shoal_trainer.ending import Endings
from shoal_trainer.peers import Peers
from shoal_trainer.progress import RunningJob, read_job
from shoal_trainer.resources import Resources
from shoal_trainer.specs import next_spec
from shoal_trainer.store import JobRecord

log = structlog.get_logger()

# How long a step waits for jobs that wait for a service, such as one that is frozen.
PATIENCE_SECONDS: Final = 5.0
_NO_ANSWER: Final = "the method could not compute an answer from the task and the sums so far"


class Next(Enum):
    """When a job's next step is due."""

    AT_ONCE = auto()
    LATER = auto()  # when a service has answered
    NEVER = auto()  # it has ended


class Runner:
    """Runs jobs whose population is fixed; a slow service delays only the job that waits for it.

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
        self._latest: dict[str, datetime] = {}  # when jobs are over at the latest
        self._work = Work(resources.clock)

    async def step(self, running: Sequence[JobRecord]) -> None:
        """Take every job of those that run as far as it goes now.

        A job that still waits for a service after `PATIENCE_SECONDS` goes on beside later steps.

        Raises:
            StorageUnavailable
        """
        begun = [self._work.begin(f"job {job.job}", self._carry_on, job) for job in running]
        if tasks := [task for task in begun if task is not None]:
            await asyncio.wait(tasks, timeout=PATIENCE_SECONDS)
        for job in running:
            await self._expire_if_due(job)

    async def _expire_if_due(self, record: JobRecord) -> None:
        """End a job long after its time, whatever it waits for: its clients' budgets come free."""
        own = self._resources
        if record.job not in self._latest:
            self._latest[record.job] = decode(record.request, StudyRequest).body.ends_by
        if own.clock() > self._latest[record.job] + own.patience:
            with suppress(WrongPhase):  # it has just ended
                await self._endings.expire(record)
            self._jobs.pop(record.job, None)
            del self._latest[record.job]

    async def oldest_open(self) -> datetime | None:
        """Return when the oldest round was opened that is not over; None: there is none."""
        specs = await self._resources.storage.run(_open_rounds)
        return min((decode(each, RoundSpec).body.opened_at for each in specs), default=None)

    async def close(self) -> None:
        """Cancel running tasks and open polls."""
        await self._work.close()
        await self._conductor.close()

    async def _carry_on(self, record: JobRecord) -> None:
        """Take a job as far as it goes; a fault in one job must not stop the others."""
        job = self._jobs.pop(record.job, None)  # after an error the job is read anew
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
        except WrongPhase:
            log.info("the job has ended meanwhile", job=record.job)
        except ModelNotUsable as error:  # it was when the job was taken, and may be again
            log.error("the job waits for its model", job=record.job, reason=str(error))
        except Exception as error:  # noqa: BLE001 -- logged; the job is tried again at the next step
            log.error("a job could not go on", job=record.job, **describe_exception(error))

    async def _advance(self, job: RunningJob) -> Next:
        """Do the next thing for a running job; return when there is more to do."""
        current = job.current
        if current is None or current.phase in FINISHED:
            return await self._ask_learner(job)
        match await self._conductor.conduct(job, current):
            case Opened():
                job.open()
                self._resources.opened[job.id] = (current.spec.body.number, current.spec.encode())
                self._resources.changes.tell(job.id)
            case Published() as published:
                job.publish(published.result.body)
                job.unfiled = (published.result, published.sums)
            case Ended() as end:
                return await self._take_end(job, current.id, end)
            case Waiting():
                return Next.LATER
        return Next.AT_ONCE

    async def _take_end(self, job: RunningJob, round_id: str, end: Ended) -> Next:
        """Go on without the round if the job can spare it, and fail the job if not."""
        own, spare = self._resources, job.request.spare_rounds
        lost = round_id if end.released_nothing else None
        if lost is None or end.is_for_good or job.lost >= spare:
            reason = (
                end.reason if job.lost == 0 else f"round {job.lost + 1} to be lost: {end.reason}"
            )
            return await self._fail(
                job, end.code, reason, abandoned_round=lost, abandonment=end.abandonment
            )
        await own.storage.run(store.lose_round, lost, end.abandonment, at=own.clock())
        own.opened.pop(job.id, None)
        job.lose()
        log.info("round lost", job=job.id, round=lost, reason=end.code)
        return Next.AT_ONCE

    async def _ask_learner(self, job: RunningJob) -> Next:
        consortium = self._resources.book.current
        present = job.population & consortium.roster.enrolled_set
        clients = None if job.is_over else job.next_to_ask(present, consortium.roster)
        try:
            wanted = await asyncio.to_thread(_wanted, job, max(1, len(present)), clients is None)
        except Exception as error:  # noqa: BLE001 -- logged; it would fail again: a learner is pure
            log.error("the method failed", job=job.id, **describe_exception(error))
            ours = type(error) is ValueError or isinstance(error, NoReliablePosterior)
            said = str(error) if ours else _NO_ANSWER
            return await self._fail(job, "refused_by_method", said)
        try:
            if not isinstance(wanted, RequestedRound):
                await self._file(job)
                await self._endings.finish(job, wanted)
                return Next.NEVER
            if reason := self._no_further_round(job, consortium):
                return await self._fail(job, "parties_changed", reason)
            if clients is None or len(present) < job.request.minimum_population:
                reason = "too many clients of the population were revoked"
                return await self._fail(job, "population_too_small", reason)
            return await self._begin_round(job, wanted, consortium, clients)
        except ValueError as error:  # of `next_spec`, in words of our own
            return await self._fail(job, "refused_by_method", str(error))

    def _no_further_round(self, job: RunningJob, current: Consortium) -> str | None:
        """Return why a job has no round under the manifest in force, or None.

        A node that is new has charged nothing yet. So where one is new and another is gone, no
        node that must be honest for the cap to hold need remember what was spent.
        """
        own, request = self._resources, job.request
        if current.manifest.trainer.name != own.name:
            return f"{current.manifest.trainer.name} is the trainer now: submit the job anew"
        if not current.lists(request.analyst):
            return f"{request.analyst} is no analyst of the consortium any more"
        asked_under, now = own.book.get(request.manifest).manifest, current.manifest
        before, after = ({node.name for node in each.compute_nodes} for each in (asked_under, now))
        if before - after and after - before:
            gone, new = (", ".join(sorted(each)) for each in (before - after, after - before))
            return f"{new} took the place of {gone} as a Compute node: submit the job anew"
        return None

    async def _begin_round(
        self, job: RunningJob, wanted: RequestedRound, consortium: Consortium, clients: BitMap
    ) -> Next:
        own = self._resources
        spec = await asyncio.to_thread(
            next_spec,
            job.request,
            consortium,
            clients,
            number=job.next_number,
            wanted=wanted,
            spent=job.participation.largest(clients),
            earlier=job.sums,
            now=max(filter(None, (own.clock(), job.opened_at))),
        )
        signed = own.sign(spec)
        await own.storage.run(
            store.add_round, signed, own.ledger, at=own.clock(), published=job.unfiled
        )
        job.unfiled = None
        job.begin(signed)
        log.info("round begins", job=job.id, round=spec.digest, number=spec.number)
        return Next.AT_ONCE

    async def _file(self, job: RunningJob) -> None:
        """Store the newest round's result where no other round does."""
        if job.unfiled is not None:
            await self._resources.storage.run(store.publish_round, *job.unfiled)
            job.unfiled = None

    async def _fail(
        self,
        job: RunningJob,
        code: str,
        reason: str,
        *,
        abandoned_round: str | None = None,
        abandonment: Signed[Abandonment] | None = None,
    ) -> Next:
        await self._file(job)
        await self._endings.fail(
            job, code, reason, abandoned_round=abandoned_round, abandonment=abandonment
        )
        return Next.NEVER


def _wanted(job: RunningJob, present: int, is_over: bool) -> RequestedRound | Posterior:
    """Return what the learner wants, or its posterior once no round will follow.

    `present` are the clients who joined and are still enrolled. A job that is over before it has
    all its sums lost rounds; what is left of it is a posterior only if it could spare them.
    """
    learner, sums = job.learner, job.sums
    size = job.size or present
    enough = len(sums) >= job.request.task.rounds - job.request.spare_rounds
    if is_over and enough and isinstance(learner, LearnerOfManyRounds):
        return learner.conclude(size, sums)
    return learner.next(size, sums)


def _open_rounds(db: Connection) -> Sequence[bytes]:
    """Return the signed specs of running jobs' rounds that are not over."""
    columns = schema.rounds.c
    is_open = columns.phase.not_in([phase.value for phase in FINISHED])
    running = select(schema.jobs.c.id).where(schema.jobs.c.phase == JobPhase.RUNNING.value)
    return db.execute(select(columns.spec).where(is_open, columns.job.in_(running))).scalars().all()
