"""Specs with a lie in them, announced to everybody, and the same without it for comparison."""

from collections.abc import Collection, Mapping
from typing import Any

from shoal_protocol.privacy.accounting import Cost, price
from shoal_protocol.privacy.job_costs import noise_for
from shoal_protocol.privacy.mechanisms import DiscreteGaussianNoise, DiscreteLaplaceNoise
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.encoding import canonical_json
from shoal_redteam.findings import Finding, refused
from shoal_redteam.forging import call_off, changed, forged
from shoal_redteam.played_round import begin
from shoal_redteam.target import Target


async def announced(
    target: Target,
    tried: str,
    spec: RoundSpec,
    lie: Mapping[str, Any],
    *,
    by: Collection[str],
    check: str,
) -> Finding:
    """Announce `spec` with a lie in it, signed by the trainer, to all that take rounds.

    The caller announces `spec` itself afterwards: the lie is then all that was wrong.
    """
    body = changed(spec, **lie)
    document = canonical_json(forged(spec.kind, body, target.trainer, target.key(target.trainer)))
    names = (*target.nodes, target.aggregator)
    answers = await target.announce(names, document, job=spec.job)
    return refused(tried, answers, by=by, check=check)


def priced(spec: RoundSpec, **changes: Any) -> dict[str, Any]:
    """Return changes to a spec with the price that they have: so that it is no lie too."""
    lie = spec.model_copy(update=changes)
    cost = price(
        lie.noise,
        sensitivity=lie.design.sensitivity,
        population=lie.population_size,
        dropouts=lie.dropouts,
        colluders=lie.colluders,
    )
    return changes | {"mu": cost.mu, "epsilon": cost.stated_epsilon}


def noise_worth(spec: RoundSpec, cost: Cost) -> DiscreteGaussianNoise | DiscreteLaplaceNoise:
    """Return the noise with which a spec would cost that much."""
    return noise_for(
        spec.noise.mechanism,
        sensitivity=spec.design.sensitivity,
        cost=cost,
        population=spec.population_size,
        dropouts=spec.dropouts,
        colluders=spec.colluders,
    )


async def is_honest(target: Target, spec: RoundSpec) -> None:
    """Announce a spec without the lies that were told of it, and call the round off.

    Were it refused too, the refusals of the lies would prove nothing.

    Raises:
        CannotAttack: it is refused.
    """
    await call_off(await begin(target, spec))
