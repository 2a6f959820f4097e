"""Cards, survival curves and proportions: levels by their names, and what is no such variable.

Simulations are almost without noise, so that counts are the records' own.
"""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from shoal import SimulatedFederation
from shoal.estimators import Categorical, CohortCard, Moments, MultinomialRegression, Quantiles
from shoal.jobs.federation import Federation
from shoal_protocol.trust.dictionary import Category, Flag, Number

CLIENTS = 600
STAGES = ("early", "middle", "late")


def frame() -> pd.DataFrame:
    generator = np.random.default_rng(1)
    stage = pd.Categorical(generator.choice(STAGES, CLIENTS, p=[0.5, 0.3, 0.2]), STAGES, True)
    found = pd.DataFrame(
        {
            "age": generator.uniform(20, 80, CLIENTS),
            "sex": generator.choice(["male", "female"], CLIENTS, p=[0.7, 0.3]),
            "stage": stage,
            "weeks": generator.uniform(0, 50, CLIENTS),
            "died": generator.uniform(size=CLIENTS) < 0.5,
        }
    )
    found.loc[:29, "stage"] = None
    return found


def federation(rows: Any = None, **more: Any) -> SimulatedFederation:
    records = frame() if rows is None else rows
    settings: dict[str, Any] = {"epsilon": 90.0, "delta": 1e-5, "dropouts": 2, "colluders": 2}
    known = {"age": (20, 80), "sex": ("female", "male"), "stage": STAGES, **more}
    return SimulatedFederation(records, **settings, seed=1, variables=known)


def numbers(model: Any) -> dict[str, float]:
    return dict(zip(model.posterior_.names, model.posterior_.mean.tolist(), strict=True))


def counted(name: str) -> dict[str, int]:
    found: dict[str, int] = frame()[name].value_counts().to_dict()
    return found


IN_FULL = {
    "age": {"kind": "number", "lower": 18, "upper": 90, "bins": 16},
    "sex": {"kind": "category", "levels": ["female", "male"]},
    "stage": {"kind": "category", "levels": list(STAGES)},
}


@pytest.mark.parametrize(
    "variables",
    [
        IN_FULL,
        {"age": (18, 90), "sex": ("female", "male"), "stage": STAGES},
        ["age", "sex", "stage"],
        {"age": {}, "sex": {"levels": ["female ", "male"]}, "stage": {}},
    ],
    ids=["in full", "by bounds and levels", "by name", "in full by name"],
)
def test_a_card_shows_levels_by_their_names_however_they_were_given(variables: Any) -> None:
    model = CohortCard(variables=variables, crosses=[("sex", "stage")]).fit(federation())
    found, rows = numbers(model), frame()
    for name in ("sex", "stage"):
        for level, count in counted(name).items():
            assert found[f"{name}: {level}"] == pytest.approx(count, abs=6)
    assert found["stage: missing"] == pytest.approx(30, abs=6)
    both = ((rows["sex"] == "male") & (rows["stage"] == "late")).sum()
    assert found["sex male × stage late"] == pytest.approx(both, abs=6)
    assert "sex: female" in str(model.summary())
    task: Any = model.to_task(federation().variables())
    assert task.query().cuts[2].levels == (0.0, 1.0, 2.0)  # what data holders are asked


def test_proportions_are_of_levels_by_name() -> None:
    model = Categorical(column={"stage": ("late", "early")}).fit(federation())
    assert model.posterior_.names == ("late", "early", "other")
    shares = frame()["stage"].value_counts(normalize=True)
    assert model.posterior_.mean[:2] == pytest.approx(shares[["late", "early"]], abs=0.02)
    others = frame().assign(stage=lambda rows: rows["stage"].astype(object).fillna("other"))
    every = Categorical(column="stage").fit(federation(others, stage=(*STAGES, "other")))
    assert every.posterior_.names == (*STAGES, "other", "any other")


class Agreed(Federation):
    """A federation with a dictionary, or none, that takes tasks and learns nothing."""

    def __init__(self, *variables: Any) -> None:
        self._variables = {each.name: each for each in variables}

    def variables(self) -> dict[str, Any]:
        return self._variables

    def submit(self, task: Any) -> Any:
        raise InterruptedError(task)


AGREED = (
    Number(name="age", meaning="age", lower=16, upper=95),
    Category(name="sex", meaning="sex", levels=("Female", "Male")),
    Flag(name="ill", meaning="is ill"),
)


def asked(model: Any, there: Agreed) -> Any:
    with pytest.raises(InterruptedError) as told:
        model.fit(there)
    return told.value.args[0]


def test_a_dictionary_gives_bounds_and_levels_and_names_them() -> None:
    task = asked(CohortCard(variables=["age", "sex", "ill"]), Agreed(*AGREED))
    age, sex, ill = task.variables
    assert (age.lower, age.upper) == (16.0, 95.0)
    assert (sex.levels, sex.labels) == ((0.0, 1.0), ("Female", "Male"))
    assert (ill.levels, ill.labels) == ((0.0, 1.0), ())
    other_way = asked(CohortCard(variables={"sex": ("Male", "Female")}), Agreed(*AGREED))
    [sex] = other_way.variables
    assert (sex.levels, sex.labels) == ((1.0, 0.0), ("Male", "Female"))
    for levels in (("male", "female"), ("Male", "Other")):
        with pytest.raises(ValueError, match="other levels in the data dictionary: Female, Male"):
            CohortCard(variables={"sex": levels}).fit(Agreed(*AGREED))
    with pytest.raises(ValueError, match="no variable 'sexx'; near to it are sex"):
        CohortCard(variables=["sexx"]).fit(Agreed(*AGREED))


def test_moments_and_quantiles_take_names_as_cards_do() -> None:
    heart_rate = Number(name="rate", meaning="heart rate", lower=30, upper=220)
    there = Agreed(*AGREED, heart_rate)
    names = ["age", "rate"]
    bounds = [(16.0, 95.0), (30.0, 220.0)]
    for model in (Moments(columns=names), Quantiles(variables=names), CohortCard(variables=names)):
        task = asked(model, there)
        variables = task.columns if isinstance(model, Moments) else task.variables
        assert [(each.lower, each.upper) for each in variables] == bounds
    for model in (
        Moments(columns=["age", "ratee"]),
        Quantiles(variables=["ratee"]),
        CohortCard(variables=["ratee"]),
    ):
        with pytest.raises(ValueError, match="there is no variable 'ratee'; near to it are rate"):
            model.fit(there)
    with pytest.raises(ValueError, match="Moments: columns: should have at least 2, not 1"):
        Moments(columns=["age"]).fit(there)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (
            lambda: Quantiles(columns=["age"]),
            "Quantiles has no parameter columns; it has .*variabl",
        ),
        (
            lambda: Moments(variables=["age"]),
            "Moments has no parameter variables; it has .*columns",
        ),
        (
            lambda: CohortCard(["age"]),
            "CohortCard takes its parameters by name; it has .*variables",
        ),
    ],
)
def test_a_wrong_parameter_is_refused_with_those_that_there_are(wrong: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        wrong()


def test_what_is_no_kind_and_a_prior_nearly_at_0_or_1_are_said() -> None:
    with pytest.raises(ValueError, match="variables"):
        CohortCard(variables={"age": {"lower": 0, "upper": 9, "kind": "foo"}}).fit(federation())
    with pytest.raises(ValueError, match=r"0\.05"):
        Categorical(column="stage", concentration=0.01).fit(federation())


@pytest.mark.parametrize("said", [{"stage": STAGES, "sex": ("male", "female")}, ["stage"], 3])
def test_levels_are_of_one_variable(said: Any) -> None:
    with pytest.raises(ValueError, match="column is one variable"):
        Categorical(column=said).fit(federation())


def test_a_level_that_the_dictionary_lacks_is_named() -> None:
    there = Agreed(*AGREED)
    with pytest.raises(ValueError, match=r"levels: 2\.0 is no level of 'sex'.* Female, Male"):
        Categorical(column={"sex": (2.0, 1.0)}).fit(there)


def test_classes_may_be_numbers() -> None:
    rows = frame().assign(stage=lambda found: found["stage"].cat.codes + 1)
    model = MultinomialRegression(features={"age": (20, 80)}, target={"stage": (1, 2, 3)}).fit(
        federation(rows, stage=(0, 3))
    )
    assert model.classes_.tolist() == ["1", "2", "3"]
    known = rows[rows["stage"] > 0]
    assert model.score(known, known["stage"]) > 0.4


def cards_in_noise(clients: int, epsilon: float) -> list[Any]:
    """Return 20 cards of ages far from their bounds, and of levels that are few."""
    generator = np.random.default_rng(1854)
    cards = []
    for seed in range(20):
        rows = {
            "age": np.clip(generator.normal(55.0, 9.0, clients), 18.0, 90.0),
            "smoker": generator.choice(["no", "yes", "former"], clients, p=[0.7, 0.25, 0.05]),
        }
        there = SimulatedFederation(
            rows, epsilon=epsilon, delta=1e-5, dropouts=5, colluders=5, seed=seed
        )
        card = CohortCard(variables={"age": (0, 110), "smoker": ("no", "yes", "former")})
        cards.append((card.fit(there), rows["age"].std()))
    return cards


@pytest.mark.parametrize(("clients", "epsilon"), [(100, 0.1), (400, 0.5)])
def test_a_card_calls_nothing_known_that_noise_makes(clients: int, epsilon: float) -> None:
    """Of a spread that noise swamps one in 600 seems known: this fails once in 30 runs or less.

    The seeds are fixed. Shares are rounded to a tenth of one percent, each of five.
    """
    told = []
    for card, sd in cards_in_noise(clients, epsilon):
        summary = card.summary()
        facts = dict(summary.facts)
        assert "At a bound or beyond" not in facts and card.posterior_.caution is None
        levels = [value for label, value, *_ in summary.rows if label.startswith("smoker: ")]
        shares = [float(value.split("(")[1].rstrip("%)")) for value in levels if "(" in value]
        assert sum(shares[:4]) <= 100.25
        spread = numbers(card).get("age: sd")
        if spread is None and "age: mean" in numbers(card):
            assert facts["Not known"] == "the sd of age: noise hides it"
        told += [] if spread is None else [spread / sd]
    assert len(told) <= 2


def test_a_card_tells_spreads_that_noise_leaves() -> None:
    for card, sd in cards_in_noise(4000, 1.0):
        assert numbers(card)["age: sd"] == pytest.approx(sd, rel=0.2)
        assert "Not known" not in dict(card.summary().facts)
