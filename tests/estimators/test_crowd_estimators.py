"""Estimators that crowds learn: on simulated crowds, in scikit-learn's tools, and on real jobs."""

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from rich.console import Console
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.metrics import d2_tweedie_score, r2_score
from sklearn.utils.validation import check_is_fitted

matplotlib.use("Agg")

from matplotlib import pyplot

from shoal.estimators import (
    CrowdLinearRegression,
    CrowdLogisticRegression,
    CrowdPoissonRegression,
    NotFittedError,
)
from shoal.estimators.crowds import CrowdRegression
from shoal.jobs.analyst import Analyst, CrowdJob
from shoal.jobs.federation import CrowdFederation
from shoal.jobs.job_failures import JobFailed
from shoal.jobs.job_settings import CrowdSettings
from shoal.jobs.job_states import Approvals, CrowdState
from shoal_protocol.crowds.tasks import CrowdTask
from shoal_protocol.wire.phases import CrowdPhase
from shoal_studies.crowds.simulation import CrowdModel, SimulatedCrowd
from tests.world.around_holder_crowds import TASK, CrowdWorld
from tests.world.clock import NOW
from tests.world.examples import signing_key

FEATURES = {"minutes": (0, 120), "days": (0, 60)}
GIVEN: dict[str, Any] = {
    "features": FEATURES,
    "epsilon": 50.0,  # little noise: what is tested here is not the learning
    "clip": 0.02,
    "learning_rate": 0.02,
    "instances": 2,
}
LINEAR = CrowdLinearRegression(target={"content": (0, 10)}, **GIVEN)
LOGISTIC = CrowdLogisticRegression(target={"returns": (0, 1)}, **GIVEN)
POISSON = CrowdPoissonRegression(target={"visits": (0, 10)}, **GIVEN)
EVERY = [LINEAR, LOGISTIC, POISSON]


def table(phones: int = 4000, seed: int = 1) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    used, age = generator.uniform(-1, 1, (2, phones))
    return {
        "minutes": 60 + 60 * used,
        "days": 30 + 30 * age,
        "returns": generator.binomial(1, 1 / (1 + np.exp(-3 * used + age))).astype(float),
        "visits": generator.poisson(np.exp(0.5 + 0.5 * used)).astype(float),
        "content": np.clip(5 + 2 * used - age + generator.normal(0, 0.5, phones), 0, 10),
    }


def crowd() -> SimulatedCrowd:
    return SimulatedCrowd(table(), seed=1)


def rows_of(records: dict[str, np.ndarray]) -> np.ndarray:
    return np.column_stack([records[name] for name in FEATURES])


@pytest.mark.parametrize("model", EVERY, ids=lambda each: each.family)
def test_what_a_crowd_learned_is_in_the_units_of_the_data(model: CrowdRegression) -> None:
    fitted = clone(model).fit(crowd())
    held_out = table(seed=2)
    assert fitted.score(held_out) > {"linear": 0.8, "logistic": 0.75, "poisson": 0.05}[model.family]
    assert fitted.coef_[0] > 0.0 and fitted.coef_.shape == (2,)
    assert np.array_equal([fitted.intercept_, *fitted.coef_], fitted.model_.coefficients)
    assert fitted.feature_names_in_.tolist() == list(FEATURES) and fitted.n_features_in_ == 2
    assert np.array_equal(fitted.predict(held_out), fitted.predict(rows_of(held_out)))
    assert fitted.model_.contributions == 4000
    assert "no standard error" in str(fitted.summary()) and "local" in fitted._repr_html_()


@pytest.mark.parametrize("model", EVERY, ids=lambda each: each.family)
def test_parameters_are_a_crowd_tasks_with_its_defaults(model: CrowdRegression) -> None:
    fields = {each.name: each.default for each in dataclasses.fields(model)}
    tasks = {
        name: dataclasses.MISSING if field.is_required() else field.default
        for name, field in CrowdTask.model_fields.items()
        if name != "family"  # the estimator's kind says it
    }
    assert fields == tasks | dict.fromkeys(("features", "target", "formula", "variables"))
    assert model.to_task().family == model.family


def test_scores_are_scikit_learns() -> None:
    held_out = table(seed=2)
    linear, poisson = clone(LINEAR).fit(crowd()), clone(POISSON).fit(crowd())
    found = linear.score(rows_of(held_out), held_out["content"])
    assert found == pytest.approx(r2_score(held_out["content"], linear.predict(held_out)))
    found = poisson.score(held_out)
    expected = d2_tweedie_score(held_out["visits"], poisson.predict(held_out), power=1)
    assert found == pytest.approx(expected)
    logistic = clone(LOGISTIC).fit(crowd())
    upper = logistic.predict_proba(held_out)[:, 1]
    assert np.array_equal(logistic.predict(held_out), np.where(upper > 0.5, 1.0, 0.0))
    agreed = np.mean(logistic.predict(held_out) == held_out["returns"])
    assert logistic.score(held_out) == pytest.approx(agreed)
    with pytest.raises(ValueError, match="classes_"):
        logistic.score(rows_of(held_out), held_out["visits"] + 0.5)


def test_an_estimator_draws_its_weights() -> None:
    fitted = clone(LINEAR).fit(crowd())
    assert np.array_equal(fitted.plot().lines[-1].get_xdata(), fitted.model_.averaged)
    pyplot.close("all")


@pytest.mark.parametrize(
    "rows",
    [
        [[10**400, 1]],
        np.ma.masked_array([[1.0, 2.0]], mask=[[True, False]]),
        np.array([[1j, 2]]),
        np.array([["2020-01-01", "2020-01-02"]], dtype="datetime64[ns]"),
        np.array([[1, 2]], dtype="timedelta64[D]"),
    ],
    ids=["too large", "masked", "complex", "dates", "durations"],
)
def test_what_numpy_would_quietly_turn_into_other_numbers_is_no_row(rows: object) -> None:
    fitted = clone(LINEAR).fit(crowd())
    with pytest.raises(ValueError, match=r"every value must be a number|masked|durations"):
        fitted.predict(rows)


def test_targets_whose_squares_are_no_floats_are_refused_and_no_score_is_nan() -> None:
    fitted = clone(LINEAR).fit(crowd())
    with pytest.raises(ValueError, match="in magnitude"):
        fitted.score([[1, 1], [2, 2]], [1e300, -1e300])


def test_an_estimator_is_one_for_scikit_learns_tools() -> None:
    assert is_classifier(LOGISTIC) and is_regressor(LINEAR) and is_regressor(POISSON)
    with pytest.raises(NotFittedError):
        LINEAR.predict([[1.0, 2.0]])
    fitted = clone(LINEAR).set_params(instances=3).fit(crowd())
    check_is_fitted(fitted)
    assert fitted.get_params()["instances"] == 3 and "instances=3" in repr(fitted)
    copied = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(copied.coef_, fitted.coef_)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"features": {"minutes": (0,)}}, "features"),
        ({"target": {"content": (5, 5)}}, "target"),
        ({"instances": 0}, "instances"),
    ],
)
def test_a_parameter_that_cannot_be_is_named_before_anybody_is_asked(
    changes: dict[str, Any], what: str
) -> None:
    with pytest.raises(ValueError, match=what):
        clone(LINEAR).set_params(**changes).fit(crowd())


def test_a_fit_on_records_is_refused_with_a_word_on_where_they_stay() -> None:
    with pytest.raises(ValueError, match="SimulatedCrowd"):
        clone(LINEAR).fit(table())  # type: ignore[arg-type]


def real(world: CrowdWorld) -> CrowdFederation:
    key = signing_key("analyst")
    analyst = Analyst(
        name="analyst", key=key, book=world.book, clock=world.clock, transport=world.transport
    )
    return CrowdFederation(
        analyst,
        CrowdSettings(
            contributions=1000,
            contributions_per_client=3,
            session_seconds=60,
            open_seconds=60,
        ),
        show_progress=False,
    )


def asked() -> CrowdLinearRegression:
    """Return the estimator of the world's job."""
    given = {name: getattr(TASK, name) for name in ("clip", "epsilon", "learning_rate")}
    return CrowdLinearRegression(
        features=TASK.features, target=TASK.target, instances=TASK.instances, **given
    )


@pytest.fixture
async def world(tmp_path: Path) -> CrowdWorld:
    world = CrowdWorld(tmp_path)
    holder = world.holder()
    await world.run(holder, seconds=1000, tick=50)
    await holder.close()
    world.crowds.closed = True
    return world


def test_a_job_that_was_opened_earlier_fits_an_estimator(world: CrowdWorld) -> None:
    submitted = real(world).resume(world.job)
    fitted = asked().fit_from(submitted)
    assert fitted.model_ == submitted.result() and fitted.model_.contributions == 12
    with pytest.raises(ValueError, match="another clip"):
        asked().set_params(clip=0.06).fit_from(submitted)


async def test_a_fit_opens_a_job_of_its_own_by_what_the_federation_asks(
    world: CrowdWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []

    def open_crowd(analyst: Analyst, task: Any, settings: CrowdSettings) -> CrowdJob:
        opened.append((task, settings))
        return analyst.crowd(world.job)

    monkeypatch.setattr(Analyst, "open_crowd", open_crowd)
    waiting = CrowdState(
        job=world.job,
        phase=CrowdPhase.OPEN,
        approvals=Approvals(waits=2, holders=3),
        contributions=0,
        wanted=1000,
        contributors=0,
        spread=None,
        turned_at=None,
        closes_at=NOW,
    )
    empty = CrowdModel(task=TASK, contributions=0, instances=((0, 0),) * 3)

    results = iter([None, None, empty])
    monkeypatch.setattr(CrowdJob, "state", lambda job, **_: waiting)
    monkeypatch.setattr(CrowdJob, "result", lambda job, **_: next(results))
    federation = real(world)
    console = federation._console = Console(record=True, quiet=False, file=None, width=200)
    with pytest.raises(JobFailed, match="nobody contributed"):
        asked().fit(federation)
    assert console.export_text().count("waits for approval at 2 of 3 data holders") == 1
    [(task, settings)] = opened
    assert task == TASK and settings.open_seconds == 60 and settings.contributions == 1000
