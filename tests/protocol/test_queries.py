"""Queries: exact integers, honest sensitivities, and nothing repeated of what they refuse."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from shoal_protocol.queries import (
    ClassScoreSum,
    Column,
    ColumnMoments,
    FirstMoments,
    HazardScoreSum,
    NormCounts,
    Query,
    ScoreSum,
    SecondMomentMatrix,
    SecondMoments,
    VectorSum,
    WeightedRowMatrix,
)
from shoal_protocol.queries.columns import Log, Term
from shoal_protocol.queries.design import squared_radius_limit
from shoal_protocol.queries.sums import (
    hazards_from,
    in_units,
    matrix_from,
    scores_from,
)
from tests.world.strategies import make_query, queries

KINDS = (
    *(FirstMoments, SecondMoments, SecondMomentMatrix, NormCounts),
    *(ColumnMoments, WeightedRowMatrix, ScoreSum, HazardScoreSum, ClassScoreSum),
    VectorSum,
)


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


def test_a_matrix_comes_back_symmetric_and_in_normalised_units():
    query = make_query(SecondMomentMatrix, 2, radius=None, intercept=0.5)
    matrix = matrix_from(query, query.encode(np.array([[0.25, -1.0]])))
    row = np.array([0.5, 0.25, -1.0])
    assert np.array_equal(matrix, np.outer(row, row))
    with pytest.raises(ValueError, match="7 coordinates"):
        matrix_from(query, np.zeros(5, np.int64))


def test_class_scores_come_back_by_class_in_units_of_the_largest():
    query = make_query(ClassScoreSum, 3, point=(0.0,) * 4, intercept=0.5)
    found = in_units(query, query.encode(np.array([[0.5, 1.0, -1.0]])))[:-1].reshape(2, 2, 2)
    assert found[0] == pytest.approx(np.array([[1, 1], [-1, -1]]) / (4 * math.sqrt(2)), abs=1e-3)
    assert found[1] == pytest.approx(np.full((2, 2), 1 / 32), abs=1e-3)
    with pytest.raises(ValueError, match="9 coordinates"):
        in_units(query, np.zeros(8))


def test_a_class_is_one_above_the_middle_of_its_bounds():
    query = make_query(ScoreSum, 2, family="logistic", point=(0.0, 0.0), residual_cut=0.5)
    targets = (0.0, 5e-324, -5e-324, 1.0, -1.0, 1e300)
    signs = [int(np.sign(query.rows(np.array([[0.5, each]]))[0, 0])) for each in targets]
    assert signs == [-1, 1, -1, 1, -1, 1]


def test_an_edge_ends_its_interval_and_nothing_is_seen_beyond_the_last_edge_or_the_cut():
    query = make_query(HazardScoreSum, 3, edges=(-1.0, -0.5, 0.0), records=6)
    times = [-0.5, -0.4, 0.0, 0.5, -1.0, -1.5]
    found = hazards_from(query, query.encode(np.array([[0.0, each, 1.0] for each in times])))
    assert (found.events * 4.0).tolist() == [3.0, 2.0]  # all but the fourth; a hazard of 1 is 1/4
    assert (found.hazards * 4.0 * 1024).tolist() == pytest.approx([2048.0, 1126.4], abs=4.0)
    higher = query.model_copy(update={"point": (math.log(4.0), 0.0, 0.0)})
    found = hazards_from(higher, higher.encode(np.array([[0.0, each, 1.0] for each in times])))
    assert (found.events * 4.0).tolist() == [2.0, 0.0]  # in the first interval a hazard of 2 passes
    assert found.hazards.tolist() == [1.0, 0.0]
    with pytest.raises(ValueError, match="7 coordinates"):
        hazards_from(query, np.zeros(5))


def test_columns_moments_come_back_in_normalised_units():
    query = make_query(ColumnMoments, 3, records=2)
    values = query.encode(np.array([[0.5, -1.0, 0.25], [0.25, -7.0, 0.0]]))
    sums, squares = in_units(query, values)[:-1].reshape(2, 3)
    assert sums.tolist() == [0.75, -2.0, 0.25]
    assert squares.tolist() == [0.3125, 2.0, 0.0625]
    assert values[-1] == 2 * query.grid**2


def test_scores_come_back_in_units_of_the_largest():
    # The constant is 1/2 and the ball's radius 1. A residual is at the cut, and one is cut.
    query = make_query(ScoreSum, 2, records=2)
    records = np.array([[0.5, 1.0], [-0.5, -1.0]])
    of_two_clients = scores_from(query, query.encode_apart(records))
    assert of_two_clients.scores.tolist() == [0.0, 1.0]
    assert of_two_clients.squares.tolist() == [0.5, 0.5]
    assert of_two_clients.cut == 1.0
    of_one = scores_from(query, query.encode(records))
    assert of_one.scores.tolist() == [0.0, 1.0]
    assert of_one.squares.tolist() == [0.0, 1.0]  # of its sum
    assert of_one.cut == 1.0
    with pytest.raises(ValueError, match="6 coordinates"):
        scores_from(query, np.zeros(5))


@pytest.mark.parametrize(
    ("kind", "change", "reason"),
    [
        (ColumnMoments, {"intercept": 0.5}, "less than or equal to 0"),
        (ColumnMoments, {"radius": 1.0}, "should be None"),
        (WeightedRowMatrix, {"radius": None}, "radius"),
        (WeightedRowMatrix, {"radius": 1.41}, r"less than or equal to 1\.4"),
        (WeightedRowMatrix, {"columns": 1}, "two columns or more"),
        (
            WeightedRowMatrix,
            {"unit_rows": True, "intercept": 1.0, "radius": 1.2},
            "the constant alone",
        ),
        (ScoreSum, {"columns": 1, "point": (0.0, 0.0)}, "a feature and a target"),
        (ScoreSum, {"intercept": 0.0}, "a constant"),
        (ScoreSum, {"radius": None}, "radius"),
        (ScoreSum, {"point": (0.0, 0.0, 0.0)}, "one coordinate for the constant"),
        (ScoreSum, {"point": (0.0, 1.1e30)}, "less than or equal to 10{30}"),
        (ScoreSum, {"point": (0.0, math.nan)}, "point"),
        (ScoreSum, {"dispersion": 0.0}, "greater than 0"),
        (ScoreSum, {"dispersion": math.nan}, "dispersion"),
        (ScoreSum, {"residual_cut": 0.0}, "greater than 0"),
        (ScoreSum, {"residual_cut": math.inf}, "finite number"),
        (ScoreSum, {"family": "linear"}, "family"),
        (ScoreSum, {"basis": ((1.0,), (1.0,))}, "row i of a basis"),
        (ScoreSum, {"basis": ((1.0, 0.0),)}, "row i of a basis"),
        (ScoreSum, {"basis": ((1.0,), (1.0, 1.0), (1.0, 1.0, 1.0))}, "one row at most for each"),
        (ScoreSum, {"basis": ((1.1e6,),)}, "less than or equal to 1000000"),
        (ScoreSum, {"basis": ((math.nan,),)}, "basis"),
        (HazardScoreSum, {"basis": ((1.0,), (1.0, 1.0))}, "one row at most for each"),
        (ClassScoreSum, {"basis": ((1.0,), (1.0, 1.0), (0.0,) * 3)}, "one row at most for each"),
        (HazardScoreSum, {"columns": 2}, "a constant, a feature, a time and an event"),
        (HazardScoreSum, {"intercept": 0.0}, "a constant"),
        (HazardScoreSum, {"radius": None}, "radius"),
        (HazardScoreSum, {"radius": 0.35}, "sqrt\\(2\\) times the constant"),
        (HazardScoreSum, {"point": (0.0, 0.0)}, "one coordinate for each interval"),
        (HazardScoreSum, {"edges": (0.0, 1.0, 0.5)}, "larger than the one before"),
        (HazardScoreSum, {"edges": (0.0, 1.0, math.inf)}, "edges"),
        (HazardScoreSum, {"hazard_cut": 0.99}, "greater than or equal to 1"),
        (HazardScoreSum, {"hazard_cut": math.inf}, "finite number"),
        (VectorSum, {"intercept": 0.5}, "without a constant"),
        (VectorSum, {"entries": 0}, "greater than or equal to 1"),
        (VectorSum, {"entries": 10_001}, "less than or equal to 10000"),
        (
            ScoreSum,
            {"record_weights": True},
            "lower bound of 0 or more",
        ),  # those of the last column are not
        (WeightedRowMatrix, {"record_weights": True}, "lower bound of 0 or more"),
        (WeightedRowMatrix, {"record_weights": 1}, "record_weights"),
        (ClassScoreSum, {"classes": 3}, "a column for each class"),
        (ClassScoreSum, {"classes": 1}, "greater than or equal to 2"),
        (ClassScoreSum, {"intercept": 0.0}, "a constant"),
        (ClassScoreSum, {"radius": None}, "radius"),
        (ClassScoreSum, {"point": (0.0,) * 5}, "one coordinate for each class"),
        (ClassScoreSum, {"point": (0.0, 0.0, 0.0, 1.1e6)}, "less than or equal to 1000000"),
    ],
)
def test_what_a_regressions_query_cannot_be_is_refused(kind, change, reason):
    fields = make_query(kind, 2).model_dump()
    if "columns" in change:
        change = change | {"columns": fields["columns"][: change["columns"]]}
    with pytest.raises(ValidationError, match=reason):
        kind.model_validate(fields | change)


@pytest.mark.parametrize("mechanism", ["discrete_gaussian", "discrete_laplace"])
@pytest.mark.parametrize("radius", [None, 0.75])
def test_a_vector_is_as_many_columns_with_the_same_bounds(radius, mechanism):
    column = Column(name="x", centre=1.0, scale=2.0)
    shape = {"intercept": 0.0, "radius": radius, "grid_bits": 12, "records_per_client": 3}
    vector = VectorSum(columns=(column,), entries=5, **shape)
    names = tuple(f"x_{place}" for place in range(5))
    each = FirstMoments(
        columns=tuple(column.model_copy(update={"name": name}) for name in names), **shape
    )
    records = np.random.default_rng(1).normal(1.0, 2.0, (3, 5))
    assert vector.column_names == each.column_names == names
    assert np.array_equal(vector.encode(records), each.encode(records))
    assert vector.design(mechanism) == each.design(mechanism)
    with pytest.raises(ValidationError, match="a vector is one column"):
        VectorSum(columns=(column, each.columns[0]), entries=5, **shape)
    term = Term(factors=(Log(variable="y", lower=1.0, upper=9.0),))
    with pytest.raises(ValidationError, match="without a term"):
        VectorSum(columns=(column.model_copy(update={"term": term}),), entries=5, **shape)


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
        {"columns": ({"name": "a\nb", "centre": 0.0, "scale": 1.0},)},
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
