"""Queries: exact integers, honest sensitivities, and nothing repeated of what they refuse."""

import itertools
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
    class_scores_from,
    column_moments_from,
    hazards_from,
    largest_norms,
    matrix_from,
    scores_from,
)
from tests.world.strategies import class_score_sums, hazard_sums, make_query, queries, score_sums

KINDS = (
    *(FirstMoments, SecondMoments, SecondMomentMatrix, NormCounts),
    *(ColumnMoments, WeightedRowMatrix, ScoreSum, HazardScoreSum, ClassScoreSum),
    VectorSum,
)
MATRICES = SecondMomentMatrix | WeightedRowMatrix


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
    records = generator.uniform(-2, 2, (query.records_per_client, len(query.column_names)))
    rows = query.rows(records).tolist()
    pairs = [(i, i) for i in range(query.width)]
    if isinstance(query, MATRICES):
        pairs += [(i, j) for i in range(query.width) for j in range(i + 1, query.width)]
    expected = [sum(row[i] * row[j] for row in rows) for i, j in pairs]
    sums = [query.grid * sum(column) for column in zip(*rows, strict=True)]
    if isinstance(query, FirstMoments):
        expected = sums
    if isinstance(query, ColumnMoments | ClassScoreSum):
        expected = [*sums, *expected]
    if isinstance(query, ScoreSum):
        expected = [*sums[:-1], *expected, query.grid * sums[-1]]
    if isinstance(query, HazardScoreSum):
        expected = [*sums, *expected[2 * query.intervals :]]
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


@given(
    rows=st.lists(st.floats(-1.2, 1.2), min_size=8, max_size=8),
    radius=st.floats(0.2, 1.4),
    intercept=st.sampled_from([0.0, 0.25, 1.0]),
)
def test_weighted_rows_are_as_long_as_their_features_say(rows, radius, intercept):
    query = make_query(
        WeightedRowMatrix, 4, radius=radius, intercept=intercept, records=2, grid_bits=15
    )
    records = np.array(rows).reshape(2, 4)
    for record, lattice in zip(records.tolist(), query.rows(records).tolist(), strict=True):
        *features, target = (min(max(each, -1.0), 1.0) for each in record)
        whole = [intercept, *features] if intercept else features
        limit = radius / math.sqrt(1.49)
        weight = min(1.0, limit / max(math.hypot(*whole), 1e-300))
        due = [weight * each for each in (*whole, 0.7 * limit * target)]
        assert_truncated(lattice, due, query.grid)


def plain_score(query, record):
    """Return a score, and whether its residual was cut, of one record in columns' units."""
    *features, target = (
        min(max((value - column.centre) / column.scale, -1.0), 1.0)
        for value, column in zip(record, query.columns, strict=True)
    )
    row = [query.intercept, *features]
    predictor = math.fsum(x * u for x, u in zip(row, query.point, strict=True))
    predictor = min(max(predictor, -30.0), 30.0)
    if query.family == "logistic":
        value, mean, weight = float(target > 0.0), 1.0 / (1.0 + math.exp(-predictor)), 1.0
    else:
        value = query.columns[-1].centre + query.columns[-1].scale * target
        mean = math.exp(predictor)
        weight = 1.0 / (1.0 + query.dispersion * mean)
        if query.family == "poisson":
            weight = math.sqrt(query.dispersion / (query.dispersion + mean))
        elif query.family == "gamma":
            weight = 1.0 / (query.dispersion + mean)
    residual = weight * (value - mean)
    cut = min(max(residual, -query.residual_cut), query.residual_cut)
    within = min(1.0, query.radius / math.hypot(*row))
    size = within**2 * (cut / query.residual_cut) / query.radius
    return [size * x for x in row], residual - cut


@given(
    query=score_sums,
    seed=st.integers(0, 2**32 - 1),
    centre=st.floats(-5.0, 5.0),
    scale=st.floats(0.1, 20.0),
)
def test_scores_are_those_of_a_plain_computation(query, seed, centre, scale):
    target = query.columns[-1].model_copy(update={"centre": centre, "scale": scale})
    query = query.model_copy(update={"columns": (*query.columns[:-1], target)})
    records = np.random.default_rng(seed).uniform(-1.2, 1.2, (3, len(query.columns)))
    records[:, -1] = centre + scale * records[:, -1]
    query = query.model_copy(update={"records_per_client": 3})
    for record, row in zip(records.tolist(), query.rows(records).tolist(), strict=True):
        *lattice, was_cut = row
        due, beyond = plain_score(query, record)
        if query.residual_cut >= 1e-6:  # a smaller one is lost in a residual's last digit
            assert_truncated(lattice, due, query.grid)
            if abs(beyond) > 1e-9 * query.residual_cut:
                assert was_cut == 1
        assert was_cut in (0, 1)


@pytest.mark.parametrize("kind", [WeightedRowMatrix, ScoreSum])
def test_a_record_counts_for_its_weight_over_the_largest(kind):
    bits = 15
    [whole] = make_query(kind, 3, grid_bits=bits).rows(np.array([[0.3, -0.6, 0.2]]))
    query = make_query(kind, 4, grid_bits=bits, record_weights=True, records=4)
    column = query.columns[-1].model_copy(update={"centre": 3.0, "scale": 2.0})  # 1 to 5
    query = query.model_copy(update={"columns": (*query.columns[:-1], column)})
    rows = query.rows(np.array([[0.3, -0.6, 0.2, each] for each in (5.0, 3.0, -2.0, 1e9)]))
    shares = np.array([1.0, 0.6, 0.2, 1.0])  # what is beyond the bounds is cut to them
    if kind is WeightedRowMatrix:
        shares = np.sqrt(shares)  # whose products are by the weight
    else:
        assert rows[:, -1].tolist() == [whole[-1]] * 4  # how many were cut: each counts
        rows, whole = rows[:, :-1], whole[:-1]
    assert rows == pytest.approx(shares[:, None] * whole, abs=1.0)
    assert query.encode(np.zeros((0, 4))).shape == (query.dimension,)


@given(query=class_score_sums, seed=st.integers(0, 2**32 - 1))
def test_class_scores_are_those_of_a_plain_computation(query, seed):
    records = np.random.default_rng(seed).uniform(-1.2, 1.2, (3, len(query.columns)))
    query = query.model_copy(update={"records_per_client": 3})
    for record, lattice in zip(records.tolist(), query.rows(records).tolist(), strict=True):
        values = [min(max(each, -1.0), 1.0) for each in record]
        row = [query.intercept, *values[: -query.classes]]
        above = [each > 0.0 for each in values[-query.classes :]]
        points = np.reshape(query.point, (query.classes, len(row))).tolist()
        sizes = [
            math.exp(min(max(math.fsum(x * u for x, u in zip(row, point, strict=True)), -30), 30))
            for point in points
        ]
        within = min(1.0, query.radius / math.hypot(*row)) ** 2 / (math.sqrt(2) * query.radius)
        due = [
            (float(above[k] and not any(above[:k])) - sizes[k] / math.fsum(sizes)) * within * x
            for k in range(query.classes)
            for x in row
        ]
        assert_truncated(lattice, due, query.grid)


def test_class_scores_come_back_by_class_in_units_of_the_largest():
    query = make_query(ClassScoreSum, 3, point=(0.0,) * 4, intercept=0.5)
    found = class_scores_from(query, query.encode(np.array([[0.5, 1.0, -1.0]])))
    assert found.shape == (2, 2, 2)
    assert found[0] == pytest.approx(np.array([[1, 1], [-1, -1]]) / (4 * math.sqrt(2)), abs=1e-3)
    assert found[1] == pytest.approx(np.full((2, 2), 1 / 32), abs=1e-3)
    with pytest.raises(ValueError, match="9 coordinates"):
        class_scores_from(query, np.zeros(8))


def assert_truncated(lattice, due, grid):
    """Check that integers are `due` times `grid`, rounded towards zero, up to the last digits."""
    for w, exact in zip(lattice, due, strict=True):
        # A step more towards zero is what keeps a row on its sphere.
        assert abs(exact) * grid + 1e-5 >= abs(w) > abs(exact) * grid - 2.0 - 1e-5
        assert w * exact >= 0.0


def test_a_class_is_one_above_the_middle_of_its_bounds():
    query = make_query(ScoreSum, 2, family="logistic", point=(0.0, 0.0), residual_cut=0.5)
    targets = (0.0, 5e-324, -5e-324, 1.0, -1.0, 1e300)
    signs = [int(np.sign(query.rows(np.array([[0.5, each]]))[0, 0])) for each in targets]
    assert signs == [-1, 1, -1, 1, -1, 1]


def plain_hazards(query, record):
    """Return events, hazards and scores of one record in columns' units, minute by minute."""
    *x, time, event = (min(max(value, -1.0), 1.0) for value in record)
    logs, slopes = query.point[: query.intervals], query.point[query.intervals :]
    along = math.fsum(each * slope for each, slope in zip(x, slopes, strict=True))
    events, hazards, whole = [], [], 0.0
    for log, (begin, end) in zip(logs, itertools.pairwise(query.edges), strict=True):
        rate = math.exp(min(max(log + along, -30.0), 30.0))
        spent = min(max(time - begin, 0.0), end - begin)
        hazards.append(min(rate * spent, query.hazard_cut - min(whole, query.hazard_cut)))
        whole += rate * spent
        ended = begin < time <= end or (time <= begin == query.edges[0])
        events.append(float(event > 0.0 and ended))
    if whole > query.hazard_cut:
        events = [0.0] * len(events)
    residual = math.fsum(events) - math.fsum(hazards)
    size = min(1.0, query.radius / math.hypot(query.intercept, *x)) ** 2
    size /= query.hazard_cut * query.radius
    due = [*(query.intercept * each for each in (*events, *hazards)), *(residual * v for v in x)]
    return [size * each for each in due], abs(whole - query.hazard_cut)


@given(query=hazard_sums, seed=st.integers(0, 2**32 - 1))
def test_hazards_are_those_of_a_plain_computation(query, seed):
    records = np.random.default_rng(seed).uniform(-1.2, 1.2, (3, len(query.columns)))
    query = query.model_copy(update={"records_per_client": 3})
    for record, row in zip(records.tolist(), query.rows(records).tolist(), strict=True):
        due, from_cut = plain_hazards(query, record)
        if from_cut > 1e-9:
            assert_truncated(row, due, query.grid)


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
    sums, squares = column_moments_from(query, values)
    assert sums.tolist() == [0.75, -2.0, 0.25]
    assert squares.tolist() == [0.3125, 2.0, 0.0625]
    assert values[-1] == 2 * query.grid**2
    with pytest.raises(ValueError, match="7 coordinates"):
        column_moments_from(query, values[:-1])


def test_scores_come_back_in_units_of_the_largest():
    query = make_query(
        ScoreSum, 2, records=2
    )  # constant 1/2, ball 1, a residual at the cut, one cut
    found = scores_from(query, query.encode(np.array([[0.5, 1.0], [-0.5, -1.0]])))
    assert found.scores.tolist() == [0.0, 1.0]
    assert found.squares.tolist() == [0.5, 0.5]
    assert found.cut == 1.0
    with pytest.raises(ValueError, match="6 coordinates"):
        scores_from(query, np.zeros(5))


@pytest.mark.parametrize(
    ("kind", "change", "reason"),
    [
        (ColumnMoments, {"intercept": 0.5}, "neither a constant nor a ball"),
        (ColumnMoments, {"radius": 1.0}, "neither a constant nor a ball"),
        (WeightedRowMatrix, {"radius": None}, r"at most 1\.4"),
        (WeightedRowMatrix, {"radius": 1.41}, r"at most 1\.4"),
        (WeightedRowMatrix, {"columns": 1}, "two columns or more"),
        (ScoreSum, {"columns": 1, "point": (0.0, 0.0)}, "a feature and a target"),
        (ScoreSum, {"intercept": 0.0}, "a constant"),
        (ScoreSum, {"radius": None}, "a radius"),
        (ScoreSum, {"point": (0.0, 0.0, 0.0)}, "one coordinate for the constant"),
        (ScoreSum, {"point": (0.0, 1.1e6)}, "less than or equal to 1000000"),
        (ScoreSum, {"point": (0.0, math.nan)}, "point"),
        (ScoreSum, {"dispersion": 0.0}, "greater than 0"),
        (ScoreSum, {"dispersion": math.nan}, "dispersion"),
        (ScoreSum, {"residual_cut": 0.0}, "greater than 0"),
        (ScoreSum, {"residual_cut": math.inf}, "finite number"),
        (ScoreSum, {"family": "linear"}, "family"),
        (HazardScoreSum, {"columns": 2}, "a constant, a feature, a time and an event"),
        (HazardScoreSum, {"intercept": 0.0}, "a constant"),
        (HazardScoreSum, {"radius": None}, "sqrt\\(2\\) times the constant"),
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
        (ClassScoreSum, {"radius": None}, "a radius"),
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
