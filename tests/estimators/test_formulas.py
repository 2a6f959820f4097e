"""Formulas: how they are read, which columns they mean, and estimators that are given one."""

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from shoal.estimators import (
    LinearRegression,
    LinearRegressionInBounds,
    LogisticRegressionByGradients,
    MultinomialRegression,
    PoissonRegression,
)
from shoal.estimators.parameters import Parameters
from shoal.formulas.designing import Design, design
from shoal.formulas.parsing import parse
from shoal.formulas.variables import Known
from shoal.jobs.job_failures import JobRefused
from shoal_learning.simulation import SimulatedFederation
from shoal_protocol.queries.columns import (
    ColumnBounds,
    Level,
    Log,
    Power,
    Spline,
    Term,
    design_of,
    variables_of,
)
from shoal_protocol.trust.dictionary import Category, Flag, Number

VARIABLES: dict[str, Any] = {
    "age": (18, 90),
    "bmi": (15, 45),
    "crp": (0, 300),
    "y": (80, 220),
    "sex": ("f", "m"),
    "smoker": ("no", "yes", "former"),
    "treated": Flag(name="treated", meaning="was treated"),
    "dose": Number(name="dose", meaning="dose", lower=0, upper=5, missing="indicator"),
    "body mass": (40, 150),
}
KNOWN = Known.given(VARIABLES, "variables")


def designed(formula: str, known: Known = KNOWN) -> Design:
    return design(parse(formula), known)


def names(formula: str) -> list[str]:
    return [each.name for each in designed(formula).features]


@pytest.mark.parametrize(
    ("right", "due"),
    [
        ("age", ["age"]),
        ("age + bmi", ["age", "bmi"]),
        ("age * bmi", ["age", "bmi", "age:bmi"]),
        ("(age + bmi + treated)**2 - bmi:treated", "age bmi treated age:bmi age:treated".split()),
        ("age + bmi - age", ["bmi"]),
        ("treated", ["treated"]),
        ("C(treated)", ["C(treated)[1]"]),
        ("smoker", ["smoker[yes]", "smoker[former]"]),
        ("C(smoker)", ["C(smoker)[yes]", "C(smoker)[former]"]),
        ('C(smoker, reference="yes")', ["C(smoker)[no]", "C(smoker)[former]"]),
        ("C(age, levels=[20, 30, 40])", ["C(age)[30]", "C(age)[40]"]),
        ('level(smoker, "yes")', ["level(smoker, yes)"]),
        ("level(age, 30)", ["level(age, 30.0)"]),
        ("age:sex", ["age:sex[f]", "age:sex[m]"]),
        ("age + age:sex", ["age", "age:sex[m]"]),
        ("age*sex", ["age", "sex[m]", "age:sex[m]"]),
        ("0 + sex + smoker", ["sex[f]", "sex[m]", "smoker[yes]", "smoker[former]"]),
        (
            "sex*smoker",
            [
                *("sex[m]", "smoker[yes]", "smoker[former]"),
                *("sex[m]:smoker[yes]", "sex[m]:smoker[former]"),
            ],
        ),
        ("I(age**2)", ["age**2"]),
        ("age + age**2", ["age", "age**2"]),
        ("power(`body mass`, 3) + `body mass`", ["body mass**3", "body mass"]),
        ("log(bmi) + log(crp, 0.1)", ["log(bmi)", "log(crp)"]),
        ("spline(bmi, 4)", [f"spline(bmi)[{place}]" for place in (1, 2, 3, 4)]),
        ("spline(bmi, knots=[20, 25, 30])", [f"spline(bmi)[{place}]" for place in range(1, 7)]),
        ("dose + missing(dose)", ["dose", "dose_missing"]),
    ],
)
def test_a_formula_means_these_columns(right: str, due: list[str]) -> None:
    assert names(f"y ~ {right}") == due


def test_a_number_by_itself_is_its_column_and_all_else_a_term_with_the_bounds_that_follow() -> None:
    found = designed("log(y) ~ age + bmi:smoker + spline(bmi, 3) + log(crp, 0.5)")
    by_name = {each.name: each for each in found.features}
    age, log, spline = (by_name[name] for name in ("age", "log(crp)", "spline(bmi)[1]"))
    yes, former = by_name["bmi:smoker[yes]"], by_name["bmi:smoker[former]"]
    assert age == ColumnBounds(name="age", lower=18, upper=90)
    bmi = {"variable": "bmi", "lower": 15.0, "upper": 45.0}
    assert spline.term == Term(factors=(Spline(**bmi, knots=(), place=1),))
    assert log.term == Term(factors=(Log(variable="crp", lower=0.5, upper=300),))
    assert (log.lower, log.upper) == (np.log(0.5), np.log(300))
    itself = Power(**bmi, exponent=1)
    assert yes.term == Term(factors=(itself, Level(variable="smoker", value=1)))
    assert former.term == Term(factors=(itself, Level(variable="smoker", value=2)))
    assert (yes.lower, yes.upper) == (0.0, 45.0)
    assert found.target.term == Term(factors=(Log(variable="y", lower=80, upper=220),))


@pytest.mark.parametrize(
    ("formula", "reason"),
    [
        ("y", "one target and one sum"),
        ("~ age", "one target and one sum"),
        ("y ~ age | bmi", "one target and one sum"),
        ("y + age ~ bmi", "one target"),
        ("y ~ 1", "a feature at least"),
        ("y ~ age +", "cannot be read"),
        ("y ~ 2:age", "cannot be scaled"),
        ("y ~ .", "cannot be read"),
        ("y ~ np.log(age)", "not supported: a formula has variables"),
        ("y ~ bs(age)", "not supported"),
        ("y ~ {age + 1}", "not supported"),
        ("y ~ I(age + 1)", "neither a number nor a text"),
        ("y ~ __import__('os')", "not supported"),
        ("y ~ __import__('os').system('true')", "cannot be read"),
        ("y ~ log(age, 1, 2)", "wrong arguments"),
        ("y ~ power(age, 7)", "whole power from 1 to 6"),
        ("y ~ I(age**1.5)", "whole power from 1 to 6"),
        ("y ~ spline(age)", "number of columns"),
        ("y ~ spline(age, 2)", "3 at least"),
        ("y ~ spline(age, knots=[10, 50])", "knots ascend"),
        ("y ~ log(crp)", "lower bound above 0"),
        ("y ~ height", "no variable 'height'"),
        ("y ~ missing(age)", "'age' has no indicator"),
        ("y ~ log(smoker)", r"write C\(smoker\)"),
        ("y ~ C(age)", "list its levels"),
        ("y ~ C(smoker, reference='never')", "no level of 'smoker', which has no, yes, former"),
        ("y ~ level(age, 100)", "beyond the bounds"),
        ("smoker ~ age", "the target 'smoker' has the levels no, yes, former"),
        ("y ~ age:bmi:crp:dose:treated", "at most 4"),
        ("y ~ offset(age)", "a feature at least"),
        ("y ~ age + offset(bmi) + offset(crp)", "one offset at most"),
        ("y ~ age + offset(smoker)", "the offset 'smoker' has the levels"),
        ("y ~ age + offset(age + bmi)", "not supported"),
        ("y ~ age + sex:offset(bmi)", "not supported"),
        ("offset(y) ~ age", "not supported"),
    ],
)
def test_what_is_not_of_the_language_is_refused_with_what_is(formula: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        designed(formula)


# On federations


CLIENTS = 900


def frame(seed: int = 1) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    age = generator.uniform(18, 90, CLIENTS)
    sex = generator.choice(["f", "m"], CLIENTS)
    smoker = generator.choice(["no", "yes", "former"], CLIENTS)
    effect = pd.Series(smoker).map({"no": 0.0, "yes": 20.0, "former": 8.0}).to_numpy()
    pressure = 100 + 0.5 * age + effect + 6.0 * (sex == "m") + generator.normal(0, 2, CLIENTS)
    return pd.DataFrame(
        {
            "id": [f"patient {each}" for each in range(CLIENTS)],
            "age": age,
            "sex": sex,
            "smoker": smoker,
            "treated": generator.uniform(size=CLIENTS) < 0.5,
            "seen": pd.to_datetime("2020-01-01") + pd.to_timedelta(age.astype(int), "D"),
            "pressure": pressure,
            "high": np.where(pressure > 130, "yes", "no"),
        }
    )


def federation(rows: Any = None, **changes: Any) -> SimulatedFederation:
    arguments: dict[str, Any] = {
        **{"epsilon": 50.0, "delta": 1e-5, "dropouts": 5, "colluders": 5, "seed": 1},
        **changes,
    }
    return SimulatedFederation(frame() if rows is None else rows, **arguments)


def test_a_formula_is_learned_from_a_frame_with_texts_and_predicts_for_such_frames() -> None:
    model = LinearRegressionInBounds(formula="pressure ~ age + C(smoker, reference='no') + sex")
    model.set_params(method="plain").fit(federation())
    assert model.posterior_.names == (
        *("intercept", "age", "C(smoker)[former]", "C(smoker)[yes]", "sex[m]"),
    )
    assert model.coef_ == pytest.approx([0.5, 8.0, 20.0, 6.0], abs=3.0)
    assert model.feature_names_in_.tolist() == ["age", "smoker", "sex"]
    assert model.n_features_in_ == 3
    rows = frame(seed=2)
    assert model.score(rows) > 0.9
    one = pd.DataFrame({"age": [50.0], "smoker": ["yes"], "sex": ["m"]})
    assert model.predict(one) == pytest.approx([151.0], abs=3.0)
    by_position = model.predict([[50.0, "yes", "m"]])
    assert by_position == pytest.approx(model.predict(one))
    with pytest.raises(ValueError, match="'smoker' holds numbers, and its levels are the texts"):
        model.predict(np.array([[50.0, 2.0, 1.0]]))
    assert model.predict_interval(one).shape == (1, 2)
    model.plot_predictions(rows.head(20), rows["pressure"].head(20))
    again = pickle.loads(pickle.dumps(model))
    assert again.predict(one) == pytest.approx(model.predict(one))
    with pytest.raises(ValueError, match="'a secret', and has the levels 'former', 'no', 'yes'"):
        model.predict(one.assign(smoker="a secret"))
    assert clone(model).get_params() == model.get_params()


def test_predictions_are_of_what_data_holders_would_make_of_the_rows() -> None:
    formula = "pressure ~ spline(age, 4) + age:sex + I(age**2) + log(age)"
    model = LinearRegressionInBounds(formula=formula, method="plain").fit(federation())
    features = model._features
    read = variables_of(features)
    rows = frame(seed=3)
    numbers = federation(rows)._records.select(read)
    assert np.array_equal(model._table(rows), design_of(features, numbers))


def test_a_gap_is_no_record_and_a_text_that_is_no_level_is_refused() -> None:
    rows = frame()
    rows.loc[:399, "smoker"] = None
    model = LinearRegressionInBounds(
        features={"smoker": ("no", "yes", "former")}, target={"pressure": (80, 220)}, method="plain"
    )
    model.fit(federation(rows))
    assert abs(model.posterior_.records - (CLIENTS - 400)) < 30
    rows.loc[0, "smoker"] = "unknown"
    with pytest.raises(ValueError, match="'unknown', and has the levels 'no', 'yes', 'former'"):
        model.fit(federation(rows))


BACKWARDS = {"high": ("yes", "no")}


def test_a_text_can_be_the_target_of_two_classes() -> None:
    model = LogisticRegressionByGradients(
        formula="high ~ age + smoker", rounds=40, batch=None, prior_sd=3.0, clip=1.0
    )
    model.fit(federation())
    assert model.classes_.tolist() == ["no", "yes"]
    rows = frame(seed=2)
    assert model.score(rows) == model.score(rows, rows["high"]) > 0.7
    assert set(model.predict(rows)) == {"no", "yes"}
    assert np.mean(model.predict(rows) == rows["high"]) == model.score(rows)
    axes = model.plot_predictions(rows.head(30), rows["high"].head(30))
    assert axes.get_ylabel() == "probability that high is yes"
    backwards = model.set_params(formula=None, features={"age": (18, 90)}, target=BACKWARDS)
    backwards.fit(federation())
    assert backwards.classes_.tolist() == ["yes", "no"]
    assert backwards.score(rows, rows["high"]) > 0.6
    assert model.predict_proba(frame(seed=2)).shape == (CLIENTS, 2)


def test_a_simulation_by_a_dictionary_refuses_what_the_trainer_would_and_fills_gaps() -> None:
    agreed = [
        Number(name="age", meaning="age", lower=18, upper=90, missing="indicator"),
        Category(name="smoker", meaning="smokes", levels=("no", "yes", "former")),
        Number(name="pressure", meaning="pressure", lower=80, upper=220),
    ]
    rows = frame()
    rows.loc[:99, "age"] = np.nan
    there = federation(rows, variables=agreed)
    model = LinearRegressionInBounds(formula="pressure ~ age + missing(age)", method="plain").fit(
        there
    )
    assert model.posterior_.names == ("intercept", "age", "age_missing")
    assert abs(model.posterior_.records - CLIENTS) < 30
    with pytest.raises(ValueError, match="no variable 'sex'"):
        LinearRegressionInBounds(formula="pressure ~ sex").fit(there)
    with pytest.raises(ValueError, match="not in the consortium's data dictionary"):
        LinearRegressionInBounds(features={"sex": ("f", "m")}, target={"pressure": (80, 220)}).fit(
            there
        )
    for where in (there, federation()):
        raw = LinearRegressionInBounds(features={"smoker": (0, 2)}, target={"pressure": (80, 220)})
        with pytest.raises(ValueError, match="no quantity"):
            raw.fit(where)


EXPOSED: dict[str, Any] = {"age": (18, 90), "years": (0.1, 10), "visits": (0, 60), "share": (0, 2)}


def exposed(seed: int, clients: int = 3000) -> pd.DataFrame:
    """Return visits in .1 to 10 years, and what a record counts for."""
    generator = np.random.default_rng(seed)
    age, years = generator.uniform(18, 90, clients), generator.uniform(0.1, 10, clients)
    visits = generator.poisson(years * np.exp(0.03 * (age - 60))).clip(max=60)
    share = np.where(age > 60, 2.0, 0.5)
    return pd.DataFrame({"age": age, "years": years, "visits": visits, "share": share})


def test_an_offset_and_weights_are_parts_of_formulas_or_named_columns() -> None:
    years = ColumnBounds.of_term(
        "log(years)", Term(factors=(Log(variable="years", lower=0.1, upper=10),))
    )
    named = PoissonRegression(
        features={"age": (18, 90)},
        target={"visits": (0, 60)},
        offset=years,
        weights={"share": (0, 2)},
    )
    parts = [
        PoissonRegression(formula="visits ~ age + offset(log(years))", weights="share"),
        PoissonRegression(formula="visits ~ age", offset="log(years)", weights="share"),
    ]
    for each in parts:
        assert each.set_params(variables=EXPOSED).to_task() == named.to_task()
        assert clone(each).get_params() == each.get_params()
    there = Agreed(dict(Known.given(EXPOSED, "variables").variables))
    for each in (*parts, PoissonRegression(features={"age": (18, 90)}, target={"visits": (0, 60)})):
        asked = there.asked
        with pytest.raises(InterruptedError) as told:
            each.set_params(variables=None).fit(there)  # type: ignore[arg-type]
        reads_variables = each.formula is not None
        assert there.asked == asked + reads_variables
        assert told.value.args[0].offset == (years if reads_variables else None)


def test_predictions_need_the_offset_and_no_weights() -> None:
    rows = exposed(1)
    there = SimulatedFederation(
        rows,
        epsilon=50.0,
        delta=1e-5,
        dropouts=5,
        colluders=5,
        seed=1,
        variables=tuple(Known.given(EXPOSED, "variables").variables.values()),
    )
    model = PoissonRegression(formula="visits ~ age + offset(log(years))", weights="share")
    model.fit(there)
    low, high = model.posterior_.interval(0.99).T
    assert np.all((low < [-1.8, 0.03]) & ([-1.8, 0.03] < high))
    assert model.coef_.shape == (1,) and model.feature_names_in_.tolist() == ["age", "years"]
    assert {"log(years)", "share"} <= set(str(model.summary()).split())
    new = exposed(2).drop(columns="share")
    assert model.score(new) > 0.5
    twice = model.predict(new.assign(years=2.0)) / model.predict(new.assign(years=1.0))
    assert twice == pytest.approx(np.full(len(new), 2.0))
    with pytest.raises(ValueError, match="years"):
        model.predict(new.drop(columns="years"))


@pytest.mark.parametrize(
    ("kind", "changes", "reason"),
    [
        (LinearRegression, {"formula": "visits ~ age + offset(years)"}, "has no offset: subtract"),
        (
            PoissonRegression,
            {"formula": "visits ~ age + offset(years)", "offset": "log(years)"},
            "name no other one",
        ),
        (PoissonRegression, {"formula": "visits ~ age", "offset": "age"}, "same name"),
        (PoissonRegression, {"formula": "visits ~ age", "offset": "visits"}, "must not be one of"),
        (PoissonRegression, {"formula": "visits ~ age", "offset": "C(smoker)"}, "no variable"),
        (PoissonRegression, {"formula": "visits ~ age", "weights": "visits"}, "neither a feature"),
        (PoissonRegression, {"formula": "visits ~ age", "weights": "age + years"}, "not supported"),
        (
            PoissonRegression,
            {"formula": "visits ~ age", "weights": {"share": (-1, 2)}},
            "lower bound of weights must be 0",
        ),
        (
            LinearRegression,
            {"formula": "visits ~ age", "weights": "share", "purpose": "prediction"},
            "has no weights",
        ),
    ],
)
def test_what_offsets_and_weights_cannot_be(
    kind: type[Any], changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        kind(variables=EXPOSED, **changes).to_task()


class Agreed:
    """A federation that has a dictionary, and counts who asks for it."""

    asked = 0

    def __init__(self, variables: dict[str, Any] | None) -> None:
        self._variables = variables

    def variables(self) -> dict[str, Any]:
        self.asked += 1
        if self._variables is None:
            raise JobRefused("unknown-dictionary", "there is none")
        return self._variables

    def learn(self, task: Any) -> Any:
        raise InterruptedError(task)


def test_a_dictionary_is_asked_only_where_it_can_say_more() -> None:
    there = Agreed(dict(KNOWN.variables))
    plain: list[Parameters] = [
        LinearRegressionInBounds(features={"age": (18, 90)}, target={"y": (80, 220)}),
        LinearRegressionInBounds(formula="y ~ age", variables={"age": (18, 90), "y": (80, 220)}),
    ]
    for each in plain:
        with pytest.raises(InterruptedError):
            each.fit(there)  # type: ignore[attr-defined]
    assert there.asked == 0
    with pytest.raises(InterruptedError) as told:
        LinearRegressionInBounds(formula="y ~ age + smoker").fit(there)  # type: ignore[arg-type]
    assert there.asked == 1
    [task] = told.value.args
    assert [each.name for each in task.features] == ["age", "smoker[yes]", "smoker[former]"]


def test_numbers_that_are_none_of_the_levels_listed_are_left_out() -> None:
    """Levels that are numbers are as levels that are texts: a record of another one has none."""
    generator = np.random.default_rng(1)
    count = 4000
    job = generator.integers(1, 7, count).astype(float)
    frame = {
        "job": job,
        "age": generator.uniform(20.0, 60.0, count),
        "y": np.array([0.0, 30.0, 1.0, 2.0, 4.0, 30.0, 30.0])[job.astype(int)]
        + generator.standard_normal(count),
    }
    setting: dict[str, Any] = {"epsilon": 50.0, "delta": 1e-5, "dropouts": 5, "colluders": 5}
    there = SimulatedFederation(frame, seed=1, **setting)
    model = LinearRegression(formula="y ~ age + C(job, levels=[2, 3, 4])").fit(there)
    listed = np.isin(job, (2.0, 3.0, 4.0))
    assert model.posterior_.records == pytest.approx(listed.sum(), abs=20)
    assert model.coef_[1:] == pytest.approx([1.0, 3.0], abs=0.25)
    with pytest.raises(ValueError, match="none of the levels"):
        model.predict({"age": [30.0], "job": [5.0]})
    classes = MultinomialRegression(formula="C(job, levels=[2, 3]) ~ age").fit(there)
    assert classes.posterior_.records == pytest.approx(np.isin(job, (2.0, 3.0)).sum(), abs=20)
