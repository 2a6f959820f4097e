"""Estimators in scikit-learn's habit, on simulated federations, and under scikit-learn's tools."""

import tomllib
import warnings
from datetime import date
from typing import Any

import matplotlib
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from sklearn.base import clone, is_classifier

matplotlib.use("Agg")

from matplotlib import pyplot

from shoal import estimators
from shoal.estimators import (
    Bernoulli,
    Categorical,
    GammaRegression,
    LinearRegression,
    LinearRegressionInBounds,
    LogisticRegression,
    MultinomialRegression,
    NegativeBinomialRegression,
    Normal,
    NormalMean,
    NumpyroModel,
    PiecewiseExponentialRegression,
    Poisson,
    PoissonRegression,
)
from shoal.jobs.task_files import example, parse_task_file
from shoal_protocol.trust.dictionary import Number
from shoal_studies.registry import STUDIES
from shoal_studies.simulation import SimulatedFederation

FEATURES = {"age": (18, 90), "dose": (0, 10)}
CLIENTS = 600
STAGES = np.array(["early", "middle", "late"])


def table(seed: int = 1, clients: int = CLIENTS) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    age, dose = generator.uniform(18, 90, clients), generator.uniform(0, 10, clients)
    chance = 1 / (1 + np.exp(-(dose - 5)))
    return {
        "age": age,
        "dose": dose,
        "pressure": 90 + 0.5 * age + 2 * dose + generator.normal(0, 4, clients),
        "recovered": (generator.uniform(size=clients) < chance).astype(float),
        "visits": generator.poisson(np.exp(0.3 * dose - 1)).astype(float),
        "stage": STAGES[(dose + generator.logistic(0, 1.5, clients)).clip(0, 8.9).astype(int) // 3],
        "stay": np.exp(0.2 * dose) * generator.gamma(4.0, 0.25, clients),
    }


def federation(seed: int = 1, **changes: Any) -> SimulatedFederation:
    arguments: dict[str, Any] = {
        "epsilon": 50.0,  # little noise: what is tested here is not the learners
        "delta": 1e-5,
        "dropouts": 5,
        "colluders": 5,
        "seed": seed,
    }
    return SimulatedFederation(table(), **(arguments | changes))


def linear(**changes: Any) -> LinearRegressionInBounds:
    arguments = {"features": FEATURES, "target": {"pressure": (80, 180)}, "method": "plain"}
    return LinearRegressionInBounds(**(arguments | changes))


LOGISTIC = LogisticRegression(features=FEATURES, target={"recovered": (0, 1)})
DOSE = NumpyroModel(
    entry_point="dose",
    digest="0" * 64,
    unconstrained=1,
    columns={"dose": (0, 10)},
    rounds=20,
    batch=None,
    normalised=True,
)
MEASURED = [
    LinearRegression(features=FEATURES, target={"pressure": (80, 180)}),
    LOGISTIC,
    PoissonRegression(features=FEATURES, target={"visits": (0, 20)}),
    NegativeBinomialRegression(features=FEATURES, target={"visits": (0, 20)}),
    GammaRegression(features=FEATURES, target={"stay": (0, 25)}),
]
REGRESSIONS = [linear(), *MEASURED]
FAMILIES = [
    Bernoulli(column="recovered"),
    Categorical(column={"visits": (0, 1, 2, 3)}),
    Poisson(column="visits", upper=20),
    NormalMean(column={"pressure": (80, 180)}, sd=12.0),
    Normal(variables={"age": (0, 110), "pressure": (60, 220)}),
]


@pytest.fixture(scope="module")
def fitted() -> dict[type, Any]:
    return {type(each): clone(each).fit(federation()) for each in [*REGRESSIONS, *FAMILIES]}


OTHERWISE_NAMED: dict[str, type[Any]] = {
    "regression": LinearRegression,  # one for each of its families
    "linear_regression": LinearRegressionInBounds,
}


@pytest.mark.parametrize(
    "name",  # without a task alone, and those whose numbers have names in the task alone
    sorted(STUDIES.keys() - {"logistic_regression", "multinomial_regression", "validation"}),
)
def test_every_study_has_an_estimator_with_its_parameters(name: str) -> None:
    task = parse_task_file(tomllib.loads(example(name))).task
    kind = OTHERWISE_NAMED.get(name) or getattr(estimators, name.title().replace("_", ""))
    parameters = {each: value for each, value in task if each not in kind._fixed}
    if name == "cohort_card":  # whose variables are given by their names
        said = {each.name: each.model_dump(exclude={"name"}) for each in task.variables}
        parameters["variables"] = said
    if name in ("kaplan_meier", "categorical"):  # a variable is given with its levels
        parameters[kind._leveled] = {getattr(task, kind._leveled): task.levels}
    assert kind(**parameters).to_task() == task


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"features": {}}, "features"),
        ({"features": {"age": (90, 18)}}, "features, 'age': the lower bound"),
        ({"features": {"age": (18, 18)}}, "features, 'age': the lower bound"),
        ({"features": {"age": 18}}, "two numbers"),
        ({"features": {"age": ("18", "90")}}, "levels are the texts '18', '90'"),
        ({"features": {"age": (18, "90")}}, "some levels of 'age' are texts"),
        ({"features": {"age": (True, None)}}, "two numbers"),
        ({"features": {"age": (date(1920, 1, 1), date(2020, 1, 1))}}, "'age' holds numbers"),
        ({"features": ["agee"]}, "there is no variable 'agee': give its bounds"),
        ({"features": {"agee": (18, 90)}}, "no column 'agee'; near to it are age"),
        ({"features": []}, "features"),
        ({"features": "age"}, "features must be a mapping"),
        ({"target": FEATURES}, "target must be one column"),
        ({"target": {"age": (18, 90)}}, "target must not be one of the features"),
        ({"prior_sd": -1.0}, "prior_sd"),
        ({"prior_sd": "wide"}, "prior_sd"),
    ],
)
def test_a_parameter_that_is_not_usable_is_refused_by_fit(changes: Any, said: str) -> None:
    estimator = linear(**changes)  # as scikit-learn has it, nothing is checked here
    with pytest.raises(ValueError, match=said):
        estimator.fit(federation())


def test_a_target_is_named_as_any_other_column() -> None:
    known = {"age": (18, 90), "pressure": (80, 180)}
    named = LinearRegression(features=["age"], target="pressure")
    named.fit(federation(variables=known))
    listed = LinearRegression(features=["age"], target=["pressure"])
    listed.fit(federation(variables=known))
    assert named.posterior_ == listed.posterior_
    counted = PoissonRegression(features=["age"], target="visits")
    agreed = {each: Number(name=each, meaning="?", lower=1, upper=90) for each in table()}
    assert counted.to_task(agreed).target.lower == 0  # counts begin there, whoever has none


@pytest.mark.parametrize(
    "said", [{"features": ["age", "dose"]}, {"formula": "pressure ~ age + dose"}]
)
def test_who_forgets_which_values_were_missing_is_warned(said: dict[str, Any]) -> None:
    dose = Number(name="dose", meaning="?", lower=0, upper=10, missing="indicator")
    others = [Number(name=each, meaning="?", lower=0, upper=200) for each in ("age", "pressure")]
    agreed = [dose, dose.indicator, *others]
    records = {each: table()[each] for each in ("age", "dose", "pressure")}
    there = SimulatedFederation(
        records | {"dose_missing": np.zeros(CLIENTS)},
        epsilon=50.0,
        delta=1e-5,
        dropouts=5,
        colluders=5,
        seed=1,
        variables=agreed,
    )
    target = {} if "formula" in said else {"target": "pressure"}
    with pytest.warns(UserWarning, match="without a value of 'dose' count") as warned:
        LinearRegression(**said, **target).fit(there)
    assert warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LinearRegression(formula="pressure ~ age + dose + missing(dose)").fit(there)


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
def test_what_numpy_would_quietly_turn_into_other_numbers_is_no_row(
    fitted: dict[type, Any], rows: object
) -> None:
    with pytest.raises(ValueError, match=r"every value must be a number|masked|durations"):
        fitted[LinearRegression].predict(rows)


def test_targets_whose_squares_are_no_floats_are_refused_and_no_score_is_nan(
    fitted: dict[type, Any],
) -> None:
    with pytest.raises(ValueError, match="in magnitude"):
        fitted[LinearRegression].score([[1, 1], [2, 2]], [1e300, -1e300])


def test_an_estimator_is_fitted_on_a_federation_alone() -> None:
    with pytest.raises(ValueError, match="SimulatedFederation"):
        clone(LOGISTIC).fit(table())
    with pytest.raises(ValueError, match="takes no targets"):
        clone(LOGISTIC).fit(federation(), table()["recovered"])


def test_a_logistic_regressions_classes_are_its_targets_bounds() -> None:
    rows = table()
    rows["recovered"] = 2.0 * rows["recovered"] - 5.0
    there = SimulatedFederation(rows, epsilon=50.0, delta=1e-5, dropouts=5, colluders=5, seed=1)
    model = clone(LOGISTIC).set_params(target={"recovered": (-5, -3)}).fit(there)
    assert model.classes_.tolist() == [-5.0, -3.0]
    assert set(model.predict(rows)) == {-5.0, -3.0}
    assert model.score(rows) > 0.75
    with pytest.raises(ValueError, match="classes_"):
        model.score(rows, np.ones(CLIENTS))


def test_a_numpyro_models_latents_are_learned_from_the_model_that_is_at_hand() -> None:
    def dose(record: Any) -> None:
        centre = numpyro.sample("centre", dist.Normal(0.0, 1.0))
        numpyro.sample("dose", dist.Normal(centre, 0.5), obs=record["dose"])

    model = clone(DOSE).fit(federation(models={"dose": dose}))
    assert model.posterior_.names == ("centre",)
    assert model.posterior_.mean[0] == pytest.approx(table()["dose"].mean() / 5 - 1, abs=0.3)
    assert model.feature_names_in_.tolist() == ["dose"]
    with pytest.raises(ValueError, match="'dose'"):
        clone(DOSE).fit(federation())


def test_measured_regressions_find_what_the_records_say(fitted: dict[type, Any]) -> None:
    model, rows = fitted[LinearRegression], table()
    design = np.column_stack([np.ones_like(rows["age"]), rows["age"], rows["dose"]])
    exact = np.linalg.lstsq(design, rows["pressure"], rcond=None)[0]
    low, high = model.posterior_.interval(0.99).T
    assert np.all((low <= exact) & (exact <= high))
    assert model.posterior_.names == ("intercept", "age", "dose")
    assert model.posterior_.interval(0.9).shape == (3, 2)
    assert fitted[LogisticRegression].score(rows) > 0.6
    assert fitted[NegativeBinomialRegression].score(rows) > 0.0


def staged(**changes: Any) -> MultinomialRegression:
    given = {"features": FEATURES, "target": {"stage": tuple(STAGES)}}
    return MultinomialRegression(**(given | changes))


@pytest.mark.slow
def test_one_class_of_several_is_predicted_with_names_for_numbers() -> None:
    rows = table()
    model = staged().fit(federation())
    assert model.posterior_.names == (
        *("middle: intercept", "middle: age", "middle: dose"),
        *("late: intercept", "late: age", "late: dose"),
    )
    assert model.coef_.shape == (2, 2) and model.intercept_.shape == (2,)
    assert 0.0 < model.coef_[0, 1] < model.coef_[1, 1]  # the more dose, the later
    assert model.predict_proba(rows).sum(axis=1) == pytest.approx(1.0)
    assert set(model.predict(rows)) <= set(STAGES) == set(model.classes_)
    accuracy = float(np.mean(model.predict(rows) == rows["stage"]))
    assert model.score(rows) == model.score(rows, rows["stage"]) == accuracy > 0.6
    assert model.predict_interval(rows).shape == (CLIENTS, 3, 2)
    assert sum(line.startswith("Verdict: ") for line in str(model.summary()).splitlines()) == 1
    assert model.verdict_ == str(model.posterior_.verdict)
    assert is_classifier(model)
    with pytest.raises(ValueError, match="holds 'never', and has the levels 'early'"):
        model.score(rows, ["never"] * CLIENTS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [
        {"features": FEATURES, "time": {"pressure": (60, 180)}, "event": "recovered"},
        {
            "formula": "survival(pressure, recovered) ~ age + dose",
            "variables": FEATURES | {"pressure": (60, 180)},
        },
    ],
    ids=["features", "formula"],
)
def test_hazard_ratios_have_curves_of_survival_and_a_verdict(given: dict[str, Any]) -> None:
    model = PiecewiseExponentialRegression(**given, intervals=4).fit(federation())
    assert model.posterior_.names[:2] == ("age", "dose") and len(model.posterior_.names) == 6
    rows = {"age": [40, 80], "dose": [2, 2]}
    curves = model.predict_survival(rows)
    assert curves.survival.shape == (2, 4) and np.all(np.diff(curves.survival, axis=1) <= 0.0)
    assert np.argmax(model.predict(rows)) == np.argmin(curves.survival[:, -1])
    assert "hazard ratio" in str(model.ratios())
    assert model.verdict_ == str(model.posterior_.verdict)
    assert model.plot().get_xscale() == "log"
    pyplot.close("all")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"features": None}, "needs features"),
        ({"formula": "survival(pressure, recovered) ~ age"}, "says itself"),
        ({"event": {"age": 60}}, "same name"),
        ({"edges": (60.0, 100.0)}, "edges begin and end"),
    ],
)
def test_what_has_no_hazards_is_refused(changes: dict[str, Any], reason: str) -> None:
    given = {"features": FEATURES, "time": {"pressure": (60, 180)}, "event": "recovered"}
    with pytest.raises(ValueError, match=reason):
        PiecewiseExponentialRegression(**(given | changes)).fit(federation())
