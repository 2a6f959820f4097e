"""A whole job without parties: a learner's rounds on records in memory, for experiments only.

The noise is drawn by numpy, rounded to integers: the right distribution, and no privacy.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.accounting import Cap, noise_for
from shoal_protocol.posteriors import Posterior
from shoal_protocol.queries import NoiseDesign, SecondMomentMatrix, SecondMoments
from shoal_trainer.learning import Learner, ReleasedSum


@dataclass(frozen=True, kw_only=True)
class Federation:
    """How many clients there are, how many of them fail or collude, and what a job may cost."""

    population: int
    missing: int
    dropouts: int
    colluders: int
    epsilon: float
    delta: float


@dataclass(frozen=True)
class Outcome:
    """A job's posterior and the sums that it came from."""

    posterior: Posterior
    sums: tuple[ReleasedSum, ...]


def run(
    learner: Learner,
    records: NDArray[np.float64],
    federation: Federation,
    generator: np.random.Generator,
) -> Outcome:
    """Return the posterior that `learner` would get from `records`, shape (population, columns).

    The first `missing` clients fail before every round; the noise is calibrated for `dropouts`.
    """
    budget = Cap(epsilon=federation.epsilon, delta=federation.delta)
    sums: list[ReleasedSum] = []
    while True:
        step = learner.next(federation.population, sums)
        if isinstance(step, Posterior):
            return Outcome(step, tuple(sums))
        design = step.query.design("discrete_gaussian")
        noise = noise_for(
            "discrete_gaussian",
            sensitivity=design.sensitivity,
            cost=budget.part(step.share),
            population=federation.population,
            dropouts=federation.dropouts,
            colluders=federation.colluders,
        )
        cohort = records[federation.missing :]
        noise_sd = noise.scale * math.sqrt(len(cohort)) * _relative_scales(design)
        sums.append(
            ReleasedSum(
                query=step.query,
                values=_sum(step.query, cohort) + _noise(noise_sd, generator),
                cohort_size=len(cohort),
                noise_sd=noise_sd,
            )
        )


def _sum(
    query: SecondMoments | SecondMomentMatrix, cohort: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return the sum over clients of one record each, in one go."""
    return query.model_copy(update={"records_per_client": len(cohort)}).encode(cohort)


def _relative_scales(design: NoiseDesign) -> NDArray[np.float64]:
    return np.repeat(
        [block.relative_scale for block in design.blocks],
        [block.coordinates for block in design.blocks],
    )


def _noise(noise_sd: NDArray[np.float64], generator: np.random.Generator) -> NDArray[np.int64]:
    return np.rint(noise_sd * generator.standard_normal(len(noise_sd))).astype(np.int64)
