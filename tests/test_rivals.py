"""What the benchmark of regressions calls a miss, and that its rivals are private and right."""

import math

import numpy as np
import pytest

from bench.regressions import figures, is_worse_than_the_mean, made_up, misses
from figures.ada_ssp import ada_ssp
from shoal_protocol.privacy.accounting import Cap

SLOPES, ERRORS = np.array([1.0, -2.0]), np.array([0.1, 0.2])
ROWS = {"is plain": True, "epsilon": 3.0, "worse": 0.0}


def missed(off: np.ndarray, sd: float, verdicts: list[str], **other: object) -> list[str]:
    """Return the misses of fits that are `off`, shape (k, 2), and whose slopes have so much sd."""
    means = SLOPES + off * ERRORS
    ends = means[..., None] + 1.6449 * sd * ERRORS[:, None] * np.array([-1.0, 1.0])
    found = figures(SLOPES, ERRORS, means, ends, np.array(verdicts))
    return misses(ROWS | found | other)


def test_only_what_the_rule_says_is_a_miss() -> None:
    off = np.random.default_rng(1).standard_normal((40, 2))
    trusted = ["trustworthy"] * 40
    assert missed(off, 1.0, trusted) == []
    assert missed(off, 0.3, trusted) == ["held", "worst"]
    assert missed(off, 0.5, ["doubtful"] * 40) == ["not trusted"]
    assert missed(off, 0.5, ["doubtful"] * 40, epsilon=1.0) == []
    assert missed(off, 5.0, trusted) == ["too wide"]
    assert missed(off, 1.0, trusted, worse=0.1) == ["worse than the mean"]
    one_slope = off * np.array([0.1, 4.0])
    assert missed(one_slope, 1.0, trusted) == ["held", "worst"]


def test_what_is_worse_than_the_mean_is_told_by_deviance() -> None:
    each = next(each for each in made_up() if each.name == "counts")
    level = float(np.log(each.target.mean()))
    assert not is_worse_than_the_mean(each, np.array([0.5, 0.8]))  # as they were drawn
    assert is_worse_than_the_mean(each, np.array([level + 0.1, 0.0]))
    assert is_worse_than_the_mean(each, np.array([0.5, -0.8]))


class Recorder:
    """A generator that remembers how strong each noise was."""

    def __init__(self) -> None:
        self.scales: list[float] = []

    def normal(self, _: float, scale: float, size: object = None) -> object:
        self.scales.append(scale)
        return 0.0 if size is None else np.zeros(size)  # type: ignore[call-overload]


@pytest.mark.parametrize("rounds", [1, 10])
def test_the_releases_of_a_rival_cost_what_they_may(rounds: int) -> None:
    """By replacement: of products of rows in a ball of R, and of these with what is left, +- c.

    The least eigenvalue moves by R^2 at most, the products by sqrt(2) R^2, the others by 2 R c.
    """
    generator, size, cut = Recorder(), 4, 0.5
    rows, price = np.zeros((50, size)), {"epsilon": 1.0, "delta": 1e-5}
    bounds = np.tile([-1.0, 1.0], (size, 1))
    ada_ssp(rows, bounds, generator, **price, absent=0, rounds=rounds, cut=cut)  # type: ignore[arg-type]
    least, upper, diagonal, *others = generator.scales
    assert diagonal == pytest.approx(math.sqrt(2.0) * upper)
    assert len(others) == rounds
    prices = [size / least, math.sqrt(2.0) * size / diagonal]
    prices += [2.0 * math.sqrt(size) * cut / scale for scale in others]
    assert math.hypot(*prices) <= Cap(**price).whole.mu + 1e-9
    assert math.hypot(*prices) >= 0.8 * Cap(**price).whole.mu


@pytest.mark.parametrize("rounds", [1, 10])
def test_without_noise_a_rival_is_the_exact_fit(rounds: int) -> None:
    generator = np.random.default_rng(2)
    features = generator.uniform(-1.0, 1.0, (500, 2))
    rows = np.column_stack([features, 3.0 + features @ [1.0, -0.5]])
    bounds = np.array([[-1.0, 1.0], [-1.0, 1.0], [1.0, 5.0]])
    found = ada_ssp(rows, bounds, generator, epsilon=1e6, delta=1e-5, absent=0, rounds=rounds)
    assert found == pytest.approx([3.0, 1.0, -0.5], abs=0.01)
