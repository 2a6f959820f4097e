"""Predictions scored at sites: what is found of them, and how surely.

At last over all services: one round, certified and replayed.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import pyplot
from pydantic import TypeAdapter

from shoal.estimators import Validation
from shoal_protocol.certificates.checks import verify_certificate
from shoal_protocol.queries import PredictionScores
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.trust.dictionary import Category
from shoal_protocol.wire.errors import RefusedSpec
from shoal_studies.catalogue.validation import Site, ValidationPosterior, ValidationTask
from shoal_studies.registry import Posterior, learner_for
from shoal_studies.simulation import SimulatedFederation
from tests.world.federation import Federation
from tests.world.trust import HOLDER_POLICY, TASK, make_trust
from tests.world.trust import SITES as HELD_BY_SITE

SEED = 20_250_301
SITES = ("north", "south", "west")
FAMILIES = ("normal", "logistic", "poisson", "negative_binomial")
POINTS = {"north": (-1.8, 0.04, -0.4), "south": (-0.3, 0.01, 0.4), "west": (-2.2, 0.05, 0.0)}
WIDTHS = {"normal": 12.0, "logistic": 1.0, "poisson": 20.0, "negative_binomial": 20.0}


def federation(records: dict[str, Any], *, epsilon: float, seed: int) -> SimulatedFederation:
    return SimulatedFederation(
        records, epsilon=epsilon, delta=1e-5, dropouts=20, colluders=20, seed=seed
    )


def people(family: str, count: int, *, seed: int) -> dict[str, Any]:
    generator = np.random.default_rng([SEED, seed])
    site = generator.choice(3, count, p=[0.5, 0.3, 0.2])
    a, b = generator.normal(50.0, 10.0, count), generator.normal(size=count)
    predictor = 0.04 * (a - 50.0) - 0.3 * b + np.array([0.0, 0.2, 0.8])[site]
    y = {
        "normal": predictor + generator.normal(size=count),
        "logistic": generator.binomial(1, 1.0 / (1.0 + np.exp(-predictor))),
    }.get(family, generator.poisson(np.exp(predictor)))
    return {"a": a, "b": b, "site": np.array(SITES)[site], "y": y.astype(float)}


def bounds(family: str) -> tuple[float, float]:
    return (-6.0, 6.0) if family == "normal" else (0.0, WIDTHS[family])


def scoring(family: str, **changes: Any) -> Validation:
    given = {
        "family": family,
        "features": {"a": (0, 100), "b": (-5, 5)},
        "target": {"y": bounds(family)},
        "site": "site",
        "sites": POINTS,
    }
    return Validation(**(given | changes))


def truth(family: str, people: dict[str, Any], name: str, limit: float) -> tuple[float, ...]:
    """Return score, bias, and the share explained, by all of a site's records."""
    here = (people["site"] == name) if name in SITES else np.full(len(people["y"]), True)
    points = np.array([POINTS[each] for each in people["site"]])[here]
    a, b, y = (people[each][here] for each in "aby")
    mean = points[:, 0] + points[:, 1] * a + points[:, 2] * b
    if family == "logistic":
        mean = 1.0 / (1.0 + np.exp(-mean))
        losses = -np.log(np.where(y > 0.0, mean, 1.0 - mean))
        share = y.mean()
        without = -share * np.log(share) - (1.0 - share) * np.log(1.0 - share)
        score = np.minimum(losses, limit).mean()
        return score, mean.mean() - y.mean(), 1.0 - score / without
    mean = np.clip(mean if family == "normal" else np.exp(mean), *bounds(family))
    score = np.minimum((y - mean) ** 2, limit * WIDTHS[family] ** 2).mean()
    return np.sqrt(score), mean.mean() - y.mean(), 1.0 - score / y.var()


def dues(family: str, people: dict[str, Any], posterior: Any, limit: float) -> np.ndarray:
    """Return the truth of each number that a posterior shows."""
    due = []
    for each in posterior.scores:
        found = truth(family, people, each.name, limit)
        due += found if each.explained is not None else found[:2]
    return np.array(due)


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_are_those_of_all_records_and_intervals_hold_them(family: str) -> None:
    who = people(family, 3_000, seed=1)
    who["y"] = np.clip(who["y"], *bounds(family))
    held = []
    for seed in range(12):
        model = scoring(family).fit(federation(who, epsilon=2.0, seed=seed))
        posterior, task = model.posterior_, model.to_task()
        due = dues(family, who, posterior, task.limit)
        low, high = posterior.interval(0.9).T
        held += ((low <= due) & (due <= high)).tolist()
    assert 0.82 <= np.mean(held) <= 1.0
    exact = scoring(family).fit(federation(who, epsilon=100.0, seed=1)).posterior_
    assert len(exact.names) == 12  # at the first price noise hides some shares of what is explained
    due = dues(family, who, exact, task.limit)
    np.testing.assert_allclose(exact.mean, due, atol=0.05 * WIDTHS[family])
    assert [each.name for each in exact.scores] == [*SITES, "all sites"]
    assert exact.scores[0].records.mean == pytest.approx(np.sum(who["site"] == "north"), abs=5.0)
    again = TypeAdapter(Posterior).validate_json(exact.model_dump_json())
    assert again == exact


def test_calibration_shows_what_was_observed_where_noise_does_not_hide_it() -> None:
    who = people("logistic", 4_000, seed=2)
    model = scoring("logistic", bins=4).fit(federation(who, epsilon=50.0, seed=1))
    points = np.array([POINTS[each] for each in who["site"]])
    given = 1.0 / (1.0 + np.exp(-points[:, 0] - points[:, 1] * who["a"] - points[:, 2] * who["b"]))
    place = np.minimum(np.floor(4.0 * given), 3.0)
    due = [
        (given[place == each].mean(), who["y"][place == each].mean())
        for each in range(4)
        if np.sum(place == each) > 100
    ]
    found = model.posterior_.calibration[-len(due) :]
    for (predicted, observed), each in zip(due, found, strict=True):
        assert each.predicted.mean == pytest.approx(predicted, abs=0.01)
        assert each.observed.mean == pytest.approx(observed, abs=0.02)
    assert model.plot().has_data()
    pyplot.close("all")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"site": {"site": SITES}}, "site is a variable"),
        ({"sites": [(0.0, 0.0, 0.0)]}, "coefficients for each of its levels"),
        ({"sites": {"north": (0.0, 0.0, 0.0)}}, "no variable 'site'"),
        ({"score_limit": 2.0}, "squares"),
        ({"bins": 0}, "greater than or equal"),
    ],
)
def test_what_cannot_be_scored_is_no_task(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        scoring("normal", **change).to_task()


@pytest.mark.parametrize("named", [["south"], ["west", "south"]])
def test_sites_may_be_some_of_those_that_the_dictionary_has(named: list[str]) -> None:
    known = {"site": Category(name="site", meaning="where", levels=SITES)}
    sites = {name: POINTS[name] for name in named}
    task = scoring("normal", sites=sites).to_task(known)
    assert [(each.name, each.value) for each in task.sites] == [
        (name, float(SITES.index(name))) for name in named
    ]
    with pytest.raises(ValueError, match="other levels in the data dictionary"):
        scoring("normal", sites=sites | {"east": POINTS["west"]}).to_task(known)


def test_a_score_that_noise_hides_is_withheld() -> None:
    who = people("normal", 400, seed=5)
    model = scoring("normal", target={"y": (-60, 60)}).fit(federation(who, epsilon=0.5, seed=1))
    hidden = [each for each in model.posterior_.scores if each.score is None]
    assert hidden
    shown = str(model.summary())
    assert "the noise hides their score" in shown
    assert not [
        name
        for name in model.posterior_.names
        for each in hidden
        if name == f"{each.name}: root mean square error"
    ]


SCORED = ValidationTask(
    family="normal",
    features=TASK.features,
    target=TASK.target,
    site="age",  # of which records of this world have several levels
    sites=(
        Site(name="thirty", value=30.0, coefficients=(94.0, 0.5)),
        Site(name="older", value=67.0, coefficients=(150.0, 0.0)),
    ),
)


@pytest.mark.slow
async def test_scores_are_released_once_certified_and_replayed(tmp_path: Path) -> None:
    queries = SCORED.query_names()
    trust = make_trust(tmp_path / "trust", queries=queries)
    policy = HOLDER_POLICY.model_copy(update={"queries": queries})
    async with Federation(
        trust, tmp_path, holders={site: {"policy": policy} for site in HELD_BY_SITE}
    ) as federation:
        job = await federation.submit(task=SCORED)
        state = await federation.finish(job)
        assert state["phase"] == "finished", state
        encoded = await federation.after(federation.analyst.job(job).certificate())
        report = await federation.report(job)
    assert encoded is not None
    manifest = trust.consortium.signed_manifest.encode()
    [released] = verify_certificate(encoded, manifest).certificate.rounds
    query = released.spec.body.query
    assert isinstance(query, PredictionScores)
    assert query.points == (
        (124.0, 30.0),
        (150.0, 0.0),
    )  # at the middle of 0 to 120, for half of it
    clients = sum(HELD_BY_SITE.values())
    sums = [ReleasedSum.of(released.spec.body, released.result.body)]
    assert learner_for(SCORED).next(clients, sums) == report.posterior
    assert isinstance(report.posterior, ValidationPosterior)
    assert [each.name for each in report.posterior.scores] == ["thirty", "older", "all sites"]
    terms = SCORED.terms(least=2, most=2)
    terms.check(query, number=0)
    for change in ({"points": ((124.0, 30.0),) * 2}, {"score_limit": 0.5}, {"bins": 6}):
        with pytest.raises(RefusedSpec):
            terms.check(query.model_copy(update=change), number=0)
