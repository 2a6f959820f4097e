"""A trainer whose rounds cost more than they say, or more than anybody agreed to."""

from collections.abc import AsyncIterator
from typing import Any, Final

import numpy as np

from shoal_protocol.accounting import Cost, compose
from shoal_protocol.encoding import canonical_json
from shoal_protocol.errors import (
    BudgetExceeded,
    MalformedDocument,
    RefusedJob,
    RefusedSpec,
    WrongCharge,
)
from shoal_protocol.mechanisms import NOISES
from shoal_redteam.announcing import announced, is_honest, noise_worth, priced
from shoal_redteam.attack import Attack
from shoal_redteam.attacks.sybil import job_request
from shoal_redteam.findings import CannotAttack, Finding, refused, seen
from shoal_redteam.forging import call_off, changed, claimed_sum, forged
from shoal_redteam.play import Play, begin, cost_of, honest_spec
from shoal_redteam.stage import Stage

_PRICE: Final = 0.6  # of a budget
_ROUNDS: Final = 8
_NO_SUCH_QUERY: Final = "raw_records"


class TooLittleNoise(Attack):
    """The trainer asks for less noise than the round's price is worth."""

    name = "too-little-noise"
    liar = "the trainer"
    tries = "less noise than the price says, than the policy allows, than the grid carries"
    stopped_by = "refused-spec, malformed-document: everyone computes the price again"

    async def run(self, stage: Stage) -> AsyncIterator[Finding]:
        """Announce each lie to every node and to the aggregator."""
        spec, policy = honest_spec(stage), stage.consortium.manifest.policy
        noise = spec.noise.model_dump(mode="json")
        halved = spec.noise.model_copy(update={"scale": spec.noise.scale / 2})
        yield await announced(
            stage,
            "half the noise at the same price",
            spec,
            {"noise": halved.model_dump(mode="json")},
            by={RefusedSpec.code},
            check="everybody computes the price again from the noise",
        )
        beyond = cost_of(stage, 1.0)
        reckless = noise_worth(spec, Cost(mu=2 * beyond.mu, epsilon=2 * beyond.epsilon))
        priced_so = priced(spec, noise=reckless) | {"noise": reckless.model_dump(mode="json")}
        yield await announced(
            stage,
            "so little noise that one round costs more than the cap, priced as such",
            spec,
            priced_so,
            by={RefusedSpec.code},
            check="the policy's cap",
        )
        yield await announced(
            stage,
            "noise that the lattice does not carry",
            spec,
            {"noise": noise | {"scale": 0.75}},
            by={RefusedSpec.code, MalformedDocument.code},
            check="noise must be coarse against the grid",
        )
        yield await announced(
            stage,
            "no noise",
            spec,
            {"noise": noise | {"scale": 0.0}},
            by={MalformedDocument.code},
            check="a scale is positive",
        )
        for mechanism in sorted(NOISES.keys() - set(policy.mechanisms)):
            yield await announced(
                stage,
                f"{mechanism}, which the policy leaves out",
                spec,
                {"noise": noise | {"mechanism": mechanism}},
                by={RefusedSpec.code},
                check="the policy's list of mechanisms",
            )
        yield await announced(
            stage,
            "a negative number of missing clients, whose noise would count twice",
            spec,
            {"dropouts": -5, "minimum_cohort": spec.population_size + 5},
            by={MalformedDocument.code},
            check="tolerances are not negative",
        )
        await is_honest(stage, spec)


class TooFewColluders(Attack):
    """The trainer prices a round as if hardly any client would reveal its noise to it."""

    name = "minimum-colluders"
    liar = "the trainer, the analyst"
    tries = "a round and a job that count on more honest clients than was agreed"
    stopped_by = "refused-spec, refused-job: the policy's minimum_colluders"

    async def run(self, stage: Stage) -> AsyncIterator[Finding]:
        """Announce and submit less than the policy's minimum, or less than none."""
        spec, least = honest_spec(stage), stage.consortium.manifest.policy.minimum_colluders
        request = job_request(stage)
        fewer = {"colluders": least - 1}
        yield await announced(
            stage,
            f"a round that tolerates {least - 1} colluding clients, priced as such",
            spec,
            priced(spec, **fewer) if least else fewer,
            by={RefusedSpec.code if least else MalformedDocument.code},
            check="the policy's minimum_colluders",
        )
        await is_honest(stage, spec)
        body = changed(request.body)
        body["privacy"] |= fewer
        document = forged(request.body.kind, body, stage.analyst, stage.key(stage.analyst))
        yield refused(
            f"a job that tolerates {least - 1} colluding clients",
            {stage.trainer: await stage.send(stage.trainer, "/v1/jobs", canonical_json(document))},
            by={RefusedJob.code if least else MalformedDocument.code},
            check="the policy's minimum_colluders",
        )
        taken = await stage.send(stage.trainer, "/v1/jobs", request.encode())
        if taken.is_refusal:
            raise CannotAttack(f"the trainer refuses an honest job: {taken.reason}")


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
            by={MalformedDocument.code},
            check="the catalogue of queries is closed",
        )
        yield await announced(
            stage,
            "more records of a client than the catalogue allows",
            spec,
            {"query": query | {"records_per_client": 1_000_000}},
            by={MalformedDocument.code},
            check="the query's own bounds",
        )
        yield await announced(
            stage,
            "a coordinate more than the query has",
            spec,
            {"dimension": spec.dimension + 1},
            by={RefusedSpec.code},
            check="the dimension follows from the query",
        )
        for name in sorted({"second_moments", "second_moment_matrix"} - set(policy.queries)):
            yield await announced(
                stage,
                f"{name}, which the policy leaves out",
                spec,
                {"query": query | {"name": name}},
                by={RefusedSpec.code},
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
        """Announce rounds of 60 % of a budget each, until every node refuses."""
        cap = stage.consortium.manifest.policy.cap
        taken: dict[str, list[Cost]] = {name: [] for name in stage.nodes}
        refusals: dict[str, str] = {}
        played: list[Play] = []
        while len(played) < _ROUNDS and len(refusals) < len(stage.nodes):
            play = Play(stage, stage.sign(honest_spec(stage, price=_PRICE), stage.trainer))
            played.append(play)
            for name, answer in (await play.announce()).items():
                if answer.is_refusal:
                    refusals[name] = answer.code
                elif name in taken:
                    taken[name].append(play.spec.cost)
        for play in played:
            if await play.phase(stage.aggregator) == "announced":
                await call_off(play)
        if unexpected := set(refusals.values()) - {BudgetExceeded.code}:
            raise CannotAttack(f"refused for another reason: {', '.join(sorted(unexpected))}")
        yield seen(
            "rounds that cost 60 % of every client's budget each",
            stopped=len(refusals) == len(stage.nodes)
            and all(cap.allows(compose(costs)) for costs in taken.values()),
            answered=f"nodes took {', '.join(str(len(each)) for each in taken.values())} of them; "
            f"then {len(refusals)} nodes: {BudgetExceeded.code}",
            check="each node's own ledger of what every client was charged",
        )


class Uncharged(Attack):
    """A node releases sums that it never charged to anybody, or charged to less."""

    name = "uncharged"
    liar = "a Compute node that forgets its ledger"
    tries = "a partial sum without the round's charge: of another round, cheaper, of another ledger"
    stopped_by = "wrong-charge: every partial sum carries its node's own entry for the round"

    async def run(self, stage: Stage) -> AsyncIterator[Finding]:
        """Offer the aggregator partial sums with other charges than the round's."""
        play, other = await begin(stage), await begin(stage)
        liar, another = stage.nodes[-1], stage.nodes[0]
        values = np.frombuffer(stage.random_bytes(8 * play.spec.dimension), np.uint64)
        honest = claimed_sum(play, liar, play.clients, values)
        entry = honest.charge
        lies: dict[str, dict[str, Any]] = {
            "the charge of another round": {"round": other.signed.digest},
            "a charge of half the price": {"mu": entry.mu / 2},
            "a charge to a client less": {"clients": entry.clients - 1},
            "a charge that it gave back": {"kind": "return"},
            "another node's charge": {"ledger": another},
        }
        for tried, lie in lies.items():
            body = honest.model_copy(update={"charge": entry.model_copy(update=lie)})
            content = stage.sign(body, liar).encode()
            answer = await stage.send(stage.aggregator, f"{play.path}/partial-sums", content)
            yield refused(
                tried,
                {stage.aggregator: answer},
                by={WrongCharge.code},
                check="the entry must be what the spec costs its population",
            )
        await call_off(other)
        await play.answer(play.clients)
        yield seen(
            "the total of that round",
            stopped=await play.released_exactly(play.clients)
            and [each.body.node for each in await play.partial_sums()] == list(stage.nodes),
            answered=f"{stage.aggregator}: the sum of the answers, from the nodes' own sums",
            check="none of these sums was kept",
        )


ATTACKS = (TooLittleNoise, TooFewColluders, ForbiddenQuery, BeyondTheCap, Uncharged)
