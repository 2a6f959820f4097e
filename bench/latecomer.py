"""What a latecomer really learns, at least: the game of an audit, after many contributions.

    python -m bench.latecomer [--runs 100000]

In each run one contribution of a weight, one of two that are twice the clip apart, is followed by
others that build on it: `steps` on rows chosen to tell of that weight elsewhere and never to pull
it back. The adversary sees all weights in the end, and guesses by the best linear statistic, found
in runs of its own. Beside its proven loss is what is claimed for the same delta.
"""

from typing import Final

import numpy as np

from audit.bounds import Counts, lower_bounds
from bench.command import options
from figures.draw_and_discard.hiding import hidden_epsilon
from figures.draw_and_discard.later_noise import paper_epsilon
from shoal_protocol.crowds.tasks import CrowdTask, IntArray, Variant, steps
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.queries.design import Floats
from shoal_studies.crowds.simulation import discrete_laplace

FAILURE: Final = 1e-6
DELTA: Final = 0.01  # far above what is claimed in earnest: 1e-5 would take too many runs to see
_THRESHOLDS: Final = 20
_WEIGHTS: Final = 6


def make_task(variant: Variant, epsilon: float, rate: float) -> CrowdTask:
    """Return a logistic regression of five features, whose clip never binds beyond its score's."""
    return CrowdTask(
        family="logistic",
        features=tuple(
            ColumnBounds(name=f"x{index}", lower=-1.0, upper=1.0) for index in range(_WEIGHTS - 1)
        ),
        target=ColumnBounds(name="y", lower=0.0, upper=1.0),
        variant=variant,
        clipping="residual",
        clip=rate,
        epsilon=epsilon,
        learning_rate=rate,
        instances=20,
    )


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
        taken = steps(task, weights, rows[:, None], targets[:, None])[every, touched]
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


def main() -> None:
    """Print a Markdown table."""
    runs = options(__doc__, runs=100_000).runs
    generator = np.random.default_rng(1)
    print("| epsilon | eta | T | theorem 2 | lost at least | claimed |\n|---|---|---|---|---|---|")
    for epsilon, rate, noises in ((4.0, 0.03, 300), (4.0, 0.03, 1000), (8.0, 0.1, 300)):
        task = make_task("one", epsilon, rate)
        found = lost(task, noises=noises, delta=DELTA, runs=runs, generator=generator)
        paper = paper_epsilon(epsilon=epsilon, additions=noises, delta=DELTA)
        claim = hidden_epsilon(task, additions=noises, delta=DELTA)
        print(f"| {epsilon:g} | {rate:g} | {noises} | {paper:.3f} | {found:.3f} | {claim:.3f} |")


if __name__ == "__main__":
    main()
