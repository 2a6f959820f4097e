"""The methods as published: their formulas, their search, and what they really spend."""

import math
from dataclasses import replace

import numpy as np
import pytest

from figures.published import METHODS, Setting, classical_sd, fit, moment_sensitivity
from figures.published_search import GRID, summed_scores

SETTING = Setting(
    epsilon=1.0,
    delta=1e-4,
    assumed=(7.5, 7.5),
    unclipped=(5.0, 5.0),
    first_round_of_ta=(5.0, 5.0),
    thresholds=(0.4, 0.5),
    capped=True,
)


def test_the_published_sensitivity_counts_squares_once_and_products_twice():
    bounds = np.array([0.5, 2.0, 3.0])
    expected = 0.5**4 + 2.0**4 + (2 * 0.5 * 2) ** 2 + (2 * 0.5 * 3) ** 2 + (2 * 2 * 3) ** 2
    assert moment_sensitivity(bounds) == pytest.approx(math.sqrt(expected))


def test_without_noise_to_speak_of_the_methods_without_projection_are_exact():
    generator = np.random.default_rng(1)
    x = generator.uniform(-4.0, 4.0, (400, 3))
    rows = np.column_stack([x, x @ [0.3, -0.2, 0.5] + 0.1 * generator.standard_normal(400)])
    found = fit(rows, replace(SETTING, epsilon=1e9), generator)
    assert set(found) == set(METHODS)
    for method in ("ta", "ddp", "input_perturbation"):
        assert found[method] == pytest.approx(found["np"], abs=1e-4)
    assert found["proj_np"] == pytest.approx(found["proj_ddp"], abs=1e-4)
    assert found["proj_ta"] != pytest.approx(found["np"], abs=1e-3)  # thresholds bias it


@pytest.mark.slow
def test_noise_is_that_of_equation_1_and_grows_with_the_clients_under_input_perturbation():
    # Rows of zeros, and noise far below the prior: coefficients are the noise of X'y itself.
    rows, epsilon = np.zeros((100, 3)), 1e7
    generator = np.random.default_rng(2)
    sd = classical_sd(moment_sensitivity(np.full(3, 5.0)), epsilon=epsilon, delta=1e-4)
    draws = [fit(rows, replace(SETTING, epsilon=epsilon), generator) for _ in range(2000)]
    for method, factor in (("ta", 1.0), ("ddp", math.sqrt(100 / 99)), ("input_perturbation", 10.0)):
        found = np.std([each[method] for each in draws])
        # 4000 values, standard error 1.1 %: outside 6 % is a 5-sigma event. Fixed seed.
        assert found == pytest.approx(factor * sd, rel=0.06)


def one_by_one(x: np.ndarray, y: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Return what `summed_scores` returns, one fit after another, by the description."""
    features = x.shape[1]
    total = np.zeros((len(GRID), len(GRID)))
    for draw in noise:
        symmetric = np.tril(draw[:, :-1]) + np.tril(draw[:, :-1], -1).T
        for i, w_x in enumerate(GRID):
            for j, w_y in enumerate(GRID):
                c_x, c_y = w_x * x.std(ddof=1), w_y * y.std(ddof=1)
                cut, target = np.clip(x, -c_x, c_x), np.clip(y, -c_y, c_y)
                sensitivity = moment_sensitivity(np.array([c_x] * features + [c_y]))
                gram = cut.T @ cut + sensitivity**4 * symmetric + np.eye(features)
                fitted = np.linalg.solve(gram, cut.T @ target + sensitivity**4 * draw[:, -1])
                total[i, j] -= np.abs(x @ fitted - y).mean()
    return total


def test_the_batched_search_scores_as_one_fit_after_another_would():
    generator = np.random.default_rng(3)
    x, y = generator.standard_normal((60, 2)), generator.standard_normal(60)
    noise = 3.0 * generator.standard_normal((2, 2, 3))
    found = summed_scores(x, y, noise, "absolute_error")
    assert found == pytest.approx(one_by_one(x, y, noise))
