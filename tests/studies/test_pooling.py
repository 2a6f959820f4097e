"""A factor under one prior: what its levels' effects are, how far they spread, and how sure."""

from typing import Any

import numpy as np
import pytest

from shoal.estimators import LinearRegression, LogisticRegression, PoissonRegression
from shoal_studies.catalogue.regression import RegressionTask
from shoal_studies.regression.measured import Measured, pooled_estimate
from shoal_studies.regression.scores import NormalPrior
from shoal_studies.simulation import SimulatedFederation

SEED = 20_250_201
SLOPES = np.array([0.5, -0.3])


def names_of(count: int) -> tuple[str, ...]:
    return tuple(f"site {each:02d}" for each in range(count))


def hospitals(
    count: int, spread: float, *, seed: int, records: int = 2_000, classes: bool = False
) -> tuple[dict[str, Any], np.ndarray]:
    """Return records of sites of uneven sizes, and the sites' effects about their mean."""
    generator = np.random.default_rng([SEED, seed, count])
    effects = generator.normal(0.0, spread, count)
    site = generator.choice(count, records, p=generator.dirichlet(np.full(count, 5.0)))
    x = generator.normal(size=(records, 2))
    predictor = x @ SLOPES + effects[site]
    y = predictor + generator.normal(size=records)
    if classes:
        y = generator.binomial(1, 1.0 / (1.0 + np.exp(-predictor))).astype(float)
    frame = {"a": x[:, 0], "b": x[:, 1], "site": np.array(names_of(count))[site], "y": y}
    return frame, effects - effects.mean()


def fitted(
    kind: type[Any], frame: dict[str, Any], count: int, *, epsilon: float, seed: int, **given: Any
) -> Any:
    there = SimulatedFederation(
        frame, epsilon=epsilon, delta=1e-5, dropouts=20, colluders=20, seed=seed
    )
    features = {"a": (-5, 5), "b": (-5, 5), "site": names_of(count)}
    bounds = (0, 1) if kind is LogisticRegression else (-8, 8)
    model = kind(features=features, target={"y": bounds}, **({"pooled": "site"} | given))
    return model.fit(there).posterior_


def task(**changes: Any) -> RegressionTask:
    model = LinearRegression(
        features={"a": (-5, 5), "site": names_of(4)}, target={"y": (-8, 8)}, pooled="site"
    )
    return RegressionTask.model_validate(model.to_task().model_dump() | changes)


def test_the_estimate_is_that_of_the_hierarchical_model() -> None:
    """Against all of its effects, each with a coordinate of its own, at every spread of a grid."""
    generator = np.random.default_rng(SEED)
    site, a = generator.choice(4, 300, p=[0.1, 0.2, 0.3, 0.4]), generator.normal(size=300)
    y = 0.7 * a + np.array([-0.5, 0.1, 0.6, 0.0])[site] + generator.normal(size=300)
    levels = (site[:, None] == np.arange(1, 4)).astype(float)
    centres = np.append(0.0, levels.mean(axis=0))
    spreads = np.append(1.0, levels.std(axis=0))
    rows = np.column_stack([np.ones(300), (np.column_stack([a, levels]) - centres) / spreads])
    found = Measured(
        centres=np.append(centres, 0.0),
        spreads=np.append(spreads, 1.0),
        looseness=np.ones(5),
        shares=np.full(5, np.nan),
        one_bound=np.zeros(5),
        errors=np.zeros(5),
    )
    prior = np.array([5.0, 2.5, 2.5, 2.5, 2.5])
    whole = rows.T @ rows + np.diag(prior**-2.0)
    ours = pooled_estimate(
        task(),
        found,
        (np.linalg.solve(whole, rows.T @ y), np.linalg.inv(whole)),
        NormalPrior(np.zeros(5), np.diag(prior**-2.0)),
        shared_sds=[2.5],
        data_unit=1.0,
    )
    every = (site[:, None] == np.array([1, 2, 3, 0])).astype(float)
    design = np.column_stack([np.ones(300), a, every])
    grid, logs, means = np.array(ours.factor.spreads), [], []
    for spread in grid.tolist():
        variance = np.array([25.0, 6.25, *[spread**2] * 4])
        covariance = np.eye(300) + (design * variance) @ design.T
        solved = np.linalg.solve(covariance, y)
        logs.append(-0.5 * (y @ solved + np.linalg.slogdet(covariance)[1] + spread**2))
        means.append(variance * (design.T @ solved))
    weights = np.exp(np.array(logs) - max(logs)) * grid
    weights /= weights.sum()
    assert ours.factor.shares == pytest.approx(weights, abs=1e-6)
    exact = weights @ np.array(means)
    effects = ours.factor.effects(
        ("intercept", *(each.name for each in task().features)),
        ours.mean / np.append(1.0, spreads),
        np.eye(5),
    )
    assert ours.mean[1] == pytest.approx(exact[1], abs=1e-6)
    assert effects.mean == pytest.approx(exact[2:] - exact[2:].mean(), abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [LinearRegression, LogisticRegression])
@pytest.mark.parametrize(("count", "spread"), [(4, 0.0), (4, 1.0), (8, 0.2), (15, 0.2)])
def test_intervals_of_slopes_and_of_sites_hold(kind: type[Any], count: int, spread: float) -> None:
    """Of 30 slopes of fits at epsilon 3, were they right at .9, less than .75 would hold in 1 % of
    seeds; effects, of which there are more, are nearer. Of slopes that hold at .6 it is seen 19
    times in 20.
    """
    effects_held, slopes_held = [], []
    for seed in range(15):
        frame, effects = hospitals(count, spread, seed=seed, classes=kind is LogisticRegression)
        found = fitted(kind, frame, count, epsilon=3.0, seed=seed)
        low, high = found.pooled_effects.interval(0.9).T
        ordered = np.append(effects[1:], effects[0])
        effects_held.append(np.mean((low <= ordered) & (ordered <= high)))
        low, high = found.interval(0.9)[1:3].T
        slopes_held.append(np.mean((low <= SLOPES) & (SLOPES <= high)))
    assert np.mean(effects_held) >= 0.83, np.mean(effects_held)
    assert np.mean(slopes_held) >= 0.75, np.mean(slopes_held)


@pytest.mark.slow
def test_a_row_of_the_sample_has_one_level_of_a_variable_at_most() -> None:
    """Counts at strong levels, with little noise: else the reference has a third too many."""
    generator = np.random.default_rng([SEED, 1])
    effects = np.array([-0.8, -0.4, 0.0, 0.2, 0.4, 0.6])
    site, a = generator.integers(0, 6, 4_000), generator.normal(size=4_000)
    frame = {
        "a": a,
        "site": np.array(names_of(6))[site],
        "y": generator.poisson(2.0 * np.exp(0.3 * a + effects[site])).clip(max=40).astype(float),
    }
    there = SimulatedFederation(frame, epsilon=50.0, delta=1e-5, dropouts=5, colluders=5, seed=1)
    model = PoissonRegression(
        features={"a": (-5, 5), "site": names_of(6)}, target={"y": (0, 40)}
    ).fit(there)
    due = np.array([0.3, *(effects[1:] - effects[0])])
    assert np.all(np.abs(model.posterior_.mean[1:] - due) < 2.6 * model.posterior_.sd[1:])
    assert model.posterior_.mean[2:] == pytest.approx(due[1:], rel=0.3)
