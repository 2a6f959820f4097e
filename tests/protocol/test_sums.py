"""A total that the query and its noise cannot make is told from one that they can."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_protocol.rounds.outcomes import FALSE_ALARM, is_possible
from tests.world import examples

SPEC = examples.spec(query=examples.MATRIX.model_copy(update={"radius": 0.75}))
COHORT = SPEC.minimum_cohort


def limits(cohort_size: int) -> np.ndarray:
    """Return the largest magnitude of each coordinate, shape (d,), written out coordinate-wise."""
    return np.array(
        [
            cohort_size * SPEC.query.largest_value
            + math.ceil(
                part.tail(clients=cohort_size, dimension=SPEC.dimension, failure=FALSE_ALARM)
            )
            for coordinates, part in SPEC.noise_blocks()
            for _ in range(coordinates)
        ],
        np.int64,
    )


@given(signs=st.lists(st.sampled_from([-1, 1]), min_size=SPEC.dimension, max_size=SPEC.dimension))
def test_a_total_at_its_limits_is_possible(signs: list[int]) -> None:
    assert is_possible(SPEC, limits(COHORT) * np.array(signs), cohort_size=COHORT)


@given(
    coordinate=st.integers(0, SPEC.dimension - 1),
    value=st.integers(-(2**63), 2**63 - 1),
    cohort_size=st.integers(SPEC.minimum_cohort, SPEC.population_size),
)
def test_one_coordinate_decides(coordinate: int, value: int, cohort_size: int) -> None:
    total = np.zeros(SPEC.dimension, np.int64)
    total[coordinate] = value
    possible = is_possible(SPEC, total, cohort_size=cohort_size)
    assert possible == (abs(value) <= limits(cohort_size)[coordinate])


@pytest.mark.parametrize("coordinate", range(SPEC.dimension))
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_coordinate_beyond_its_limit_is_not_possible(coordinate: int, sign: int) -> None:
    total = np.zeros(SPEC.dimension, np.int64)
    total[coordinate] = sign * (limits(COHORT)[coordinate] + 1)
    assert not is_possible(SPEC, total, cohort_size=COHORT)
    total[coordinate] = -(2**63)  # has no magnitude in 64 bits
    assert not is_possible(SPEC, total, cohort_size=COHORT)


def test_what_an_attack_on_the_modulus_can_slip_through_is_what_the_page_says() -> None:
    """A random residue passes with probability (2 limit + 1) / 2^64, at most a quarter."""
    assert all(2 * int(limit) + 1 <= 2**62 for limit in limits(SPEC.population_size))


def test_another_dimension_is_the_callers_fault() -> None:
    with pytest.raises(ValueError, match="coordinates"):
        is_possible(SPEC, np.zeros(SPEC.dimension + 1, np.int64), cohort_size=COHORT)
