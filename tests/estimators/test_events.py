"""How an event is coded: 0 and 1, or by a value that is named; anything else is refused."""

from typing import Any

import pytest

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
    for said, lower in ((["weeks"], 0.0), ({"weeks": (5, 60)}, 5.0)):
        assert KaplanMeier(time=said, event="died").to_task(known).time.lower == lower
