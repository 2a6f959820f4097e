"""Rounds with hidden participation that were paid for otherwise, or not at all."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final

from pyroaring import BitMap

from shoal_protocol.accounting import Cost
from shoal_protocol.errors import ConflictingDocument, RefusedJob, RefusedSpec
from shoal_protocol.hidden_participation import HiddenParticipation
from shoal_protocol.rounds import RoundSpec
from shoal_redteam.announcing import announced
from shoal_redteam.attack import Attack
from shoal_redteam.findings import CannotAttack, Finding, refused, seen
from shoal_redteam.forging import call_off
from shoal_redteam.many_rounds import Hidden, are_allowed, job_of, not_joined, round_of, task_of
from shoal_redteam.play import PRICE, Play, begin, cost_of
from shoal_redteam.stage import Stage
from shoal_redteam.trap import victim

_ROUNDS: Final = 3
_RATE: Final = 0.25
_SECONDS: Final = 120.0  # nothing may end by itself before all is asked


class Prepaid(Attack):
    """The trainer has more hidden rounds, or dearer ones, than a job's first round paid for."""

    name = "hidden-participation"
    liar = "the trainer"
    tries = "hidden rounds at a lower price, never paid for, with less noise, or too many"
    stopped_by = "refused-spec: each node holds a round against the first one that it charged"

    async def run(self, stage: Stage) -> AsyncIterator[Finding]:
        """Lie about the first round to all services, and about later ones to every node."""
        if not are_allowed(stage):
            job = job_of(stage, task_of(rounds=_ROUNDS, rate=_RATE), population=len(stage.crew))
            yield refused(
                "a job with hidden participation",
                {stage.trainer: await stage.send(stage.trainer, "/v1/jobs", job.encode())},
                by={RefusedJob.code},
                check="the policy's queries and mechanisms",
            )
            return
        rounds = Hidden(stage, cost_of(stage, PRICE), rate=_RATE, rounds=_ROUNDS, seconds=_SECONDS)
        first, terms = rounds.first(), rounds.terms.model_dump(mode="json")
        lies: dict[str, dict[str, Any]] = {
            "a coin that falls twice as often, at the same price": {
                "hidden": terms | {"rate": 2 * _RATE}
            },
            "one round more, at the same price": {"hidden": terms | {"rounds": _ROUNDS + 1}},
            "a first round that costs nothing": {"mu": 0.0, "epsilon": 0.0},
            "a first round that says that another one has paid": {
                "mu": 0.0,
                "epsilon": 0.0,
                "hidden": terms | {"prepaid_by": stage.random_bytes(32).hex()},
            },
            "a price for known participation without the coin": {"hidden": None},
            "a round beyond those that it pays for": {"number": _ROUNDS},
        }
        for tried, lie in lies.items():
            yield await announced(
                stage, tried, first, lie, by={RefusedSpec.code}, check="the price is worked out"
            )
        plays = [await begin(stage, first)]
        try:
            async for finding in self._unpaid(stage, rounds, first, plays):
                yield finding
            yield await self._again(
                stage, "a second first round of a job", rounds.first(seconds=31.0)
            )
            used = rounds.later(first, 2, seconds=31.0)
            yield await self._again(stage, "another round under a number that is used", used)
        finally:
            for play in plays:
                if await play.phase(stage.aggregator) == "announced":
                    await call_off(play)

    async def _unpaid(
        self, stage: Stage, rounds: Hidden, first: RoundSpec, plays: list[Play]
    ) -> AsyncIterator[Finding]:
        """Announce later rounds for which the first did not pay."""
        known = round_of(
            stage, rounds.job, BitMap(stage.crew), cost=rounds.known, number=1, seconds=_SECONDS
        )
        plays.append(await begin(stage, known))
        other = replace(rounds)  # another job, with the same terms
        plays.append(await begin(stage, other.first()))
        elsewhere = plays[-1].spec
        later, terms = rounds.later(first, 2), rounds.terms
        outsider = BitMap((*stage.crew[1:], stage.outsiders[0]))

        def by(payer: str, **changes: Any) -> HiddenParticipation:
            return terms.model_copy(update={"prepaid_by": payer} | changes)

        lies = {
            "a round that names one which nobody announced": rounds.later(
                first, 2, hidden=by(stage.random_bytes(32).hex())
            ),
            "a round that another job has paid for": rounds.later(
                first, 2, hidden=by(elsewhere.digest)
            ),
            "a round that names one in which nothing was hidden": rounds.later(
                first, 2, hidden=by(known.digest)
            ),
            "a round at another rate than was paid for": rounds.later(
                first, 2, hidden=by(first.digest, rate=2 * _RATE)
            ),
            "one of more rounds than were paid for": rounds.later(
                first, 2, hidden=by(first.digest, rounds=_ROUNDS + 1)
            ),
            "a round with a thousandth less noise": rounds.later(
                first, 2, cost=Cost.gaussian(first.known_cost.mu * 1.001)
            ),
            "a round that asks a client who has not paid": round_of(
                stage,
                rounds.job,
                outsider,
                cost=first.known_cost,
                number=2,
                seconds=_SECONDS,
                hidden=by(first.digest),
            ),
        }
        for tried, spec in lies.items():
            yield await _told(stage, tried, spec, "each node's own file of what it charged")
        plays.append(await begin(stage, later))  # which is not refused: the lies were

    async def _again(self, stage: Stage, tried: str, spec: RoundSpec) -> Finding:
        """Announce a round under a number that the job has had."""
        services = (*stage.nodes, stage.aggregator)
        answers = await stage.tell(services, "/v1/rounds", stage.sign(spec, stage.trainer).encode())
        check = "one round for each number of a job, so that none is paid for once and held twice"
        return refused(tried, answers, by={ConflictingDocument.code}, check=check)


class LiesAboutHiding(Attack):
    """The trainer hides less than the job said, or has more of it, from a client alone."""

    name = "hidden-lies-to-clients"
    liar = "the trainer, in league with all services"
    tries = "hidden rounds not as the job has them, twice, or said to be paid for"
    stopped_by = "the client's own checks; it pays for all with the first round that it answers"

    async def run(self, stage: Stage) -> AsyncIterator[Finding]:
        """Show each lie to a data holder of its own."""
        job = job_of(stage, task_of(rounds=_ROUNDS, rate=_RATE), population=len(stage.crew))
        if not are_allowed(stage):
            yield await not_joined(stage, job)
            return
        whole = job.body.privacy.cost
        rounds = Hidden(stage, whole, rate=_RATE, rounds=_ROUNDS, seconds=_SECONDS)
        first, terms = rounds.first(), rounds.terms
        cheap = Cost.gaussian(whole.mu / 10)
        never = terms.paid_by(stage.random_bytes(32).hex())
        lies = {
            "a coin that falls more often": rounds.first(
                cost=cheap, hidden=terms.model_copy(update={"rate": 1.25 * _RATE})
            ),
            "more rounds than the job has": rounds.first(
                cost=cheap, hidden=terms.model_copy(update={"rounds": _ROUNDS + 1})
            ),
            "a round in which nothing is hidden": rounds.first(cost=cheap, hidden=None),
            "a first round with a thousandth less noise": rounds.first(
                cost=Cost.gaussian(rounds.known.mu * 1.001)
            ),
            "a later round with a thousandth less noise, said to be paid for": rounds.first(
                number=1, cost=Cost.gaussian(rounds.known.mu * 1.001), hidden=never
            ),
        }
        for tried, spec in lies.items():
            async with victim(stage, rounds.job) as prey:
                answers = await prey.shown(spec)
                yield seen(
                    tried,
                    stopped=not answers and bool(prey.refusal),
                    answered=f"a data holder: {prey.refusal or 'answers'}",
                    check="the job that it joined, and the price of all its rounds",
                )
        yield await self._first_again(stage, rounds, first)
        yield await self._never_paid(stage, rounds, never)

    async def _first_again(self, stage: Stage, rounds: Hidden, first: RoundSpec) -> Finding:
        async with victim(stage, rounds.job) as prey:
            if not await prey.shown(first):
                raise CannotAttack(f"the data holder answers no honest round: {prey.refusal}")
            answers = await prey.shown(rounds.first(seconds=_SECONDS + 1.0))
            return seen(
                "a second first round",
                stopped=not answers and bool(prey.refusal),
                answered=f"a data holder: {prey.refusal or 'answers'}",
                check="one answer for a job's round, and numbers only rise",
            )

    async def _never_paid(
        self, stage: Stage, rounds: Hidden, never: HiddenParticipation
    ) -> Finding:
        """Show only later rounds, which say that a round has paid that there never was."""
        async with victim(stage, rounds.job) as prey:
            answered = [
                await prey.shown(rounds.first(number=number, hidden=never))
                for number in range(1, _ROUNDS)
            ]
            [costs] = (await prey.holder.spent()).values()
            paid, due = [cost.mu for cost in costs], rounds.whole.mu
            if not all(answered):
                raise CannotAttack(f"the data holder answers no later round: {prey.refusal}")
            return seen(
                "rounds that say that one has paid which there never was",
                stopped=paid == [due, *[0.0] * (len(answered) - 1)],
                answered=f"a data holder: answers, and pays mu {sum(paid):.3g} of {due:.3g}",
                check="whatever a round says, the first that is answered is charged for all",
            )


async def _told(stage: Stage, tried: str, spec: RoundSpec, check: str) -> Finding:
    """Announce a lie to every node; the aggregator keeps no ledger."""
    document = stage.sign(spec, stage.trainer).encode()
    answers = await stage.tell(stage.nodes, "/v1/rounds", document)
    return refused(tried, answers, by={RefusedSpec.code}, check=check)


ATTACKS = (Prepaid, LiesAboutHiding)
