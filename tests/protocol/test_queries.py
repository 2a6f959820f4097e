"""Queries: exact integers, honest sensitivities, and nothing repeated of what they refuse."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from shoal_protocol.queries import (
    Column,
    FirstMoments,
    NormCounts,
    Query,
    SecondMomentMatrix,
    SecondMoments,
    UnitRowMatrix,
)
from shoal_protocol.queries.quantisation import squared_radius_limit
from shoal_protocol.queries.sums import largest_norms, matrix_from
from tests.world.strategies import make_query, queries

KINDS = (FirstMoments, SecondMoments, SecondMomentMatrix, UnitRowMatrix, NormCounts)


@given(
    rows=st.lists(st.floats(-1e3, 1e3), min_size=6, max_size=6),
    radius=st.floats(0.05, 3.0),
    grid_bits=st.integers(5, 15),
    intercept=st.sampled_from([0.0, 0.5]),
)
def test_a_row_never_leaves_its_box_or_its_ball(rows, radius, grid_bits, intercept):
    query = make_query(SecondMoments, 6, radius=radius, grid_bits=grid_bits, intercept=intercept)
    row = query.rows(np.array([rows]))[0].tolist()
    assert sum(w * w for w in row) <= (radius * query.grid) ** 2 * (1 + 1e-12)
    assert sum(w * w for w in row) <= squared_radius_limit(radius=radius, grid_bits=grid_bits)
    assert max(abs(w) for w in row) <= query.grid


@pytest.mark.parametrize("width", range(1, 30))
def test_a_radius_a_hair_below_the_box_corner_is_kept_to_all_the_same(width):
    radius = math.nextafter(math.sqrt(width), 0.0)
    query = make_query(SecondMoments, width, radius=radius)
    limit = squared_radius_limit(radius=radius, grid_bits=10)
    row = query.rows(np.ones((1, width)))[0].tolist()
    assert sum(w * w for w in row) <= limit


def test_the_squared_radius_is_floored_without_rounding():
    assert squared_radius_limit(radius=1.0, grid_bits=10) == 2**20
    assert squared_radius_limit(radius=math.nextafter(1.0, 0.0), grid_bits=10) == 2**20 - 1
    assert squared_radius_limit(radius=1e300, grid_bits=15) > 2**1000


@given(query=queries, seed=st.integers(0, 2**32 - 1))
def test_a_contribution_is_the_exact_sum_over_its_rows_and_within_its_largest_value(query, seed):
    generator = np.random.default_rng(seed)
    records = generator.uniform(-2, 2, (query.records_per_client, len(query.columns)))
    rows = query.rows(records).tolist()
    pairs = [(i, i) for i in range(query.width)]
    if isinstance(query, SecondMomentMatrix | UnitRowMatrix):
        pairs += [(i, j) for i in range(query.width) for j in range(i + 1, query.width)]
    expected = [sum(row[i] * row[j] for row in rows) for i, j in pairs]
    if isinstance(query, FirstMoments):
        expected = [query.grid * sum(column) for column in zip(*rows, strict=True)]
    if isinstance(query, NormCounts):
        norms = [math.sqrt(sum(w * w for w in row)) / query.grid for row in rows]
        edges = [0.0, *largest_norms(query)[:-1].tolist(), math.inf]
        expected = [
            query.grid**2 * sum(low < norm <= high or norm == low == 0.0 for norm in norms)
            for low, high in itertools.pairwise(edges)
        ]
    expected.append(query.grid**2 * len(records))
    values = query.encode(records)
    assert values.dtype == np.int64
    assert values.tolist() == expected
    assert (
        query.dimension
        == len(expected)
        == sum(b.coordinates for b in query.design("discrete_gaussian").blocks)
    )
    assert max(map(abs, expected)) <= query.largest_value


def test_a_matrix_comes_back_symmetric_and_in_normalised_units():
    query = make_query(SecondMomentMatrix, 2, radius=None, intercept=0.5)
    matrix = matrix_from(query, query.encode(np.array([[0.25, -1.0]])))
    row = np.array([0.5, 0.25, -1.0])
    assert np.array_equal(matrix, np.outer(row, row))
    with pytest.raises(ValueError, match="7 coordinates"):
        matrix_from(query, np.zeros(5, np.int64))


def test_columns_are_centred_scaled_and_cut():
    query = SecondMoments(
        columns=(Column(name="age", centre=50.0, scale=25.0),),
        intercept=0.0,
        radius=None,
        grid_bits=10,
        records_per_client=4,
    )
    rows = query.rows(np.array([[75.0], [37.5], [200.0], [-1.7e308]]))
    assert rows[:, 0].tolist() == [1024, -512, 1024, -1024]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_refused_by_row_and_column_only(bad):
    query = make_query(SecondMomentMatrix, 3, radius=1.0, records=2)
    records = np.array([[7.25, 7.25, 7.25], [7.25, bad, 7.25]])
    with pytest.raises(ValueError, match="record 1, column 'c1'") as refusal:
        query.encode(records)
    assert "7.25" not in str(refusal.value)
    assert str(bad) not in str(refusal.value)


@pytest.mark.parametrize("shape", [(0, 2), (3, 3), (1, 2), (3,)])
def test_records_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match="record"):
        make_query(SecondMoments, 3, radius=None, records=2).encode(np.zeros(shape))


@given(query=queries)
def test_a_query_survives_its_document(query):
    again = TypeAdapter(Query).validate_json(query.model_dump_json())
    assert again == query
    assert type(again) is type(query)


@pytest.mark.parametrize(
    "change",
    [
        {"radius": 0.0},
        {"radius": -1.0},
        {"radius": math.nan},
        {"radius": 1e-5},
        {"intercept": 1.1},
        {"intercept": 1e-6},
        {"intercept": math.nan},
        {"grid_bits": 3},
        {"grid_bits": 16},
        {"grid_bits": "10"},
        {"grid_bits": True},
        {"records_per_client": 0},
        {"records_per_client": 1001},
        {"columns": ()},
        {"columns": ({"name": "a", "centre": 0.0, "scale": 0.0},)},
        {"columns": ({"name": "a", "centre": math.inf, "scale": 1.0},)},
        {"columns": ({"name": "a\n", "centre": 0.0, "scale": 1.0},)},
        {"columns": ({"name": "", "centre": 0.0, "scale": 1.0},)},
        {"columns": ({"name": "a" * 65, "centre": 0.0, "scale": 1.0},)},
        {"columns": ({"name": "a", "centre": 0.0, "scale": 1.0},) * 2},
        {"columns": ({"name": "a", "centre": 0.0, "scale": 1.0, "code": "x"},)},
        {"name": "anything_else"},
        {"code": "import os"},
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_query_outside_the_catalogue_is_refused(kind, change):
    fields = make_query(kind, 2, radius=1.0).model_dump() | change
    with pytest.raises(ValidationError):
        TypeAdapter(Query).validate_python(fields)
