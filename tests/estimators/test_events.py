"""How an event is coded: 0 and 1, or by a value that is named; anything else is refused."""

from typing import Any

import numpy as np
import pytest

from shoal import SimulatedFederation
from shoal.estimators import KaplanMeier, PiecewiseExponentialRegression
from shoal_protocol.trust.dictionary import Category, Flag, Number

STATUS = Category(name="status", meaning="at the end", levels=("dead", "alive", "lost"))


def kaplan_meier(event: Any) -> KaplanMeier:
    return KaplanMeier(time={"weeks": (0, 60)}, event=event, intervals=6)


def hazards(event: Any) -> PiecewiseExponentialRegression:
    return PiecewiseExponentialRegression(
        features={"arm": (0, 1)}, time={"weeks": (0, 60)}, event=event
    )


@pytest.mark.parametrize("kind", [kaplan_meier, hazards])
def test_the_dictionary_says_how_an_event_is_coded(kind: Any) -> None:
    known: dict[str, Any] = {
        "status": STATUS,
        "died": Flag(name="died", meaning="whether it died"),
        "coded": Number(name="coded", meaning="1 alive, 2 dead", lower=1, upper=2),
    }
    assert kind("died").to_task(known).event_value is None
    assert kind({"status": "lost"}).to_task(known).event_value == 2.0
    assert kind({"coded": 2}).to_task(known).event_value == 2.0
    for name in ("status", "coded"):
        with pytest.raises(ValueError, match="name the value that is the event"):
            kind(name).to_task(known)


def test_only_bounds_of_the_dictionary_are_made_to_begin_at_0() -> None:
    known: dict[str, Any] = {
        "weeks": Number(name="weeks", meaning="since surgery", lower=5, upper=60),
        "died": Flag(name="died", meaning="whether it died"),
    }
    for said, lower in ((["weeks"], 0.0), ("weeks", 0.0), ({"weeks": (5, 60)}, 5.0)):
        assert KaplanMeier(time=said, event="died").to_task(known).time.lower == lower


@pytest.mark.parametrize("time", ["weeks", ["weeks"], {"weeks": (0, 60)}], ids=repr)
def test_a_time_that_was_filled_in_is_missing_however_the_time_is_named(time: Any) -> None:
    weeks = Number(name="weeks", meaning="seen", lower=0, upper=60, missing="indicator")
    known = {"weeks": weeks, "died": Flag(name="died", meaning="whether it died")}
    task = KaplanMeier(time=time, event="died").to_task(known)
    assert task.indicators == ("weeks",)


def followed_up(baseline: float, seed: int) -> dict[str, np.ndarray]:
    """Return 3,000 people who are all followed for two years: the study's last day ends each."""
    generator = np.random.default_rng([1973, seed])
    age, drug = generator.uniform(30, 90, 3000), generator.integers(0, 2, 3000).astype(float)
    hazards = np.exp(0.03 * (age - 60.0) - 0.5 * drug) / baseline
    times = generator.exponential(size=3000) / hazards
    weeks, died = np.minimum(times, 104.0), (times <= 104.0).astype(float)
    return {"age": age, "drug": drug, "weeks": weeks, "died": died}


@pytest.mark.parametrize("weeks", [(0, 52), (0, 104)], ids=["half the time", "all the time"])
def test_who_is_followed_up_to_the_end_is_no_reason_to_doubt(weeks: Any) -> None:
    """3 or 6 % of the people have the event. In 100 fits the event seemed to be missing in none."""
    for seed in range(3):
        people = followed_up(1500.0, seed)
        there = SimulatedFederation(
            people, epsilon=3.0, delta=1e-5, dropouts=20, colluders=20, seed=seed
        )
        curve = KaplanMeier(time={"weeks": weeks}, event="died").fit(there)
        assert curve.posterior_.caution is None
        model = PiecewiseExponentialRegression(
            features={"age": (30, 90), "drug": (0, 1)}, time={"weeks": weeks}, event="died"
        ).fit(there)
        assert "weeks" not in model.verdict_ and "event" not in model.verdict_


def test_times_that_all_lie_beyond_the_last_are_doubted() -> None:
    people = followed_up(1500.0, 0)
    people["weeks"] = 60.0 + 7.0 * people["weeks"]
    there = SimulatedFederation(people, epsilon=3.0, delta=1e-5, dropouts=20, colluders=20, seed=1)
    model = PiecewiseExponentialRegression(
        features={"age": (30, 90)}, time={"weeks": (0, 52)}, event="died"
    ).fit(there)
    assert "it never varies within them: is the unit right?" in model.verdict_
    curve = KaplanMeier(time={"weeks": (0, 52)}, event="died").fit(there)
    assert "nearly all times are at or beyond 52" in str(curve.posterior_.caution)
