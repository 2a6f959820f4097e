"""Verdicts on columns and targets that are not what the analyst takes them for.

Thresholds are far from what is asserted here: no test fails by chance once in a thousand runs.
"""

from itertools import product
from typing import Any

import numpy as np
import pytest

from shoal import SimulatedFederation
from shoal.estimators import (
    GammaRegression,
    LinearRegression,
    LogisticRegression,
    MultinomialRegression,
)
from shoal_studies.registry import learner_for
from shoal_studies.simulation import Federation, run

AGE, WAGE, SCHOOL = (16.0, 95.0), (0.0, 60.0), (0.0, 20.0)
MONTHS = (192.0, 1140.0)


def workers(count: int = 4000) -> dict[str, np.ndarray]:
    """Return workers as a survey has them: lopsided ages and wages, years of school, and sex."""
    generator = np.random.default_rng(1)
    age = np.clip(16.0 + generator.gamma(3.0, 7.5, count), 16.0, 95.0)
    school = np.clip(generator.normal(13.0, 3.0, count), 0.0, 20.0)
    wage = (3.0 + 0.6 * school + 0.15 * age) * generator.gamma(9.0, 1 / 9, count)
    return {
        "age": age,
        "school": school,
        "wage": wage,
        "male": generator.integers(0, 2, count).astype(float),
        "sex": 1.0 + (generator.random(count) < 0.1),
    }


def there(seed: int = 1, epsilon: float = 2.0, **columns: np.ndarray) -> SimulatedFederation:
    return SimulatedFederation(
        {**workers(), **columns},
        epsilon=epsilon,
        delta=1e-5,
        dropouts=20,
        colluders=20,
        seed=seed,
    )


@pytest.mark.parametrize("kind", [LinearRegression, LogisticRegression, GammaRegression])
def test_a_column_in_another_unit_is_doubted(kind: Any) -> None:
    target = {"male": (0, 1)} if kind is LogisticRegression else {"wage": WAGE}
    plain = kind(features={"school": SCHOOL, "age": AGE}, target=target).fit(there(1))
    assert "at or beyond its bound" not in plain.verdict_
    model = kind(features={"school": SCHOOL, "age": MONTHS}, target=target).fit(there(1))
    assert model.verdict_.startswith("doubtful: age: nearly all values are at or beyond its bound")
    assert "its bound 192: is the unit right?" in model.verdict_


@pytest.mark.parametrize("target", ["age", "wage", "school"])
def test_a_logistic_regression_of_a_quantity_is_refused(target: str) -> None:
    model = LogisticRegression(features={"male": (0, 1)}, target={target: (0, 60)})
    with pytest.raises(ValueError, match=f"'{target}' has .* values in the records"):
        model.fit(there())
    halves = np.where(workers()["wage"] > 15.0, 60.0, 0.0)
    assert (
        "neither" not in model.set_params(target={"half": (0, 60)}).fit(there(half=halves)).verdict_
    )


def test_a_target_that_is_not_of_two_classes_is_doubted() -> None:
    """As a federation has it that is not here: its records are looked at by nobody."""
    rows = workers()
    setting = Federation(
        population=4000, dropouts=20, colluders=20, epsilon=1.0, delta=1e-5, missing=0
    )
    for target, bounds, is_doubted in (("wage", WAGE, True), ("male", (0, 1), False)):
        model = LogisticRegression(features={"age": AGE}, target={target: bounds})
        records = np.column_stack([rows["age"], rows[target]])
        generator = np.random.default_rng(1)
        found: Any = run(learner_for(model.to_task()), records, setting, generator).posterior
        said = f"many values of {target} are neither"
        assert (said in str(found.verdict)) == is_doubted


def elsewhere(model: Any, columns: dict[str, np.ndarray], *, seed: int, epsilon: float) -> Any:
    """Return the posterior of a federation whose records nobody looks at."""
    task = model.to_task()
    setting = Federation(
        population=len(next(iter(columns.values()))),
        dropouts=20,
        colluders=20,
        epsilon=epsilon,
        delta=1e-5,
        missing=0,
    )
    records = np.column_stack([columns[name] for name in task.column_names])
    return run(learner_for(task), records, setting, np.random.default_rng(seed)).posterior


def test_classes_coded_1_and_2_are_refused_here_and_doubted_elsewhere() -> None:
    model = LogisticRegression(features={"age": AGE}, target={"sex": (0, 1)})
    with pytest.raises(ValueError, match=r"'sex' is 2 .* coded 0 and 1: give the values of both"):
        model.fit(there(1))
    posterior = elsewhere(model, workers(), seed=1, epsilon=2.0)
    assert str(posterior.verdict) == (
        "doubtful: nearly all records are of one class of sex: is it coded 0 and 1, as its bounds "
        "are?"
    )


def test_weights_in_pounds_for_kilograms_are_doubted_with_what_may_be_wrong() -> None:
    generator = np.random.default_rng(11)
    pounds = 2.2046 * generator.normal(71.0, 15.0, 1500)
    columns = {"weight": pounds, "gain": generator.normal(2.5, 8.0, 1500) - 0.05 * (pounds - 156.0)}
    model = LinearRegression(features={"weight": (35, 150)}, target={"gain": (-40, 40)})
    posterior = elsewhere(model, columns, seed=1, epsilon=3.0)
    assert (
        "weight: a large share of the values is at or beyond its bound 150, and was cut to it: is "
        "the unit right, or are wider bounds due?"
    ) in str(posterior.verdict)


def test_a_rare_indicator_is_not_told_to_take_its_logarithm() -> None:
    generator = np.random.default_rng(5)
    rare, age = (generator.random((2, 1000)) < [[0.002], [0.5]]).astype(float)
    ill = (generator.random(1000) < 0.2 + 0.4 * age).astype(float)
    model = LogisticRegression(features={"rare": (0, 1), "age": (0, 1)}, target={"ill": (0, 1)})
    for seed in range(4):
        posterior = elsewhere(model, {"rare": rare, "age": age, "ill": ill}, seed=seed, epsilon=1.0)
        verdict = str(posterior.verdict)
        assert "logarithm" not in verdict and "bound" not in verdict


def classes_of(slope: float, seed: int) -> tuple[dict[str, np.ndarray], float]:
    """Return records of three classes, each favoured by a feature, and the accuracy of the best."""
    generator = np.random.default_rng([66, seed])
    features = generator.normal(size=(4000, 3))
    shares = np.exp(slope * features)
    shares /= shares.sum(axis=1, keepdims=True)
    places = (shares.cumsum(axis=1) < generator.random((4000, 1))).sum(axis=1)
    columns = {f"x{place}": features[:, place] for place in range(3)}
    return columns | {"stage": np.array(["a", "b", "c"])[places]}, float(shares.max(axis=1).mean())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slope", "accuracy", "is_doubted"),
    [(1.5, 0.68, False), (2.0, 0.75, False), (12.0, 0.95, True)],
)
def test_classes_are_nearly_apart_only_where_hardly_a_record_is_mistaken(
    slope: float, accuracy: float, is_doubted: bool
) -> None:
    """Intervals hold at a slope of 2, where the standard deviation of a logit is 2.8."""
    truth, held = slope * np.array([[-1.0, 1.0, 0.0], [-1.0, 0.0, 1.0]]), []
    for seed in range(6 if slope == 2.0 else 2):
        columns, best = classes_of(slope, seed)
        assert best == pytest.approx(accuracy, abs=0.02)
        model = MultinomialRegression(
            features={f"x{place}": (-4, 4) for place in range(3)},
            target={"stage": ("a", "b", "c")},
        ).fit(
            SimulatedFederation(
                columns, epsilon=3.0, delta=1e-5, dropouts=20, colluders=20, seed=seed
            )
        )
        assert ("the classes are nearly apart" in model.verdict_) == is_doubted
        low, high = model.posterior_.interval(0.9).reshape(2, 4, 2)[:, 1:].transpose(2, 0, 1)
        held.append((low <= truth) & (truth <= high))
    assert is_doubted or np.mean(held) >= 0.75


def weakly_explained(features: int, share: float, seed: int) -> tuple[Any, float]:
    """Return a fit of 600 records of which `share` is explained, and its error over the mean's."""
    generator = np.random.default_rng([features, int(100 * share), seed])
    mixing = np.eye(features) + 0.3 * generator.normal(size=(features, features))
    covariance, slopes = mixing.T @ mixing, generator.normal(size=features)
    slopes *= np.sqrt(share / (1.0 - share) / (slopes @ covariance @ slopes))
    rows = generator.normal(size=(600, features)) @ mixing
    columns = {f"x{place}": column for place, column in enumerate(rows.T)}
    reach = 4.0 * float(np.sqrt(np.diagonal(covariance)).max())
    model = LinearRegression(
        features={name: (-reach, reach) for name in columns}, target={"y": (-5, 5)}
    )
    columns["y"] = rows @ slopes + generator.normal(size=600)
    posterior = elsewhere(model, columns, seed=seed, epsilon=(0.5, 1.0, 3.0)[seed % 3])
    away = posterior.mean[1:] - slopes
    error = float(away @ covariance @ away + posterior.mean[0] ** 2)
    return posterior, error / float(slopes @ covariance @ slopes)


@pytest.mark.slow
def test_fits_that_are_trusted_predict_better_than_the_mean() -> None:
    """Of 167 trusted fits of 540 such sets 3 % did not, where 18 % did not without the rule.

    The seeds are fixed.
    """
    trusted = []
    for features, share, seed in product((1, 3, 8), (0.03, 0.1, 0.3), range(24)):
        posterior, error = weakly_explained(features, share, seed)
        if posterior.verdict.kind == "trustworthy":
            trusted.append(error < 1.0)
    assert len(trusted) >= 50 and np.mean(trusted) >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("kind", [LinearRegression, LogisticRegression])
def test_sites_with_few_records_are_no_reason_to_doubt_where_sites_are_pooled(kind: Any) -> None:
    """Of the effects of 20 sites with 0 to 500 records 90 % hold: 16 of 20 and more, five times."""
    held = []
    for seed in range(5):
        generator = np.random.default_rng([20, seed])
        places = generator.choice(20, 2000, p=generator.dirichlet(np.ones(20)))
        effects, dose = generator.normal(0.0, 0.6, 20), generator.integers(0, 2, 2000)
        means = 0.7 * dose - 0.5 + effects[places]
        if kind is LogisticRegression:
            target, bounds = (generator.random(2000) < 1.0 / (1.0 + np.exp(-means))) * 1.0, (0, 1)
        else:
            target, bounds = means + generator.normal(size=2000), (-5, 5)
        levels = tuple(f"s{place:02d}" for place in range(20))
        there = SimulatedFederation(
            {"dose": dose * 1.0, "site": np.array(levels)[places], "y": target},
            epsilon=10.0,
            delta=1e-5,
            dropouts=20,
            colluders=20,
            seed=seed,
        )
        model = kind(
            formula="y ~ dose + C(site)",
            variables={"y": bounds, "dose": (0, 1), "site": levels},
            pooled="site",
        ).fit(there)
        assert "site" not in model.verdict_
        low, high = model.posterior_.pooled_effects.interval(0.9).T
        about = np.roll(effects - effects.mean(), -1)  # the reference is shown last
        held.append(np.mean((low <= about) & (about <= high)))
    assert np.mean(held) >= 0.8
