"""How often intervals hold where some clients, or all, have no record, which nobody is told.

    python -m bench.missing_records [--repeats 40] [--clients 600] [--seed 1] [--only NAME ...]

Truths come from the priors. 90 % intervals, 20 dropouts tolerated, 10 missing, 10 colluders; delta
is 1e-5, or 0 (Laplace noise). Where nobody has a record, what holds is the prior and no more. Of
regressions coefficients are scored, of variational ones also the jobs that said "arrived".
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, get_args

import numpy as np
from numpy.typing import NDArray

from bench.calibration import federation
from bench.families import TASKS, draw
from shoal_learning.learners import learner_for
from shoal_learning.simulation import run
from shoal_protocol.posteriors.variational import VariationalPosterior
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.studies import Task
from shoal_protocol.studies.linear_regression import LinearRegressionTask, RegressionMethod
from shoal_protocol.studies.logistic_regression import LogisticRegressionTask

Floats = NDArray[np.float64]
Draw = Callable[[int, np.random.Generator], tuple[Floats, Floats]]

LEVEL: Final = 0.9
SHARES: Final = (0.0, 0.3, 1.0)
DELTAS: Final = {"Gaussian": 1e-5, "Laplace": 0.0}
FEATURES: Final = tuple(ColumnBounds(name=name, lower=-1.0, upper=1.0) for name in "ab")
PRIOR_SD: Final = 0.15  # of a line's slopes: with twice that of its level, y keeps to its bounds
RESIDUAL_SD: Final = 0.1


@dataclass(frozen=True)
class Model:
    """A task, what a job of it may cost, and how its truths and records are drawn."""

    name: str
    task: Task
    noises: tuple[str, ...]
    epsilon: float
    draw: Draw
    scored: int = 0  # the first parameter


def line(method: RegressionMethod) -> Model:
    """Return a linear regression of two features by `method`."""

    def drawn(count: int, generator: np.random.Generator) -> tuple[Floats, Floats]:
        truth = PRIOR_SD * np.array([2.0, 1.0, 1.0]) * generator.standard_normal(3)
        x = generator.uniform(-0.7, 0.7, (count, 2))
        y = truth[0] + x @ truth[1:] + RESIDUAL_SD * generator.standard_normal(count)
        return truth, np.column_stack([x, y])

    task = LinearRegressionTask(
        features=FEATURES,
        target=ColumnBounds(name="y", lower=-1.0, upper=1.0),
        method=method,
        prior_sd=PRIOR_SD,
    )
    return Model(f"linear, {method}", task, tuple(DELTAS), 4.0, drawn)


def logistic(rounds: int) -> Model:
    """Return a logistic regression of two features, whose clip no gradient exceeds."""

    def drawn(count: int, generator: np.random.Generator) -> tuple[Floats, Floats]:
        truth = generator.standard_normal(2)
        x = generator.uniform(-1.0, 1.0, (count, 2))
        y = generator.random(count) < 0.5 + 0.5 * np.tanh(0.5 * (x @ truth))
        return truth, np.column_stack([x, y])

    task = LogisticRegressionTask(
        features=FEATURES,
        target=ColumnBounds(name="y", lower=0.0, upper=1.0),
        rounds=rounds,
        batch=None,
        prior_sd=1.0,
        clip=1.5,
        learning_rate=0.05,
    )
    return Model(f"logistic, {rounds} rounds", task, ("Gaussian",), 10.0, drawn, 1)


def models() -> list[Model]:
    """Return all that are measured: linear regressions, families, logistic regressions."""
    families = [Model(task.name, task, tuple(DELTAS), 1.0, partial(draw, task)) for task in TASKS]
    lines = [line(method) for method in get_args(RegressionMethod)]
    return [*lines, *families, logistic(60), logistic(200)]


def held(
    model: Model, noise: str, share: float, clients: int, repeats: int, seed: Sequence[int]
) -> str:
    """Return what share of intervals held, and of a variational model's jobs how many arrived."""
    generator = np.random.default_rng(seed)
    setting = replace(federation(clients, model.epsilon), delta=DELTAS[noise])
    holds: list[float] = []
    arrived: list[bool] = []
    for _ in range(repeats):
        truth, records = model.draw(setting.population, generator)
        records = np.array(records, dtype=np.float64)
        records[generator.random(len(records)) < share] = np.nan
        posterior = run(learner_for(model.task), records, setting, generator).posterior
        low, high = posterior.interval(LEVEL)[model.scored :].T
        holds.append(float(np.mean((low <= truth) & (truth <= high))))
        if isinstance(posterior, VariationalPosterior):
            path = posterior.convergence
            arrived.append(path is not None and path.verdict == "arrived")
    said = f" ({sum(arrived)} arrived)" if arrived else ""
    return f"{np.mean(holds):.3f}{said}"


def main() -> None:
    """Print a table of coverages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--clients", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=[""], help="what names begin with")
    asked = parser.parse_args()
    print("| posterior | noise |" + "".join(f" {each:.0%} without |" for each in SHARES))
    print("|" + "---|" * (2 + len(SHARES)))
    for place, model in enumerate(models()):
        if not model.name.startswith(tuple(asked.only)):
            continue
        for noise in model.noises:
            cells = [
                held(model, noise, share, asked.clients, asked.repeats, [asked.seed, place, number])
                for number, share in enumerate(SHARES)
            ]
            print(f"| {model.name} | {noise} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
