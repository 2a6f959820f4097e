"""Carries running jobs from round to round until they end.

All that it keeps of a job is in the store, too. After a crash, steps are repeated: announcing and
asking are idempotent, and a round is on file, and charged, before anybody hears of it.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from typing import Final

import numpy as np
import structlog
from prometheus_client import Counter
from pyroaring import BitMap
from sqlalchemy import Connection, select

from shoal_hosting.installed_models import ModelNotUsable, model_for
from shoal_hosting.manifests.manifest_book import HANDOVER, at_present
from shoal_hosting.peers.exchange import Unavailable
from shoal_hosting.server.logs import describe_exception
from shoal_hosting.work import Work
from shoal_learning.contract import (
    Learner,
    LearnerOfManyRounds,
    NoReliablePosterior,
    RequestedRound,
)
from shoal_learning.learners import learner_for
from shoal_protocol.certificates.study_request import StudyRequest
from shoal_protocol.privacy.job_costs import Participation
from shoal_protocol.rounds.attestations import Abandonment, PartialSum, Result
from shoal_protocol.rounds.batches import choose_batch
from shoal_protocol.rounds.outcomes import (
    ReleasedSum,
    verified_abandonment,
    verified_partial_sums,
    verified_result,
)
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.studies import Posterior
from shoal_protocol.trust.manifest import Consortium, ServiceParty
from shoal_protocol.trust.roster import Roster
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.encoding import decode_clients
from shoal_protocol.wire.errors import ProtocolError, WrongPhase
from shoal_protocol.wire.phases import FINISHED, JobEvent, JobPhase, Phase
from shoal_protocol.wire.service_errors import StorageUnavailable
from shoal_trainer import schema, store
from shoal_trainer.jobs import may_open, next_spec
from shoal_trainer.peers import LONG_POLL_SECONDS, Answer, Peers, State
from shoal_trainer.releases import conclude, find_losses, find_releases, finish_job
from shoal_trainer.resources import Resources
from shoal_trainer.store import JobRecord, StoredRound

log = structlog.get_logger()


@dataclass
class CurrentRound:
    """A job's newest round."""

    spec: Signed[RoundSpec]
    phase: Phase

    @property
    def id(self) -> str:
        """Return the round's id."""
        return self.spec.digest


@dataclass
class RunningJob:
    """A job whose population is fixed: its sums so far, who was asked for them, its last round.

    It is read from the store once, then updated with each change, so that a round does not cost
    more after many others. A caller that fails to store a change drops it and reads the job again.
    """

    encoded: bytes  # its signed request
    request: StudyRequest
    population: BitMap
    learner: Learner
    participation: Participation
    sums: list[ReleasedSum] = field(default_factory=list)
    lost: int = 0  # rounds that released nothing
    current: CurrentRound | None = None
    opened_at: datetime | None = None  # of the newest round
    first_population_size: int | None = None
    unfiled: tuple[Signed[Result], Sequence[Signed[PartialSum]]] | None = None
    """The newest round's verified result, until it is on file with whatever follows from it."""

    @property
    def id(self) -> str:
        """Return the job's id."""
        return self.request.digest

    @property
    def next_number(self) -> int:
        """Return the number that the next round gets."""
        return 0 if self.current is None else self.current.spec.body.number + 1

    @property
    def is_over(self) -> bool:
        """Tell whether the job has had all its rounds, the lost ones too."""
        return self.next_number >= self.request.task.rounds

    def next_to_ask(self, present: BitMap, roster: Roster) -> BitMap | None:
        """Return whom the next round asks, of the clients who are still `present`.

        None if there is no batch: too many have left, and the others had their rounds.
        """
        task = self.request.task
        if task.batch is None:
            return present
        return choose_batch(
            self.participation,
            present,
            roster.owners_of(np.asarray(self.population.to_array())),
            job=self.id,
            size=task.batch,
            most=task.participations(len(self.population)),
        )

    @property
    def size(self) -> int | None:
        """Return N as the learner is told it: None before a round that asks all who joined."""
        return (
            self.first_population_size if self.request.task.batch is None else len(self.population)
        )

    def begin(self, spec: Signed[RoundSpec], phase: Phase = Phase.ANNOUNCED) -> None:
        """Add a round that is on file."""
        body = spec.body
        self.participation.add(body.clients(), body.cost)
        self.current, self.opened_at = CurrentRound(spec, phase), body.opened_at
        self.first_population_size = self.first_population_size or body.population_size

    def open(self) -> None:
        """Note that clients may answer the newest round."""
        self._round.phase = Phase.COLLECTING

    def lose(self) -> None:
        """Note that the newest round released nothing and never will."""
        self._round.phase = Phase.ABANDONED
        self.lost += 1

    def publish(self, result: Result) -> None:
        """Add the newest round's verified result."""
        self._round.phase = Phase.PUBLISHED
        self.sums.append(ReleasedSum.of(self._round.spec.body, result))

    @property
    def _round(self) -> CurrentRound:
        if self.current is None:
            raise ValueError("the job has no round yet")
        return self.current


def read_job(record: JobRecord, rounds: Iterable[StoredRound]) -> RunningJob:
    """Return a running job from all that is on file of it."""
    request = decode(record.request, StudyRequest).body
    population = decode_clients(record.population or "")
    job = RunningJob(
        record.request,
        request,
        population,
        learner_for(request.task, find_model=model_for),
        Participation(population),
    )
    for each in rounds:
        job.begin(decode(each.spec, RoundSpec), each.phase)
        if each.phase is Phase.ABANDONED:
            job.lose()
        elif each.phase is Phase.PUBLISHED and each.outcome is not None:
            job.publish(decode(each.outcome, Result).body)
    return job


@dataclass(frozen=True)
class Waiting:
    """The round waits for a service; there is nothing to do now."""


@dataclass(frozen=True)
class Opened:
    """Every service that must accept the round has done so; that is on file."""


@dataclass(frozen=True)
class Published:
    """The round has a result, which is verified; it is not on file yet."""

    result: Signed[Result]
    sums: Sequence[Signed[PartialSum]]


@dataclass(frozen=True)
class Ended:
    """The round has no result, and why; nothing of that is on file yet.

    `released_nothing` if that is certain, by the aggregator's word or because no client was asked.
    `is_for_good` if another round of the job would fare no better.
    """

    code: str
    reason: str
    released_nothing: bool
    is_for_good: bool
    abandonment: Signed[Abandonment] | None = None


class Conductor:
    """Announces rounds and asks for their outcomes.

    With `long_polls` it keeps a long poll open at the aggregator for each round, and wakes the
    service when it is answered; without, it asks when it is told to and not again.
    """

    def __init__(self, resources: Resources, peers: Peers, *, long_polls: bool) -> None:
        """Begin with no poll open."""
        self._resources = resources
        self._peers = peers
        self._long_polls = long_polls
        self._accepted: dict[str, frozenset[str]] = {}  # services, by round
        self._open: dict[str, dict[str, str]] = {}  # why others have not, by round
        self._polls: dict[str, asyncio.Task[Answer | None]] = {}  # by round

    async def close(self) -> None:
        """Cancel the open polls."""
        polls = list(self._polls.values())
        for poll in polls:
            poll.cancel()
        await asyncio.gather(*polls, return_exceptions=True)

    async def conduct(
        self, job: RunningJob, round_: CurrentRound
    ) -> Waiting | Opened | Published | Ended:
        """Take the next step of a job's round that has no outcome yet.

        Raises:
            StorageUnavailable
        """
        if round_.phase is Phase.ANNOUNCED:
            return await self._announce(job, round_)
        return await self._collect(round_)

    async def _announce(self, job: RunningJob, round_: CurrentRound) -> Waiting | Opened | Ended:
        """Offer the round to the services that have not accepted it, and open it if enough have."""
        own, spec = self._resources, round_.spec.body
        consortium = own.book.get(spec.manifest)
        needed = {consortium.manifest.aggregator.name, *spec.compute_nodes}
        accepted = self._accepted.get(round_.id, frozenset())
        # the last quarter of the time is for the clients
        latest = spec.deadline - (spec.deadline - spec.opened_at) / 4
        if own.clock() >= latest:
            why = self._open.get(round_.id, {})
            missing = ", ".join(
                f"{name} ({why.get(name, 'not asked in time')})"
                for name in sorted(needed - accepted)
            )
            late = f"round {spec.number} was not accepted in time by {missing}; nobody was charged"
            return self._ended(round_, "not_accepted", late, is_for_good=False)
        reception = await self._peers.announce(
            round_.spec.encode(),
            consortium,
            request=job.encoded,
            asked_under=own.book.get(job.request.manifest),
            without=accepted,
        )
        self._accepted[round_.id], self._open[round_.id] = reception.accepted, reception.open
        if reception.refusal is not None:
            return self._ended(round_, "spec_refused", reception.refusal, is_for_good=True)
        if not may_open(spec, needed - reception.accepted, now=own.clock()):
            is_over = own.clock() >= spec.opened_at + HANDOVER
            if is_over and consortium.digest != own.book.current.digest:  # nobody takes it now
                changed = f"the manifest changed before round {spec.number} was accepted"
                return self._ended(round_, "manifest_changed", changed, is_for_good=False)
            return Waiting()
        await own.storage.run(store.open_round, round_.id)
        self._forget(round_)
        return Opened()

    def _forget(self, round_: CurrentRound) -> None:
        self._accepted.pop(round_.id, None)
        self._open.pop(round_.id, None)

    def _ended(self, round_: CurrentRound, code: str, reason: str, *, is_for_good: bool) -> Ended:
        self._forget(round_)
        return Ended(code, reason, released_nothing=True, is_for_good=is_for_good)

    async def _collect(self, round_: CurrentRound) -> Waiting | Published | Ended:
        """Ask the aggregator for the round's outcome, and verify it."""
        own, spec = self._resources, round_.spec.body
        consortium = own.book.get(spec.manifest)
        aggregator = at_present(own.book, consortium.manifest.aggregator)
        if self._long_polls and round_.id not in self._polls:
            self._poll(aggregator, round_.id)
        try:
            answer = None
            if self._long_polls:
                if not self._polls[round_.id].done():  # which wakes the trainer
                    return Waiting()
                answer = self._polls.pop(round_.id).result()
            if answer is None:
                answer = await self._peers.outcome(aggregator, round_.id)
            if answer.state is State.DECIDED:
                read, size = own.worker("reading").run_sized, len(answer.document)
                result = await read(size, verified_result, answer.document, spec, consortium)
                shown = await self._peers.partial_sums(aggregator, spec)
                sums = await read(
                    len(shown), verified_partial_sums, shown, result.body, spec, consortium
                )
                log.info("round published", job=spec.job, round=round_.id)
                return Published(result, sums)
            if answer.state is State.ABANDONED:
                return _abandoned(spec, verified_abandonment(answer.document, spec, consortium))
        except Unavailable as error:
            if own.clock() > spec.give_up_at + own.patience:
                reason = f"the aggregator does not say what became of round {spec.number}: {error}"
                return Ended("no_outcome", reason, released_nothing=False, is_for_good=True)
            return Waiting()
        except StorageUnavailable:
            raise
        except ProtocolError as error:
            reason = f"the aggregator's word on round {spec.number} is not valid: {error.code}"
            return Ended(
                "outcome_refused", f"{reason} ({error})", released_nothing=False, is_for_good=True
            )
        if self._long_polls:
            self._poll(aggregator, round_.id)
        return Waiting()

    def _poll(self, aggregator: ServiceParty, round_id: str) -> None:
        poll = asyncio.create_task(self._wait_for_outcome(aggregator, round_id))
        self._polls[round_id] = poll

    async def _wait_for_outcome(self, aggregator: ServiceParty, round_id: str) -> Answer | None:
        """Return the round's outcome once there is one, None where the aggregator does not answer.

        The next step sees to the rest, at once if there is one.
        """
        try:
            while True:
                answer = await self._peers.outcome(
                    aggregator, round_id, wait_seconds=LONG_POLL_SECONDS
                )
                if answer.state is not State.PENDING:
                    self._resources.wake.set()
                    return answer
        except Unavailable:
            log.debug("the aggregator does not answer", round=round_id)
            return None


def _abandoned(spec: RoundSpec, abandonment: Signed[Abandonment]) -> Ended:
    why = abandonment.body.reason
    said = f"{why.code} ({why.detail})" if why.detail else why.code
    reason = (
        f"round {spec.number} was abandoned: {said}; its price stays charged to the "
        f"{spec.population_size} clients that it asked; its id is {spec.digest}"
    )
    return Ended(
        why.code, reason, released_nothing=True, is_for_good=False, abandonment=abandonment
    )


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
