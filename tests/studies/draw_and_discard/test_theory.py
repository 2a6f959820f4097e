"""Theorem 1, Lemma 1 and what a pull does, against chains that know none of the formulas.

Seeds are fixed. Each comparison is with a mean of R independent replicates, whose standard error is
known or estimated; a limit of 4.5 of them is passed by chance in fewer than 1 of 10,000 seeds, with
room for tails heavier than the normal's. About 45 comparisons: all hold for 995 of 1000 seeds.
"""

import math

import numpy as np
import pytest

from figures.draw_and_discard.chains import Moments, noisy_instances
from figures.draw_and_discard.theorems import (
    pulled,
    pulled_spread,
    squared_error_after_turn,
)
from shoal_studies.crowds.theory import Contraction

LIMIT = 4.5


def laplace(generator: np.random.Generator, variance: float = 1.0):
    return lambda count: generator.laplace(0.0, math.sqrt(variance / 2.0), count)


def chain(seed: int, *, variance: float = 1.0, **arguments) -> Moments:
    generator = np.random.default_rng(seed)
    return noisy_instances(noise=laplace(generator, variance), generator=generator, **arguments)


def assert_mean(values: np.ndarray, expected: float, error: float | None = None) -> None:
    """Check that replicates' mean is within 4.5 standard errors, given or estimated, of it."""
    if error is None:
        error = float(np.std(values)) / math.sqrt(len(values))
    assert abs(float(np.mean(values)) - expected) < LIMIT * error


@pytest.mark.parametrize(
    ("k", "pull", "touched"),
    [(1, 0.2, 1.0), (5, 0.5, 1.0), (10, 0.05, 1.0), (20, 0.2, 1.0), (5, 0.1, 0.2), (1, 0.1, 0.25)],
)
def test_a_pull_holds_instances_their_mean_and_their_spread_where_the_formulas_say(
    k, pull, touched
):
    learning = Contraction(instances=k, update_variance=1.0, pull=pull, touched=touched)
    updates = math.ceil(6 * max(k * k / 2, k / pull))
    found = chain(
        10 * k,
        variance=1.0 / touched,
        instances=k,
        replicates=6000,
        updates=[updates],
        pull=pull,
        touched=touched,
    )
    assert_mean(found.square[0], learning.instance_variance)
    assert_mean(found.mean[0] ** 2, learning.averaged_variance)
    if k > 1:
        assert_mean(found.spread[0], pulled_spread(learning))


@pytest.mark.parametrize(("k", "touched"), [(1, 1.0), (10, 1.0), (10, 0.25)])
def test_the_averaged_models_error_is_known_after_any_number_of_updates(k: int, touched: float):
    learning = Contraction(instances=k, update_variance=0.1, pull=0.1, touched=touched)
    found = chain(
        k,
        variance=0.1 / touched,
        instances=k,
        replicates=6000,
        updates=[1, 30, 150],
        pull=0.1,
        touched=touched,
        start=3.0,
    )
    for updates, mean in zip(found.updates, found.mean, strict=True):
        assert_mean(mean**2, learning.squared_error_after(updates, start_error=3.0))
        assert_mean(mean, 3.0 * pulled(learning, updates))


@pytest.mark.parametrize(("k", "touched"), [(1, 1.0), (10, 0.25)])
def test_a_turn_of_the_truth_is_forgotten_at_the_pulls_rate_beside_the_noise(k, touched):
    # a turn is a common displacement of instances that had settled
    learning = Contraction(instances=k, update_variance=0.1, pull=0.1, touched=touched)
    settled = math.ceil(6 * max(k * k / 2, k / 0.1))
    found = chain(
        3,
        variance=0.1 / touched,
        instances=k,
        replicates=6000,
        updates=[settled + each for each in (0, 30, 150)],
        pull=0.1,
        touched=touched,
        turn=(settled, 2.0),
    )
    for since, mean in zip((0, 30, 150), found.mean, strict=True):
        assert_mean(mean, 2.0 * pulled(learning, since))
        assert_mean(mean**2, squared_error_after_turn(learning, since, turn=2.0))


@pytest.mark.parametrize(("k", "waiting"), [(2, 1), (5, 200), (20, 20), (100, 7)])
@pytest.mark.parametrize("pull", [0.001, 0.1, 1.0])
def test_the_means_variance_solves_the_equations_of_its_covariances(
    k: int, waiting: int, pull: float
):
    """c_0 = M/k + (1 - 1/k)(1 - pull) c_m and c_(d+1) = (1 - 1/k) c_d + (1 - pull)/k c_(m-d)."""
    learning = Contraction(instances=k, update_variance=1.0, pull=pull, open_sessions=waiting)
    equations, right = np.eye(waiting + 1), np.zeros(waiting + 1)
    equations[0, waiting] -= (1.0 - 1.0 / k) * (1.0 - pull)
    right[0] = learning.instance_variance / k
    for lag in range(waiting):
        equations[lag + 1, lag] -= 1.0 - 1.0 / k
        equations[lag + 1, waiting - lag] -= (1.0 - pull) / k
    expected = float(np.linalg.solve(equations, right)[0])
    assert learning.averaged_variance == pytest.approx(expected, rel=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(("k", "waiting"), [(1, 10), (10, 15), (10, 4)])
def test_learning_waits_for_open_sessions_as_if_they_were_instances(k: int, waiting: int):
    pull, updates = 0.02, 1500
    learning = Contraction(instances=k, update_variance=0.01, pull=pull, open_sessions=waiting)
    at_once = Contraction(instances=k, update_variance=0.01, pull=pull)
    found = chain(
        6,
        variance=0.01,
        instances=k,
        replicates=2000,
        updates=[updates, 6000],
        pull=pull,
        start=1.0,
        open_sessions=waiting,
    )
    # The formulas are of first order in the pull: a few hundredths may be missing.
    scatter = LIMIT * float(found.mean[0].std()) / math.sqrt(2000)
    left = pulled(learning, updates)
    assert abs(float(found.mean[0].mean()) - left) < scatter + 0.03 * left
    assert left > 1.5 * pulled(at_once, updates)
    for square, expected in [
        (found.mean[0] ** 2, learning.squared_error_after(updates, start_error=1.0)),
        (found.mean[1] ** 2, learning.averaged_variance),
        (found.square[1], learning.instance_variance),
    ]:
        scatter = LIMIT * float(square.std()) / math.sqrt(2000)
        assert abs(float(square.mean()) - expected) < scatter + 0.05 * expected
    if k > 1:
        scatter = LIMIT * float(found.spread[1].std()) / math.sqrt(2000)
        expected = pulled_spread(learning)
        assert abs(float(found.spread[1].mean()) - expected) < scatter + 0.05 * expected
        assert learning.averaged_variance < at_once.averaged_variance
