"""What searching a projection's thresholds all at once gains over one after another.

    python -m bench.thresholds [--records 3000] [--features 11] [--repeats 5]

Both are given the same auxiliary data and noise, in one thread: the learner's own search, which
cuts rows to each box once and fits all candidates in one call, and a plain loop that cuts, sums and
fits each candidate by itself. The choices must be the same. Medians of seconds.
"""

import argparse
import math
import statistics
import time
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.random import PCG64, Generator

from shoal_learning import linear_regression
from shoal_learning.quasi_likelihood import NoisyMoments, ridge_estimate
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.studies.linear_regression import (
    LinearRegressionTask,
    Thresholds,
    thresholds_for,
)

NOISE_RATIO: Final = 5.0  # about that of epsilon 1


def task_of(features: int) -> LinearRegressionTask:
    """Return a task whose thresholds are a box's and a ball's: 150 candidates."""
    return LinearRegressionTask(
        features=tuple(ColumnBounds(name=f"x{j}", lower=-1.0, upper=1.0) for j in range(features)),
        target=ColumnBounds(name="y", lower=-1.0, upper=1.0),
        method="ball_projection",
    )


def batched(
    task: LinearRegressionTask, records: int, noise_ratio: float = NOISE_RATIO
) -> Thresholds:
    """Return what the learner chooses."""
    linear_regression.choose_thresholds.cache_clear()
    return linear_regression.choose_thresholds(
        task, records=records, mechanism="discrete_gaussian", noise_ratio=noise_ratio
    )


def one_by_one(
    task: LinearRegressionTask, records: int, noise_ratio: float = NOISE_RATIO
) -> Thresholds:
    """Return the same choice, each candidate cut, summed and fitted by itself."""
    features, constant = len(task.features), task.intercept
    sample = min(records, linear_regression._LARGEST_SAMPLE)
    candidates = list(thresholds_for(task))
    generator = Generator(PCG64(linear_regression._SEED))
    noise_sds = [
        linear_regression._noise_sds(
            task, each.radius, "discrete_gaussian", noise_ratio * sample / records
        )
        for each in candidates
    ]
    errors = np.zeros(len(candidates))
    for _ in range(linear_regression.data_sets(features)):
        x, y, b = linear_regression._records(generator, sample, features)
        noise = linear_regression._noise(generator, features + 2)
        for index, each in enumerate(candidates):
            diagonal, off_diagonal = noise_sds[index]
            rows = np.column_stack(
                [
                    np.full(sample, constant),
                    np.clip(x / each.features, -1.0, 1.0),
                    np.clip(y / each.target, -1.0, 1.0),
                ]
            )
            if each.radius is not None:
                norms = np.linalg.norm(rows, axis=1)
                rows *= np.minimum(1.0, each.radius / norms)[:, None]
            scales = np.full(noise.shape, off_diagonal)
            np.fill_diagonal(scales, diagonal)
            estimate = ridge_estimate(
                NoisyMoments(
                    matrix=rows.T @ rows + scales * noise,
                    diagonal_sd=diagonal,
                    off_diagonal_sd=off_diagonal,
                    records=sample,
                    records_sd=0.0,
                    largest_square=math.inf,
                )
            )
            slopes = estimate[1:] * each.target / each.features
            level = each.target * constant * estimate[0]
            errors[index] += math.fsum((slopes - b) ** 2) + level**2
    return candidates[int(np.argmin(errors))]


def seconds(search: Callable[[], Thresholds], repeats: int) -> float:
    """Return the median time of a search."""
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        search()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=3000)
    parser.add_argument("--features", type=int, default=11)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    task, records = task_of(arguments.features), arguments.records
    chosen, same = batched(task, records), one_by_one(task, records)
    if chosen != same:
        raise SystemExit(f"the choices differ: {chosen} and {same}")
    together = seconds(lambda: batched(task, records), arguments.repeats)
    apart = seconds(lambda: one_by_one(task, records), arguments.repeats)
    print(
        f"n = {records:,}, d = {arguments.features}, {len(list(thresholds_for(task)))} candidates"
    )
    print(f"batched {together:.2f} s, one by one {apart:.2f} s, ratio {apart / together:.1f}")


if __name__ == "__main__":
    main()
