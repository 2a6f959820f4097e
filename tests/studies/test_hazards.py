"""Hazard ratios: Cox's without noise, whatever the bounds, and honest intervals with it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from statsmodels.duration.hazard_regression import PHReg

from shoal_studies.catalogue.piecewise_exponential import PiecewiseExponentialTask
from shoal_studies.hazards import HazardScores
from shoal_studies.regression.plausible_designs import DesignRows
from tests.studies.test_measured_regressions import carried_out

SEED = 20_240_613
LEVEL = 0.9
TRUTH = np.array([0.03, -0.5])


def people(count: int, generator: np.random.Generator) -> np.ndarray:
    """Return ages, flags, weeks and whether there was an event: hazards rise with time."""
    age = 30.0 + generator.gamma(2.0, 8.0, count).clip(max=60.0)
    flag = generator.binomial(1, 0.3, count)
    hazards = np.exp((age - 45.0) * TRUTH[0] + flag * TRUTH[1])
    times = 30.0 * (generator.exponential(size=count) / hazards) ** (1.0 / 1.3)
    seen = np.minimum(generator.uniform(5.0, 60.0, count), 52.0)
    return np.column_stack([age, flag, np.minimum(times, seen), times <= seen])


def cox(values: np.ndarray) -> np.ndarray:
    """Return the log hazard ratios of Cox's partial likelihood, shape (q,)."""
    fit = PHReg(values[:, -2], values[:, :-2], status=values[:, -1], ties="efron").fit()
    return np.asarray(fit.params)


def task_of(*, wide: float = 1.0, off: float = 0.0) -> PiecewiseExponentialTask:
    """Return the task with bounds of age `wide` times as wide, off by `off`."""
    middle, half = 60.0 + off, 35.0 * wide
    return PiecewiseExponentialTask.model_validate(
        {
            "features": [
                {"name": "age", "lower": middle - half, "upper": middle + half},
                {"name": "flag", "lower": 0.0, "upper": 1.0},
            ],
            "time": {"name": "weeks", "lower": 0.0, "upper": 52.0},
            "event": "died",
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize("bounds", [{}, {"wide": 3.0, "off": 60.0}], ids=str)
def test_with_little_noise_ratios_are_coxs_whatever_the_bounds(bounds: dict[str, float]) -> None:
    values = people(20_000, np.random.default_rng(SEED))
    found: Any = carried_out(task_of(**bounds), values, epsilon=200.0).posterior
    assert found.mean[:2] == pytest.approx(cox(values), rel=0.1)
    assert found.verdict.kind == "trustworthy"
    ratios = found.ratios()
    assert ratios[:, 0] == pytest.approx(np.exp(found.mean[:2]))
    assert np.all((ratios[:, 1] < ratios[:, 0]) & (ratios[:, 0] < ratios[:, 2]))


@pytest.mark.slow
def test_with_little_noise_survival_is_that_of_the_hazards_that_made_the_times() -> None:
    values = people(20_000, np.random.default_rng(SEED))
    found: Any = carried_out(task_of(), values, epsilon=200.0).posterior
    rows = np.array([[45.0, 0.0], [60.0, 1.0]])
    curves = found.survival(rows)
    hazards = np.exp((rows - [45.0, 0.0]) @ TRUTH)[:, None]
    true = np.exp(-hazards * (curves.times[1:] / 30.0) ** 1.3)
    assert curves.survival == pytest.approx(true, abs=0.03)
    assert np.all(curves.bands[..., 0] <= curves.intervals[..., 0])
    assert np.all(curves.bands[..., 1] >= curves.intervals[..., 1])


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
@pytest.mark.parametrize("delta", [0.0, 1e-5], ids=["laplace", "gaussian"])
def test_intervals_that_are_trusted_hold_the_truth(epsilon: float, delta: float) -> None:
    """Of 20 intervals 90 % hold 15 or more, but for one case in 90; 60 % do in one of eight."""
    held = []
    for seed in range(10):
        values = people(3_000, np.random.default_rng([SEED, seed]))
        found: Any = carried_out(
            task_of(), values, epsilon=epsilon, seed=seed, delta=delta
        ).posterior
        if found.verdict.kind != "doubtful":
            low, high = found.interval(LEVEL)[:2].T
            held += ((low <= TRUTH) & (high >= TRUTH)).tolist()
    assert sum(held) >= 0.75 * len(held)
    assert held or (epsilon, delta) == (1.0, 0.0)


def test_expected_sums_change_with_parameters_as_their_derivatives_say() -> None:
    generator = np.random.default_rng(SEED)
    rows = np.column_stack([np.ones(50), generator.standard_normal((50, 2))])
    whole = np.full(50, 1.0 / 50)
    design = DesignRows(rows, np.zeros(50), whole, whole)
    basis = np.array([[1.0, 0.0, 0.0], [0.0, 1.2, 0.0], [0.0, -0.5, 0.8]])
    point = generator.normal(-2.0, 0.3, 8)
    scores = HazardScores(
        values=np.zeros(8),
        noise_sd=1.0,
        basis=basis,
        squared_radius=4.0,
        widths=np.array([1.0, 2.0, 4.0]),
        asked=(np.full(3, -1.0), np.array([0.5, 0.2])),
        hazard_cut=1.5,
    )
    for each in (scores, replace(scores, is_of_moments=True, level=0.3)):
        expected = each.expectation(design, 1_000.0, 1.0, point)
        _, jacobian = expected(point)
        steps = 1e-5 * np.eye(8)
        seen = [(expected(point + step)[0] - expected(point - step)[0]) / 2e-5 for step in steps]
        assert jacobian == pytest.approx(np.column_stack(seen), rel=1e-4, abs=1e-4)


@pytest.mark.slow
def test_noise_that_hides_everything_is_not_trusted() -> None:
    values = people(300, np.random.default_rng(SEED))
    found: Any = carried_out(task_of(), values, epsilon=0.1).posterior
    assert found.verdict.kind in ("doubtful", "prior")
