"""A trainer whose rounds cost more than they say, or more than anybody agreed to."""

from collections.abc import AsyncIterator
from typing import Any

from shoal_protocol.errors import BudgetExceeded, MalformedDocument, RefusedSpec
from shoal_redteam.announcing import announced, is_honest
from shoal_redteam.attack import Attack
from shoal_redteam.findings import CannotAttack, Finding, seen
from shoal_redteam.forging import call_off
from shoal_redteam.play import Play, honest_spec
from shoal_redteam.stage import Stage

_NO_SUCH_QUERY = "raw_records"


class TooLittleNoise(Attack):
    """The trainer asks for less noise than the round's price is worth."""

    name = "too-little-noise"
    liar = "the trainer"
    tries = "less noise than the price says, than the policy allows, than the grid carries"
    stopped_by = "refused-spec, malformed-document: everyone computes the price again"

    async def run(self, stage: Stage) -> AsyncIterator[Finding]:
        """Announce each lie to every node and to the aggregator."""
        spec = honest_spec(stage)
        noise = spec.noise.model_dump(mode="json")
        maximum = stage.consortium.manifest.policy.maximum_mu

        def scaled(factor: float) -> dict[str, Any]:
            return noise | {"scale": spec.noise.scale * factor}

        refuse = RefusedSpec
        yield await announced(
            stage,
            "half the noise at the same price",
            spec,
            {"noise": scaled(0.5)},
            by=refuse,
            check="the price is computed again from the noise",
        )
        yield await announced(
            stage,
            "so little noise that one round costs twice the cap, priced as such",
            spec,
            {"noise": scaled(spec.mu / (2 * maximum)), "mu": 2 * maximum},
            by=refuse,
            check="the policy's epsilon and delta",
        )
        yield await announced(
            stage,
            "noise that the lattice does not carry",
            spec,
            {"noise": noise | {"scale": 0.5}},
            by=refuse,
            check="a client's share of the noise must be fine against the grid",
        )
        yield await announced(
            stage,
            "no noise",
            spec,
            {"noise": noise | {"scale": 0.0}},
            by=MalformedDocument,
            check="a scale is positive",
        )
        yield await announced(
            stage,
            "a negative number of missing clients, whose noise would count twice",
            spec,
            {"dropouts": -5, "minimum_cohort": spec.population_size + 5},
            by=MalformedDocument,
            check="tolerances are not negative",
        )
        await is_honest(stage, spec)


class ForbiddenQuery(Attack):
    """The trainer asks what the catalogue or the policy does not have."""

    name = "forbidden-query"
    liar = "the trainer"
    tries = "a query outside the catalogue or the policy, or a vector that is not the query's"
    stopped_by = "malformed-document, refused-spec: the catalogue is closed"

    async def run(self, stage: Stage) -> AsyncIterator[Finding]:
        """Announce each lie to every node and to the aggregator."""
        spec = honest_spec(stage)
        query = spec.query.model_dump(mode="json")
        policy = stage.consortium.manifest.policy
        yield await announced(
            stage,
            "a query that the catalogue does not have",
            spec,
            {"query": query | {"name": _NO_SUCH_QUERY}},
            by=MalformedDocument,
            check="the catalogue of queries is closed",
        )
        yield await announced(
            stage,
            "more records of a client than the catalogue allows",
            spec,
            {"query": query | {"records_per_client": 1_000_000}},
            by=MalformedDocument,
            check="the query's own bounds",
        )
        yield await announced(
            stage,
            "a coordinate more than the query has",
            spec,
            {"dimension": spec.dimension + 1},
            by=RefusedSpec,
            check="the dimension follows from the query",
        )
        for name in sorted({"second_moments", "second_moment_matrix"} - set(policy.queries)):
            yield await announced(
                stage,
                f"{name}, which the policy leaves out",
                spec,
                {"query": query | {"name": name}},
                by=RefusedSpec,
                check="the policy's list of queries",
            )
        await is_honest(stage, spec)


class BeyondTheCap(Attack):
    """The trainer hides rounds from its own ledger, and asks the same clients again and again."""

    name = "budget"
    liar = "the trainer, with a ledger that it forgot"
    tries = "rounds over the same clients that together cost more than the cap"
    stopped_by = "budget-exceeded at every Compute node, by its own ledger"

    async def run(self, stage: Stage) -> AsyncIterator[Finding]:
        """Announce rounds of which any two are too much, until a node refuses."""
        price = 0.6**0.5  # of the cap, in mu: 0.6 of the budget each
        taken: dict[str, int] = dict.fromkeys(stage.nodes, 0)
        refusals: dict[str, str] = {}
        played = []
        for _ in range(3):
            play = Play(stage, stage.sign(honest_spec(stage, price=price), stage.trainer))
            answers = await play.announce()
            played.append(play)
            for name in stage.nodes:
                if answers[name].is_refusal:
                    refusals[name] = answers[name].code
                else:
                    taken[name] += 1
        for play in played:
            if await play.phase(stage.aggregator) == "announced":
                await call_off(play)
        if unexpected := set(refusals.values()) - {BudgetExceeded.code}:
            raise CannotAttack(f"refused for another reason: {', '.join(sorted(unexpected))}")
        most = max(taken.values())
        yield seen(
            "three rounds that cost 60 % of every client's budget each",
            stopped=most <= 1,
            answered=f"each node took {most} at most; {len(refusals)} nodes: budget-exceeded",
            check="each node's own ledger of what every client was charged",
        )


ATTACKS = (TooLittleNoise, ForbiddenQuery, BeyondTheCap)
