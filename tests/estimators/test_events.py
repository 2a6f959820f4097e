"""How an event is coded: 0 and 1, or by a value that is named; anything else is refused."""

from typing import Any

import numpy as np
import pytest

from shoal import SimulatedFederation
from shoal.estimators import KaplanMeier, PiecewiseExponentialRegression
from shoal_protocol.studies.kaplan_meier import KaplanMeierPosterior
from shoal_protocol.trust.dictionary import Category, Flag, Number

SETTING: dict[str, Any] = {"epsilon": 20.0, "delta": 1e-5, "dropouts": 5, "colluders": 5, "seed": 1}
STATUS = Category(name="status", meaning="at the end", levels=("dead", "alive", "lost"))


def patients(count: int = 2000) -> dict[str, np.ndarray]:
    """Return patients whose end is coded in each way that there is: 0 and 1, 1 and 2, and text."""
    generator = np.random.default_rng(1)
    arm = generator.integers(0, 2, count).astype(float)
    died = generator.exponential(np.where(arm == 1.0, 60.0, 30.0))
    seen = generator.uniform(5.0, 60.0, count)
    is_dead = died <= seen
    return {
        "weeks": np.minimum(died, seen),
        "arm": arm,
        "died": is_dead.astype(float),
        "coded": 1.0 + is_dead,
        "status": np.where(is_dead, "dead", np.where(arm == 1.0, "alive", "lost")),
    }


def kaplan_meier(event: Any) -> KaplanMeier:
    return KaplanMeier(time={"weeks": (0, 60)}, event=event, intervals=6)


def hazards(event: Any) -> PiecewiseExponentialRegression:
    return PiecewiseExponentialRegression(
        features={"arm": (0, 1)}, time={"weeks": (0, 60)}, event=event
    )


@pytest.mark.parametrize("event", [{"coded": 2}, {"status": "dead"}, {"died": 1}])
@pytest.mark.parametrize("kind", [kaplan_meier, hazards])
def test_a_named_event_is_the_indicator_of_it(kind: Any, event: Any) -> None:
    """Codes of one event are one question: the same noise gives the same answer."""
    plain = kind("died").fit(SimulatedFederation(patients(), **SETTING)).posterior_
    named = kind(event).fit(SimulatedFederation(patients(), **SETTING)).posterior_
    assert named.mean == pytest.approx(plain.mean, rel=1e-9)
    if isinstance(named, KaplanMeierPosterior):  # who lives at the end, though most are lost before
        assert 0.1 < named.mean[-1] < 0.4
    else:
        assert named.mean[0] == pytest.approx(-np.log(2.0), abs=0.25)


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
