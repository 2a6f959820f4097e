"""Announces one round and fetches its outcome."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from shoal_hosting.manifests.manifest_book import HANDOVER, at_present
from shoal_hosting.peers.exchange import Unavailable
from shoal_protocol.rounds.attestations import Abandonment, PartialSum, Result
from shoal_protocol.rounds.outcomes import (
    verified_abandonment,
    verified_partial_sums,
    verified_result,
)
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.trust.manifest import ServiceParty
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.errors import ProtocolError
from shoal_protocol.wire.phases import Phase
from shoal_protocol.wire.service_errors import StorageUnavailable
from shoal_trainer import store
from shoal_trainer.jobs import may_open
from shoal_trainer.peers import LONG_POLL_SECONDS, Answer, Peers, State
from shoal_trainer.progress import CurrentRound, RunningJob
from shoal_trainer.resources import Resources

log = structlog.get_logger()


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
