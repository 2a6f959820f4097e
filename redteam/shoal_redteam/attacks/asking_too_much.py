"""A trainer whose rounds ask for more than they say, or than anybody agreed to."""

from collections.abc import AsyncIterator
from typing import Any, Final

from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.privacy.mechanisms import NOISES
from shoal_protocol.wire.encoding import canonical_json
from shoal_protocol.wire.errors import MalformedDocument, RefusedJob, RefusedSpec
from shoal_redteam.announcing import announced, is_honest, noise_worth, priced
from shoal_redteam.attack import Attack
from shoal_redteam.attacks.sybil import job_request
from shoal_redteam.findings import CannotAttack, Finding, refused
from shoal_redteam.forging import changed, forged
from shoal_redteam.played_round import cost_of, honest_spec
from shoal_redteam.target import Target

_SHADE: Final = 1e-6
_NO_SUCH_QUERY: Final = "raw_records"


class TooLittleNoise(Attack):
    """The trainer asks for less noise than the round's price is worth."""

    name = "too-little-noise"
    liar = "the trainer"
    tries = "less noise than the price says, than the policy allows, than the grid carries"
    stopped_by = "refused-spec, malformed-document: everyone computes the price again"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Announce each lie to every node and to the aggregator."""
        spec, policy = honest_spec(target), target.consortium.manifest.policy
        noise = spec.noise.model_dump(mode="json")
        halved, shade = spec.noise.model_copy(update={"scale": spec.noise.scale / 2}), 1.0 - _SHADE
        beyond = cost_of(target, 1.0)
        reckless = noise_worth(spec, Cost(mu=2 * beyond.mu, epsilon=2 * beyond.epsilon))
        again = "everybody computes the price again from the noise"
        refusals, malformed = {RefusedSpec.code}, {MalformedDocument.code}
        lies: dict[str, tuple[dict[str, Any], set[str], str]] = {
            "half the noise at the same price": (
                {"noise": halved.model_dump(mode="json")},
                refusals,
                again,
            ),
            "a price that is a millionth too low": (
                {"mu": spec.mu * shade, "epsilon": spec.epsilon and spec.epsilon * shade},
                refusals,
                again,
            ),
            "so little noise that one round costs more than the cap, priced as such": (
                priced(spec, noise=reckless) | {"noise": reckless.model_dump(mode="json")},
                refusals,
                "the policy's cap",
            ),
            "noise that the lattice does not carry": (
                {"noise": noise | {"scale": 0.75}},
                refusals | malformed,
                "noise must be coarse against the grid",
            ),
            "no noise": ({"noise": noise | {"scale": 0.0}}, malformed, "a scale is positive"),
            **{
                f"{mechanism}, which the policy leaves out": (
                    {"noise": noise | {"mechanism": mechanism}},
                    refusals,
                    "the policy's list of mechanisms",
                )
                for mechanism in sorted(NOISES.keys() - set(policy.mechanisms))
            },
            "a negative number of missing clients, whose noise would count twice": (
                {"dropouts": -5, "minimum_cohort": spec.population_size + 5},
                malformed,
                "tolerances are not negative",
            ),
        }
        for tried, (lie, codes, check) in lies.items():
            yield await announced(target, tried, spec, lie, by=codes, check=check)
        await is_honest(target, spec)


class TooFewColluders(Attack):
    """The trainer prices a round as if hardly any client would reveal its noise to it."""

    name = "minimum-colluders"
    liar = "the trainer, the analyst"
    tries = "a round and a job that count on more honest clients than was agreed"
    stopped_by = "refused-spec, refused-job: the policy's minimum_colluders"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Announce and submit less than the policy's minimum, or less than none."""
        spec, least = honest_spec(target), target.consortium.manifest.policy.minimum_colluders
        request = job_request(target)
        fewer = {"colluders": least - 1}
        yield await announced(
            target,
            f"a round that tolerates {least - 1} colluding clients, priced as such",
            spec,
            priced(spec, **fewer) if least else fewer,
            by={RefusedSpec.code if least else MalformedDocument.code},
            check="the policy's minimum_colluders",
        )
        await is_honest(target, spec)
        body = changed(request.body)
        body["privacy"] |= fewer
        document = forged(request.body.kind, body, target.analyst, target.key(target.analyst))
        yield refused(
            f"a job that tolerates {least - 1} colluding clients",
            {
                target.trainer: await target.send(
                    target.trainer, "/v1/jobs", canonical_json(document)
                )
            },
            by={RefusedJob.code if least else MalformedDocument.code},
            check="the policy's minimum_colluders",
        )
        taken = await target.send(target.trainer, "/v1/jobs", request.encode())
        if taken.is_refusal:
            raise CannotAttack(f"the trainer refuses an honest job: {taken.reason}")


class ForbiddenQuery(Attack):
    """The trainer asks what the catalogue or the policy does not have."""

    name = "forbidden-query"
    liar = "the trainer"
    tries = "a query outside the catalogue or the policy, or a vector that is not the query's"
    stopped_by = "malformed-document, refused-spec: the catalogue is closed"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Announce each lie to every node and to the aggregator."""
        spec = honest_spec(target)
        query = spec.query.model_dump(mode="json")
        policy = target.consortium.manifest.policy
        lies: dict[str, tuple[dict[str, Any], str, str]] = {
            "a query that the catalogue does not have": (
                {"query": query | {"name": _NO_SUCH_QUERY}},
                MalformedDocument.code,
                "the catalogue of queries is closed",
            ),
            "more records of a client than the catalogue allows": (
                {"query": query | {"records_per_client": 1_000_000}},
                MalformedDocument.code,
                "the query's own bounds",
            ),
            "a coordinate more than the query has": (
                {"dimension": spec.dimension + 1},
                RefusedSpec.code,
                "the dimension follows from the query",
            ),
            **{
                f"{name}, which the policy leaves out": (
                    {"query": query | {"name": name}},
                    RefusedSpec.code,
                    "the policy's list of queries",
                )
                for name in sorted({"second_moments", "second_moment_matrix"} - set(policy.queries))
            },
        }
        for tried, (lie, code, check) in lies.items():
            yield await announced(target, tried, spec, lie, by={code}, check=check)
        await is_honest(target, spec)
