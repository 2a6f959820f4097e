"""Cohort cards: the task, how often intervals hold, what is not shown, and a job over all services.

Statistical tests count how often intervals hold; they are wrong by chance with probability 1e-4.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal import SimulatedFederation
from shoal.estimators import CohortCard
from shoal_studies.catalogue.cohort_card import (
    CategoryVariable,
    CohortCardPosterior,
    CohortCardTask,
    NumberVariable,
)
from shoal_studies.catalogue.tabulated import nested
from shoal_studies.posteriors.forms import REACHES, quantile_points
from shoal_studies.registry import learner_for
from shoal_studies.simulation import Federation as Setting
from shoal_studies.simulation import run
from tests.world.federation import Federation
from tests.world.trust import HOLDER_POLICY, SITES, make_trust

pytestmark = pytest.mark.slow

TASK = CohortCardTask(
    variables=(
        NumberVariable(name="age", lower=0, upper=100, bins=64),
        CategoryVariable(name="sex", levels=(0, 1)),
    ),
    crosses=(("sex", "age"),),
)
FREE: dict[str, Any] = {"epsilon": 80.0, "delta": 1e-5, "dropouts": 5, "colluders": 5, "seed": 1}


def people(count: int, seed: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    age, sex = generator.normal(55.0, 16.0, count), generator.integers(0, 2, count).astype(float)
    age[generator.random(count) < 0.1] = np.nan
    sex[generator.random(count) < 0.05] = np.nan
    sex[generator.random(count) < 0.02] = 7.0
    return {"age": age, "sex": sex, "visit": np.ones(count)}  # so all have a record


def truth_of(who: dict[str, np.ndarray]) -> dict[str, float]:
    age, sex = who["age"], who["sex"]
    known = np.clip(age[~np.isnan(age)], 0.0, 100.0)
    return {
        "records": len(age),
        "age: mean": known.mean(),
        "age: sd": known.std(),
        "age: quantile 0.25": np.quantile(known, 0.25),
        "age: quantile 0.5": np.quantile(known, 0.5),
        "age: quantile 0.75": np.quantile(known, 0.75),
        "age: [50, 56.25)": np.sum((known >= 50.0) & (known < 56.25)),
        "age: missing": np.isnan(age).sum(),
        "sex: 1": np.sum(sex == 1.0),
        "sex: other": np.sum(sex == 7.0),
        "sex: missing": np.isnan(sex).sum(),
        "sex 0 × age [50, 75)": np.sum((sex == 0.0) & (age >= 50.0) & (age < 75.0)),
    }


def test_at_little_noise_the_card_says_what_the_records_do() -> None:
    who = people(4000, seed=1)
    variables = {each.name: each.model_dump(exclude={"name"}) for each in TASK.variables}
    model = CohortCard(**TASK.model_dump(exclude={"name"}) | {"variables": variables})
    posterior = model.fit(SimulatedFederation(who, **FREE)).posterior_
    said = dict(zip(posterior.names, posterior.mean, strict=True))
    for label, true in truth_of(who).items():
        assert said[label] == pytest.approx(true, abs=2.5 if "age" not in label else 3.0), label
    assert posterior.withheld == 0
    text = str(model.summary())
    assert "age: mean" in text and "missing" in text and "[50, 56.25)" not in text.split("×")[0]
    assert "<table>" in model.summary()._repr_html_()
    assert model.plot().has_data() and model.plot(names=["sex"]).get_title() == "sex"
    with pytest.raises(ValueError, match="names to draw"):
        model.plot(names=["height"])
    draws = posterior.sample(2000, np.random.default_rng(1))
    np.testing.assert_allclose(draws.mean(axis=0)[0], posterior.mean[0], atol=1.0)


def test_a_value_is_missing_where_its_indicator_says_so() -> None:
    who = people(3000, seed=2)
    flagged = np.isnan(who["age"])
    who |= {"age_missing": flagged.astype(float), "age": np.where(flagged, 50.0, who["age"])}
    age = {"lower": 0, "upper": 100, "bins": 64, "indicator": True}
    model = CohortCard(variables={"age": age}).fit(SimulatedFederation(who, **FREE))
    said = dict(zip(model.posterior_.names, model.posterior_.mean, strict=True))
    assert said["age: missing"] == pytest.approx(flagged.sum(), abs=2.0)
    assert model.posterior_.columns == ("age", "age_missing")


def test_what_may_be_a_small_cell_is_not_shown() -> None:
    who = people(2000, seed=3)
    task = TASK.model_copy(update={"smallest_cell": 10})
    federation = SimulatedFederation(who, **FREE | {"epsilon": 0.5})
    posterior = federation.learn(task).posterior
    assert isinstance(posterior, CohortCardPosterior)
    assert 0 < posterior.withheld == sum(each is None for each in posterior._counts())
    counts = [each for each in posterior._counts() if each is not None]
    assert all(each.mean - 1.959 * each.sd >= 10 for each in counts)
    assert "fewer than 10" in str(posterior.summary())
    assert not any("sex: other" in name for name in posterior.names)  # 40 records, behind noise


@pytest.mark.slow
@pytest.mark.parametrize("delta", [1e-5, 0.0], ids=["gaussian", "laplace"])
def test_intervals_hold_at_least_as_often_as_they_say(delta: float) -> None:
    """Of 150 intervals at 90 % 120 hold at least, but with probability 1e-4; of no kind fewer.

    With twelve kinds of numbers a false alarm has probability .002 in all. Quantiles and means
    hold more often: their intervals take a record to be anywhere in its bin.
    """
    setting = Setting(
        population=1500, missing=3, dropouts=20, colluders=20, epsilon=1.0, delta=delta
    )
    generator = np.random.default_rng(5)
    hold: dict[str, int] = {}
    for seed in range(150):
        who = people(1500, seed)
        records = np.column_stack([who["age"], who["sex"]])
        everybody = np.ones(1500, np.bool_)
        learned = run(learner_for(TASK), records, setting, generator, there=everybody)
        posterior = learned.posterior
        ends = dict(zip(posterior.names, posterior.interval(0.9), strict=True))
        for label, true in truth_of({name: each[3:] for name, each in who.items()}).items():
            hold[label] = hold.get(label, 0) + int(ends[label][0] <= true <= ends[label][1])
    assert min(hold.values()) >= 120, hold


async def test_a_card_is_learned_over_all_services_and_its_small_cells_are_the_owners_to_hide(
    tmp_path: Path,
) -> None:
    """One site demands a smallest cell of 2; a job that asks less goes on without it."""
    trust = make_trust(tmp_path / "trust", queries=("tables",), maximum_epsilon=100.0)
    policy = HOLDER_POLICY.model_copy(update={"queries": ("tables",), "maximum_epsilon": 100.0})
    stricter = policy.model_copy(update={"smallest_cell": 2})
    holders: dict[str, Any] = {site: {"policy": policy} for site in SITES}
    holders["clinic-c"] = {"policy": stricter}
    lacking = trust.records("clinic-a")
    values = lacking.values.copy()
    values[:2, 0], values[2] = np.nan, np.nan  # two without an age, and one without a record
    holders["clinic-a"] |= {"records": replace(lacking, values=values)}
    variables = (
        NumberVariable(name="age", lower=0, upper=120, bins=4),
        NumberVariable(name="pressure", lower=60, upper=200, bins=4),
    )
    async with Federation(trust, tmp_path / "services", holders=holders) as federation:
        sizes = []
        for smallest in (2, 0):
            task = CohortCardTask(variables=variables, smallest_cell=smallest)
            job = await federation.submit(task=task, epsilon=45.0)
            assert (await federation.finish(job))["phase"] == "finished"
            report = await federation.report(job)
            sizes += [*report.cohort_sizes]
            if smallest:
                numbers = dict(zip(report.posterior.names, report.posterior.mean, strict=True))
                ends = dict(
                    zip(report.posterior.names, report.posterior.interval(0.999), strict=True)
                )
                assert ends["records"][0] <= 13 <= ends["records"][1]
                assert numbers["records"] == pytest.approx(13, abs=3.0)
    assert sizes == [14, 12]


BINS = 16


def example(widths, seed=1):
    """Return noisy nested histograms and a total; mean and covariance of bins and missing."""
    generator = np.random.default_rng(seed)
    truth = generator.poisson(20, BINS + 1).astype(float)
    rows, sds, histograms = [], [], []
    for width, sd in zip(widths, (3.0, 2.0, 5.0), strict=False):
        nodes = np.zeros((BINS // width + 1, BINS + 1))
        nodes[:-1, :-1] = np.repeat(np.eye(BINS // width), width, axis=1)
        nodes[-1, -1] = 1.0
        counts = nodes @ truth + generator.normal(0.0, sd, len(nodes))
        histograms.append((np.arange(0.0, BINS + 1.0, width), counts, sd))
        rows.append(nodes)
        sds.append(np.full(len(nodes), sd))
    total, total_sd = truth.sum() + 1.1, 1.5
    design = np.vstack([*rows, np.ones((1, BINS + 1))]) / np.append(np.hstack(sds), 1.5)[:, None]
    seen = np.append(np.hstack([counts for _, counts, _ in histograms]), total)
    covariance = np.linalg.inv(design.T @ design)
    mean = covariance @ design.T @ (seen / np.append(np.hstack(sds), 1.5))
    return nested(histograms, total, total_sd), mean, covariance


@pytest.mark.parametrize("widths", [(1,), (4, 1), (4, 2, 1), (8, 2, 1)])
def test_nested_histograms_are_fitted_as_by_matrices(widths):
    (law, missing), mean, covariance = example(widths)
    np.testing.assert_allclose(law.bins, mean[:-1])
    assert missing.mean == pytest.approx(mean[-1])
    assert missing.sd == pytest.approx(np.sqrt(covariance[-1, -1]))
    within = covariance[:-1, :-1]
    for weights in np.random.default_rng(2).normal(size=(5, BINS)):
        assert law.sd(weights) == pytest.approx(np.sqrt(weights @ within @ weights))
    assert law.present.mean == pytest.approx(mean[:-1].sum())
    assert law.present.sd == pytest.approx(np.sqrt(within.sum()))
    for share in (0.1, 0.5, 0.93):
        rows = (np.arange(BINS) < np.arange(BINS + 1)[:, None]) - share
        sds = np.sqrt(np.sum(rows @ within * rows, axis=1))
        due = quantile_points(law.edges, rows @ mean[:-1], sds)
        np.testing.assert_allclose(law.points(share), due)


def test_without_noise_a_quantile_lies_in_its_bin():
    edges = np.array([0.0, 1.0, 2.0, 4.0, 8.0])
    below = np.array([-5.0, -1.0, 3.0, 3.0, 5.0])
    points = quantile_points(edges, below, np.full(5, 1e-9))
    assert points[len(REACHES) // 2] == pytest.approx(1.25)
    assert (points[0], points[-1]) == (1.0, 2.0)


def test_ends_of_a_quantile_widen_with_noise_up_to_the_outer_edges():
    edges = np.arange(9.0)
    below = np.linspace(-40.0, 40.0, 9)
    points = np.array(quantile_points(edges, below, np.full(9, 8.0)))
    assert np.all(np.diff(points) >= 0.0) and points[0] == 0.0 and points[-1] == 8.0
    one = (len(REACHES) // 2) + np.array([-4, 4])  # one standard deviation, .8 bins
    assert points[one].tolist() == [3.0, 5.0]
