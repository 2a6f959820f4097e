"""How often the intervals of exponential families hold, by simulation; truths come from priors.

    python -m bench.families [--repeats 100] [--seed 1]

20 clients may drop out, 10 of them do, 10 more may collude; delta is 1e-5, or 0 (Laplace noise).
"naive" takes the noisy sum for exact; it has no answer for the normal families.
"""

import argparse
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.calibration import federation
from shoal_learning.contract import RequestedRound
from shoal_learning.learners import learner_for
from shoal_learning.simulation import Federation, run
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.studies.bernoulli import BernoulliTask
from shoal_protocol.studies.categorical import CategoricalTask
from shoal_protocol.studies.normal import NormalTask
from shoal_protocol.studies.normal_mean import NormalMeanTask
from shoal_protocol.studies.one_round import OneRoundStudy
from shoal_protocol.studies.poisson import PoissonTask

Floats = NDArray[np.float64]

LEVEL: Final = 0.9
SIZES: Final = (100, 1000)
EPSILONS: Final = (0.1, 0.5, 1.0, 5.0)
UNIT: Final = ColumnBounds(name="x", lower=-1.0, upper=1.0)
TASKS: Final[tuple[OneRoundStudy, ...]] = (
    BernoulliTask(column="x"),
    CategoricalTask(column="x", levels=(1.0, 2.0, 3.0)),
    PoissonTask(column="x", upper=10),
    NormalMeanTask(column=UNIT, sd=0.3, prior_sd=0.5),
    NormalTask(column=UNIT, prior_mean_records=1.0, prior_sd=0.15, prior_freedom=10.0),
)


def draw(task: OneRoundStudy, count: int, generator: np.random.Generator) -> tuple[Floats, Floats]:
    """Return parameters drawn from the task's prior, and records, shape (count, 1)."""
    match task:
        case BernoulliTask():
            truth = np.array([generator.beta(task.prior_successes, task.prior_failures)])
            records = (generator.random(count) < truth) * 1.0
        case CategoricalTask():
            truth = generator.dirichlet(np.full(len(task.levels) + 1, task.concentration))
            records = generator.choice([*task.levels, -1.0], count, p=truth)
        case PoissonTask():
            truth = generator.gamma(task.prior_shape, task.upper / 2.0 / task.prior_shape, 1)
            records = generator.poisson(truth, count) * 1.0
        case NormalMeanTask():
            truth = generator.normal(0.0, task.prior_sd or 1.0, 1)
            records = generator.normal(truth[0], task.sd, count)
        case NormalTask():
            freedom, scale = task.prior_freedom, task.prior_sd or 1.0
            sd = scale * np.sqrt(freedom / generator.chisquare(freedom))
            mean = generator.normal(0.0, sd / np.sqrt(task.prior_mean_records))
            truth, records = np.array([mean, sd]), generator.normal(mean, sd, count)
        case _:
            raise ValueError("this bench has no prior for the task")
    return np.asarray(truth), np.asarray(records[:, None], dtype=np.float64)


def coverage(
    task: OneRoundStudy, setting: Federation, repeats: int, generator: np.random.Generator
) -> tuple[float, float | None]:
    """Return the shares of parameters that intervals and naive intervals held."""
    learner = learner_for(task)
    held: list[float] = []
    naive: list[float] = []
    for _ in range(repeats):
        truth, records = draw(task, setting.population, generator)
        outcome = run(learner, records, setting, generator)
        posteriors = [(outcome.posterior, held)]
        if not isinstance(task, NormalTask):
            [sum_] = outcome.sums
            exact = replace(sum_, noise_sd=1e-3 * sum_.noise_sd)
            blind = learner.next(setting.population, [exact])
            if isinstance(blind, RequestedRound):
                raise TypeError("the learner asks for a round that the outcome already holds")
            posteriors.append((blind, naive))
        for posterior, holds in posteriors:
            low, high = posterior.interval(LEVEL).T
            holds.append(float(np.mean((low <= truth) & (truth <= high))))
    return float(np.mean(held)), float(np.mean(naive)) if naive else None


def main() -> None:
    """Print a table of coverages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    generator = np.random.default_rng(arguments.seed)
    print("| family | noise | n |" + "".join(f" epsilon {each:g} |" for each in EPSILONS))
    print("|" + "---|" * (3 + len(EPSILONS)))
    for task in TASKS:
        for noise, delta in (("Gaussian", 1e-5), ("Laplace", 0.0)):
            for size in SIZES:
                cells = []
                for epsilon in EPSILONS:
                    setting = replace(federation(size, epsilon), delta=delta)
                    held, naive = coverage(task, setting, arguments.repeats, generator)
                    cells.append(f"{held:.2f}" + ("" if naive is None else f" ({naive:.2f})"))
                print(f"| {task.name} | {noise} | {size} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
