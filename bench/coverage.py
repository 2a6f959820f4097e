"""How often intervals hold that count the noise, by two methods, and those that do not.

    python -m bench.coverage [--sets 100] [--epsilons 0.5 1 2 5] [--rows box ball] [--seed 1]

Simulation-based calibration (Talts et al. 2018, arXiv:1804.06788): coefficients and the residual
standard deviation are drawn from the prior, records from them, the noise by what the job costs;
1,000 records, 5 features, delta 1e-5, replacement of one client. "box": rows as they are, which is
the model itself. "ball": as by the method "plain", with a constant, shrunk into a ball; the level
of y is drawn near 0 then, for its prior is wider than the bounds of y. Needs the extra `numpyro`.

All chains of all data sets run side by side. A set whose chains fail a check is given to
`conditional_posterior`, which tries again or refuses: then it counts as refused, not as covered.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from shoal_learning import design_model
from shoal_learning.conditional_design import (
    CHAINS,
    CoefficientDraws,
    conditional_posterior,
    failure,
)
from shoal_learning.design_moments import DesignMoments
from shoal_learning.design_starts import starts
from shoal_learning.linear_regression import LinearRegression
from shoal_learning.quasi_likelihood import Coefficients, noise_aware_posterior
from shoal_learning.refusals import NoReliablePosterior
from shoal_learning.simulation import Federation, run
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.studies.linear_regression import LinearRegressionTask

Floats = NDArray[np.float64]

LEVEL = 0.9
RECORDS, FEATURES, DELTA = 1000, 5, 1e-5
PRIOR_SD = 0.3
WARMUP, COUNT = 300, 500
TARGET_ACCEPTANCE = 0.9


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """What was drawn, and what one private round over it released.

    `slopes`, shape (FEATURES,), and `residual_sd` are in normalised units, as the design's are.
    """

    slopes: Floats
    residual_sd: float
    design: DesignMoments


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Coverage, mean width and root mean squared error of one method's slopes."""

    coverage: float
    width: float
    error: float


def task_of(rows: str) -> LinearRegressionTask:
    """Return the task for columns that are normalised already."""
    return LinearRegressionTask(
        features=tuple(ColumnBounds(name=f"x{j}", lower=-1.0, upper=1.0) for j in range(FEATURES)),
        target=ColumnBounds(name="y", lower=-1.0, upper=1.0),
        method="plain",
        prior_sd=PRIOR_SD,
        radius=10.0 if rows == "box" else None,
        intercept=0.0 if rows == "box" else 0.3,
    )


def draw(rows: str, epsilon: float, generator: np.random.Generator) -> DataSet:
    """Draw a data set from the prior, and release its moments."""
    correlation = 0.3 + 0.7 * np.eye(FEATURES)
    x = generator.standard_normal((RECORDS, FEATURES)) @ np.linalg.cholesky(correlation).T / 3.0
    x = np.clip(x, -1.0, 1.0)
    slopes = generator.normal(0.0, PRIOR_SD, FEATURES)
    residual_sd = abs(generator.normal(0.0, design_model.PRIOR_RESIDUAL_SD))
    level = 0.0 if rows == "box" else generator.normal(0.0, 0.1)
    y = level + x @ slopes + residual_sd * generator.standard_normal(RECORDS)
    setting = Federation(
        population=RECORDS, missing=0, dropouts=0, colluders=0, epsilon=epsilon, delta=DELTA
    )
    learner = LinearRegression(task_of(rows))
    released = run(learner, np.column_stack([x, y]), setting, generator).sums[-1]
    design = DesignMoments.of(released, np.full(FEATURES, PRIOR_SD))
    if design.constant > 0.0:
        prior_sd = np.append(2.0 * PRIOR_SD / design.constant, design.prior_sd)
        design = replace(design, prior_sd=prior_sd)
    return DataSet(slopes=slopes, residual_sd=residual_sd, design=design)


def side_by_side(
    sets: Sequence[DataSet],
    generator: np.random.Generator,
    *,
    chains: int,
    warmup: int,
    count: int,
) -> list[CoefficientDraws]:
    """Return draws for each set, unchecked; all sets have rows of one kind."""
    with jax.enable_x64(True):
        begun = [starts(each.design, chains, generator) for each in sets]
        parts = [
            jax.tree.map(
                lambda value: np.broadcast_to(value, (chains, *np.shape(value))),
                (each.design.evidence(), start.coordinates),
            )
            for each, start in zip(sets, begun, strict=True)
        ]
        evidence, coordinates = jax.tree.map(lambda *values: np.concatenate(values), *parts)
        positions = jax.tree.map(
            lambda *values: np.concatenate(values), *[start.positions for start in begun]
        )
        found = design_model.run_chains(
            sets[0].design.kind,
            evidence,
            coordinates,
            positions,
            jax.random.split(jax.random.key(int(generator.integers(2**63))), chains * len(sets)),
            TARGET_ACCEPTANCE,
            1,
            warmup=warmup,
            count=count,
        )
        coefficients, residual_sd, divergences = (
            np.asarray(each).reshape(len(sets), chains, *each.shape[1:])
            for each in (found.coefficients, found.residual_sd, found.divergences)
        )
    return [
        CoefficientDraws(
            coefficients=coefficients[number],
            residual_sd=residual_sd[number],
            divergences=int(divergences[number].sum()),
        )
        for number in range(len(sets))
    ]


def answer_all(
    sets: Sequence[DataSet], generator: np.random.Generator
) -> tuple[list[CoefficientDraws | None], int]:
    """Return each set's draws, None where refused, and how many sets failed a check at first."""
    first = side_by_side(sets, generator, chains=CHAINS, warmup=WARMUP, count=COUNT)
    answers: list[CoefficientDraws | None] = []
    failed = 0
    for each, draws in zip(sets, first, strict=True):
        reason = failure(draws)
        if reason is None:
            answers.append(draws)
            continue
        failed += 1
        print(f"again: {reason}", file=sys.stderr, flush=True)
        try:
            answers.append(conditional_posterior(each.design))
        except NoReliablePosterior as error:
            print(f"refused: {error}", file=sys.stderr, flush=True)
            answers.append(None)
    return answers, failed


def scores(means: Floats, intervals: Floats, truth: Floats) -> Scores:
    """Score estimates, shape (sets, FEATURES), and intervals, shape (2, sets, FEATURES)."""
    low, high = intervals
    return Scores(
        coverage=float(np.mean((low <= truth) & (truth <= high))),
        width=float(np.mean(high - low)),
        error=float(np.sqrt(np.mean((means - truth) ** 2))),
    )


def of_normals(found: Sequence[Coefficients], truth: Floats) -> Scores:
    """Score normal posteriors' slopes."""
    reach = float(stats.norm.ppf(0.5 + LEVEL / 2.0))
    means = np.array([each.mean[-FEATURES:] for each in found])
    sds = np.array([np.sqrt(np.diagonal(each.covariance))[-FEATURES:] for each in found])
    return scores(means, np.array([means - reach * sds, means + reach * sds]), truth)


def exact(design: DesignMoments) -> Coefficients:
    """Return the posterior of who takes the noisy moments for exact ones."""
    moments = design.moments
    without = replace(
        moments,
        diagonal_sd=1e-6 * moments.diagonal_sd,
        off_diagonal_sd=1e-6 * moments.off_diagonal_sd,
    )
    return noise_aware_posterior(without, design.prior_sd)


@dataclass(frozen=True, kw_only=True)
class Row:
    """All methods' scores on the same data sets; of those given the design, what ranks say too.

    `ranks_p` is the p-value of Kolmogorov and Smirnov's test that the true slopes' ranks among the
    draws are uniform, and `residual_coverage` of the residual standard deviation.
    """

    naive: Scores
    quasi_likelihood: Scores
    conditional: Scores
    ranks_p: float
    residual_coverage: float


def compare(sets: Sequence[DataSet], answers: Sequence[CoefficientDraws | None]) -> Row:
    """Score all methods on `sets`, the conditional one on those that it answers."""
    truth = np.array([each.slopes for each in sets])
    pairs = [(each, draws) for each, draws in zip(sets, answers, strict=True) if draws is not None]
    answered = np.array([each.slopes for each, _ in pairs])
    slopes = [draws.coefficients[:, :, -FEATURES:].reshape(-1, FEATURES) for _, draws in pairs]
    ends = [0.5 - LEVEL / 2.0, 0.5 + LEVEL / 2.0]
    intervals = np.array([np.quantile(each, ends, axis=0) for each in slopes])
    places = [np.mean(each < true, axis=0) for each, true in zip(slopes, answered, strict=True)]
    residual = [
        low <= each.residual_sd <= high
        for each, draws in pairs
        for low, high in [np.quantile(draws.residual_sd, ends)]
    ]
    return Row(
        naive=of_normals([exact(each.design) for each in sets], truth),
        quasi_likelihood=of_normals(
            [noise_aware_posterior(each.design.moments, each.design.prior_sd) for each in sets],
            truth,
        ),
        conditional=scores(
            np.array([each.mean(axis=0) for each in slopes]),
            np.moveaxis(intervals, 1, 0),
            answered,
        ),
        ranks_p=float(stats.kstest(np.ravel(places), "uniform").pvalue),
        residual_coverage=float(np.mean(residual)),
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.5, 1.0, 2.0, 5.0])
    parser.add_argument("--rows", nargs="+", choices=["box", "ball"], default=["box", "ball"])
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(f"Coverage of {LEVEL:.0%} intervals of slopes, {arguments.sets} data sets a row\n")
    print(
        "| rows | epsilon | naive | quasi-likelihood | given design | of s | width QL | width GD "
        "| error naive | error QL | error GD | p of ranks | again | refused |\n|" + "---|" * 14
    )
    for rows in arguments.rows:
        for epsilon in arguments.epsilons:
            generator = np.random.default_rng(arguments.seed)
            sets = [draw(rows, epsilon, generator) for _ in range(arguments.sets)]
            answers, failed = answer_all(sets, generator)
            row = compare(sets, answers)
            shown = [
                row.naive.coverage,
                row.quasi_likelihood.coverage,
                row.conditional.coverage,
                row.residual_coverage,
                row.quasi_likelihood.width,
                row.conditional.width,
                row.naive.error,
                row.quasi_likelihood.error,
                row.conditional.error,
                row.ranks_p,
            ]
            figures = " | ".join(f"{value:.3f}" for value in shown)
            counts = f"{failed} | {answers.count(None)}"
            print(f"| {rows} | {epsilon:g} | {figures} | {counts} |", flush=True)


if __name__ == "__main__":
    main()
