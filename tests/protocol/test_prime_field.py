"""Arithmetic modulo 2**61 - 1 on vectors agrees with Python's integers, at the edges too."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_protocol.sharing import shamir
from shoal_protocol.sharing.shamir import LARGEST_INTEGER, MODULUS

EDGES = [0, 1, 2, 2**29, 2**32 - 1, 2**32, 2**60, MODULUS // 2, MODULUS - 2, MODULUS - 1]
residues = st.sampled_from(EDGES) | st.integers(0, MODULUS - 1)


def as_vector(values: list[int]) -> np.ndarray:
    return np.array(values, np.uint64)


def test_the_modulus_is_a_prime_by_the_lucas_lehmer_test() -> None:
    value = 4
    for _ in range(59):
        value = (value * value - 2) % MODULUS
    assert value == 0
    assert MODULUS == 2**shamir.MODULUS_BITS - 1


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1))
def test_any_word_is_reduced_exactly(values: list[int]) -> None:
    reduced = shamir.reduced(as_vector(values))
    assert reduced.tolist() == [value % MODULUS for value in values]


@given(st.lists(residues, min_size=1, max_size=30), residues | st.integers(-MODULUS, 3 * MODULUS))
def test_products_with_a_constant_are_those_of_integers(values: list[int], constant: int) -> None:
    products = shamir.times(as_vector(values), constant)
    assert products.tolist() == [value * constant % MODULUS for value in values]


@pytest.mark.parametrize("one", EDGES)
@pytest.mark.parametrize("other", EDGES)
def test_arithmetic_at_the_edges_is_exact(one: int, other: int) -> None:
    a, b = as_vector([one]), as_vector([other])
    assert shamir.plus(a, b).tolist() == [(one + other) % MODULUS]
    assert shamir.minus(a, b).tolist() == [(one - other) % MODULUS]
    assert shamir.times(a, other).tolist() == [one * other % MODULUS]


@given(st.lists(st.integers(-LARGEST_INTEGER, LARGEST_INTEGER), min_size=1))
def test_integers_come_back_from_the_field(values: list[int]) -> None:
    encoded = shamir.to_field(np.array(values, np.int64))
    assert encoded.tolist() == [value % MODULUS for value in values]
    assert shamir.from_field(encoded).tolist() == values


@pytest.mark.parametrize("value", [LARGEST_INTEGER + 1, -LARGEST_INTEGER - 1, 2**63 - 1, -(2**63)])
def test_an_integer_that_has_no_residue_of_its_own_is_refused(value: int) -> None:
    with pytest.raises(ValueError, match="too large"):
        shamir.to_field(np.array([0, value], np.int64))


@given(st.sets(st.integers(0, 300), min_size=1, max_size=8), st.integers(0, 300), st.data())
def test_lagranges_weights_give_a_polynomials_value_anywhere(points, x, data) -> None:
    coefficients = data.draw(st.lists(residues, min_size=len(points), max_size=len(points)))

    def value(at: int) -> int:
        return sum(each * at**power for power, each in enumerate(coefficients)) % MODULUS

    weights = shamir.weights_at(x, points)
    found = sum(weight * value(at) for weight, at in zip(weights, points, strict=True))
    assert found % MODULUS == value(x)
