"""When do a linear regression's cautions fire, and when do its intervals fail? By simulation.

    python -m bench.linear_cautions [--repeats 8] [--seed 1]

Normal columns, correlated by .3 and cut at three standard deviations, that explain half of the
target; delta is 1e-5. "fit": bounds are where columns are cut; "2 x" and "4 x": so many times as
wide, the target's too; "off .5" and "off .7": the first column's mean lies that far off the middle
of its bounds, relative to half their range. Of 90 % intervals of slopes the share that hold, in all
jobs and in those without any caution; of jobs the share with a caution, and with each kind of it.
"""

import argparse
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal_learning.learners import learner_for
from shoal_learning.simulation import Federation, run
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.studies.linear_regression import (
    LinearRegressionPosterior,
    LinearRegressionTask,
    RegressionMethod,
)

Floats = NDArray[np.float64]

METHODS: Final[tuple[RegressionMethod, ...]] = (
    "norm_ball",
    "plain",
    "box_projection",
    "ball_projection",
)
SIZES: Final = (  # clients, features, epsilon
    (1000, 3, 1.0),
    (1000, 3, 4.0),
    (5000, 3, 1.0),
    (5000, 8, 1.0),
    (5000, 8, 4.0),
    (20_000, 3, 1.0),
)
SAID: Final = ("NOISE", "TOO WIDE", "OFF THE MIDDLE", "PRIOR", "SHRUNK")


class Bounds(NamedTuple):
    """How many times too wide, and how far off the first column's mean lies."""

    width: float
    shift: float


CASES: Final = {
    "fit": Bounds(1.0, 0.0),
    "2 x": Bounds(2.0, 0.0),
    "4 x": Bounds(4.0, 0.0),
    "off .5": Bounds(1.0, 0.5),
    "off .7": Bounds(1.0, 0.7),
}


def job(
    method: RegressionMethod,
    bounds: Bounds,
    size: tuple[int, int, float],
    generator: np.random.Generator,
) -> tuple[NDArray[np.bool_], str]:
    """Return which slopes' 90 % intervals hold, shape (d,), and what the posterior cautions of.

    Raises:
        TypeError: the posterior is another one.
    """
    clients, features, epsilon = size
    correlations = 0.3 + 0.7 * np.eye(features)
    columns = generator.standard_normal((clients, features)) @ np.linalg.cholesky(correlations).T
    columns = np.clip(columns, -3.0, 3.0)
    slopes = generator.choice([-1.0, 1.0], features) * generator.uniform(0.5, 1.5, features)
    noise_sd = float(np.sqrt(slopes @ correlations @ slopes))
    target = columns @ slopes + noise_sd * generator.standard_normal(clients)
    reach = 3.0 * bounds.width
    most = reach * noise_sd * np.sqrt(2.0)
    lows = np.full(features, -reach)
    lows[0] = reach - 2.0 * reach / (1.0 - bounds.shift)
    task = LinearRegressionTask(
        features=tuple(
            ColumnBounds(name=f"x{place}", lower=low, upper=reach)
            for place, low in enumerate(lows.tolist())
        ),
        target=ColumnBounds(name="y", lower=-most, upper=most),
        method=method,
    )
    federation = Federation(
        population=clients, missing=0, dropouts=0, colluders=0, epsilon=epsilon, delta=1e-5
    )
    records = np.column_stack([columns, target])
    posterior = run(learner_for(task), records, federation, generator).posterior
    if not isinstance(posterior, LinearRegressionPosterior):
        raise TypeError("the posterior is none of a linear regression")
    low, high = posterior.interval(0.9)[1:].T
    return (low < slopes) & (slopes < high), posterior.caution or ""


def main() -> None:
    """Read the arguments and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=8, help="jobs of each size")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    print(
        "| method | bounds | held | held, no caution | caution | noise | wide | off | prior | cut |"
    )
    print("|---" * 10 + "|")
    for place, method in enumerate(METHODS):
        for number, (name, bounds) in enumerate(CASES.items()):
            generator = np.random.default_rng([asked.seed, place, number])
            jobs = [
                job(method, bounds, size, generator) for size in SIZES for _ in range(asked.repeats)
            ]
            held = np.mean(np.concatenate([each for each, _ in jobs]))
            quiet = [each for each, caution in jobs if not caution]
            silent = f"{np.mean(np.concatenate(quiet)):.2f}" if quiet else ""
            shares = [
                float(np.mean([word in caution for _, caution in jobs])) for word in ("", *SAID)
            ]
            shares[0] = 1.0 - len(quiet) / len(jobs)
            told = " | ".join(f"{share:.2f}" for share in shares)
            print(f"| {method} | {name} | {held:.2f} | {silent} | {told} |", flush=True)


if __name__ == "__main__":
    main()
