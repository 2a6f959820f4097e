"""Frames as analysts have them: what is read, what is refused, and in which words."""

import re
import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pytest

from shoal import SimulatedFederation
from shoal.answers import contrast
from shoal.estimators import (
    Bernoulli,
    CohortCard,
    CrowdLogisticRegression,
    GammaRegression,
    Histogram,
    KaplanMeier,
    LinearRegression,
    LogisticRegression,
    Moments,
    MultinomialRegression,
    NegativeBinomialRegression,
    Normal,
    PiecewiseExponentialRegression,
    Poisson,
    PoissonRegression,
    Quantiles,
    Validation,
    VectorSum,
)
from shoal_learning.crowds.simulation import SimulatedCrowd
from shoal_protocol.trust.dictionary import Category, Number

CLIENTS = 2000
SETTING: dict[str, Any] = dict(epsilon=50.0, delta=1e-5, dropouts=5, colluders=5, seed=1)
X = {"x": (-3, 3)}


def columns(**more: Any) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    x = generator.normal(0, 1, CLIENTS)
    stage = generator.integers(1, 4, CLIENTS)
    return {
        "x": x,
        "stage": stage.astype(str),
        "y": 20.0 * (stage == 2) + 40.0 * (stage == 3) + generator.normal(0, 3, CLIENTS),
        "ill": (x + generator.logistic(0, 1, CLIENTS) > 0) * 1.0,
        "arm": generator.choice(["a", "b"], CLIENTS),
        "visits": generator.poisson(np.exp(0.3 * x)),
        "cost": generator.gamma(2.0, np.exp(0.3 * x)),
        "weeks": generator.exponential(20, CLIENTS),
        "died": (generator.random(CLIENTS) < 0.5) * 1.0,
        "same": np.full(CLIENTS, 3.0),
        **more,
    }


def federation(*, variables: Any = None, **more: Any) -> SimulatedFederation:
    return SimulatedFederation(columns(**more), variables=variables, **SETTING)


def of_stages(**more: Any) -> LinearRegression:
    variables = {"stage": ("1", "2", "3"), "y": (-20, 60)}
    return LinearRegression(formula="y ~ C(stage)", variables=variables).fit(federation(**more))


STAGES = columns()["stage"]
NUMBERS = STAGES.astype(int)


@pytest.mark.parametrize(
    "stage",
    [
        STAGES,
        STAGES.astype(object),
        list(STAGES),
        pd.Series(STAGES, dtype="string"),
        pd.Categorical(STAGES),
        pd.Categorical(STAGES, categories=["3", "2", "1"], ordered=True),
        np.char.add(STAGES, "\N{NO-BREAK SPACE}"),
        np.char.add(" ", STAGES),
    ],
    ids=["numpy", "objects", "list", "string", "categorical", "ordered", "no-break", "space"],
)
def test_texts_are_levels_whatever_holds_them(stage: Any) -> None:
    assert of_stages(stage=stage).coef_ == pytest.approx([20.0, 40.0], abs=3.0)


@pytest.mark.parametrize(
    "stage",
    [
        NUMBERS,
        NUMBERS.astype(float),
        NUMBERS == 1,
        list(NUMBERS),
        ["1", *NUMBERS[1:].tolist()],
        pd.Series(NUMBERS, dtype="Int64"),
        pd.Series(NUMBERS == 1, dtype="boolean"),
        pd.to_datetime(pd.Series(NUMBERS), unit="D").dt.to_pydatetime(),
        np.char.encode(STAGES),
    ],
    ids="int float bool list mixed Int64 boolean days bytes".split(),
)
def test_nothing_else_than_texts_is_taken_for_places_of_texts(stage: Any) -> None:
    with pytest.raises(ValueError, match=r"'stage' holds .*, and its levels are the texts"):
        of_stages(stage=stage)
    agreed = [Category(name="stage", meaning="-", levels=("1", "2", "3"))]
    agreed += [Number(name="y", meaning="-", lower=-20, upper=60)]
    with pytest.raises(ValueError, match=r"'stage' holds .*, and its levels are the texts"):
        LinearRegression(formula="y ~ stage").fit(federation(stage=stage, variables=agreed))


@pytest.mark.parametrize(
    "stage",
    [
        pd.Categorical(NUMBERS),
        pd.Categorical(NUMBERS.astype(float)),
        pd.Series(NUMBERS, dtype="category"),
        pd.Categorical(NUMBERS == 1),
        pd.cut(NUMBERS, [0, 1, 3]),
        pyarrow.chunked_array([pyarrow.array(NUMBERS).dictionary_encode()]),
    ],
    ids="int float series bool intervals arrow".split(),
)
def test_categories_that_are_no_texts_are_refused_at_every_door(stage: Any) -> None:
    said = "'stage' has categories that are no texts: make them texts"
    agreed = [Number(name=name, meaning="-", lower=-20, upper=60) for name in ("stage", "y")]
    there = federation(stage=stage)
    with_y: dict[str, Any] = {"target": {"y": (-20, 60)}}
    for fit in (
        of_stages,
        lambda stage: LinearRegression(formula="y ~ stage").fit(there),
        lambda stage: LinearRegression(formula="y ~ C(stage)").fit(there),
        lambda stage: LinearRegression(formula="y ~ C(stage, levels=[1, 2])").fit(there),
        lambda stage: LinearRegression(features={"stage": (1, 3)}, **with_y).fit(there),
        lambda stage: LinearRegression(features=X, target={"stage": (1, 3)}).fit(there),
        lambda stage: LinearRegression(formula="y ~ stage").fit(
            federation(stage=stage, variables=agreed)
        ),
        lambda stage: MultinomialRegression(formula="stage ~ x").fit(there),
        lambda stage: CohortCard(variables=["stage"]).fit(there),
        lambda stage: CohortCard(variables=[{"name": "stage", "levels": [1, 2, 3]}]).fit(there),
        lambda stage: KaplanMeier(**OF_TIME, group="stage", levels=(1, 2, 3)).fit(there),
    ):
        with pytest.raises(ValueError, match=said):
            fit(stage=stage)
    model = LinearRegression(features={"stage": (1, 3)}, **with_y).fit(federation(stage=NUMBERS))
    for use in (model.predict, lambda rows: model.score(rows, np.ones(CLIENTS))):
        with pytest.raises(ValueError, match=said):
            use({"stage": stage})
    with pytest.raises(ValueError, match="categories that are no texts"):
        model.score({"stage": NUMBERS}, stage)


def test_values_under_a_mask_are_refused_whatever_bounds_are_given() -> None:
    masked = np.ma.masked_array(columns()["x"], columns()["x"] > 1.0)
    with pytest.raises(ValueError, match="'x' holds a masked value"):
        LinearRegression(features=X, target={"y": (-20, 60)}).fit(federation(x=masked))


def test_levels_that_are_unknown_are_refused_by_fit_predict_and_score() -> None:
    model = of_stages()
    said = "'stage' holds '1.0', and has the levels '1', '2', '3'"
    with pytest.raises(ValueError, match=r"'stage' holds .*'1\.0'.*, and has the levels '1'"):
        of_stages(stage=NUMBERS.astype(float).astype(str))
    for use in (model.predict, lambda rows: model.score(rows, [1.0])):
        with pytest.raises(ValueError, match=said):
            use({"stage": ["1.0"]})
        with pytest.raises(ValueError, match="'stage' holds numbers, and its levels are"):
            use({"stage": [1]})
        with pytest.raises(ValueError, match="'stage' holds numbers, and its levels are"):
            use([[1]])
    assert model.predict([["2"]]) == pytest.approx(model.predict({" stage": ["2 "]}))


def test_targets_that_are_texts_are_scored_by_texts_alone() -> None:
    rows = columns()
    binary = LogisticRegression(features=X, target={"arm": ("a", "b")}).fit(federation())
    several = MultinomialRegression(features=X, target={"stage": ("1", "2", "3")})
    several.fit(federation())
    for model, of in ((binary, "arm"), (several, "stage")):
        assert model.score(rows) == model.score(rows, rows[of])
        with pytest.raises(ValueError, match=f"'{of}' holds numbers, and its levels are"):
            model.score(rows, np.ones(CLIENTS))
        with pytest.raises(ValueError, match=f"'{of}' holds '4', and has the levels"):
            model.score(rows, ["4"] * CLIENTS)


def test_names_and_levels_are_found_in_either_form_of_unicode() -> None:
    composed, apart = (unicodedata.normalize(form, "Größe") for form in ("NFC", "NFD"))
    assert composed != apart
    there = federation(**{f"{apart} ": columns()["x"], "arm": [apart, composed] * (CLIENTS // 2)})
    assert composed in there.columns and there[apart] == pytest.approx(columns()["x"])
    with pytest.raises(ValueError, match="'arm' holds one text only"):
        CohortCard(variables=["arm"]).fit(there)
    for named in (composed, apart, f" {apart}"):
        model = LinearRegression(features={named: (-3, 3)}, target={"x": (-3, 3.5)}).fit(there)
        assert model.coef_ == pytest.approx([1.0], abs=0.1)
        assert model.predict({apart: [0.0]}) == pytest.approx([0.0], abs=0.1)
        LinearRegression(formula=f"y ~ `{named}`").fit(there)


def refused(kind: Any, said: str, **given: Any) -> Any:
    more = given.pop("more", {})
    return pytest.param(
        lambda: kind(**given).fit(federation(**more)), said, id=f"{kind.__name__}: {said}"
    )


CROWD: dict[str, Any] = {"epsilon": 1.0, "learning_rate": 0.1, "clip": 1.0, "instances": 10}
OF_ILL: dict[str, Any] = {"features": X, "target": {"ill": (0, 1)}}
OF_TIME: dict[str, Any] = {"time": {"weeks": (0, 60)}, "event": "died"}
CODED = {"coded": columns()["ill"] + 1.0}


def test_likelihoods_are_of_records_that_the_study_can_have() -> None:
    there = federation()
    for model, said in (
        (Bernoulli(column="ill"), "'ill' is 2 in the records"),
        (Poisson(column="visits", upper=9), "'visits' is -1, 0.5 in the records"),
    ):
        model.fit(there)
        with pytest.raises(ValueError, match=said):
            model.score({model.column: [-1.0, 0.5] if "visits" in said else [1.0, 2.0]})


def misused(said: str, call: Callable[[], Any]) -> Any:
    return pytest.param(call, said, id=said)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        misused(
            "fit takes a crowd",
            lambda: CrowdLogisticRegression(**OF_ILL, **CROWD).fit(federation()),  # type: ignore[arg-type]
        ),
        misused(
            "fit takes a federation",
            lambda: LogisticRegression(**OF_ILL).fit(SimulatedCrowd(columns(), seed=1)),  # type: ignore[arg-type]
        ),
        misused(
            "fit takes no targets", lambda: LogisticRegression(**OF_ILL).fit(federation(), [0.0])
        ),
        misused("variables are bounds or levels by name", lambda: federation(variables=["x"])),
        misused("'x' has bounds, two numbers", lambda: federation(variables={"x": 3})),
        misused("no column 'xx'; near to it are x", lambda: federation()["xx"]),
        misused("epsilon is a number", lambda: of_price(epsilon="1")),
        misused("epsilon is a number, as 1.0", lambda: of_price(epsilon=None)),
        misused("delta is a number", lambda: of_price(delta="1e-5")),
        misused("dropouts is a whole number", lambda: of_price(dropouts=0.5)),
        misused(
            r"hand over what its \.collect\(\) returns",
            lambda: SimulatedFederation(LazyFrame(), **SETTING),
        ),
        misused(
            "a contrast is weights of coefficients by name", lambda: contrast(of_stages(), ["x"])  # type: ignore[arg-type]
        ),
        misused(
            "by name, which are numbers",
            lambda: contrast(of_stages(), {"C(stage)[2]": "10"}),  # type: ignore[dict-item]
        ),
    ],
)  # fmt: skip
def test_what_is_handed_over_wrongly_is_refused_with_what_to_give(
    call: Callable[[], Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        call()


class LazyFrame:
    """What is read of a lazy frame of Polars: its class's name."""

    columns = ("x", "y")


def of_price(**given: Any) -> SimulatedFederation:
    return SimulatedFederation(columns(), **(SETTING | given))


DRUGS = np.resize(["drug", "placebo"], CLIENTS)
NINES = np.where(np.arange(CLIENTS) % 20, columns()["ill"], 9.0)


@pytest.mark.parametrize("written", ["NA", ".", "n/a", "nan", "-", ""])
def test_texts_that_say_missing_become_no_level_unless_they_are_named(written: str) -> None:
    given = np.where(np.arange(CLIENTS) % 9, DRUGS.astype(object), written)
    there = federation(given=given)
    for fit in (
        lambda: LinearRegression(formula="y ~ given").fit(there),
        lambda: LogisticRegression(formula='level(given, "drug") ~ x').fit(there),
        lambda: CohortCard(variables=["given"]).fit(there),
        lambda: CohortCard(variables={"given": ("drug", "placebo")}).fit(there),
        lambda: KaplanMeier(time=OF_TIME["time"], event={"given": "drug"}).fit(there),
    ):
        with pytest.raises(ValueError, match=r"'given' holds '.*'.* make it missing"):
            fit()
    missing = np.where(given == written, None, given)
    LinearRegression(formula="y ~ given").fit(federation(given=missing))
    if written:
        levels = {"given": ("drug", "placebo", written)}
        LinearRegression(features=levels, target={"y": (-20, 60)}).fit(there)


@pytest.mark.parametrize(
    ("fit", "said"),
    [
        refused(
            LogisticRegression, r"three values in the records, 0, 1, 9: if 9 means missing, make "
            r"it missing \(NaN\)", formula="nines ~ x", more={"nines": NINES},
        ),
        refused(
            LogisticRegression, "three values .* if 9 means missing", features=X,
            target={"nines": (0, 1)}, more={"nines": NINES},
        ),
        refused(Bernoulli, "three values .* if 9 means", column="nines", more={"nines": NINES}),
        refused(
            KaplanMeier, "name the value that is the event, .* and make what means missing",
            time=OF_TIME["time"], event="nines", more={"nines": NINES},
        ),
        refused(Bernoulli, "name the values of both, as success=2", column="coded", more=CODED),
        refused(Bernoulli, "numbers are due: write them as 1 and 0", column="arm"),
        refused(
            LinearRegression, "'day' has texts for bounds: write days as datetime.date",
            features={"day": ("2020-01-01", "2020-12-31")}, target={"y": (-20, 60)},
        ),
        refused(
            LinearRegression, "'x' holds numbers written as texts: make them numbers",
            formula="y ~ x", more={"x": columns()["x"].round(1).astype(str)},
        ),
        refused(
            LinearRegression, "'x' holds numbers written as texts: make them", features=X,
            target={"y": (-20, 60)}, more={"x": columns()["x"].round(1).astype(str)},
        ),
        refused(
            PoissonRegression, "numbers are due: make them numbers, as pandas", features=X,
            target={"visits": (0, 9)}, more={"visits": columns()["visits"].astype(str)},
        ),
        refused(
            LinearRegression, "'day' holds days written as texts: make them days",
            formula="y ~ day",
            more={"day": (np.datetime64("2020-01-01") + np.arange(CLIENTS) % 90).astype(str)},
        ),
        refused(
            LogisticRegression, "has the levels 1, 2, 3: name the one that is 1, as level",
            formula="stage ~ x",
        ),
        refused(
            KaplanMeier, "one value is the event.* of several make a variable",
            time=OF_TIME["time"], event={"coded": (1, 2)}, more=CODED,
        ),
        refused(
            KaplanMeier, "nobody's 'died' is 7", time=OF_TIME["time"], event={"died": 7}
        ),
        refused(
            PiecewiseExponentialRegression, "the time 'died' is from 0 to 1, .* named first",
            formula="survival(died, weeks) ~ x",
        ),
        refused(
            Validation, "site is one variable with its levels, .* coefficients for each",
            family="logistic", **OF_ILL, site="arm", sites=("a", "b"),
        ),
        refused(
            MultinomialRegression, "levels that are numbers give .* levels=", features=X,
            target={"coded": (1, 2, 3)}, more=CODED,
        ),
        refused(
            LinearRegression, r"'x' has the shape \(2000, 1\), .* as x\[:, 0\]", formula="y ~ x",
            more={"x": columns()["x"][:, None]},
        ),
        *(
            refused(
                LinearRegression, f"'t' holds {what}", formula="y ~ t", more={"t": times},
            )
            for what, times in (
                ("durations: make them numbers", pd.to_timedelta(np.arange(CLIENTS), unit="D")),
                ("periods: make them days", pd.period_range("1900-01", periods=CLIENTS, freq="M")),
                ("intervals: make them texts", pd.interval_range(0, CLIENTS, CLIENTS)),
            )
        ),
    ],
)  # fmt: skip
def test_the_advice_of_a_refusal_leads_to_a_right_fit(fit: Callable[[], Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        fit()


LATE = {"late": columns()["weeks"] + 5.0, "counted": columns()["visits"] + 1.0}


@pytest.mark.parametrize("dictionary", [False, True])
def test_times_and_counts_begin_at_zero_whatever_the_least_in_the_records_is(
    dictionary: bool,
) -> None:
    said = {"late": (5.0, 60.0), "counted": (1.0, 9.0), "x": (-3, 3), "died": (0, 1)}
    there = federation(variables=said if dictionary else None, **LATE)
    hazards = PiecewiseExponentialRegression(formula="survival(late, died) ~ x").fit(there)
    assert hazards.posterior_.edges[0] == 0.0
    assert KaplanMeier(time=["late"], event="died").fit(there).posterior_.start == 0.0
    for counts in (
        PoissonRegression(formula="counted ~ x"),
        NegativeBinomialRegression(features=X, target=["counted"]),
    ):
        assert counts.fit(there).to_task(there.variables()).target.lower == 0.0
    mine = PiecewiseExponentialRegression(
        formula="survival(late, died) ~ x", variables={"late": (5, 60)}
    )
    assert mine.fit(there).posterior_.edges[0] == 5.0


@pytest.mark.parametrize("stage", [NUMBERS, STAGES], ids=["numbers", "texts"])
def test_a_survival_curve_says_how_many_records_are_of_no_group(stage: Any) -> None:
    levels = tuple(np.unique(stage).tolist())
    there = federation(stage=stage)

    def fitted(*groups: Any) -> tuple[int, str]:
        model = KaplanMeier(**OF_TIME, group="stage", levels=groups, intervals=6).fit(there)
        return model.posterior_.records, str(model.summary())

    records, said = fitted(*levels[:2])
    share = np.mean(stage != levels[2])
    assert records == pytest.approx(share * CLIENTS, abs=10)
    assert re.search(r"Left out: about [0-9]+ records of other levels", said)
    records, said = fitted(*levels)
    assert records == pytest.approx(CLIENTS, abs=10) and "Left out" not in said


FAR_OUT = {"late": np.where(np.arange(CLIENTS) % 10, 0.5, 999.0)}


@pytest.mark.parametrize(
    ("kind", "given", "name"),
    [
        (LinearRegression, {"features": {"y": (-20, 15)}, "target": X}, "y"),
        (LinearRegression, {"features": X, "target": {"y": (-20, 15)}}, "y"),
        (LinearRegression, {"features": X, "target": {"y": (0, 1)}}, "y"),
        (LinearRegression, {"features": {"late": (0, 9)}, "target": {"y": (-20, 60)}}, "late"),
        (LogisticRegression, {"features": {"y": (-20, 15)}, "target": {"ill": (0, 1)}}, "y"),
        (PoissonRegression, {"features": X, "target": {"visits": (0, 1)}}, "visits"),
        (GammaRegression, {"features": X, "target": {"cost": (0, 2)}}, "cost"),
        (
            LinearRegression,
            {"formula": "x ~ log(cost)", "variables": {"cost": (0.01, 2), **X}},
            "cost",
        ),
        (Moments, {"columns": {"y": (0, 1), **X}}, "y"),
        (Quantiles, {"variables": {"y": (0, 1)}}, "y"),
        (Histogram, {"column": "y", "edges": (0, 10, 20)}, "y"),
        (VectorSum, {"columns": {"y": (0, 1), **X}}, "y"),
        (Normal, {"column": {"y": (0, 1)}}, "y"),
        (CohortCard, {"variables": {"y": (0, 1)}, "smallest_cell": 0}, "y"),
    ],
)
def test_a_simulation_tells_which_share_of_values_lies_beyond_bounds(
    kind: Any, given: dict[str, Any], name: str
) -> None:
    model = kind(**given).fit(federation(**FAR_OUT))
    facts = dict(model.summary().facts)
    assert f"of 2,000 values of {name} (" in facts["Beyond bounds"]
    if hasattr(model, "verdict_"):
        assert model.verdict_.startswith("doubtful")
        assert f"of 2,000 values of {name} (" in model.verdict_


def test_a_few_values_beyond_bounds_are_clipped_and_told_from_one_in_a_hundred_on() -> None:
    for count, is_told in ((20, False), (21, True), (99, True)):
        far = np.where(np.arange(CLIENTS) < count, 80.0, columns()["x"])
        model = LinearRegression(features={"far": (-4, 4)}, target=X).fit(federation(far=far))
        assert ("Beyond bounds" in dict(model.summary().facts)) == is_told
        assert model.verdict_ == "trustworthy"
    model.fit(federation(far=columns()["x"]))
    assert "Beyond bounds" not in dict(model.summary().facts)


@pytest.mark.parametrize("stage", [NUMBERS, STAGES], ids=["numbers", "texts"])
def test_levels_of_several_classes_are_given_beside_the_name_of_the_target(stage: Any) -> None:
    levels = tuple(np.unique(stage)[::-1].tolist())
    there = federation(stage=stage)
    model = MultinomialRegression(features=X, target="stage", levels=levels).fit(there)
    assert model.classes_.tolist() == ["3", "2", "1"]
    assert 0.0 < model.score(columns(stage=stage)) < 1.0
