"""Every learner asks only what its study's terms allow, whatever the sums turn out to be."""

import tomllib

import numpy as np
import numpyro
import pytest
from numpyro import distributions

from shoal.jobs.task_files import example, parse_task_file
from shoal_protocol.queries.models.numpyro_models import compile_model
from shoal_protocol.rounds.batches import participations
from shoal_studies.contract import NoReliablePosterior
from shoal_studies.registry import STUDIES, Task, learner_for
from shoal_studies.simulation import Federation, run

CLIENTS = 60


def normal_model(record):
    """A model of as many numbers as the example's task says."""
    values = numpyro.sample("values", distributions.Normal(0.0, 1.0).expand([3]).to_event(1))
    numpyro.sample("age", distributions.Normal(values.sum(), 1.0), obs=record["age"])


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


@pytest.mark.slow
@pytest.mark.essential
@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("shape", ["spread", "at the upper bounds", "none"])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.05, 0.0), (50.0, 1e-5)])
def test_every_learner_asks_only_what_the_terms_of_its_study_allow(
    name: str, shape: str, epsilon: float, delta: float
) -> None:
    task = task_of(name)
    terms = task.terms(least=CLIENTS - 20, most=CLIENTS + 40)
    federation = Federation(
        population=CLIENTS, missing=2, dropouts=5, colluders=5, epsilon=epsilon, delta=delta
    )
    model = None
    if name == "numpyro_model":
        lower, upper = ([getattr(each, end) for each in task.columns] for end in ("lower", "upper"))
        names = [each.name for each in task.columns]
        model = compile_model(normal_model, names, lower=np.array(lower), upper=np.array(upper))
    learner = learner_for(task, find_model=None if model is None else lambda *_: model)
    shares: list[float] = []

    class Held:
        """The learner, held to its terms."""

        def next(self, population, sums):
            step = learner.next(population, sums)
            if hasattr(step, "query"):
                terms.check(step.query, number=len(sums))
                assert step.batch == task.batch
                shares.append(step.share)
            return step

    gradients = None if model is None else model.gradients
    try:
        run(
            Held(),
            records_of(task, shape),
            federation,
            np.random.default_rng(2),
            gradients=gradients,
        )
    except NoReliablePosterior:
        pass  # which is said only once all rounds are over
    assert len(shares) == terms.rounds == task.rounds
    paid = participations(task.rounds, task.batch, CLIENTS)  # by one client at most
    assert sum(sorted(shares)[-paid:]) == pytest.approx(1.0)
