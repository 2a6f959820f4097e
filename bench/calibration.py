"""How often the linear regression's intervals hold, and how well it predicts, by simulation.

    python -m bench.calibration [--methods plain ball_projection] [--repeats 60] [--seed 1]

One generator runs through each table, so that a row's numbers depend on the methods before it.

Noise is drawn by numpy, rounded to integers, as in `shoal_learning.simulation`; delta is 1e-5;
20 clients may drop out, 10 of them do, 10 more may collude.
"""

import argparse
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from demo import diabetes
from shoal_learning.linear_regression import LinearRegression
from shoal_learning.quasi_likelihood import NoisyMoments, ridge_estimate
from shoal_learning.simulation import Federation, Outcome, run
from shoal_protocol.queries import SecondMomentMatrix
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.queries.sums import matrix_from
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.studies import Posterior
from shoal_protocol.studies.linear_regression import (
    LinearRegressionPosterior,
    LinearRegressionTask,
    RegressionMethod,
)
from shoal_protocol.studies.measurements import record_count

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


def ridge_predictions(sum_: ReleasedSum, x: Floats) -> Floats:
    """Return what a ridge matched to the noise, without its posterior, predicts for rows `x`."""
    query = sum_.query
    if not isinstance(query, SecondMomentMatrix):
        raise TypeError("ridge regression needs the matrix of second moments")
    diagonal_sd, off_diagonal_sd = (sum_.noise_sd[[0, -2]] / query.grid**2).tolist()
    estimate = ridge_estimate(
        NoisyMoments(
            matrix=matrix_from(query, sum_.values),
            diagonal_sd=diagonal_sd,
            off_diagonal_sd=off_diagonal_sd,
            records=record_count(sum_),
            records_sd=0.0,
            largest_square=math.inf,
        )
    )
    *features, target = query.columns
    centres, scales = np.array([(column.centre, column.scale) for column in features]).T
    scores = query.intercept * estimate[0] + (x - centres) / scales @ estimate[1:]
    predictions: Floats = target.centre + target.scale * scores
    return predictions


def print_diabetes(methods: Sequence[RegressionMethod], repeats: int, seed: int) -> None:
    """Print mean absolute errors on the demonstration's held-out patients."""
    data = diabetes.load()
    training, held_out = data.asked_for(data.training), data.asked_for(data.held_out)
    x, y = held_out[:, :-1], held_out[:, -1]
    design = np.column_stack([np.ones(len(training)), training[:, :-1]])
    fit = np.linalg.lstsq(design, training[:, -1], rcond=None)[0]
    exact = np.mean(np.abs(fit[0] + x @ fit[1:] - y))
    trivial = np.mean(np.abs(np.mean(training[:, -1]) - y))
    print(f"\nDiabetes, held-out error without privacy {exact:.1f}, of the mean {trivial:.1f}\n")
    print(
        "| method | epsilon | median error | 5 % | 95 % | new y in 90 % | ridge, median error |\n|"
        + "---|" * 7
    )
    generator = np.random.default_rng(seed)
    for method in methods:
        learner = LinearRegression(diabetes.TASK.model_copy(update={"method": method}))
        for epsilon in EPSILONS:
            setting = replace(federation(0, epsilon), population=len(training), colluders=8)
            errors, held, ridge = [], [], []
            for _ in range(repeats):
                outcome = run(learner, training, setting, generator)
                posterior = outcome.posterior
                if not isinstance(posterior, LinearRegressionPosterior):
                    raise TypeError("the learner is not that of a linear regression")
                mean, sd = posterior.predict(x)
                ridge.append(np.mean(np.abs(ridge_predictions(outcome.sums[-1], x) - y)))
                errors.append(np.mean(np.abs(mean - y)))
                held.append(np.mean(np.abs(mean - y) < 1.6449 * sd))
            low, high = np.quantile(errors, [0.05, 0.95])
            print(
                f"| {method} | {epsilon:g} | {np.median(errors):.1f} | {low:.1f} "
                f"| {high:.1f} | {np.mean(held):.2f} | {np.median(ridge):.1f} |",
                flush=True,
            )


def main() -> None:
    """Run both experiments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="+", choices=get_args(RegressionMethod), default=METHODS)
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print_coverage(arguments.methods, arguments.repeats, arguments.seed)
    print_diabetes(arguments.methods, arguments.repeats, arguments.seed)


if __name__ == "__main__":
    main()
