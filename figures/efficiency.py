"""Asymptotic efficiency: how far the private fit is from the exact one, over the number of clients.

Section 2.2 of Heikkilä et al. 2017 calls a mechanism efficient if this is at most C / N with any
probability below 1, for some C. Sums whose noise does not grow with N are; where each client adds
the whole noise it is C / sqrt(N) at best.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from figures.checks import Finding
from figures.scores import Floats
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue.linear_regression import (
    LinearRegression,
    LinearRegressionPosterior,
    LinearRegressionTask,
)
from shoal_studies.contract import RequestedRound
from shoal_studies.simulation import Federation, with_noise

NUMBERS: Final = (1_000, 3_000, 10_000, 30_000, 100_000)
FEATURES, EPSILON, DELTA = 5, 1.0, 1e-5
REPEATS: Final = 60
SEED: Final = 2020
FLAT: Final = (0.7, 1.4)
"""Of the medians at 100,000 and at 10,000 clients: one outside it is a 3-sigma event."""

METHODS: Final = ("ours", "input_perturbation")
Distances = dict[str, dict[int, Floats]]
"""N times the distance of the coefficients, by method and N, shape (repeats,)."""


@dataclass(frozen=True)
class _Fit:
    """One data set's only query, its exact sum, and the coefficients without noise."""

    step: RequestedRound
    exact: ReleasedSum
    coefficients: Floats


def run(*, numbers: tuple[int, ...] = NUMBERS, repeats: int = REPEATS) -> Distances:
    """Return the distances on simulated records, new ones for each repeat."""
    task = LinearRegressionTask(
        features=_columns()[:-1], target=_columns()[-1], method="plain", radius=1.2, intercept=0.0
    )
    learner = LinearRegression(task)
    distances: Distances = {method: {} for method in METHODS}
    for number in numbers:
        federation = Federation(
            population=number, missing=0, dropouts=0, colluders=0, epsilon=EPSILON, delta=DELTA
        )
        found: dict[str, list[float]] = {method: [] for method in METHODS}
        for repeat in range(repeats):
            generator = np.random.default_rng([SEED, number, repeat])
            fit = _without_noise(learner, _records(generator, number))
            noisy = with_noise(
                fit.step, fit.exact.values, federation, generator, asked=number, cohort=number
            )
            for method, clients in (("ours", 1), ("input_perturbation", number)):
                released = _louder(noisy, fit.exact, clients)
                away = _coefficients(learner, released) - fit.coefficients
                found[method].append(number * float(np.linalg.norm(away)))
        for method, values in found.items():
            distances[method][number] = np.array(values)
    return distances


def medians(distances: Distances) -> dict[str, dict[str, float]]:
    """Return the medians over repeats, by method and N."""
    return {
        method: {str(number): float(np.median(values)) for number, values in by_number.items()}
        for method, by_number in distances.items()
    }


def efficiency_findings(distances: Distances) -> list[Finding]:
    """Return whether N times the distance is flat for ours, and grows for input perturbation."""
    ratios = {
        method: float(np.median(by_number[100_000]) / np.median(by_number[10_000]))
        for method, by_number in distances.items()
    }
    least, most = FLAT
    return [
        Finding(
            rule="N times the distance from the exact fit is flat from 10,000 to 100,000 clients",
            holds=least <= ratios["ours"] <= most,
            detail=f"ratio of medians {ratios['ours']:.2f}, must be in [{least}, {most}]",
        ),
        Finding(
            rule="for input perturbation it grows",
            holds=ratios["input_perturbation"] > most,
            detail=f"ratio of medians {ratios['input_perturbation']:.2f}, must exceed {most}",
        ),
    ]


def _columns() -> tuple[ColumnBounds, ...]:
    names = (*(f"x{place}" for place in range(FEATURES)), "y")
    return tuple(ColumnBounds(name=name, lower=-1.0, upper=1.0) for name in names)


def _records(generator: np.random.Generator, number: int) -> Floats:
    x = generator.uniform(-0.6, 0.6, (number, FEATURES))
    slopes = np.array([0.3, -0.2, 0.1, 0.0, 0.2])
    return np.column_stack([x, x @ slopes + 0.1 * generator.standard_normal(number)])


def _without_noise(learner: LinearRegression, records: Floats) -> _Fit:
    step = learner.next(len(records), [])
    if not isinstance(step, RequestedRound):
        raise TypeError("a plain regression asks one round")
    whole = step.query.model_copy(update={"records_per_client": len(records)})
    exact = ReleasedSum(
        query=step.query,
        values=whole.encode(records),
        cohort_size=len(records),
        noise_sd=np.ones(step.query.dimension),
        mechanism="discrete_gaussian",
    )
    return _Fit(step, exact, _coefficients(learner, exact))


def _louder(noisy: ReleasedSum, exact: ReleasedSum, clients: int) -> ReleasedSum:
    """Return the sum with the noise of so many clients that each add all of it."""
    factor = np.sqrt(clients)
    noise = np.rint(factor * (noisy.values - exact.values)).astype(np.int64)
    return replace(noisy, values=exact.values + noise, noise_sd=factor * noisy.noise_sd)


def _coefficients(learner: LinearRegression, released: ReleasedSum) -> Floats:
    posterior = learner.next(released.cohort_size, [released])
    if not isinstance(posterior, LinearRegressionPosterior):
        raise TypeError("a regression ended in another kind of posterior")
    return posterior.mean
