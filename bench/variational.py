"""Accuracy of private logistic regression on UCI's abalone, against published figures.

    python -m bench.variational [--data DIR] [--seeds 10] [--rounds 1000]

Has an abalone more than 9 rings: the first 3,341 rows of UCI's file learn, the other 836 test.
1,000 rounds ask 167 clients each, so each client 50 times, and the noise of a round's sum has a
standard deviation of so many times 2 C, twice the clip. The job runs in
`shoal_learning.simulation`, whose noise numpy draws, and rounds to integers. Columns are normalised
by bounds in round numbers, or, for comparison with what was published and not private, by the
data's own means and deviations.
"""

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from figures.sources import Files
from shoal_learning.learners import learner_for
from shoal_learning.simulation import Federation, run
from shoal_protocol.privacy.job_costs import gaussian_epsilon
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.studies.variational import (
    LogisticRegressionPosterior,
    LogisticRegressionTask,
)

Floats = NDArray[np.float64]

TRAIN: Final = 3341
BATCH: Final = 167
CLIP: Final = 0.25
DELTA: Final = 1e-5
MULTIPLES: Final = (0.01, 1.22, 2.08, 6.05, 17.6, 51.0, 148.0)
"""Noise of a sum, in units of its sensitivity 2 C; the first is next to none."""

PUBLISHED: Final = (0.7667, 0.7620, 0.7620, 0.7604, 0.7573, 0.7440, 0.7353)
"""Accuracies at these multiples, from the files beside the code of Jälkö, Dikmen and Honkela 2017
(arXiv:1610.08749), columns scaled by the data; the first one without any noise."""

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
        features=setting.features, target=outcome, rounds=rounds, batch=BATCH, clip=CLIP
    )


def learned(
    task: LogisticRegressionTask, records: Floats, multiple: float, generator: np.random.Generator
) -> LogisticRegressionPosterior:
    """Return the posterior of a job over `records`, with noise of `multiple` times 2 C."""
    federation = Federation(
        population=len(records),
        missing=0,
        dropouts=0,
        colluders=0,
        epsilon=price(multiple, task.rounds),
        delta=DELTA,
    )
    posterior = run(learner_for(task), records, federation, generator).posterior
    if not isinstance(posterior, LogisticRegressionPosterior):
        raise TypeError("the learner is not that of a logistic regression")
    return posterior


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
    for multiple, published in zip(MULTIPLES, PUBLISHED, strict=True):
        found = [mean_accuracy(each, records, multiple, rounds, seeds) for each in settings]
        cells = " | ".join(f"{each:.4f}" for each in found)
        print(
            f"| {multiple:g} | {price(multiple, rounds):.3g} | {cells} | {published:.4f} |",
            flush=True,
        )


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
