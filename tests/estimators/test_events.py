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


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (
            "coded",
            r'is not coded 0 and 1: name the value that is the event, as event=\{"coded": 2\}',
        ),
        ("status", r'name the value that is the event, as event=\{"status": "lost"\}'),
        ({"status": "died"}, "is no level of 'status', which has 'alive', 'dead', 'lost'"),
        ({"coded": "dead"}, "levels of it are not known"),
        ({"coded": 3}, "nobody's 'coded' is 3: it is from"),
        ({"coded": 1, "died": 1}, "one with the value that is the event"),
        (None, "one with the value that is the event"),
    ],
)
@pytest.mark.parametrize("kind", [kaplan_meier, hazards])
def test_an_event_in_another_code_is_refused(kind: Any, event: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        kind(event).fit(SimulatedFederation(patients(), **SETTING))


@pytest.mark.parametrize("kind", [kaplan_meier, hazards])
def test_a_task_without_an_estimator_is_refused_by_its_records(kind: Any) -> None:
    for name in ("coded", "status"):
        with pytest.raises(ValueError, match="name the value that is the event"):
            SimulatedFederation(patients(), **SETTING).learn(kind(name).to_task())


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


def test_a_formulas_event_may_be_named() -> None:
    formula = "survival(weeks, coded) ~ arm"
    variables = {"weeks": (0, 60), "arm": (0, 1), "coded": (1, 2)}
    model = PiecewiseExponentialRegression(formula=formula, variables=variables, event={"coded": 2})
    assert model.to_task().columns[-1].term is not None
    with pytest.raises(ValueError, match="name the value that is the event"):
        PiecewiseExponentialRegression(formula=formula, variables=variables).to_task()
    with pytest.raises(ValueError, match="another event"):
        PiecewiseExponentialRegression(
            formula=formula, variables=variables, event={"died": 1}
        ).to_task()
