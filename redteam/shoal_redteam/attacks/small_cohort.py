"""Releases over too few clients: by a spec, by absent clients, by a lying node."""

from collections.abc import AsyncIterator

import numpy as np

from shoal_protocol.rounds.attestations import Abandonment
from shoal_protocol.wire.errors import RefusedSpec
from shoal_protocol.wire.service_errors import WrongCohort
from shoal_redteam.announcing import announced, is_honest, priced
from shoal_redteam.attack import Attack
from shoal_redteam.findings import Finding, refused, seen
from shoal_redteam.forging import claimed_sum
from shoal_redteam.played_round import SHORT_SECONDS, begin, honest_spec
from shoal_redteam.target import Target


class SmallCohort(Attack):
    """A sum over fewer clients than everybody agreed to hide in."""

    name = "small-cohort"
    liar = "the trainer; absent clients; a Compute node"
    tries = "a spec below the policy's minimum, too few answers, a partial sum over a few"
    stopped_by = "refused-spec; every node counts (cohort_too_small); wrong-cohort"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Ask for a small cohort, let too few answer, then claim one."""
        spec, least = honest_spec(target), target.consortium.manifest.policy.minimum_cohort
        few = spec.population_size - (least - 1)
        yield await announced(
            target,
            "a round of which so many may be missing that too few are left",
            spec,
            priced(spec, dropouts=few, minimum_cohort=least - 1),
            by={RefusedSpec.code},
            check="the policy's minimum_cohort",
        )
        yield await announced(
            target,
            "a minimum_cohort below what the noise counts on",
            spec,
            {"minimum_cohort": 2},
            by={RefusedSpec.code},
            check="minimum_cohort is the population less the dropouts that were priced",
        )
        yield await announced(
            target,
            "so many dropouts and colluders that nobody is left to add noise",
            spec,
            {"colluders": spec.minimum_cohort},
            by={RefusedSpec.code},
            check="Theorem 1 counts who adds noise for certain",
        )
        await is_honest(target, spec)

        played = await begin(target, seconds=SHORT_SECONDS)
        present = played.clients[: least - 1]
        await played.answer(present)
        liar = target.nodes[-1]
        claim = claimed_sum(played, liar, present, np.zeros(spec.dimension, np.uint64))
        answer = await target.send(
            target.aggregator, f"{played.path}/ends", target.sign(claim, liar).encode()
        )
        yield refused(
            "a node's partial sum over those few",
            {target.aggregator: answer},
            by={WrongCohort.code},
            check="the aggregator knows the spec's minimum_cohort",
        )
        outcome = await played.outcome()
        await played.until_over()
        reasons = {name: await played.reason(name) for name in target.nodes}
        yield seen(
            f"a round in which {least - 1} answer where {least} are needed",
            stopped=isinstance(outcome.body, Abandonment) and not await played.partial_sums(),
            answered="; ".join(f"{name}: {why}" for name, why in reasons.items()),
            check="each node counts the cohort by itself before it votes",
        )
