"""Prints what later noise hides of a contribution to a crowd: the paper's formula, exact, proven.

python -m bench.crowd_privacy
"""

import sys

from figures.draw_and_discard.hiding import hidden_epsilon
from figures.draw_and_discard.later_noise import (
    PAPERS_SENSITIVITY,
    exact_epsilon,
    paper_epsilon,
    quadratic_epsilon,
)
from figures.draw_and_discard.privacy import snapshot_epsilon
from shoal_protocol.crowds.tasks import CrowdTask, Variant
from shoal_protocol.queries.columns import ColumnBounds

DELTA = 1e-5
OF_NOISE = ((1.0, 10), (1.0, 100), (1.0, 1000), (4.0, 30), (4.0, 100), (8.0, 100))
NOISES = (10, 100, 1000, 10_000)
LATER = (10_000, 100_000, 1_000_000)
OVERLAPS = (0, 20)
WEIGHTS = 6


def make_task(variant: Variant, epsilon: float, rate: float) -> CrowdTask:
    """Return a logistic regression of five features, whose clip never binds beyond its score's."""
    return CrowdTask(
        family="logistic",
        features=tuple(
            ColumnBounds(name=f"x{index}", lower=-1.0, upper=1.0) for index in range(WEIGHTS - 1)
        ),
        target=ColumnBounds(name="y", lower=0.0, upper=1.0),
        variant=variant,
        clipping="residual",
        clip=rate,
        epsilon=epsilon,
        learning_rate=rate,
        instances=20,
    )


def main() -> int:
    """Print three Markdown tables."""
    print("| epsilon | T | paper | its quadratic | exact, sqrt(2) clip | exact, 2 clip |")
    print("|---|---|---|---|---|---|")
    for epsilon, additions in OF_NOISE:
        found = (
            paper_epsilon(epsilon=epsilon, additions=additions, delta=DELTA),
            quadratic_epsilon(
                epsilon=epsilon, additions=additions, delta=DELTA, reach=PAPERS_SENSITIVITY
            ),
            exact_epsilon(epsilon=PAPERS_SENSITIVITY * epsilon, additions=additions, delta=DELTA),
            exact_epsilon(epsilon=epsilon, additions=additions, delta=DELTA),
        )
        print(f"| {epsilon:g} | {additions} |", *(f"{each:.4f} |" for each in found))
    tasks: list[tuple[Variant, float, float]] = [
        (variant, epsilon, rate)
        for variant in ("one", "all")
        for epsilon in (1.0, 4.0)
        for rate in (0.003, 0.03)
    ]
    print("\n| variant | epsilon | eta |", *(f"T = {each:,} |" for each in NOISES))
    print("|" + "---|" * (3 + len(NOISES)))
    for variant, epsilon, rate in tasks:
        task = make_task(variant, epsilon, rate)
        proven = [hidden_epsilon(task, additions=each, delta=DELTA) for each in NOISES]
        print(f"| {variant} | {epsilon:g} | {rate:g} |", *(f"{each:.3f} |" for each in proven))
    columns = [(later, overlap) for overlap in OVERLAPS for later in LATER]
    print("\n| variant | epsilon | eta |", *(f"{n:,} later, overlap {m} |" for n, m in columns))
    print("|" + "---|" * (3 + len(columns)))
    for variant, epsilon, rate in tasks:
        task = make_task(variant, epsilon, rate)
        stated = [
            snapshot_epsilon(task, later=later, overlap=overlap, delta=DELTA)
            for later, overlap in columns
        ]
        cells = [
            f"{task.epsilon:g}, local |" if each is None else f"{each[0]:.3f} |" for each in stated
        ]
        print(f"| {variant} | {epsilon:g} | {rate:g} |", *cells)
    return 0


if __name__ == "__main__":
    sys.exit(main())
