"""Every learner asks what its study's terms allow, and the same again of the same sums."""

import tomllib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpyro
import pytest
from numpyro import distributions

from shoal.jobs.task_files import example, parse_task_file
from shoal_protocol.queries.models.numpyro_models import CompiledModel, compile_model
from shoal_protocol.rounds.batches import participations
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.contract import Learner, NoReliablePosterior, RequestedRound
from shoal_studies.registry import STUDIES, Task, learner_for
from shoal_studies.simulation import Federation, run

CLIENTS = 60


def normal_model(record):
    """A model of as many numbers as the example's task says."""
    values = numpyro.sample("values", distributions.Normal(0.0, 1.0).expand([3]).to_event(1))
    numpyro.sample("age", distributions.Normal(values.sum(), 1.0), obs=record["age"])


def model_of(task: Task) -> CompiledModel:
    lower, upper = ([getattr(each, end) for each in task.columns] for end in ("lower", "upper"))
    names = [each.name for each in task.columns]
    return compile_model(normal_model, names, lower=np.array(lower), upper=np.array(upper))


def task_of(name: str) -> Task:
    """Return an example's task, with few rounds if it may have any number of them."""
    task = parse_task_file(tomllib.loads(example(name))).task
    few = {"batch": CLIENTS // 2, "rounds": 10}
    return task.model_copy(update=few) if "batch" in type(task).model_fields else task


def records_of(task: Task, shape: str) -> np.ndarray:
    """Return one record of each client, shape (clients, columns)."""
    generator, values = np.random.default_rng(1), []
    for name in task.column_names:
        spread, highest = values_of(name, task, generator)
        values.append({"spread": spread, "none": np.full(CLIENTS, np.nan)}.get(shape, highest))
    return np.column_stack(values)


def values_of(name: str, task: Task, generator: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Return a variable's values as they may be, and as high as they may be."""
    for column in task.terms(least=2, most=CLIENTS).read:
        for factor in () if column.term is None else column.term.factors:
            if factor.variable == name and hasattr(factor, "among"):
                levels = factor.among or (0.0, 1.0)
                return generator.choice(levels, CLIENTS), np.full(CLIENTS, levels[-1])
        if column.name == name:
            spread = generator.uniform(column.lower, column.upper, CLIENTS)
            return spread, np.full(CLIENTS, column.upper)
    raise AssertionError(f"no column has the variable {name}")


@dataclass
class Recorded:
    """A learner, and what it answered to which sums."""

    learner: Learner
    steps: list[tuple[list[ReleasedSum], Any]] = field(default_factory=list)

    def next(self, population: int, sums: Sequence[ReleasedSum]) -> Any:
        step = self.learner.next(population, sums)
        self.steps.append((list(sums), step))
        return step


@pytest.mark.slow
@pytest.mark.essential
@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("shape", ["spread", "at the upper bounds", "none"])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.05, 0.0), (50.0, 1e-5)])
def test_every_learner_keeps_to_the_terms_of_its_study_and_is_replayed_from_its_sums(
    name: str, shape: str, epsilon: float, delta: float
) -> None:
    task = task_of(name)
    federation = Federation(
        population=CLIENTS, missing=2, dropouts=5, colluders=5, epsilon=epsilon, delta=delta
    )
    model = model_of(task) if name == "numpyro_model" else None
    learners = [learner_for(task, find_model=lambda *_: model) for _ in range(2)]
    recorded, generator = Recorded(learners[0]), np.random.default_rng(2)
    gradients = None if model is None else model.gradients
    with suppress(NoReliablePosterior):  # which is said only once all rounds are over
        run(recorded, records_of(task, shape), federation, generator, gradients=gradients)

    asked = [each for each in recorded.steps if isinstance(each[1], RequestedRound)]
    terms = task.terms(least=CLIENTS - 20, most=CLIENTS + 40)
    assert len(asked) == terms.rounds == task.rounds
    for number, (_, step) in enumerate(asked):
        terms.check(step.query, number=number)
        assert step.batch == task.batch
    paid = participations(task.rounds, task.batch, CLIENTS)  # by one client at most
    assert sum(sorted(step.share for _, step in asked)[-paid:]) == pytest.approx(1.0)

    for sums, step in recorded.steps:
        assert learners[1].next(CLIENTS, sums) == step
