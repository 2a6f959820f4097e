"""What rounds, learning rate and clip do to the logistic job of docs/gradient-models.md.

    python -m bench.variational_path [--seeds 100]

5,000 clients, 500 a round, epsilon 10. A row for each setting: the shares of 90 % intervals that
hold, of constant term and slope; the slope's mean error and mean posterior standard deviation; the
shares of the three verdicts; the median of how far paths had to go, and the 5 and 95 % quantiles.
"""

import argparse
from typing import Final

import numpy as np

from shoal_learning.learners import learner_for
from shoal_learning.simulation import Federation, run
from shoal_protocol.posteriors.convergence import Convergence
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.studies.logistic_regression import (
    LogisticRegressionPosterior,
    LogisticRegressionTask,
)

CLIENTS: Final = 5000
TRUTH: Final = np.array([-6.5, 1.0 / 12.0])
LEVEL: Final = 1.6449
SETTINGS: Final = (  # rounds, learning rate, clip
    (20, 0.2, 1.0),
    (40, 0.2, 1.0),
    (60, 0.2, 1.0),
    (100, 0.2, 1.0),
    (200, 0.2, 1.0),
    (60, 0.5, 1.0),
    (200, 0.5, 1.0),
    (200, 1.0, 1.0),
    (200, 2.0, 1.0),
    (200, 0.2, 0.25),
)


def learned(
    rounds: int, learning_rate: float, clip: float, seed: int
) -> tuple[LogisticRegressionPosterior, Convergence]:
    """Return the posterior of the job with people and noise of this seed.

    Raises:
        TypeError: the posterior is not one that knows of its noise.
    """
    generator = np.random.default_rng([seed, 1])
    age = generator.uniform(18.0, 90.0, CLIENTS)
    chance = 1.0 / (1.0 + np.exp(-(TRUTH[0] + TRUTH[1] * age)))
    task = LogisticRegressionTask(
        features=(ColumnBounds(name="age", lower=18.0, upper=90.0),),
        target=ColumnBounds(name="hypertension", lower=0.0, upper=1.0),
        rounds=rounds,
        batch=500,
        learning_rate=learning_rate,
        clip=clip,
    )
    federation = Federation(
        population=CLIENTS, missing=0, dropouts=20, colluders=20, epsilon=10.0, delta=1e-5
    )
    records = np.column_stack([age, generator.binomial(1, chance)])
    found = run(learner_for(task), records, federation, generator).posterior
    if not isinstance(found, LogisticRegressionPosterior) or found.convergence is None:
        raise TypeError("the rounds are too few for a posterior that knows of its noise")
    return found, found.convergence


def main() -> None:
    """Read the arguments and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    seeds = parser.parse_args().seeds
    names = (
        "rounds | learning rate | clip | constant held | slope held | error | sd | arrived "
        "| cannot tell | not arrived | to go"
    )
    print(f"| {names} |")
    print("|---" * 11 + "|")
    for setting in SETTINGS:
        found = [learned(*setting, seed) for seed in range(seeds)]
        errors = np.array([posterior.mean - TRUTH for posterior, _ in found])
        sds = np.array([posterior.sd for posterior, _ in found])
        held = (np.abs(errors) < LEVEL * sds).mean(axis=0)
        verdicts = [path.verdict for _, path in found]
        shares = " | ".join(
            f"{verdicts.count(verdict) / seeds:.2f}"
            for verdict in ("arrived", "cannot_tell", "not_arrived")
        )
        low, middle, high = np.quantile([max(p.distances) for _, p in found], [0.05, 0.5, 0.95])
        rounds, learning_rate, clip = setting
        print(
            f"| {rounds} | {learning_rate:g} | {clip:g} | {held[0]:.2f} | {held[1]:.2f} "
            f"| {errors[:, 1].mean():+.4f} | {sds[:, 1].mean():.4f} | {shares} "
            f"| {middle:.1f} ({low:.1f} to {high:.1f}) |",
            flush=True,
        )


if __name__ == "__main__":
    main()
