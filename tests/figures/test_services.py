"""What real services release is compared with the simulator, and every disagreement is seen.

The services themselves run in tests/end_to_end/test_figures.py.
"""

from dataclasses import replace

import numpy as np
import pytest

from figures import ours
from figures.authors import DELTA
from figures.datasets import Split
from figures.services import Point, absolute_error, compare
from shoal_studies.catalogue.regression import RegressionTask


def point() -> Point:
    generator = np.random.default_rng(1)
    x = generator.uniform(-4.0, 4.0, (500, 2))
    y = x @ [0.6, -0.4] + 0.5 * generator.standard_normal(500)
    rows = np.column_stack([x, y])
    return Point(
        site="site",
        task=ours.uci_task(2),
        split=Split(train=rows[:300], test=rows[300:]),
        epsilon=3.0,
        score=absolute_error,
    )


@pytest.mark.parametrize("task", [ours.uci_task(11), ours.gdsc_task(10)])
@pytest.mark.parametrize("epsilon", [1.0, 10.0, 100.0])
def test_services_would_run_the_figures_jobs_at_every_price(task: RegressionTask, epsilon: float):
    assert ours.services_would_run(task, population=1000, epsilon=epsilon, delta=DELTA)


def test_services_would_not_run_noise_that_is_finer_than_the_grid():
    task = ours.uci_task(1)
    assert not ours.services_would_run(task, population=10**6, epsilon=1e9, delta=DELTA)


@pytest.fixture
def job() -> tuple[Point, ours.Fit]:
    asked = point()
    generator = np.random.default_rng(4)
    rows = asked.split.train
    fitted = ours.fit(asked.task, rows, epsilon=3.0, delta=DELTA, generator=generator)
    return asked, fitted


def verdicts(asked: Point, fitted: ours.Fit) -> list[bool]:
    sums = list(fitted.sums)
    _, findings = compare(asked, fitted.posterior, sums, processes=1, simulated=40)
    return [each.holds for each in findings]


def test_sums_with_noise_of_twice_the_size_are_seen(job: tuple[Point, ours.Fit]):
    asked, fitted = job
    *earlier, last = fitted.sums
    noise = np.random.default_rng(3).standard_normal(len(last.values)) * last.noise_sd * 2.0
    louder = replace(last, values=last.values + noise.astype(np.int64))
    same, _, noise_as_stated = verdicts(asked, ours.Fit(fitted.posterior, (*earlier, louder)))
    assert not same
    assert not noise_as_stated


def test_a_posterior_that_predicts_worse_than_any_simulated_one_is_seen(
    job: tuple[Point, ours.Fit],
):
    asked, fitted = job
    wrong = fitted.posterior.model_copy(update={"coefficients": (0.0, -1.0, 0.0)})
    same, among, _ = verdicts(asked, ours.Fit(wrong, fitted.sums))
    assert not same
    assert not among
