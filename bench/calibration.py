"""How often the linear regression's intervals hold, by simulation.

    python -m bench.calibration [--methods plain ball_projection] [--repeats 60] [--seed 1]

One generator runs through the table, so that a row's numbers depend on the methods before it.

Noise is drawn by numpy, rounded to integers, as in `shoal_studies.simulation`; delta is 1e-5;
20 clients may drop out, 10 of them do, 10 more may collude.
"""

import argparse
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.queries.columns import ColumnBounds
from shoal_studies.catalogue.linear_regression import (
    LinearRegression,
    LinearRegressionPosterior,
    LinearRegressionTask,
    RegressionMethod,
)
from shoal_studies.registry import Posterior
from shoal_studies.simulation import Federation, Outcome, run

Floats = NDArray[np.float64]

LEVEL = 0.9
METHODS: tuple[RegressionMethod, ...] = ("plain", "ball_projection")
SIZES = (400, 1000, 5000)
FEATURES = (3, 10)
EPSILONS = (1.0, 2.0, 5.0)


@dataclass(frozen=True, kw_only=True)
class Truth:
    """Records, shape (n, d + 1), and what they were drawn from."""

    records: Floats
    coefficients: Floats  # intercept first
    residual_sd: float


def federation(clients: int, epsilon: float) -> Federation:
    """Return the setting of all experiments: a cohort of `clients` once ten are missing."""
    return Federation(
        population=clients + 10, missing=10, dropouts=20, colluders=10, epsilon=epsilon, delta=1e-5
    )


def typical(generator: np.random.Generator, n: int, d: int) -> Truth:
    """Draw correlated columns that fill their bounds unevenly; 20 to 70 % of y is explained."""
    shared = generator.standard_normal((n, 1))
    own = generator.standard_normal((n, d))
    middle, spread = generator.uniform(-0.3, 0.3, d), generator.uniform(0.2, 0.4, d)
    x = np.clip(middle + spread * (np.sqrt(0.3) * shared + np.sqrt(0.7) * own), -1.0, 1.0)
    explained, total = generator.uniform(0.2, 0.7), generator.uniform(0.2, 0.35)
    b = generator.standard_normal(d)
    b *= total * np.sqrt(explained) / np.std(x @ b)
    return _truth(generator, x, b, generator.uniform(-0.2, 0.2), total * np.sqrt(1.0 - explained))


def from_prior(generator: np.random.Generator, n: int, d: int) -> Truth:
    """Draw coefficients from the default prior, and columns with narrow, independent spread."""
    x = np.clip(generator.normal(0.0, 0.25, (n, d)), -1.0, 1.0)
    return _truth(generator, x, generator.normal(0.0, 0.5, d), 0.0, generator.uniform(0.1, 0.3))


def _truth(
    generator: np.random.Generator, x: Floats, b: Floats, level: float, residual_sd: float
) -> Truth:
    intercept = float(level - x.mean(axis=0) @ b)
    y = intercept + x @ b + residual_sd * generator.standard_normal(len(x))
    return Truth(
        records=np.column_stack([x, y]),
        coefficients=np.concatenate([[intercept], b]),
        residual_sd=residual_sd,
    )


def unit_task(d: int, *, method: RegressionMethod) -> LinearRegressionTask:
    """Return the task for columns that are normalised already."""
    return LinearRegressionTask(
        features=tuple(ColumnBounds(name=f"x{j}", lower=-1.0, upper=1.0) for j in range(d)),
        target=ColumnBounds(name="y", lower=-1.0, upper=1.0),
        method=method,
    )


def naive(
    learner: LinearRegression, outcome: Outcome, population: int
) -> LinearRegressionPosterior:
    """Return the posterior that one would have by taking the noisy sums for exact ones."""
    exact = replace(outcome.sums[-1], noise_sd=1e-6 * outcome.sums[-1].noise_sd)
    posterior = learner.next(population, [*outcome.sums[:-1], exact])
    if not isinstance(posterior, LinearRegressionPosterior):
        raise TypeError("the learner asks for a round that the outcome already holds")
    return posterior


def covered(posterior: Posterior, truth: Truth) -> NDArray[np.bool_]:
    """Tell for each coefficient whether its interval holds the truth."""
    low, high = posterior.interval(LEVEL).T
    return np.asarray((low <= truth.coefficients) & (truth.coefficients <= high))


def coverage_row(
    draw: Callable[[np.random.Generator, int, int], Truth],
    n: int,
    d: int,
    epsilon: float,
    method: RegressionMethod,
    repeats: int,
    generator: np.random.Generator,
) -> list[float]:
    """Return coverage of slopes, intercept, new targets, naive slopes; then sd, error, s ratio."""
    learner = LinearRegression(unit_task(d, method=method))
    setting = federation(n, epsilon)
    rows = []
    for _ in range(repeats):
        truth = draw(generator, setting.population, d)
        outcome = run(learner, truth.records, setting, generator)
        posterior = outcome.posterior
        if not isinstance(posterior, LinearRegressionPosterior):
            raise TypeError("the learner is not that of a linear regression")
        holds = covered(posterior, truth)
        mean, sd = posterior.predict(truth.records[:, :-1])
        gaps = np.abs(mean - truth.records[:, -1])
        rows.append(
            [
                np.mean(holds[1:]),
                holds[0],
                np.mean(gaps < 1.6449 * sd),
                np.mean(covered(naive(learner, outcome, setting.population), truth)[1:]),
                np.sqrt(np.mean(posterior.sd[1:] ** 2)),
                np.sqrt(np.mean((posterior.mean - truth.coefficients)[1:] ** 2)),
                posterior.residual_sd / truth.residual_sd,
            ]
        )
    return [float(value) for value in np.mean(np.array(rows, dtype=np.float64), axis=0)]


def print_coverage(methods: Sequence[RegressionMethod], repeats: int, seed: int) -> None:
    """Print a table of coverages."""
    print(f"Coverage of {LEVEL:.0%} intervals, {repeats} data sets a row\n")
    print(
        "| data | method | n | d | epsilon | slopes | intercept | new y | naive slopes "
        "| mean sd | error | s / true s |\n|" + "---|" * 12
    )
    designs = list(itertools.product((typical, from_prior), methods))
    generator = np.random.default_rng(seed)
    for draw, method in designs:
        for n in SIZES:
            for d in FEATURES:
                for epsilon in EPSILONS:
                    values = coverage_row(draw, n, d, epsilon, method, repeats, generator)
                    figures = " | ".join(f"{value:.3f}" for value in values)
                    label = f"{draw.__name__} | {method} | {n} | {d} | {epsilon:g}"
                    print(f"| {label} | {figures} |", flush=True)


def main() -> None:
    """Read the options and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="+", choices=get_args(RegressionMethod), default=METHODS)
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print_coverage(arguments.methods, arguments.repeats, arguments.seed)


if __name__ == "__main__":
    main()
