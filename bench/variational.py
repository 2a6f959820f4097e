"""Accuracy of private logistic regression on UCI's abalone, against published figures.

    python -m bench.variational [--data DIR] [--seeds 10] [--rounds 1000]

Has an abalone more than 9 rings: the first 3,341 rows of UCI's file learn, the other 836 test.
1,000 rounds ask 167 clients each, so each client 50 times, and the noise of a round's sum has a
standard deviation of so many times 2 C, twice the clip. Noise is drawn by numpy, rounded to
integers, as in `shoal_learning.simulation`. Columns are normalised by bounds in round numbers, or,
for comparison with what was published and not private, by the data's own means and deviations.
"""

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from figures.sources import Files
from shoal_learning.contract import RequestedRound
from shoal_learning.learners import learner_for
from shoal_protocol.curves import gaussian_epsilon
from shoal_protocol.posteriors import LogisticRegressionPosterior
from shoal_protocol.questions import ReleasedSum
from shoal_protocol.tasks import ColumnBounds, LogisticRegressionTask

Floats = NDArray[np.float64]

TRAIN: Final = 3341
BATCH: Final = 167
DELTA: Final = 1e-5
MULTIPLES: Final = (1.22, 2.08, 6.05, 17.6, 51.0, 148.0)
"""Noise of a sum, in units of its sensitivity 2 C."""

PUBLISHED: Final = (0.7620, 0.7620, 0.7604, 0.7573, 0.7440, 0.7353)
"""Accuracies at these multiples, from the files beside the code of Jälkö, Dikmen and Honkela 2017
(arXiv:1610.08749), columns scaled by the data; without noise .7667."""

# Sex is 0 for an infant, 1 for a female, 2 for a male. Lengths are in units of 200 mm, weights of
# 200 g: what most abalone measure, in round numbers. What lies beyond is cut.
BOUNDS: Final = {
    "sex": (0.0, 2.0),
    "length": (0.2, 0.8),
    "diameter": (0.15, 0.65),
    "height": (0.04, 0.24),
    "whole_weight": (0.0, 2.0),
    "shucked_weight": (0.0, 0.9),
    "viscera_weight": (0.0, 0.45),
    "shell_weight": (0.0, 0.6),
}
_SEX: Final = {"I": 0.0, "F": 1.0, "M": 2.0}


@dataclass(frozen=True)
class Setting:
    """How the columns are normalised, by name."""

    name: str
    features: tuple[ColumnBounds, ...]


def abalone(path: Path) -> Floats:
    """Return UCI's abalone in its file's order, shape (4177, 9): features, then rings above 9."""
    lines = [line.split(",") for line in path.read_text().split()]
    sexes = [_SEX[line[0]] for line in lines]
    numbers = np.array([[float(value) for value in line[1:]] for line in lines])
    return np.column_stack([sexes, numbers[:, :-1], numbers[:, -1] > 9])


def by_bounds() -> Setting:
    """Return the setting with the bounds above."""
    features = [ColumnBounds(name=each, lower=low, upper=up) for each, (low, up) in BOUNDS.items()]
    return Setting("bounds", tuple(features))


def by_the_data(records: Floats) -> Setting:
    """Return the mean and three standard deviations of the data themselves: not private."""
    mean, reach = records[:, :-1].mean(axis=0), 3.0 * records[:, :-1].std(axis=0)
    return Setting(
        "data's own",
        tuple(
            ColumnBounds(name=name, lower=low, upper=up)
            for name, low, up in zip(BOUNDS, mean - reach, mean + reach, strict=True)
        ),
    )


def task_of(setting: Setting, rounds: int) -> LogisticRegressionTask:
    """Return the task with this version's defaults."""
    outcome = ColumnBounds(name="old", lower=0.0, upper=1.0)
    return LogisticRegressionTask(
        features=setting.features, target=outcome, rounds=rounds, batch=BATCH
    )


def learned(
    task: LogisticRegressionTask, records: Floats, multiple: float, generator: np.random.Generator
) -> LogisticRegressionPosterior:
    """Return the posterior of a job over `records`, with noise of `multiple` times 2 C."""
    learner, sums = learner_for(task), list[ReleasedSum]()
    order: list[int] = []
    while isinstance(step := learner.next(len(records), sums), RequestedRound):
        if len(order) < BATCH:  # who was asked least comes first, in a new order in each lap
            order += [each for each in generator.permutation(len(records)) if each not in order]
        batch, order = records[order[:BATCH]], order[BATCH:]
        query = step.query.model_copy(update={"records_per_client": len(batch)})
        sd = multiple * step.query.design("discrete_gaussian").sensitivity
        noise = np.rint(sd * generator.standard_normal(query.dimension)).astype(np.int64)
        sums.append(
            ReleasedSum(
                query=step.query,
                values=query.encode(batch) + noise,
                cohort_size=len(batch),
                noise_sd=np.full(query.dimension, max(sd, 1e-9)),
                mechanism="discrete_gaussian",
            )
        )
    if not isinstance(step, LogisticRegressionPosterior):
        raise TypeError("the learner is not that of a logistic regression")
    return step


def accuracy(posterior: LogisticRegressionPosterior, records: Floats) -> float:
    """Return the share of records whose more probable outcome is theirs."""
    probability, _ = posterior.predict(records[:, :-1])
    return float(np.mean((probability > 0.5) == (records[:, -1] == 1.0)))


def mean_accuracy(
    setting: Setting, records: Floats, multiple: float, rounds: int, seeds: int
) -> float:
    """Return the mean over `seeds` of the accuracy on the rows that were held out."""
    task = task_of(setting, rounds)
    found = [
        accuracy(
            learned(task, records[:TRAIN], multiple, np.random.default_rng([seed, rounds])),
            records[TRAIN:],
        )
        for seed in range(seeds)
    ]
    return float(np.mean(found))


def price(multiple: float, rounds: int) -> float:
    """Return epsilon at `DELTA` of one client: as many rounds as it is asked in."""
    times = math.ceil(rounds * BATCH / TRAIN)
    return gaussian_epsilon(mu=math.sqrt(times) / multiple, delta=DELTA)


def print_table(records: Floats, rounds: int, seeds: int) -> None:
    """Print accuracies by noise, beside those that were published."""
    settings = (by_bounds(), by_the_data(records))
    names = " | ".join(setting.name for setting in settings)
    print(f"| noise / 2C | epsilon at {DELTA:g} | {names} | published |")
    print("|---|---|" + "---|" * (len(settings) + 1))
    for multiple, published in ((0.0, 0.7667), *zip(MULTIPLES, PUBLISHED, strict=True)):
        found = [mean_accuracy(each, records, multiple, rounds, seeds) for each in settings]
        epsilon = f"{price(multiple, rounds):.3g}" if multiple else "infinite"
        cells = " | ".join(f"{each:.4f}" for each in found)
        print(f"| {multiple:g} | {epsilon} | {cells} | {published:.4f} |", flush=True)


def main() -> None:
    """Read the arguments and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=None, help="folder that holds abalone.data")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=1000)
    asked = parser.parse_args()
    files = Files(data=asked.data, cache=Path("build/data"))
    print_table(abalone(files.uci("abalone.data")), asked.rounds, asked.seeds)


if __name__ == "__main__":
    main()
