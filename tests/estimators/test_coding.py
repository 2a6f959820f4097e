"""Frames as analysts have them: what is read, what is refused, and in which words."""

import re
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pytest

from shoal import SimulatedFederation
from shoal.estimators import (
    CohortCard,
    GammaRegression,
    Histogram,
    KaplanMeier,
    LinearRegression,
    LogisticRegression,
    Moments,
    MultinomialRegression,
    Normal,
    PoissonRegression,
    Quantiles,
    VectorSum,
)
from shoal_protocol.trust.dictionary import Number

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
    agreed = [Number(name=name, meaning="-", lower=-20, upper=60) for name in ("stage", "x", "y")]
    there, by_dictionary = federation(stage=stage), federation(stage=stage, variables=agreed)
    with_y: dict[str, Any] = {"target": {"y": (-20, 60)}}
    of_classes = MultinomialRegression(features=X, target={"stage": (1, 2, 3)})
    for fit in (
        of_stages,
        lambda stage: LinearRegression(formula="y ~ stage").fit(by_dictionary),
        lambda stage: LinearRegression(formula="y ~ C(stage, levels=[1, 2])").fit(by_dictionary),
        lambda stage: LinearRegression(features={"stage": (1, 3)}, **with_y).fit(there),
        lambda stage: LinearRegression(features=X, target={"stage": (1, 3)}).fit(there),
        lambda stage: of_classes.fit(by_dictionary),
        lambda stage: CohortCard(variables=["stage"]).fit(by_dictionary),
        lambda stage: CohortCard(variables={"stage": {"levels": [1, 2, 3]}}).fit(there),
        lambda stage: KaplanMeier(**OF_TIME, group={"stage": (1, 2, 3)}).fit(there),
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


def refused(kind: Any, said: str, **given: Any) -> Any:
    more = given.pop("more", {})
    return pytest.param(
        lambda: kind(**given).fit(federation(**more)), said, id=f"{kind.__name__}: {said}"
    )


OF_TIME: dict[str, Any] = {"time": {"weeks": (0, 60)}, "event": "died"}


DRUGS = np.resize(["drug", "placebo"], CLIENTS)


@pytest.mark.parametrize("written", ["NA", ""])
def test_a_text_is_a_level_if_it_is_named_and_missing_only_if_it_is_made_so(written: str) -> None:
    given = np.where(np.arange(CLIENTS) % 9, DRUGS.astype(object), written)
    there, levels = federation(given=given), {"given": ("drug", "placebo")}
    of_given = LinearRegression(features=levels, target={"y": (-20, 60)})
    for model in (
        of_given,
        LogisticRegression(formula='level(given, "drug") ~ x', variables=levels | X),
        CohortCard(variables=levels),
        KaplanMeier(**OF_TIME, group=levels),
    ):
        with pytest.raises(ValueError, match=r"'given' holds '.*', and has the levels 'drug', 'pl"):
            model.fit(there)
    of_given.fit(federation(given=np.where(given == written, None, given)))
    if written:
        of_given.set_params(features={"given": ("drug", "placebo", written)}).fit(there)


def test_without_a_dictionary_nothing_is_told_from_the_records() -> None:
    assert not federation().variables()
    with pytest.raises(ValueError, match="there is no variable 'arm': give its bounds or levels"):
        LinearRegression(formula="y ~ arm", variables={"y": (-20, 60)}).fit(federation())
    with pytest.raises(ValueError, match=r"'arm' holds texts: give their levels, .* == .yes"):
        LinearRegression(features={"arm": (0, 1)}, target={"y": (-20, 60)}).fit(federation())


@pytest.mark.parametrize("stage", [NUMBERS, STAGES], ids=["numbers", "texts"])
def test_a_survival_curve_says_how_many_records_are_of_no_group(stage: Any) -> None:
    levels = tuple(np.unique(stage).tolist())
    known = {"weeks": (0, 60), "died": (0, 1), "stage": levels if stage is STAGES else (1, 3)}
    there = federation(stage=stage, variables=known)

    def fitted(*groups: Any) -> tuple[int, str]:
        model = KaplanMeier(**OF_TIME, group={"stage": groups}, intervals=6).fit(there)
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
        (Normal, {"variables": {"y": (0, 1)}}, "y"),
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
    near = columns()["x"] + np.random.default_rng(1).normal(0, 1, CLIENTS)
    for count, is_told in ((20, False), (21, True), (99, True)):
        far = np.where(np.arange(CLIENTS) < count, 80.0, columns()["x"])
        model = LinearRegression(features={"far": (-4, 4)}, target={"near": (-6, 6)})
        model.fit(federation(far=far, near=near))
        assert ("Beyond bounds" in dict(model.summary().facts)) == is_told
    model.fit(federation(far=columns()["x"], near=near))
    assert "Beyond bounds" not in dict(model.summary().facts)
