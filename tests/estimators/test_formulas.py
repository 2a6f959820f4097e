"""Formulas: how they are read, which columns they mean, and estimators that are given one."""

import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from shoal.estimators import (
    LinearRegressionInBounds,
    PoissonRegression,
)
from shoal.formulas import Known, features_of, parse, single
from shoal_protocol.queries.columns import (
    Centred,
    ColumnBounds,
    Level,
    Log,
    Power,
    Spline,
    Term,
    design_of,
    variables_of,
)
from shoal_protocol.trust.dictionary import Flag, Number
from shoal_studies.simulation import SimulatedFederation
from tests.estimators.test_counting import Agreed

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


def designed(formula: str, known: Known = KNOWN) -> SimpleNamespace:
    read = parse(formula)
    return SimpleNamespace(
        features=features_of(read, known),
        target=single(read.target, "target", known),
        offset=None if read.offset is None else single(read.offset, "offset", known),
    )


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
        ("level(age, 30)", ["level(age, 30)"]),
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
        ("age + I(age^2)", ["age", "age**2"]),
        ("power(`body mass`, 3) + `body mass`", ["body mass**3", "body mass"]),
        ("log(bmi) + log(crp, 0.1)", ["log(bmi)", "log(crp)"]),
        ("spline(bmi, 4)", [f"spline(bmi)[{place}]" for place in (1, 2, 3, 4)]),
        ("spline(bmi, knots=[20, 25, 30])", [f"spline(bmi)[{place}]" for place in range(1, 7)]),
        ("dose + missing(dose)", ["dose", "dose_missing"]),
        ("poly(age, 3)", ["poly(age)[1]", "poly(age)[2]", "poly(age)[3]"]),
        ("poly(`body mass`, 1)", ["poly(body mass)[1]"]),
        ("center(age) + center(bmi, 25)", ["center(age)", "center(bmi, 25)"]),
        ("center(age)*sex", ["center(age)", "sex[m]", "center(age):sex[m]"]),
        (
            "center(`body mass`, 70):poly(age, 2)",
            ["center(body mass, 70):poly(age)[1]", "center(body mass, 70):poly(age)[2]"],
        ),
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


def test_centres_and_polynomials_follow_from_bounds_or_from_a_number_that_is_given() -> None:
    found = designed("y ~ center(age) + center(age, at=30) + poly(bmi, 2)").features
    middle, given, *polynomials = found
    assert middle.term == Term(factors=(Centred(variable="age", lower=18, upper=90, at=54.0),))
    assert (middle.lower, middle.upper) == (-36.0, 36.0)
    assert (given.lower, given.upper) == (-12.0, 60.0)
    assert [(each.lower, each.upper) for each in polynomials] == [(-1.0, 1.0)] * 2
    rows = np.array([[18.0, 15.0], [54.0, 30.0], [90.0, 45.0], [72.0, 37.5]])
    assert design_of(found, rows) == pytest.approx(
        np.array([[-36, -12, -1, 1], [0, 24, 0, -0.5], [36, 60, 1, 1], [18, 42, 0.5, -0.125]])
    )


@pytest.mark.parametrize(
    ("formula", "reason"),
    [
        ("y", "one target and one sum"),
        ("~ age", "one target and one sum"),
        ("y ~ age | bmi", "one target and one sum"),
        ("y ~ age + (1 | site)", 'no random effects .* pooled="site"'),
        ("y + age ~ bmi", "one target"),
        ("y ~ 1", "a feature at least"),
        ("y ~ age +", "cannot be read"),
        ("y ~ 2:age", "cannot be scaled"),
        ("y ~ .", "cannot be read"),
        ("y ~ np.log(age)", "not supported: a formula has variables"),
        ("y ~ bs(age)", "not supported"),
        ("y ~ {age + 1}", "not supported"),
        ("y ~ I(age + 1)", "not supported"),
        ("y ~ __import__('os')", "not supported"),
        ("y ~ __import__('os').system('true')", "cannot be read"),
        ("y ~ log(age, 1, 2)", "wrong arguments"),
        ("y ~ power(age, 7)", "exponent: should be less than or equal to 6"),
        ("y ~ I(age**1.5)", "exponent: should be a valid integer"),
        ("y ~ spline(age)", "number of columns"),
        ("y ~ spline(age, 2)", "3 at least"),
        ("y ~ spline(age, knots=[10, 50])", "knots ascend"),
        ("y ~ poly(age)", r"wrong arguments: .* poly\(x, 2\)"),
        ("y ~ poly(age, 7)", "degree: should be less than or equal to 6"),
        ("y ~ poly(age, 1.5)", "degree: should be a valid integer"),
        ("y ~ poly(age, 2, raw=True)", "wrong arguments"),
        ("y ~ poly(age**2, 2)", r"not supported: .* poly\(x, 2\)"),
        ("y ~ poly(smoker, 2)", r"write C\(smoker\)"),
        ("poly(y, 2) ~ age", "has 2 columns"),
        ("y ~ center(age, 'mean')", "at: should be a valid number"),
        ("y ~ center(age, [1, 2])", "at: should be a valid number"),
        ("y ~ center(I(age**2))", "not supported"),
        ("y ~ center(sex)", r"write C\(sex\)"),
        ("y ~ center(age, 1e40)", "should be less than or equal to 1000"),
        ("y ~ age + center(age)**2", r"'center\(age\)' has a power"),
        ("y ~ age + age**2", r"'age' has a power, .* itself: I\(x\*\*2\)"),
        ("y ~ log(bmi)^2", r"poly\(x, 2\) has x and its square"),
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
    known = {
        **{"age": (18, 90), "pressure": (90, 180), "sex": ("f", "m")},
        "smoker": ("former", "no", "yes"),
    }
    return SimulatedFederation(frame() if rows is None else rows, variables=known, **arguments)


def test_a_formula_is_learned_from_a_frame_with_texts_and_predicts_for_such_frames() -> None:
    model = LinearRegressionInBounds(
        formula="pressure ~ age + C(smoker, reference='no') + sex", method="plain"
    )
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
    again = pickle.loads(pickle.dumps(model))
    assert again.predict(one) == pytest.approx(model.predict(one))
    with pytest.raises(ValueError, match="'a secret', and has the levels 'former', 'no', 'yes'"):
        model.predict(one.assign(smoker="a secret"))
    assert clone(model).get_params() == model.get_params()


def test_predictions_are_of_what_data_holders_would_make_of_the_rows() -> None:
    formula = "pressure ~ spline(age, 4) + center(age):sex + poly(age, 3) + log(age)"
    model = LinearRegressionInBounds(formula=formula, method="plain").fit(federation())
    features = model._task.features
    read = variables_of(features)
    rows = frame(seed=3)
    numbers = federation(rows)._records.select(read)
    assert np.array_equal(model._table(rows), design_of(features, numbers))


EXPOSED: dict[str, Any] = {"age": (18, 90), "years": (0.1, 10), "visits": (0, 60), "share": (0, 2)}


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
    there = Agreed(*Known.given(EXPOSED, "variables").variables.values())
    for each in (*parts, PoissonRegression(features={"age": (18, 90)}, target={"visits": (0, 60)})):
        with pytest.raises(InterruptedError) as told:
            each.set_params(variables=None).fit(there)
        assert told.value.args[0].offset == (None if each.formula is None else years)
