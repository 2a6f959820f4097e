"""What later noise hides: against integrals, convolutions and published figures, never below them.

`convolve` sums the discrete Laplace noise that clients draw, integer by integer.
"""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from figures.draw_and_discard.convolution import (
    LATTICE_FAILURE,
    laplace_sum_delta,
    laplace_sum_epsilon,
    lattice_shift,
)
from figures.draw_and_discard.later_noise import (
    epsilon_t_table,
)

DELTA = 1e-5
# {epsilon: {T: (the paper's formula, exact)}}, by a Fourier transform of the variance-gamma law
BY_TRANSFORM = {
    1.0: {10: (0.7355, 0.6036), 100: (0.2326, 0.2248), 1000: (0.0736, 0.0661)},
    4.0: {30: (1.699, 1.760), 100: (0.9304, 1.0094)},
    8.0: {100: (1.861, 2.158)},
}


def convolve(scale: float, additions: int) -> np.ndarray:
    """Return the masses of the sum of discrete Laplace noises, centred, to below 1e-17 of mass."""
    reach = math.ceil(45.0 * scale)
    one = np.exp(-np.abs(np.arange(-reach, reach + 1)) / scale)
    one /= one.sum()
    total = one
    for _ in range(additions - 1):
        total = np.convolve(total, one)
    return total


def delta_by_masses(masses: np.ndarray, shift: int, epsilon: float) -> float:
    """Return sup over events of Q(A) - e^epsilon P(A): the sum of all positive differences."""
    wide = np.pad(masses, (0, shift))
    moved = np.pad(masses, (shift, 0))
    return float(np.sum(np.maximum(moved - math.exp(epsilon) * wide, 0.0)))


def test_the_table_at_one_in_a_hundred_thousand_is_that_of_another_method() -> None:
    for epsilon, of_noises in BY_TRANSFORM.items():
        for additions, (paper, exact) in of_noises.items():
            found = epsilon_t_table([epsilon], [additions], delta=DELTA)[epsilon][additions]
            assert found["paper"] == pytest.approx(paper, rel=1e-3)
            assert found["exact"] == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize(
    ("additions", "polynomial"),
    [(1, lambda x: 1 / 2), (2, lambda x: (1 + x) / 4), (3, lambda x: (3 + 3 * x + x * x) / 16)],
)
def test_an_integral_over_known_densities_gives_the_same_delta(
    additions: int, polynomial: Callable[[float], float]
) -> None:
    def density(x: float) -> float:
        return polynomial(abs(x)) * math.exp(-abs(x))

    def positive(x: float) -> float:
        return max(0.0, density(x - shift) - math.exp(epsilon) * density(x))

    for shift, epsilon in itertools.product((0.5, 3.0), (0.0, 0.4)):
        by_integral = sum(
            quad(positive, low, high, limit=500, epsabs=1e-13)[0]
            for low, high in itertools.pairwise([0.0, shift / 2, shift, shift + 5.0, 60.0])
        )
        found = laplace_sum_delta(epsilon=epsilon, shift=shift, additions=additions)
        assert found == pytest.approx(by_integral, rel=1e-7, abs=2e-9)


@settings(deadline=None, max_examples=40)
@given(
    scale=st.floats(2.0, 40.0),
    relative_shift=st.floats(0.2, 8.0),
    additions=st.integers(1, 12),
    share=st.floats(0.0, 1.0),
)
def test_noise_on_the_lattice_never_costs_more_than_the_shift_that_covers_it(
    scale: float, relative_shift: float, additions: int, share: float
) -> None:
    shift = max(1, round(scale * relative_shift))
    epsilon = share * shift / scale
    exact = delta_by_masses(convolve(scale, additions), shift, epsilon)
    covering = lattice_shift(shift=shift, scale=scale, additions=additions)
    failure = LATTICE_FAILURE * (1.0 + math.exp(epsilon))
    bound = laplace_sum_delta(epsilon=epsilon, shift=covering, additions=additions) + failure
    assert exact <= bound + 1e-13
    # continuous noise is the lattice's and more, so it hides at least as well
    continuous = laplace_sum_delta(epsilon=epsilon, shift=shift / scale, additions=additions)
    assert continuous <= exact * (1.0 + 1e-7) + 1e-13


@settings(deadline=None, max_examples=30)
@given(shift=st.floats(0.1, 8.0), additions=st.integers(1, 400), delta=st.floats(1e-9, 0.1))
def test_an_epsilon_holds_at_its_delta_and_hardly_less_does(
    shift: float, additions: int, delta: float
) -> None:
    found = laplace_sum_epsilon(delta=delta, shift=shift, additions=additions)
    assert laplace_sum_delta(epsilon=found, shift=shift, additions=additions) <= delta
    assert found <= shift
    if found > 1e-6:
        less = found * (1.0 - 1e-6)
        assert laplace_sum_delta(epsilon=less, shift=shift, additions=additions) > delta
