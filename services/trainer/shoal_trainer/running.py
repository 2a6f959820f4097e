"""Carries running jobs from round to round until they end.

All that it keeps of a job is in the store, too. After a crash, steps are repeated: announcing and
asking are idempotent, and a round is on file, and charged, before anybody hears of it.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import numpy as np
import structlog
from pyroaring import BitMap
from sqlalchemy import Connection, select

from shoal_kit.installed_models import ModelNotUsable, model_for
from shoal_kit.manifest_book import HANDOVER, at_present
from shoal_kit.peers.exchange import Unavailable
from shoal_kit.web.logs import describe_exception
from shoal_protocol.privacy.job_costs import Participation
from shoal_protocol.rounds.attestations import LONGEST_DETAIL, Abandonment, Result, RoundFailure
from shoal_protocol.rounds.batches import SPARE, choose_batch, participations
from shoal_protocol.rounds.outcomes import ReleasedSum, verified_outcome
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.trust.roster import Roster
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.errors import LedgerBroken, NotReady, ProtocolError, WrongPhase
from shoal_protocol.wire.phases import FINISHED, JobEvent, JobPhase, Phase
from shoal_protocol.wire.service_errors import StorageUnavailable
from shoal_service.keepers import Keepers
from shoal_studies.catalogue.variational import Variational
from shoal_studies.contract import Learner, RequestedRound
from shoal_studies.registry import Posterior, learner_for
from shoal_studies.study_request import StudyRequest
from shoal_trainer import schema, store
from shoal_trainer.jobs import in_own_words, may_open, next_spec
from shoal_trainer.peers import LONG_POLL_SECONDS, Peers, Reception
from shoal_trainer.releases import conclude, ended_rounds, finish_job
from shoal_trainer.resources import Resources
from shoal_trainer.store import End, FiledRows, JobRecord

log = structlog.get_logger()


@dataclass
class CurrentRound:
    """A job's newest round, and who has accepted it as long as services are asked to."""

    spec: Signed[RoundSpec]
    phase: Phase
    reception: Reception = field(default_factory=Reception)

    def failed(self, failure: RoundFailure) -> str:
        """Say that the round failed, why, and what it cost."""
        spec = self.spec.body
        charged = (
            "nobody was charged"
            if self.phase is Phase.ANNOUNCED
            else f"its price stays charged to the {spec.population_size} clients that it asked"
        )
        return f"round {spec.number} failed: {failure}; {charged}; its id is {spec.digest}"


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
    informed: set[str] = field(default_factory=set)  # nodes that were handed the request
    sums: list[ReleasedSum] = field(default_factory=list)
    lost: int = 0  # rounds that released nothing
    current: CurrentRound | None = None
    first_population_size: int | None = None

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
            most=participations(task.rounds, task.batch, len(self.population)),
        )

    def begin(self, spec: Signed[RoundSpec], phase: Phase = Phase.ANNOUNCED) -> CurrentRound:
        """Add a round that is on file, and return it."""
        body = spec.body
        self.participation.add(body.clients(), body.cost)
        self.current = CurrentRound(spec, phase)
        self.first_population_size = self.first_population_size or body.population_size
        return self.current

    def lose(self, newest: CurrentRound) -> None:
        """Note that the newest round released nothing and never will."""
        newest.phase = Phase.ABANDONED
        self.lost += 1

    def publish(self, newest: CurrentRound, result: Result) -> None:
        """Add the newest round's verified result."""
        newest.phase = Phase.PUBLISHED
        self.sums.append(ReleasedSum.of(newest.spec.body, result))


def read_job(record: JobRecord, rounds: FiledRows) -> RunningJob:
    """Return a running job from all that is on file of it."""
    request, population = record.study, record.clients
    job = RunningJob(
        record.request,
        request,
        population,
        learner_for(request.task, find_model=model_for),
        Participation(population),
    )
    for _, spec, phase, outcome in rounds:
        round_ = job.begin(decode(spec, RoundSpec), Phase(phase))
        if round_.phase is Phase.ABANDONED:
            job.lose(round_)
        elif round_.phase is Phase.PUBLISHED and outcome is not None:
            job.publish(round_, decode(outcome, Result).body)
    return job


_MAY_HAVE_RELEASED: Final = {"no_outcome", "outcome_refused"}
"""Failures after which the round may have a result all the same."""

_FOR_GOOD: Final = {"spec_refused", *_MAY_HAVE_RELEASED}
"""Failures after which another round of the job would fare no better."""


# How long a step waits for jobs that wait for a service, such as one that is frozen.
PATIENCE_SECONDS: Final = 5.0


class Runner:
    """Runs jobs whose population is fixed; a slow service delays only the job that waits for it.

    With `long_polls` jobs wait beside the steps until the aggregator has decided; without, each
    step asks once.
    """

    def __init__(
        self, resources: Resources, peers: Peers, keepers: Keepers, *, long_polls: bool
    ) -> None:
        """Go on from what the storage holds; `keepers` tell if this trainer was set back."""
        self._resources, self._keepers = resources, keepers
        self._peers, self._long_polls = peers, long_polls
        self._jobs: dict[str, RunningJob] = {}
        self._work = resources.work()

    async def step(self, running: Sequence[JobRecord]) -> None:
        """Take every job of those that run as far as it goes now.

        A job that still waits for a service after `PATIENCE_SECONDS`, or for the aggregator's
        long poll, goes on beside later steps.

        Raises:
            StorageUnavailable
        """
        if self._keepers.is_due():
            self._work.begin("keepers", self._keepers.ask)
        try:
            await self._keepers.check()
        except LedgerBroken:
            log.warning("the trainer was set back: its jobs stand still")
            return
        self._jobs = {job.job: self._jobs[job.job] for job in running if job.job in self._jobs}
        begun = [self._work.begin(f"job {job.job}", self._carry_on, job) for job in running]
        tasks = [task for task in begun if task is not None]
        if tasks and not self._long_polls:
            await asyncio.wait(tasks, timeout=PATIENCE_SECONDS)
        for job in running:
            await self._expire_if_due(job)

    async def _expire_if_due(self, record: JobRecord) -> None:
        """End a job long after its time, whatever it waits for: its clients' budgets come free."""
        own, reason = self._resources, "the job was not done by the end of its time"
        if own.clock() <= record.ends_by + own.patience:
            return
        with suppress(WrongPhase):  # it has just ended
            spent = await own.journal.run(store.end_job, record.job, JobEvent.TIME_OVER, reason)
            own.end_job(record.job, "failed", record.study.privacy.cost, spent, reason="time_over")

    async def oldest_open(self) -> datetime | None:
        """Return when the oldest round was opened that is not over; None: there is none."""
        specs = await self._resources.storage.run(_open_rounds)
        return min((decode(each, RoundSpec).body.opened_at for each in specs), default=None)

    async def _carry_on(self, record: JobRecord) -> None:
        """Take a job as far as it goes; a fault in one job must not stop the others."""
        job = self._jobs.pop(record.job, None)  # after an error the job is read anew
        try:
            if job is None:
                rounds = await self._resources.storage.run(store.filed_rounds, record.job)
                job = await asyncio.to_thread(read_job, record, rounds)
            while await self._advance(job):
                pass
            self._jobs[record.job] = job
        except StorageUnavailable:
            log.warning("storage unavailable: the job waits", job=record.job)
        except WrongPhase:
            log.info("the job has ended meanwhile", job=record.job)
        except NotReady as error:
            log.warning("the job waits", job=record.job, reason=str(error))
            raise Unavailable(str(error)) from error
        except ModelNotUsable as error:  # it was when the job was taken, and may be again
            log.error("the job waits for its model", job=record.job, reason=str(error))
        except Exception as error:  # noqa: BLE001 -- logged; the job is tried again at the next step
            log.error("a job could not go on", job=record.job, **describe_exception(error))

    async def _advance(self, job: RunningJob) -> bool:
        """Do the next thing for a running job; tell whether there is more to do at once."""
        current = job.current
        if current is None or current.phase in FINISHED:
            return await self._ask_learner(job)
        step = self._announce if current.phase is Phase.ANNOUNCED else self._collect
        end = await step(job, current)
        return end if isinstance(end, bool) else await self._lose(job, current, end)

    async def _announce(self, job: RunningJob, round_: CurrentRound) -> RoundFailure | bool:
        """Offer the round to the services that have not accepted it, and open it if enough have."""
        own, spec = self._resources, round_.spec.body
        consortium = own.book.get(spec.manifest)
        needed = {consortium.manifest.aggregator.name, *spec.compute_nodes}
        before = round_.reception
        # the last quarter of the time is for the clients
        latest = spec.deadline - (spec.deadline - spec.opened_at) / 4
        if own.clock() >= latest:
            missing = ", ".join(
                f"{name} ({before.open.get(name, 'not asked in time')})"
                for name in sorted(needed - before.accepted)
            )
            return RoundFailure(code="not_accepted", detail=missing[:LONGEST_DETAIL])
        reception = await self._peers.announce(
            round_.spec.encode(),
            consortium,
            request=job.encoded,
            asked_under=own.book.get(job.request.manifest),
            informed=job.informed,
            without=before.accepted,
        )
        if reception.refusal is not None:
            return RoundFailure(code="spec_refused", detail=reception.refusal)
        if may_open(spec, needed - reception.accepted, now=own.clock()):
            await own.storage.run(store.open_round, round_.spec.digest)
            round_.phase = Phase.COLLECTING
            own.opened[job.id] = (spec.number, round_.spec.encode())
            own.changes.tell(job.id)
            return True
        is_over = own.clock() >= spec.opened_at + HANDOVER
        if is_over and consortium.digest != own.book.current.digest:  # nobody takes it now
            return RoundFailure(code="manifest_changed")
        round_.reception = reception
        return False

    async def _collect(self, job: RunningJob, round_: CurrentRound) -> End | bool:
        """Ask the aggregator for the round's outcome, verify it, and store a result."""
        own, spec = self._resources, round_.spec.body
        consortium = own.book.get(spec.manifest)
        aggregator = at_present(own.book, consortium.manifest.aggregator)
        read = own.worker("reading").run_sized
        try:
            seconds = LONG_POLL_SECONDS if self._long_polls else 0
            outcome = await self._peers.outcome(aggregator, spec, wait_seconds=seconds)
            if outcome is None:
                return False
            signed, sums = await read(len(outcome), verified_outcome, outcome, spec, consortium)
        except Unavailable as error:
            if own.clock() <= spec.give_up_at + own.patience:
                return False
            return RoundFailure(code="no_outcome", detail=str(error)[:LONGEST_DETAIL])
        except StorageUnavailable:
            raise
        except ProtocolError as error:
            said = f"{error.code}: {error}"
            return RoundFailure(code="outcome_refused", detail=said[:LONGEST_DETAIL])
        if isinstance(signed.body, Abandonment):
            return signed
        await own.storage.run(store.publish_round, signed, sums)
        job.publish(round_, signed.body)
        log.info("round published", job=job.id, round=spec.digest)
        return True

    async def _lose(self, job: RunningJob, round_: CurrentRound, end: End) -> bool:
        """Go on without the round if the job can spare it, and fail the job if not."""
        own, spare = self._resources, job.request.terms.rounds // SPARE
        failure = end if isinstance(end, RoundFailure) else end.body.reason
        if failure.code in _FOR_GOOD or job.lost >= spare:
            reason = round_.failed(failure)
            if job.lost > 0:
                reason = f"round {job.lost + 1} to be lost: {reason}"
            is_certain = failure.code not in _MAY_HAVE_RELEASED
            certain = (round_.spec.digest, end) if is_certain else None
            return await self._fail(job, failure.code, reason, certain)
        await own.journal.run(store.lose_round, round_.spec.digest, end)
        own.opened.pop(job.id, None)
        job.lose(round_)
        log.info("round lost", job=job.id, round=round_.spec.digest, reason=failure.code)
        return True

    async def _ask_learner(self, job: RunningJob) -> bool:
        if job.is_over:  # before the learner computes a posterior that cannot be signed yet
            await self._keepers.check_begun()
        consortium = self._resources.book.current
        present = job.population & consortium.roster.enrolled_set
        clients = None if job.is_over else job.next_to_ask(present, consortium.roster)
        try:
            wanted = await asyncio.to_thread(_wanted, job, max(1, len(present)), clients is None)
        except Exception as error:  # noqa: BLE001 -- logged; it would fail again: a learner is pure
            log.error("the method failed", job=job.id, **describe_exception(error))
            return await self._fail(job, "refused_by_method", in_own_words(error))
        try:
            if not isinstance(wanted, RequestedRound):
                return await self._finish(job, wanted)
            if reason := self._no_further_round(job, consortium):
                return await self._fail(job, "parties_changed", reason)
            if clients is None or len(present) < job.request.minimum_population:
                reason = "too many clients of the population were revoked"
                return await self._fail(job, "population_too_small", reason)
            return await self._begin_round(job, wanted, consortium, clients)
        except ValueError as error:  # of `next_spec`
            return await self._fail(job, "refused_by_method", in_own_words(error))

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
    ) -> bool:
        own = self._resources
        now = own.clock()
        if job.current is not None:  # the clock may have been set back since
            now = max(now, job.current.spec.body.opened_at)
        spec = await asyncio.to_thread(
            next_spec,
            job.request,
            consortium,
            clients,
            number=job.next_number,
            wanted=wanted,
            spent=job.participation.largest(clients),
            now=now,
        )
        signed = own.sign(spec)
        await own.journal.run(store.add_round, signed, own.ledger)
        job.begin(signed)
        log.info("round begins", job=job.id, round=spec.digest, number=spec.number)
        return True

    async def _finish(self, job: RunningJob, posterior: Posterior) -> bool:
        """End a job with its posterior and report; its certificate follows.

        Raises:
            ValueError: these rounds make no report.
            NotReady: too few keepers of the journal answered since the start.
        """
        own = self._resources
        await self._keepers.check_begun()
        ended = await own.storage.run(ended_rounds, job.id)
        report = await asyncio.to_thread(conclude, job.request, ended, job.population, posterior)
        spent = await own.journal.run(finish_job, report, own.sign)
        own.end_job(job.id, "finished", job.request.privacy.cost, spent)
        return False

    async def _fail(
        self,
        job: RunningJob,
        code: str,
        reason: str,
        lost: tuple[str, End] | None = None,
    ) -> bool:
        """End a job without a posterior, and with it the round `lost`, which released nothing.

        What rounds cost that clients were told of stays charged.
        """
        own = self._resources
        spent = await own.journal.run(
            store.end_job, job.id, JobEvent.ROUND_ABANDONED, reason, lost=lost
        )
        # the reason's text may be in a peer's words
        own.end_job(job.id, "failed", job.request.privacy.cost, spent, reason=code)
        return False


def _wanted(job: RunningJob, present: int, is_over: bool) -> RequestedRound | Posterior:
    """Return what the learner wants, or its posterior once no round will follow.

    `present` are the clients who joined and are still enrolled. A job that is over before it has
    all its sums lost rounds; what is left of it is a posterior only if it could spare them.
    """
    learner, sums, task = job.learner, job.sums, job.request.task
    # before a round that asks all who joined, N is not known
    size = len(job.population) if task.batch is not None else job.first_population_size or present
    enough = len(sums) >= task.rounds - task.rounds // SPARE
    if is_over and enough and isinstance(learner, Variational):
        return learner.conclude(size, sums)
    return learner.next(size, sums)


def _open_rounds(db: Connection) -> Sequence[bytes]:
    """Return the signed specs of running jobs' rounds that are not over."""
    columns = schema.rounds.c
    is_open = columns.phase.not_in([phase.value for phase in FINISHED])
    running = select(schema.jobs.c.id).where(schema.jobs.c.phase == JobPhase.RUNNING.value)
    return db.execute(select(columns.spec).where(is_open, columns.job.in_(running))).scalars().all()
