"""The sensitivity of sums of clipped gradients: searched for, reached, and never exceeded.

Through the models that are built in, and through one whose gradients are whatever the adversary
writes into the record: no model can do worse than that.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_protocol.queries import Column, GradientSum
from shoal_protocol.queries.design import squared_radius_limit
from shoal_protocol.queries.models import (
    InstalledModel,
    LogisticRegressionModel,
)
from tests.privacy.sensitivity_search import EXTREME_FLOATS, exceeds, search

GAUSSIAN, LAPLACE = MECHANISMS = ("discrete_gaussian", "discrete_laplace")
LOGISTIC = LogisticRegressionModel(intercept=1.0)


def gradient_sum(model, columns, *, clip, records=1, grid_bits=12, point=None):
    return GradientSum(
        model=model,
        columns=tuple(Column(name=f"c{j}", centre=0.0, scale=1.0) for j in range(columns)),
        point=point or (0.0,) * model.dimension(columns),
        clip=clip,
        grid_bits=grid_bits,
        records_per_client=records,
    )


def any_model(dimension):
    return InstalledModel(
        entry_point="any", digest="0" * 64, unconstrained=dimension, normalised=True
    )


@dataclass(frozen=True)
class Chosen:
    """A query of a model whose gradients are the records, blown up: anything may come out."""

    query: GradientSum
    factor: float

    def __getattr__(self, name):
        return getattr(self.query, name)

    def encode(self, records):
        with np.errstate(over="ignore", invalid="ignore"):
            return self.query.encode(records, lambda point, rows: rows * self.factor)


CASES = [
    *((gradient_sum(LOGISTIC, 3, clip=0.5), m) for m in MECHANISMS),
    *((gradient_sum(LOGISTIC, 4, clip=0.8, records=3), m) for m in MECHANISMS),
    *((gradient_sum(LOGISTIC, 3, clip=0.5, point=(0.3, -0.2, 0.1)), m) for m in MECHANISMS),
    *((Chosen(gradient_sum(any_model(4), 4, clip=1.1), 7.0), m) for m in MECHANISMS),
    *((Chosen(gradient_sum(any_model(3), 3, clip=0.3, records=2), 1e305), m) for m in MECHANISMS),
]


@pytest.mark.slow
@pytest.mark.parametrize(("query", "mechanism"), CASES)
def test_pitfall_15_a_search_reaches_the_sensitivity_of_gradients_and_never_exceeds_it(
    query, mechanism
):
    found = search(query, mechanism, starts=7, seed=1)
    assert not found.exceeds
    whole = 2.0 * query.clip * query.grid * query.records_per_client
    if mechanism == LAPLACE:
        whole *= math.sqrt(query.dimension)
    reached = found.distance * query.design(mechanism).sensitivity / whole
    # rounding towards zero takes up to one lattice unit off each coordinate
    most_lost = math.sqrt(query.dimension) / (query.clip * query.grid)
    assert 1.0 - 2.0 * most_lost <= reached <= 1.0 + 1e-12


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("query", [query for query, _ in CASES[::2]])
def test_no_record_is_a_neighbour_of_every_record_and_has_no_gradient(query, mechanism):
    columns = len(query.columns)
    nobody = np.empty((0, columns))
    assert not query.encode(nobody).any()
    for one in (1.0, -1.0, 1e300):
        records = np.full((query.records_per_client, columns), one)
        assert not exceeds(query, mechanism, records, nobody)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("factor", [math.inf, math.nan])
def test_a_gradient_that_is_not_finite_counts_as_zero(mechanism, factor):
    query = Chosen(gradient_sum(any_model(3), 3, clip=1.0, records=2), factor)
    assert not query.encode(np.ones((2, 3))).any()
    assert not search(query, mechanism, starts=6, seed=2).exceeds


@given(
    gradient=st.lists(
        st.sampled_from(EXTREME_FLOATS) | st.floats(-1e9, 1e9), min_size=5, max_size=5
    ),
    clip=st.floats(1e-3, 1e3),
    grid_bits=st.integers(12, 20),
)
def test_no_vector_leaves_the_ball_whatever_the_gradient_is(gradient, clip, grid_bits):
    query = gradient_sum(any_model(5), 5, clip=clip, grid_bits=grid_bits)
    row = query.rows(np.zeros((1, 5)), lambda *_: np.array([gradient]))[0].tolist()
    assert sum(each * each for each in row) <= squared_radius_limit(
        radius=clip, grid_bits=grid_bits
    )
    assert sum(each * each for each in row) <= (Fraction(clip) * 2**grid_bits) ** 2
    assert all(each * sign >= 0.0 for each, sign in zip(row, gradient, strict=True))


def test_pitfall_17_rounding_does_not_push_sums_of_gradients_one_way():
    # 100 000 gradients of either sign: the mean of their rounding errors within 5 standard errors
    # of zero on each of four coordinates, false alarm below 1e-5.
    gradients = np.random.default_rng(3).normal(0.0, 0.3, (100_000, 4))
    query = gradient_sum(any_model(4), 4, clip=9.0, grid_bits=8)
    many = query.model_copy(update={"records_per_client": len(gradients)})
    errors = many.rows(np.zeros((100_000, 4)), lambda *_: gradients) - gradients * query.grid
    standard_error = errors.std(axis=0) / math.sqrt(len(errors))
    assert np.all(np.abs(errors.mean(axis=0)) < 5.0 * standard_error)


def test_how_many_rows_an_installed_model_computes_does_not_tell_how_many_records_there_are():
    query = gradient_sum(any_model(3), 3, clip=1.0, records=5)
    seen = []

    def gradients(point, rows):
        seen.append(rows.shape)
        return np.zeros(rows.shape)

    for count in (1, 3, 5):
        query.encode(np.zeros((count, 3)), gradients)
    assert set(seen) == {(5, 3)}
