"""Frames as analysts have them: what is read, what is refused, and in which words."""

import re
import unicodedata
from collections.abc import Callable
from datetime import date
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pytest

from shoal import SimulatedFederation
from shoal.answers import contrast, difference
from shoal.estimators import (
    Bernoulli,
    CohortCard,
    CrowdLogisticRegression,
    CrowdPoissonRegression,
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
from shoal_protocol.trust.dictionary import Category, Date, Number

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


def test_a_column_is_named_once_and_columns_belong_together_by_index() -> None:
    model = LinearRegression(features=X, target={"y": (-20, 60)}).fit(federation())
    frame = pd.DataFrame(columns())
    for twice in ("x", " x"):
        doubled = pd.concat([frame, frame[["x"]].rename(columns={"x": twice})], axis=1)
        for use in (lambda rows: SimulatedFederation(rows, **SETTING), model.predict):
            with pytest.raises(ValueError, match="two columns have the same name 'x'"):
                use(doubled)
    levels = frame[["x", "y"]].set_axis(
        pd.MultiIndex.from_tuples([("a", "x"), ("a", "y")]), axis="columns"
    )
    with pytest.raises(ValueError, match="name is no text"):
        SimulatedFederation(levels, **SETTING)
    mixed = {"x": frame["x"], "y": frame["y"].sample(frac=1.0, random_state=1)}
    for misuse in (
        lambda: SimulatedFederation(mixed, **SETTING),
        lambda: model.score(mixed),
        lambda: model.score(frame, mixed["y"]),
        lambda: model.score({"x": frame["x"]}, mixed["y"]),
        lambda: SimulatedCrowd(mixed, seed=1),
    ):
        with pytest.raises(ValueError, match="have different indexes"):
            misuse()
    assert model.score(frame, mixed["y"].to_numpy()) < model.score(frame, frame["y"])


@pytest.mark.parametrize("name", ["a question " * 7, "two\nlines", ""])
def test_a_name_that_no_task_can_have_is_said_to_be_that(name: str) -> None:
    there = federation(**{name: columns()["x"]})
    LinearRegression(features=X, target={"y": (-20, 60)}).fit(there)
    with pytest.raises(ValueError, match="has a name that is empty, not printable, or longer"):
        CohortCard(variables=[name]).fit(there)


def test_bounds_may_be_days_and_days_are_days() -> None:
    days = np.datetime64("2020-01-01") + np.arange(CLIENTS) % 300
    bounds = {"visited": (date(2020, 1, 1), np.datetime64("2020-12-31"))}
    for visited in (days, pd.Series(days), [each.item() for each in days]):
        there = federation(visited=visited)
        assert isinstance(there.variables()["visited"], Date)
        model = LinearRegression(features=bounds, target={"y": (-20, 60)}).fit(there)
        assert model.predict({"visited": [date(2020, 2, 1)]}).shape == (1,)
        with pytest.raises(ValueError, match="'visited' holds numbers, and its values are days"):
            model.predict({"visited": [18_300]})
        with pytest.raises(ValueError, match="'visited' holds something else than days: make them"):
            model.predict({"visited": ["2020-02-01"]})
    for wrong in (np.arange(CLIENTS) % 300, days - days[0]):
        with pytest.raises(ValueError, match=r"'visited' holds .*(days|number)"):
            LinearRegression(features=bounds, target={"y": (-20, 60)}).fit(
                federation(visited=wrong)
            )


def refused(kind: Any, said: str, **given: Any) -> Any:
    more = given.pop("more", {})
    return pytest.param(
        lambda: kind(**given).fit(federation(**more)), said, id=f"{kind.__name__}: {said}"
    )


CROWD: dict[str, Any] = {"epsilon": 1.0, "learning_rate": 0.1, "clip": 1.0, "instances": 10}
OF_ILL: dict[str, Any] = {"features": X, "target": {"ill": (0, 1)}}
OF_TIME: dict[str, Any] = {"time": {"weeks": (0, 60)}, "event": "died"}
EARLIER = {"weeks": columns()["weeks"] - 5.0}
CODED = {"coded": columns()["ill"] + 1.0}


@pytest.mark.parametrize(
    ("fit", "said"),
    [
        refused(
            LogisticRegression, "'coded' is 2 in", features=X, target={"coded": (0, 1)}, more=CODED
        ),
        refused(LogisticRegression, "'x' has .* values in", features={"y": (0, 1)}, target=X),
        refused(LogisticRegression, "'arm' has the levels", features=X, target={"arm": (0, 1)}),
        refused(PoissonRegression, "'cost' is .* whole", features=X, target={"cost": (0, 9)}),
        refused(
            PoissonRegression, "'v' is -1 in", features=X, target={"v": (0, 9)},
            more={"v": columns()["visits"] - 1},
        ),
        refused(GammaRegression, "'visits' is 0 in the rec", features=X, target={"visits": (0, 9)}),
        refused(Bernoulli, "'coded' is 2 in", column="coded", more=CODED),
        refused(Bernoulli, "'arm' has the levels a, b", column="arm"),
        refused(Poisson, "'cost' is .* whole", column="cost", upper=20),
        refused(KaplanMeier, "'weeks' is below its lower bound 0", **OF_TIME, more=EARLIER),
        refused(
            PiecewiseExponentialRegression, "'weeks' is below", features=X, **OF_TIME, more=EARLIER
        ),
        refused(
            KaplanMeier, "is never 1.5 in", time=OF_TIME["time"], event={"coded": 1.5}, more=CODED
        ),
        refused(KaplanMeier, "lower bound of a time", time={"weeks": (-5, 60)}, event="died"),
        refused(KaplanMeier, "1 is no level of 'stage'", time=OF_TIME["time"], event={"stage": 1}),
        refused(KaplanMeier, "of which 0 is none", **OF_TIME, group="arm", levels=(0, 1)),
        refused(
            MultinomialRegression, "'g' is 0 in the records, and never 3",
            formula="C(g, levels=[1, 2, 3]) ~ x", variables={"g": (0, 3), **X},
            more={"g": NUMBERS - 1},
        ),
        refused(
            KaplanMeier, "'day' holds days, and numbers are due", time={"day": (0, 60)},
            event="died", more={"day": np.datetime64("2020-01-01") + np.arange(CLIENTS) % 60},
        ),
        refused(
            CohortCard, "holds 'A', and has the level 'a'", variables={"sex": ("a", "b")},
            more={"sex": np.resize(["A", "b"], CLIENTS)},
        ),
        refused(CohortCard, "of which 1 is none", variables=[{"name": "arm", "levels": [1, 2]}]),
        refused(LinearRegression, "no quantity", features={"arm": (0, 1)}, target={"y": (0, 9)}),
        refused(Moments, "no quantity", columns={"arm": (0, 1), **X}),
        refused(
            LinearRegression, "weight 'x' is -[-0-9., ]* and others in", weights={"x": (0, 3)},
            features={"ill": (0, 1)}, target={"y": (-20, 60)},
        ),
    ],
)  # fmt: skip
def test_what_is_coded_otherwise_is_refused_with_what_was_found(
    fit: Callable[[], Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        fit()


def test_likelihoods_are_of_records_that_the_study_can_have() -> None:
    there = federation()
    for model, said in (
        (Bernoulli(column="ill"), "'ill' is 2 in the records"),
        (Poisson(column="visits", upper=9), "'visits' is -1, 0.5 in the records"),
    ):
        model.fit(there)
        with pytest.raises(ValueError, match=said):
            model.score({model.column: [-1.0, 0.5] if "visits" in said else [1.0, 2.0]})


def test_a_crowd_is_asked_for_the_coding_that_its_task_has_too() -> None:
    crowd = SimulatedCrowd(columns(**CODED), seed=1)
    given = {"epsilon": 1.0, "learning_rate": 0.1, "clip": 1.0, "instances": 10}
    with pytest.raises(ValueError, match="the target 'coded' is 2 in the records"):
        CrowdLogisticRegression(features=X, target={"coded": (0, 1)}, **given).fit(crowd)
    with pytest.raises(ValueError, match=r"the target 'cost' is .* whole number"):
        CrowdPoissonRegression(features=X, target={"cost": (0, 9)}, **given).fit(crowd)


def test_classes_of_any_type_are_learned_alike() -> None:
    ill = columns()["ill"]
    gaps = [None if place % 50 == 0 else bool(each) for place, each in enumerate(ill)]
    for target, bounds in (
        (ill, (0, 1)),
        (ill > 0, (0, 1)),
        (ill + 1.0, (1, 2)),
        (2.0 * ill - 1.0, (-1, 1)),
        (pd.Series(gaps, dtype="boolean"), (0, 1)),
        (np.where(ill > 0, "yes", "no"), ("no", "yes")),
    ):
        model = LogisticRegression(features=X, target={"t": bounds}).fit(federation(t=target))
        assert model.coef_ == pytest.approx([1.0], abs=0.25)


def verdict(kind: Any, epsilon: float, more: dict[str, Any], **given: Any) -> str:
    there = SimulatedFederation(columns(**more), **(SETTING | {"epsilon": epsilon}))
    return str(kind(**given).fit(there).summary())


NOBODY = {"none": np.zeros(CLIENTS), "every": np.ones(CLIENTS)}


@pytest.mark.parametrize("epsilon", [50.0, 3.0])
@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        (
            LogisticRegression,
            {"features": X, "target": {"every": (0, 1)}},
            "nearly all records are of one class of every: is it coded 0 and 1, as its bounds are?",
        ),
        (
            PoissonRegression,
            {"features": X, "target": {"none": (0, 20)}},
            "nearly all values of none are at or beyond its bound 0: is the unit right?",
        ),
        (
            LinearRegression,
            {"features": X, "target": {"same": (0, 10)}},
            "same hardly varies, or few records far out make up most of it",
        ),
        (
            MultinomialRegression,
            {"features": X, "target": {"arm": ("a", "b", "c")}},
            "hardly any record is of the level c",
        ),
        (
            PiecewiseExponentialRegression,
            {"features": X, "time": {"weeks": (0, 60)}, "event": "none"},
            "hardly any record has the event none: is it coded 1",
        ),
        (
            GammaRegression,
            {"features": {**X, "same": (0, 10)}, "target": {"cost": (0, 20)}},
            "same hardly varies, or few records far out make up most of it: drop it",
        ),
        (
            LinearRegression,
            {"features": {**X, "arm": ("a", "b", "c")}, "target": {"y": (-20, 60)}},
            "it decides arm[c]: drop what hardly varies",
        ),
        (
            Moments,
            {"columns": {**X, "same": (0, 10)}},
            "same hardly varies, or few records far out make up most of it: its correlations",
        ),
        (
            KaplanMeier,
            {"time": {"weeks": (0, 60)}, "event": "none"},
            "hardly any event was counted: is it coded 1",
        ),
        (
            KaplanMeier,
            {**OF_TIME, "group": "arm", "levels": ("a", "b", "c")},
            "hardly any record of arm c is at risk",
        ),
    ],
)
def test_what_never_varies_and_levels_that_nobody_has_are_named(
    kind: Any, given: dict[str, Any], said: str, epsilon: float
) -> None:
    assert said in verdict(kind, epsilon, NOBODY, **given)


def test_times_in_another_unit_are_cautioned_of() -> None:
    days = {"weeks": 100.0 + 7.0 * columns()["weeks"]}
    assert "nearly all times are at or beyond 60" in verdict(KaplanMeier, 3.0, days, **OF_TIME)


def test_half_of_the_values_beyond_a_bound_are_doubted() -> None:
    generator = np.random.default_rng(3)
    pounds = {"lb": generator.normal(155.0, 33.0, CLIENTS)}
    found = verdict(
        LinearRegression, 3.0, pounds, features={"lb": (35, 150)}, target={"y": (-20, 60)}
    )
    assert "lb: a large share of the values is at or beyond its bound 150" in found


def test_a_level_called_as_a_label_of_the_system_is_told_apart() -> None:
    smoking = np.resize(["missing", "other", "value missing", "never"], CLIENTS).astype(object)
    smoking[:100] = None
    levels = ("never", "other", "missing", "value missing")
    card = CohortCard(variables={"smoking": levels}, smallest_cell=0).fit(
        federation(smoking=smoking)
    )
    names = card.posterior_.names
    assert len(set(names)) == len(names)
    found = dict(zip(names, card.posterior_.mean.tolist(), strict=True))
    assert found["smoking: missing"] == pytest.approx(CLIENTS / 4 - 25, abs=3)
    assert found["smoking: any value missing"] == pytest.approx(100, abs=3)
    assert found["smoking: any other"] == pytest.approx(0, abs=3)


def test_names_alone_take_what_is_known_of_them() -> None:
    there = federation()
    by_name = Moments(columns=["x", "visits"]).fit(there)
    assert by_name.posterior_.columns == ("x", "visits")
    assert "arm[b]" in Moments(columns=["x", "arm"]).fit(there).posterior_.columns
    with pytest.raises(ValueError, match="no column 'visit'; near to it are visits"):
        Moments(columns=["x", "visit"]).fit(there)
    with pytest.raises(ValueError, match="'same' is the same in all records"):
        Moments(columns=["x", "same"]).fit(there)


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


def test_a_simulation_takes_bounds_and_levels_as_estimators_do() -> None:
    there = federation(variables={"x": (-3, 3), "arm": ("b", "a"), "ill": (0, 1)})
    assert there.variables()["arm"] == Category(name="arm", meaning="arm", levels=("b", "a"))
    assert LogisticRegression(formula="ill ~ x").fit(there).coef_ == pytest.approx([1.0], abs=0.25)
    with pytest.raises(ValueError, match="there is no variable 'y'"):
        LinearRegression(formula="y ~ x").fit(there)


def test_only_coefficients_of_one_kind_of_regression_have_differences() -> None:
    there = federation()
    linear = LinearRegression(features=X, target={"ill": (0, 1)}).fit(there)
    logistic, more = (
        LogisticRegression(features=features, target={"ill": (0, 1)}).fit(there)
        for features in (X, {**X, "arm": ("a", "b")})
    )
    with pytest.raises(ValueError, match=r"Linear regression of ill, and Logistic regression"):
        difference(linear, logistic)
    with pytest.raises(ValueError, match=r"only one of the two has arm\[b\]"):
        difference(logistic, more)
    assert difference(logistic, logistic).mean == pytest.approx([0.0, 0.0])


DRUGS = np.resize(["drug", "placebo"], CLIENTS)
NINES = np.where(np.arange(CLIENTS) % 20, columns()["ill"], 9.0)
MOODS = np.where(np.arange(CLIENTS) % 2, "Yes", np.where(columns()["ill"] > 0, "yes", "no"))


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


def test_levels_that_differ_by_case_alone_are_refused_unless_they_are_named() -> None:
    there = federation(mood=MOODS)
    for formula in ('level(mood, "yes") ~ x', "ill ~ mood", "ill ~ C(mood)"):
        with pytest.raises(ValueError, match="'mood' holds 'Yes' and 'yes', which differ by case"):
            LogisticRegression(formula=formula).fit(there)
    named = LogisticRegression(formula="ill ~ mood", variables={"mood": ("no", "yes", "Yes")})
    assert len(named.fit(there).coef_) == 2


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


@pytest.mark.parametrize("epsilon", [50.0, 3.0])
def test_a_group_that_nobody_is_in_adds_no_degree_of_freedom(epsilon: float) -> None:
    arms = {**OF_TIME, "group": "arm", "intervals": 6}
    for levels, said in (
        (("a", "b"), r"with 1 degree of freedom, p [0-9.]+$"),
        (("a", "b", "c"), r"with 1 degree of freedom, p [0-9.]+, of 2 groups: hardly any record"),
    ):
        assert re.search(said, verdict(KaplanMeier, epsilon, {}, **arms, levels=levels), re.M)
    assert "Log-rank" not in verdict(KaplanMeier, epsilon, {}, **arms, levels=("a", "c"))


FAR_OUT = {"late": np.where(np.arange(CLIENTS) % 10, 0.5, 999.0)}
TWICE = {"trt": columns()["ill"] + 1.0, "asked": np.resize([0.0, 1.0, 9.0], CLIENTS)}


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (LinearRegression, {"features": {"trt": (0, 1)}, "target": {"y": (-20, 60)}}),
        (LinearRegression, {"features": X, "target": {"trt": (0, 1)}}),
        (LogisticRegression, {"features": {"trt": (0, 1)}, "target": {"ill": (0, 1)}}),
        (
            LinearRegression,
            {"formula": "y ~ x * trt", "variables": {"trt": (0, 1), "y": (-20, 60), **X}},
        ),
        (PiecewiseExponentialRegression, {**OF_TIME, "features": {"trt": (0, 1)}}),
        (Moments, {"columns": {"trt": (0, 1), **X}}),
        (VectorSum, {"columns": {"trt": (0, 1)}}),
        (Quantiles, {"variables": {"trt": (0, 1)}}),
    ],
)
def test_codes_that_bounds_of_0_and_1_do_not_hold_are_refused(
    kind: Any, given: dict[str, Any]
) -> None:
    said = r"of 2,000 values of trt \(.*%\) lie beyond the bounds \(0, 1\): is it coded 1 and 2"
    with pytest.raises(ValueError, match=said):
        kind(**given).fit(federation(**TWICE))


def test_a_code_of_what_is_missing_is_refused_and_the_event_named() -> None:
    model = LinearRegression(features={"asked": (0, 1)}, target={"y": (-20, 60)})
    with pytest.raises(ValueError, match=r"666 of 2,000 .* coded 0, 1 and 9\?.*level\(asked, 1\)"):
        model.fit(federation(**TWICE))


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


def test_values_that_never_vary_within_bounds_are_said_to_do_so() -> None:
    percent = federation(percent=20.0 + columns()["x"])
    model = LinearRegression(features=X, target={"percent": (0, 1)}).fit(percent)
    said = "2,000 of 2,000 values of percent (100%) lie beyond the bounds (0, 1), so that it never"
    assert said in model.verdict_
    assert said in str(Moments(columns={"percent": (0, 1), **X}).fit(percent).summary())


def test_a_few_values_beyond_bounds_are_clipped_and_told_from_one_in_a_hundred_on() -> None:
    for count, is_told in ((20, False), (21, True), (99, True)):
        far = np.where(np.arange(CLIENTS) < count, 80.0, columns()["x"])
        model = LinearRegression(features={"far": (-4, 4)}, target=X).fit(federation(far=far))
        assert ("Beyond bounds" in dict(model.summary().facts)) == is_told
        assert model.verdict_ == "trustworthy"
    model.fit(federation(far=columns()["x"]))
    assert "Beyond bounds" not in dict(model.summary().facts)


def test_a_crowd_in_memory_is_told_what_lies_beyond_bounds() -> None:
    crowd = SimulatedCrowd(columns(**TWICE), seed=1)
    given = {"epsilon": 1.0, "learning_rate": 0.1, "clip": 1.0, "instances": 10}
    with pytest.raises(ValueError, match="is it coded 1 and 2"):
        CrowdLogisticRegression(features={"trt": (0, 1)}, target={"ill": (0, 1)}, **given).fit(
            crowd
        )
    model = CrowdLogisticRegression(features={"y": (-20, 15)}, target={"ill": (0, 1)}, **given)
    assert "of 2,000 values of y (" in str(model.fit(crowd).summary())


@pytest.mark.parametrize("stage", [NUMBERS, STAGES], ids=["numbers", "texts"])
def test_levels_of_several_classes_are_given_beside_the_name_of_the_target(stage: Any) -> None:
    levels = tuple(np.unique(stage)[::-1].tolist())
    there = federation(stage=stage)
    model = MultinomialRegression(features=X, target="stage", levels=levels).fit(there)
    assert model.classes_.tolist() == ["3", "2", "1"]
    assert 0.0 < model.score(columns(stage=stage)) < 1.0
