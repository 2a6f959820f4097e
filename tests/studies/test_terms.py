"""Every learner asks what its study's terms allow, and the same again of the same sums."""

import tomllib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpyro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpyro import distributions

from bench.calibration import unit_task
from shoal.jobs.task_files import example, parse_task_file
from shoal_protocol.privacy.accounting import Cap
from shoal_protocol.queries import Query
from shoal_protocol.queries.models.numpyro_models import CompiledModel, compile_model
from shoal_protocol.rounds.batches import participations
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.wire.errors import RefusedSpec
from shoal_studies.contract import Learner, NoReliablePosterior, RequestedRound
from shoal_studies.registry import STUDIES, Task, learner_for
from shoal_studies.simulation import Federation, run
from tests.studies import test_measured_regressions as regressions

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
@pytest.mark.parametrize(
    ("shape", "epsilon", "delta"),
    [
        ("spread", 50.0, 1e-5),
        ("spread", 0.05, 0.0),
        ("at the upper bounds", 50.0, 1e-5),
        ("none", 0.05, 0.0),
    ],
)
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
    if len({each.query.name for each in sums}) > 1:
        with pytest.raises(ValueError, match="in order"):
            learners[1].next(CLIENTS, sums[::-1])
    for population, wrong in ((0, ()), (CLIENTS, [*sums, *sums[-1:]])):
        with pytest.raises(ValueError, match=r"population|in order|clients|sums are not"):
            learners[1].next(population, wrong)


TASKS: dict[str, Task] = {
    **{name: task_of(name) for name in STUDIES if name != "numpyro_model"},
    "normal regression": regressions.task_of("normal"),
    **{
        f"{each} regression at risk, weighed": regressions.task_at_risk(each).model_copy(
            update={"weights": regressions.WEIGHTS}
        )
        for each in regressions.AT_RISK
    },
    "to predict": regressions.to_predict(),
    "by site": regressions.by_site(),
    "by box": unit_task(4, method="box_projection"),
    "by ball": unit_task(4, method="ball_projection"),
}


COUNTED = ("cohort_card", "kaplan_meier", "quantiles", "validation")  # whose numbers end at zero


@pytest.mark.slow
@pytest.mark.essential
@pytest.mark.parametrize("name", TASKS)
@given(data=st.data())
@settings(max_examples=4, deadline=None)
def test_whatever_is_released_there_is_a_next_round_or_a_posterior(
    name: str, data: st.DataObject
) -> None:
    """Nonsense from noise or liars: a learner that raised would cost the budget for nothing."""
    task, mu = TASKS[name], Cap(epsilon=1.0, delta=1e-5).whole.mu
    learner, sums = learner_for(task), list[ReleasedSum]()
    with suppress(NoReliablePosterior):
        while isinstance(step := learner.next(50, sums), RequestedRound):
            task.terms(least=2, most=2).check(step.query, number=len(sums))
            sums.append(nonsense(step.query, data, mu))
        are_counts = name in COUNTED
        assert np.all(np.isfinite(step.mean))
        assert np.all(step.sd > 0.0) or (are_counts and np.all(step.sd >= 0.0))
    assert len(sums) == task.rounds


def nonsense(query: Query, data: st.DataObject, mu: float) -> ReleasedSum:
    design = query.design("discrete_gaussian")
    scales = np.repeat(
        [block.relative_scale for block in design.blocks],
        [block.coordinates for block in design.blocks],
    )
    most = 50 * query.largest_value
    seed = data.draw(st.integers(0, 2**32 - 1))
    size = data.draw(st.sampled_from([0.0, 1e-3, 1.0]))
    values = np.random.default_rng(seed).uniform(-size, size, query.dimension) * most
    if data.draw(st.booleans()):  # all as far out as answers may be
        values = np.sign(values) * most
    return ReleasedSum(
        query=query,
        values=np.rint(values).astype(np.int64),
        cohort_size=50,
        noise_sd=scales * design.sensitivity / mu,
        mechanism="discrete_gaussian",
    )


@pytest.mark.parametrize("name", ["regression", "to predict", "moments", "multinomial_regression"])
def test_a_round_that_asks_more_than_its_terms_is_refused(name: str) -> None:
    task, sums = TASKS[name], list[ReleasedSum]()
    learner = learner_for(task)
    while isinstance(step := learner.next(CLIENTS, sums), RequestedRound):
        query = step.query
        zeros = np.zeros(query.dimension, np.int64)
        noise_sd = np.full(query.dimension, 1e9)
        sums.append(
            ReleasedSum(
                query=query,
                values=zeros,
                cohort_size=CLIENTS,
                noise_sd=noise_sd,
                mechanism="discrete_gaussian",
            )
        )
    column, *others = query.columns
    changes: list[dict[str, Any]] = [
        {"radius": 1e-3},
        {"intercept": 0.5},
        {"columns": query.columns[::-1]},
        {"columns": (column.model_copy(update={"scale": 1e-6}), *others)},
        {"columns": (column.model_copy(update={"centre": 1e6}), *others)},
        {"record_weights": True},
        {"classes": 2, "point": (0.0,) * 8},
    ]
    changed = [
        query.model_copy(update=each)
        for each in changes
        if each.keys() <= type(query).model_fields.keys()
    ]
    for each in (*changed, sums[0].query):
        with pytest.raises(RefusedSpec):
            task.terms(least=2, most=2).check(each, number=len(sums) - 1)
