"""What a latecomer really learns, at least: the game of an audit, after many contributions.

    python -m bench.latecomer [--runs 100000]

In each run one contribution of a weight, one of two that are twice the clip apart, is followed by
others that build on it: `steps` on rows chosen to tell of that weight elsewhere and never to pull
it back. The adversary sees all weights in the end, and guesses by the best linear statistic, found
in runs of its own. Beside its proven loss is what is claimed for the same delta.
"""

import argparse
import sys
from typing import Final

import numpy as np

from audit.bounds import Counts, lower_bounds
from bench.crowd_privacy import make_task
from figures.draw_and_discard.hiding import hidden_epsilon
from figures.draw_and_discard.later_noise import exact_epsilon, paper_epsilon
from shoal_learning.crowds.simulation import discrete_laplace
from shoal_protocol.crowds.tasks import CrowdTask, IntArray, steps
from shoal_protocol.queries.design import Floats

FAILURE: Final = 1e-6
DELTA: Final = 0.01  # far above what is claimed in earnest: 1e-5 would take too many runs to see
_THRESHOLDS: Final = 20


def weights_after(
    task: CrowdTask, world: int, noises: int, runs: int, generator: np.random.Generator
) -> IntArray:
    """Return the weights, shape (runs, p), after so many noises, in one of two worlds (0 or 1)."""
    every, p = np.arange(runs), task.dimension
    weights = np.zeros((runs, p), np.int64)
    weights[:, 0] = (2 * world - 1) * task.lattice_clip
    weights[:, 0] += discrete_laplace(task.noise_scale, (runs,), generator)
    for _ in range(noises - 1):
        touched = generator.integers(0, p, runs)
        rows = np.where((touched == 0)[:, None], 0.0, generator.choice([-1.0, 1.0], (runs, p)))
        targets = generator.integers(0, 2, runs).astype(np.float64)
        taken = steps(task, weights, rows, targets)[every, touched]
        weights[every, touched] += taken + discrete_laplace(task.noise_scale, (runs,), generator)
    return weights


def lost(
    task: CrowdTask, *, noises: int, delta: float, runs: int, generator: np.random.Generator
) -> float:
    """Return a lower bound on epsilon at `delta`, too high with probability `FAILURE` at most."""
    seen: list[list[Floats]] = [
        [weights_after(task, world, noises, runs, generator) / task.grid for world in (0, 1)]
        for _ in range(2)  # to learn from, and to be judged by
    ]
    learned, judged = seen
    spread = sum(np.cov(each.T) for each in learned)
    direction = np.linalg.solve(spread, learned[1].mean(axis=0) - learned[0].mean(axis=0))
    first, second = (each @ direction for each in judged)
    places = np.quantile(learned[0] @ direction, np.linspace(0.5, 0.995, _THRESHOLDS))
    counts = [
        Counts(trials=runs, hits=int(np.sum(second > x)), alarms=int(np.sum(first > x)))
        for x in places
    ]
    return lower_bounds(counts, delta=delta, failure=FAILURE).epsilon


def main(arguments: list[str] | None = None) -> int:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m bench.latecomer", description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000, help="in each world, twice")
    options = parser.parse_args(arguments)
    generator = np.random.default_rng(1)
    print("| epsilon | eta | T | theorem 2 | noise on that weight | lost at least | claimed |")
    print("|---|---|---|---|---|---|---|")
    for epsilon, rate, noises in ((4.0, 0.03, 300), (4.0, 0.03, 1000), (8.0, 0.1, 300)):
        task = make_task("one", epsilon, rate)
        found = lost(task, noises=noises, delta=DELTA, runs=options.runs, generator=generator)
        alone = exact_epsilon(epsilon=epsilon, additions=noises // task.dimension, delta=DELTA)
        paper = paper_epsilon(epsilon=epsilon, additions=noises, delta=DELTA)
        claim = hidden_epsilon(task, additions=noises, delta=DELTA)
        figures = f"{paper:.3f} | {alone:.3f} | {found:.3f} | {claim:.3f}"
        print(f"| {epsilon:g} | {rate:g} | {noises} | {figures} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
