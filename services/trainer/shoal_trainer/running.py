"""Carries running jobs from round to round; all it knows of a job is read from the store.

What is due is done again after a crash: announcing and asking change nothing when repeated, and
a round is on file, and charged, before anybody hears of it.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog
from prometheus_client import Counter
from pyroaring import BitMap

from shoal_hosting.logs import describe_exception
from shoal_learning.contract import RequestedRound
from shoal_learning.learners import learner_for
from shoal_protocol.accounting import Cost, compose
from shoal_protocol.attestations import Abandonment, Result
from shoal_protocol.documents import Signed, decode, sign
from shoal_protocol.encoding import decode_clients
from shoal_protocol.errors import ProtocolError, StorageUnavailable
from shoal_protocol.jobs import JobRequest
from shoal_protocol.manifest import Consortium, ServiceParty
from shoal_protocol.outcomes import verified_abandonment, verified_partial_sums, verified_result
from shoal_protocol.phases import JobEvent, JobPhase, Phase
from shoal_protocol.posteriors import Posterior
from shoal_protocol.rounds import RoundSpec
from shoal_trainer import store
from shoal_trainer.jobs import Released, may_open, next_spec
from shoal_trainer.peers import LONG_POLL_SECONDS, Peers, State, Unreachable, current_aggregator
from shoal_trainer.releases import conclude, find_releases, finish_job
from shoal_trainer.resources import JOB_LIST, Resources
from shoal_trainer.store import JobRecord, RoundRecord

log = structlog.get_logger()

# How long a step waits for jobs that wait for a service, such as one that is frozen.
PATIENCE_SECONDS: Final = 5.0
_NO_ANSWER: Final = "the method could not compute an answer from the task and the sums so far"


class Runner:
    """Runs jobs whose population is fixed; each waits for slow services by itself.

    With `long_polls` it keeps a question open at the aggregator for each round, and sets `wake`
    when it is answered; without, it asks in each `step` only.
    """

    def __init__(
        self, resources: Resources, peers: Peers, ends: Counter, *, long_polls: bool
    ) -> None:
        """Go on from what the storage holds; `ends` counts jobs by their end."""
        self._resources = resources
        self._peers = peers
        self._ends = ends
        self._long_polls = long_polls
        self._accepted: dict[str, frozenset[str]] = {}  # services, by round
        self._questions: dict[str, asyncio.Task[None]] = {}  # by round
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
        tasks = [*self._under_way.values(), *self._questions.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, record: JobRecord) -> asyncio.Task[None]:
        task = asyncio.create_task(self._carry_on(record))
        self._under_way[record.job] = task
        task.add_done_callback(lambda _: self._under_way.pop(record.job))
        return task

    async def _carry_on(self, record: JobRecord) -> None:
        """Take a job as far as it goes; a fault in one job must not stop the others."""
        try:
            while record.phase is JobPhase.RUNNING and await self._advance(record):
                record = await self._resources.storage.run(store.find_job, record.job)
        except StorageUnavailable:
            log.warning("storage unavailable: the job waits", job=record.job)
        except Exception as error:  # noqa: BLE001 -- logged; the job is tried again at the next step
            log.error("a job could not go on", job=record.job, **describe_exception(error))

    async def _advance(self, record: JobRecord) -> bool:
        """Do the next thing for a running job; return whether there is more to do at once."""
        rounds = await self._resources.storage.run(store.find_rounds, record.job)
        match rounds[-1].phase if rounds else Phase.PUBLISHED:
            case Phase.PUBLISHED:
                return await self._ask_learner(record, rounds)
            case Phase.ANNOUNCED:
                return await self._announce(record, rounds[-1])
            case _:
                return await self._collect(record, rounds[-1])

    async def _ask_learner(self, record: JobRecord, rounds: Sequence[RoundRecord]) -> bool:
        own, consortium = self._resources, self._resources.book.current
        request = decode(record.request, JobRequest).body
        population = decode_clients(record.population or "") & consortium.roster.enrolled_set
        outcomes = await own.storage.run(store.find_outcomes, record.job)
        released = [
            Released(decode(each.spec, RoundSpec).body, decode(outcome, Result).body)
            for each, outcome in zip(rounds, outcomes, strict=True)
        ]
        learner, sums = learner_for(request.task), [each.sum() for each in released]
        try:
            size = released[0].spec.population_size if released else max(1, len(population))
            wanted = await asyncio.to_thread(learner.next, size, sums)
        except Exception as error:  # noqa: BLE001 -- logged; it would fail again: a learner is pure
            log.error("the method failed", job=record.job, **describe_exception(error))
            said = str(error) if type(error) is ValueError else _NO_ANSWER
            return await self._fail(record, "refused_by_method", said)
        try:
            if isinstance(wanted, RequestedRound):
                begin = self._begin_round
                return await begin(record, request, released, wanted, consortium, population)
            return await self._finish(record, request, wanted)
        except ValueError as error:  # of `next_spec`, in words of our own
            return await self._fail(record, "refused_by_method", str(error))

    async def _begin_round(
        self,
        record: JobRecord,
        request: JobRequest,
        released: Sequence[Released],
        wanted: RequestedRound,
        consortium: Consortium,
        population: BitMap,
    ) -> bool:
        own = self._resources
        if len(population) < request.minimum_population:
            reason = "too many clients of the population were revoked"
            return await self._fail(record, "population_too_small", reason)
        spec = await asyncio.to_thread(
            next_spec,
            request,
            consortium,
            population,
            number=len(released),
            wanted=wanted,
            spent=[each.spec.cost for each in released],
            now=max([own.clock(), *(each.spec.opened_at for each in released)]),
        )
        signed = sign(spec, own.name, own.signing_key)
        await own.storage.run(store.add_round, signed, own.ledger, at=own.clock())
        log.info("round begins", job=record.job, round=spec.digest, number=spec.number)
        return True

    async def _announce(self, record: JobRecord, round_: RoundRecord) -> bool:
        own, spec = self._resources, decode(round_.spec, RoundSpec).body
        consortium = own.book.get(spec.manifest)
        needed = {consortium.manifest.aggregator.name, *spec.compute_nodes}
        accepted = self._accepted.get(round_.round, frozenset())
        # the last quarter of the time is for the clients
        latest = spec.deadline - (spec.deadline - spec.opened_at) / 4
        if own.clock() >= latest:
            missing = ", ".join(sorted(needed - accepted))
            late = f"round {spec.number} was not accepted in time by {missing}"
            return await self._fail(record, "not_accepted", late, abandoned_round=spec.digest)
        reception = await self._peers.announce(round_.spec, consortium, without=accepted)
        self._accepted[round_.round] = reception.accepted
        if reception.refusal is not None:
            said = reception.refusal
            return await self._fail(record, "spec_refused", said, abandoned_round=spec.digest)
        if not may_open(spec, needed - reception.accepted, now=own.clock()):
            return False
        await own.storage.run(store.open_round, round_.round)
        self._accepted.pop(round_.round)
        own.changes.tell(record.job)
        return True

    async def _collect(self, record: JobRecord, round_: RoundRecord) -> bool:
        own, spec = self._resources, decode(round_.spec, RoundSpec).body
        consortium = own.book.get(spec.manifest)
        aggregator = current_aggregator(consortium, own.book.current)
        try:
            answer = await self._peers.outcome(aggregator, round_.round)
            if answer.state is State.DECIDED:
                result = await asyncio.to_thread(verified_result, answer.document, spec, consortium)
                shown = await self._peers.partial_sums(aggregator, spec)
                sums = await asyncio.to_thread(
                    verified_partial_sums, shown, result.body, spec, consortium
                )
                await own.storage.run(store.publish_round, result, sums)
                log.info("round published", job=record.job, round=round_.round)
                return True
            if answer.state is State.ABANDONED:
                abandonment = verified_abandonment(answer.document, spec, consortium)
                return await self._fail_abandoned(record, spec, abandonment)
        except Unreachable:
            patience = own.book.current.manifest.policy.maximum_round_seconds
            if (own.clock() - spec.give_up_at).total_seconds() > patience:
                reason = f"the aggregator does not say what became of round {spec.number}"
                return await self._fail(record, "no_outcome", reason)
            return False
        except StorageUnavailable:
            raise
        except ProtocolError as error:
            reason = f"the aggregator's word on round {spec.number} is not valid: {error.code}"
            return await self._fail(record, "outcome_refused", f"{reason} ({error})")
        if self._long_polls and round_.round not in self._questions:
            question = asyncio.create_task(self._wait_for_outcome(aggregator, round_.round))
            self._questions[round_.round] = question
        return False

    async def _wait_for_outcome(self, aggregator: ServiceParty, round_id: str) -> None:
        """Keep a question open until it is answered or fails; the next step sees to the rest."""
        try:
            state = State.PENDING
            while state is State.PENDING:
                wait = LONG_POLL_SECONDS
                answer = await self._peers.outcome(aggregator, round_id, wait_seconds=wait)
                state = answer.state
            self._resources.wake.set()
        except Unreachable:
            log.debug("the aggregator does not answer", round=round_id)
        finally:
            del self._questions[round_id]

    async def _finish(self, record: JobRecord, request: JobRequest, posterior: Posterior) -> bool:
        own = self._resources
        report, certificate = await asyncio.to_thread(
            conclude,
            record.request,
            await own.storage.run(find_releases, record.job),
            population_size=len(decode_clients(record.population or "")),
            posterior=posterior,
            version=own.book.get,
            trainer=own.name,
            key=own.signing_key,
        )
        await own.storage.run(finish_job, report, certificate)
        self._ends.labels("finished").inc()
        log.info("job finished", job=record.job)
        costs = [each.spec.body.cost for each in certificate.body.rounds]
        return self._ended(record, request, costs)

    async def _fail_abandoned(
        self, record: JobRecord, spec: RoundSpec, abandonment: Signed[Abandonment]
    ) -> bool:
        why = abandonment.body.reason
        said = f"{why.code} ({why.detail})" if why.detail else why.code
        return await self._fail(
            record,
            why.code,
            f"round {spec.number} was abandoned: {said}; its id is {spec.digest}",
            abandoned_round=spec.digest,
            abandonment=abandonment,
        )

    async def _fail(
        self,
        record: JobRecord,
        code: str,
        reason: str,
        *,
        abandoned_round: str | None = None,
        abandonment: Signed[Abandonment] | None = None,
    ) -> bool:
        """End the job without a posterior; what rounds cost that clients were told of stays."""
        own, request = self._resources, decode(record.request, JobRequest).body
        rounds = await own.storage.run(store.find_rounds, record.job)
        begun = [each for each in rounds if each.phase is not Phase.ANNOUNCED]
        spent = [decode(each.spec, RoundSpec).body.cost for each in begun]
        await own.storage.run(
            store.fail_job,
            record.job,
            JobEvent.ROUND_ABANDONED,
            reason,
            at=own.clock(),
            abandoned_round=abandoned_round,
            abandonment=abandonment,
        )
        self._ends.labels("failed").inc()
        log.info("job failed", job=record.job, reason=code)  # its text may be in a peer's words
        return self._ended(record, request, spent)

    def _ended(self, record: JobRecord, request: JobRequest, spent: Sequence[Cost]) -> bool:
        """Let the clients have back what was set aside for the job and not spent."""
        own = self._resources
        population = decode_clients(record.population or "")
        own.committed.take_back(population, request.privacy.cost)
        own.committed.add(population, compose(spent))
        own.changes.tell(record.job)
        own.changes.tell(JOB_LIST)
        return False
