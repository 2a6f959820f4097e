"""Every query's declared sensitivity: searched for, reached where it can be, never exceeded.

Distances are of contributions as they leave `encode`, in integers, after cutting, shrinking and
rounding. Whether a bound is exceeded is decided with fractions.
"""

import itertools
import math
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.neighbours import worst_neighbours
from shoal_holder.noise import discrete_gaussian, laplace_shares
from shoal_protocol.queries import (
    ClassScoreSum,
    Column,
    ColumnMoments,
    Counts,
    FirstMoments,
    GradientSum,
    HazardScoreSum,
    NormCounts,
    PredictionScores,
    Query,
    ScoreSum,
    SecondMomentMatrix,
    SecondMoments,
    Tables,
    VectorSum,
    WeightedRowMatrix,
)
from shoal_protocol.queries.columns import ColumnBounds, Level, Log, Power, Spline, Term
from shoal_protocol.queries.scores import Family
from tests.privacy.sensitivity_search import (
    EXTREME_FLOATS,
    distance,
    exceeds,
    in_data_units,
    largest_gap_of_squares,
    largest_spread,
    search,
)
from tests.world.chance import fixed_bytes
from tests.world.strategies import make_query, queries

GAUSSIAN, LAPLACE = MECHANISMS = ("discrete_gaussian", "discrete_laplace")
GRID = 2**10


def case(query, mechanism, supremum, closeness=1e-9, *, starts=12):
    """A search that must come within a relative `closeness` of `supremum`, in normalised units.

    In boxes the supremum is on the lattice, and reached. In balls rows end between lattice points:
    of order 1 / B is lost.
    """
    name = f"{query.name} {getattr(query, 'family', '')}".strip()
    label = f"{name} {query.width} {query.radius} {query.intercept} {query.records_per_client}"
    return pytest.param(query, mechanism, supremum, closeness, starts, id=f"{label} {mechanism}")


def sums_in_a_box(columns, mechanism, *, kind=FirstMoments, intercept=0.0, records=1):
    """Each column's sum is anything from -r to r, which costs more than any record left out."""
    order = 2 if mechanism == GAUSSIAN else 1
    supremum = 2.0 * records * columns ** (1.0 / order)
    query = make_query(kind, columns, intercept=intercept, records=records)
    return case(query, mechanism, supremum)


def sums_in_a_ball(columns, radius, mechanism, *, kind=FirstMoments, intercept=0.0, records=1):
    """Opposite rows on the sphere, for L1 along the diagonal; a constant does not change sign."""
    width = columns + (intercept > 0.0)
    supremum = 2.0 * records * radius * (1.0 if mechanism == GAUSSIAN else math.sqrt(width))
    query = make_query(kind, columns, radius=radius, intercept=intercept, records=records)
    return case(query, mechanism, supremum, 0.2 if intercept else 0.01)


def squares_in_a_box(columns, mechanism, *, intercept=0.0, records=1):
    """Each column's sum is anything up to r, and so is the constant's, for want of records."""
    rest = intercept**2 * records
    if mechanism == GAUSSIAN:
        supremum = math.hypot(math.sqrt(columns) * records, rest)
    else:
        supremum = columns * records + rest
    query = make_query(SecondMoments, columns, intercept=intercept, records=records)
    return case(query, mechanism, supremum)


def squares_in_a_ball(columns, radius, mechanism, *, records=1):
    order = 2 if mechanism == GAUSSIAN else 1
    supremum = records * largest_gap_of_squares(columns, radius**2, order)
    query = make_query(SecondMoments, columns, radius=radius, records=records)
    return case(query, mechanism, supremum, 0.01)


def matrix_in_a_box(columns, mechanism, *, intercept=0.0, records=1):
    """L2: half the signs flipped. L1: ones against zeros, or against none with a constant.

    `intercept` is 0 or 1.
    """
    width = columns + (intercept > 0.0)
    query = make_query(SecondMomentMatrix, columns, intercept=intercept, records=records)
    if mechanism == GAUSSIAN:
        flipped = 2.0 * math.sqrt(width**2 // 4) if width > 1 else 1.0
        return case(query, mechanism, flipped * records)
    return case(query, mechanism, records * width * (width + 1) / 2)


def matrix_in_a_ball(columns, radius, mechanism, *, intercept=0.0, records=1):
    """L2: orthogonal rows. L1: the largest spread, of docs/mathematics.md, proposition 2.3.

    A small constant, which no row can make larger, keeps the L1 supremum out of reach: four fifths
    of it are asked for.
    """
    width = columns + (intercept > 0.0)
    if width == 1:
        supremum = 1.0
    else:
        supremum = math.sqrt(2.0) if mechanism == GAUSSIAN else largest_spread(width)
    query = make_query(
        SecondMomentMatrix, columns, radius=radius, intercept=intercept, records=records
    )
    closeness = 0.2 if intercept and mechanism == LAPLACE else 0.01
    return case(query, mechanism, supremum * radius**2 * records, closeness, starts=20)


def counts(columns, mechanism, *, radius=None, intercept=0.0, records=1):
    """All rows in one bin against all in another."""
    query = make_query(NormCounts, columns, radius=radius, intercept=intercept, records=records)
    return case(query, mechanism, records * (math.sqrt(2.0) if mechanism == GAUSSIAN else 2.0))


def columns_in_a_box(columns, mechanism, *, records=1):
    """L2: opposite ends, where the squares are alike. L1: one end, and the middle of the rest."""
    per_column = 2.0 * columns**0.5 if mechanism == GAUSSIAN else 2.25 * columns
    return case(
        make_query(ColumnMoments, columns, records=records), mechanism, records * per_column
    )


def weighted_rows(
    columns, radius, mechanism, *, intercept=0.0, records=1, weights=False, unit_rows=False
):
    """L2: orthogonal rows in a ball; L1: the ball's bound, of which nine tenths must be reached."""
    gaussian = mechanism == GAUSSIAN
    width = columns + (intercept > 0.0)
    constant = math.sqrt(2.0) if gaussian else math.sqrt(width * (width + 1))
    query = make_query(
        *(WeightedRowMatrix, columns + weights),
        radius=radius,
        intercept=intercept,
        records=records,
        record_weights=weights,
        unit_rows=unit_rows,
    )
    supremum = constant * radius**2 * records
    return case(query, mechanism, supremum, 0.01 if gaussian else 0.1, starts=20)


def scores(family, columns, radius, mechanism, *, intercept, records=1, weights=False):
    """L2: opposite scores on the sphere, one of a cut residual.

    In L1 two differ by less than 2 sqrt(p + 1) + 1/2, by a twentieth or less; of two coordinates by
    a fifth, for the constant is the shorter of them.
    """
    gaussian = mechanism == GAUSSIAN
    supremum = math.sqrt(4.25) if gaussian else 2.0 * math.sqrt(columns + 1) + 0.5
    query = make_query(
        *(ScoreSum, columns + weights),
        radius=radius,
        intercept=intercept,
        records=records,
        family=family,
        record_weights=weights,
    )
    closeness = 0.02 if gaussian else 0.2 if columns == 2 else 0.05
    return case(query, mechanism, records * supremum, closeness)


def hazards(columns, radius, mechanism, *, records=1):
    """L2: opposite scores on the sphere, but for the constant, of which a hazard is no less than 0.

    In L1 the bounds of events and hazards and of scores cannot be reached by the same records.
    """
    query = make_query(HazardScoreSum, columns, radius=radius, records=records)
    part = (query.intercept / radius) ** 2
    if mechanism == GAUSSIAN:
        return case(query, mechanism, 2.0 * math.sqrt(1.0 - part / 2.0) * records, 0.02, starts=20)
    supremum = query.design(mechanism).sensitivity / query.grid**2
    return case(query, mechanism, supremum, 0.25, starts=20)


def class_scores(classes, features, radius, mechanism, *, records=1):
    """Opposite scores on the sphere, or on its diagonal; as `scores`.

    The constant is as long as each feature on the diagonal.
    """
    width = features + 1
    query = make_query(
        ClassScoreSum,
        features + classes,
        radius=radius,
        intercept=radius / math.sqrt(width),
        records=records,
        classes=classes,
    )
    if mechanism == GAUSSIAN:
        supremum = 2.0
    elif classes == 2:
        supremum = 2.0 * math.sqrt(2 * width + 1)
    else:
        supremum = 2.0 * math.sqrt(2 * width) + 1.0
    closeness = 0.03 if mechanism == GAUSSIAN else 0.1
    return case(query, mechanism, records * supremum, closeness, starts=30)


SEARCHES = {
    FirstMoments: [
        *(
            sums_in_a_box(columns, mechanism, intercept=intercept, records=records)
            for mechanism in MECHANISMS
            for columns, intercept, records in [(1, 0, 1), (4, 0, 1), (3, 1, 1), (2, 0, 2)]
        ),
        *(
            sums_in_a_ball(columns, radius, mechanism, intercept=intercept, records=records)
            for mechanism in MECHANISMS
            for columns, radius, intercept, records in [
                *[(1, 0.7, 0, 1), (4, 0.9, 0, 1), (4, 1.4, 0, 1), (3, 1.2, 0, 2)],
                *[(3, 0.9, 0.125, 1)],
            ]
        ),
    ],
    VectorSum: [
        *(sums_in_a_box(5, each, kind=VectorSum, records=2) for each in MECHANISMS),
        *(sums_in_a_ball(5, 0.9, each, kind=VectorSum) for each in MECHANISMS),
        *(sums_in_a_ball(4, 1.3, each, kind=VectorSum, records=2) for each in MECHANISMS),
    ],
    SecondMoments: [
        *(
            squares_in_a_box(columns, mechanism, intercept=intercept, records=records)
            for mechanism in MECHANISMS
            for columns, intercept, records in [
                (1, 0, 1),
                (4, 0, 1),
                (3, 1, 1),
                (3, 0.5, 3),
                (2, 0, 2),
            ]
        ),
        *(
            squares_in_a_ball(columns, radius, mechanism, records=records)
            for mechanism in MECHANISMS
            for columns, radius, records in [(4, 0.9, 1), (4, 1.4, 1), (3, 1.2, 2), (9, 0.5, 2)]
        ),
    ],
    SecondMomentMatrix: [
        *(
            matrix_in_a_box(columns, mechanism, intercept=intercept, records=records)
            for mechanism in MECHANISMS
            for columns, intercept, records in [
                *[(1, 0, 1), (2, 0, 1), (4, 0, 1), (5, 0, 1), (2, 0, 3)],
                *[(1, 1, 1), (3, 1, 1), (4, 1, 1), (2, 1, 3)],
            ]
        ),
        *(
            matrix_in_a_ball(columns, radius, mechanism, intercept=intercept, records=records)
            for mechanism in MECHANISMS
            for columns, radius, intercept, records in [
                *[(1, 0.7, 0, 1), (2, 0.9, 0, 1), (3, 0.9, 0, 1), (4, 0.9, 0, 1), (2, 0.6, 0, 3)],
                *[(4, 1.2, 0, 1), (3, 0.9, 0.125, 1), (2, 0.9, 0.125, 2)],
            ]
        ),
    ],
    NormCounts: [
        *(
            counts(columns, mechanism, radius=radius, intercept=intercept, records=records)
            for mechanism in MECHANISMS
            for columns, radius, intercept, records in [
                *[(1, None, 0, 1), (4, None, 0, 2), (3, None, 0.3, 1), (3, 0.9, 0, 1)],
            ]
        ),
    ],
    ColumnMoments: [
        columns_in_a_box(columns, mechanism, records=records)
        for mechanism in MECHANISMS
        for columns, records in [(1, 1), (4, 1), (2, 3)]
    ],
    WeightedRowMatrix: [
        *(
            weighted_rows(columns, radius, mechanism, intercept=intercept, records=records)
            for mechanism in MECHANISMS
            for columns, radius, intercept, records in [
                *[(3, 0.9, 0, 1), (4, 1.2, 0.25, 1), (5, 0.8, 0.25, 1), (3, 0.8, 0.5, 3)],
                *[(3, 0.8, 0, 2)],
            ]
        ),
        *(weighted_rows(3, 1.2, each, intercept=0.25, weights=True) for each in MECHANISMS),
        *(weighted_rows(4, 1.2, GAUSSIAN, intercept=each, unit_rows=True) for each in (0.0, 0.1)),
    ],
    ScoreSum: [
        *(
            scores(family, columns, radius, mechanism, intercept=intercept, records=records)
            for mechanism in MECHANISMS
            for family in get_args(Family)
            for columns, radius, intercept, records in [
                *[(2, 1.0, 0.5, 1), (4, 1.0, 0.5, 1), (5, 1.0, 0.25, 1), (3, 0.8, 0.5, 3)],
            ]
        ),
        *(scores("gamma", 3, 1.0, each, intercept=0.5, weights=True) for each in MECHANISMS),
    ],
    ClassScoreSum: [
        class_scores(classes, features, radius, mechanism, records=records)
        for mechanism in MECHANISMS
        for classes, features, radius, records in [
            *[(2, 1, 1.0, 1), (2, 3, 1.0, 1), (3, 2, 0.9, 1), (4, 1, 1.0, 1), (3, 1, 0.8, 2)],
        ]
    ],
    HazardScoreSum: [
        hazards(columns, radius, mechanism, records=records)
        for mechanism in MECHANISMS
        for columns, radius, records in [(3, 1.0, 1), (5, 1.2, 1), (4, 0.8, 3), (4, 0.5, 1)]
    ],
}
CASES = [each for cases in SEARCHES.values() for each in cases]


def test_every_query_of_the_catalogue_is_searched():
    catalogue = get_args(get_args(Query)[0])
    # test_{gradient,count,table,prediction}_sensitivity.py
    elsewhere = {GradientSum, Counts, Tables, PredictionScores}
    assert set(SEARCHES) | elsewhere == set(catalogue)


@pytest.mark.slow
@pytest.mark.parametrize(("query", "mechanism", "supremum", "closeness", "starts"), CASES)
def test_pitfall_15_a_search_reaches_the_sensitivity_and_never_exceeds_it_after_rounding(
    query, mechanism, supremum, closeness, starts
):
    found = search(query, mechanism, starts=starts, seed=1)
    assert not found.exceeds
    declared = query.design(mechanism).sensitivity / query.grid**2
    assert found.distance * declared >= supremum * (1.0 - closeness)
    # In boxes the number of records costs a sixteenth in L1, and signs that an odd number of
    # columns cannot halve 6.1 % in L2. In balls what is reached is the bound but for 18 %.
    assert declared <= supremum * (1.0625 + 1e-9 if closeness == 1e-9 else 1.19)


@pytest.mark.slow
@settings(max_examples=60)
@given(query=queries, mechanism=st.sampled_from(MECHANISMS), seed=st.integers(0, 2**32 - 1))
def test_pitfall_15_no_query_of_any_shape_is_exceeded(query, mechanism, seed):
    assert not search(query, mechanism, starts=2, seed=seed).exceeds


@given(
    query=queries,
    mechanism=st.sampled_from(MECHANISMS),
    numbers=st.lists(
        st.sampled_from(EXTREME_FLOATS) | st.floats(allow_nan=False, allow_infinity=False),
        min_size=36,
        max_size=36,
    ),
)
def test_pitfall_15_extreme_floats_do_not_exceed_the_sensitivity(query, mechanism, numbers):
    shape = (2, query.records_per_client, len(query.column_names))
    one, other = np.resize(np.array(numbers), shape)
    assert not exceeds(query, mechanism, one, other)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("centre", "scale"), [(1e30, 1e-40), (-1e30, 1e40), (0.1, 0.3), (-1e-300, 1e-40)]
)
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("kind", SEARCHES)
def test_pitfall_15_columns_with_extreme_bounds_do_not_exceed_the_sensitivity(
    kind, mechanism, centre, scale
):
    columns = [Column(name=f"c{j}", centre=centre, scale=scale) for j in range(3)]
    query = make_query(kind, 3, radius=1.1, records=2)
    query = query.model_copy(update={"columns": tuple(columns[: len(query.columns)])})
    query = kind.model_validate(query.model_dump())
    assert not search(query, mechanism, starts=10, seed=3).exceeds


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", SEARCHES)
def test_pitfall_15_what_is_not_a_finite_number_is_refused(kind, bad):
    query = make_query(kind, 3, radius=1.0, intercept=0.5, records=2)
    records = np.array([[7.25, 7.25, 7.25], [7.25, bad, 7.25]])
    with pytest.raises(ValueError, match=r"record 1, .*not a finite number") as refusal:
        query.encode(records)
    assert "7.25" not in str(refusal.value) and str(bad) not in str(refusal.value)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("kind", SEARCHES)
def test_no_record_is_a_neighbour_of_every_record_and_adds_nothing(kind, mechanism):
    for radius, intercept in itertools.product((None, 0.9), (0.0, 0.3, 1.0)):
        query = make_query(kind, 3, radius=radius, intercept=intercept, records=2)
        nobody = np.empty((0, 3))
        assert not query.encode(nobody).any()
        for one in (np.ones((1, 3)), np.ones((2, 3)), np.array([[0.3, -1.0, 1.0]] * 2)):
            assert not exceeds(query, mechanism, one, nobody)
            assert not exceeds(query, mechanism, nobody, one)
        if kind is SecondMoments and radius is None:
            declared = query.design(mechanism).sensitivity
            assert distance(query, mechanism, np.ones((2, 3)), nobody) == pytest.approx(declared)
    with pytest.raises(ValueError, match="at most 2 records"):
        query.encode(np.ones((3, 3)))


@pytest.mark.parametrize(
    "kind", [FirstMoments, VectorSum, SecondMoments, ColumnMoments, SecondMomentMatrix]
)
def test_the_audits_worst_neighbours_are_as_far_apart_as_is_declared(kind):
    query = make_query(kind, 2, records=2)
    one, other = worst_neighbours(query)
    declared = query.design(GAUSSIAN).sensitivity
    assert distance(query, GAUSSIAN, one, other) == pytest.approx(declared)


TERMS = {
    "a power": Power(variable="x", lower=-1.0, upper=1.0, exponent=3),
    "a logarithm": Log(variable="y", lower=0.5, upper=20.0),
    "a level": Level(variable="stage", value=1.0),
    "a spline": Spline(variable="x", lower=-1.0, upper=1.0, knots=(0.0,), place=4),
}


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("kind", [each for each in SEARCHES if each is not VectorSum])
def test_pitfall_15_no_term_exceeds_the_sensitivity_that_is_declared_of_its_column(kind, mechanism):
    several = Term(factors=tuple(TERMS.values())[:3])
    terms = {name: Term(factors=(factor,)) for name, factor in TERMS.items()} | {"all": several}
    bounds = [ColumnBounds.of_term(name, term) for name, term in terms.items()]
    narrow = bounds[0].model_copy(update={"name": "narrow", "lower": 0.1, "upper": 0.2})
    for radius, intercept in ((None, 0.0), (0.9, 0.3)):
        columns = tuple(each.column() for each in (*bounds, narrow))
        query = make_query(kind, len(columns), radius=radius, intercept=intercept)
        query = query.model_copy(update={"columns": columns})
        found = search(query, mechanism, starts=12, seed=1)
        assert query.column_names == ("x", "y", "stage")
        assert not found.exceeds and found.distance > 0.3


def test_a_planted_row_outside_its_ball_is_caught():
    # Rounding to the nearest instead of towards zero lets rows grow.
    class Nearest(SecondMoments):
        def rows(self, records):
            records = np.clip(records, -1.0, 1.0)
            norms = np.maximum(np.linalg.norm(records, axis=1, keepdims=True), 1e-300)
            shrunk = records * np.minimum(1.0, self.radius / norms)
            return np.rint(shrunk * self.grid).astype(np.int64)

    query = make_query(Nearest, 4, radius=0.9, grid_bits=5)
    assert search(query, GAUSSIAN, starts=12, seed=1).exceeds
    assert not search(
        make_query(SecondMoments, 4, radius=0.9, grid_bits=5), GAUSSIAN, starts=12, seed=1
    ).exceeds


SCORES = {ScoreSum, ClassScoreSum, HazardScoreSum}
ROWS = [kind for kind in SEARCHES if kind not in SCORES]  # whose rows are no shrunk records


@pytest.mark.parametrize("kind", ROWS)
def test_pitfall_17_rounding_does_not_push_the_sums_one_way(kind):
    # Uniform records: the mean of 200 000 rounding errors within 5 standard errors of zero,
    # false alarm below 1e-5 for the four columns together.
    generator = np.random.default_rng(3)
    query = make_query(kind, 4, grid_bits=8, records=1)
    records = generator.uniform(-1.0, 1.0, (200_000, 4))
    rows = query.model_copy(update={"records_per_client": len(records)}).rows(records)
    errors = rows - records * query.grid
    standard_error = errors.std(axis=0) / math.sqrt(len(records))
    assert np.all(np.abs(errors.mean(axis=0)) < 5.0 * standard_error)


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("radius", [None, math.nextafter(2.0, 0.0), 1.7, 0.6])
def test_pitfall_17_rounding_never_makes_a_row_longer(kind, radius):
    generator = np.random.default_rng(4)
    query = make_query(kind, 4, radius=radius, grid_bits=6, records=1000)
    records = generator.uniform(-1.0, 1.0, (1000, 4))
    records[:50] = generator.choice([-1.0, 1.0], (50, 4))
    rows = query.rows(records)
    if kind is WeightedRowMatrix:
        norms = np.linalg.norm(records[:, :3], axis=1, keepdims=True)
        weights = np.minimum(1.0, query.radius / math.hypot(1.0, 0.7) / norms)
        target = 0.7 * query.radius / math.hypot(1.0, 0.7)
        records = weights * records * np.array([1.0, 1.0, 1.0, target])
    exact = (
        records
        if query.radius is None
        else records
        * np.minimum(1.0, query.radius / np.linalg.norm(records, axis=1, keepdims=True))
    )
    assert np.all(np.abs(rows) <= np.abs(exact) * query.grid * (1.0 + 1e-15))


def gaussian_noise(scale, count):
    return discrete_gaussian(scale, count)


def laplace_noise(scale, count):
    return laplace_shares(scale=scale, parties=1, count=count, random_bytes=fixed_bytes("support"))


@pytest.mark.slow
@pytest.mark.parametrize("noise", [gaussian_noise, laplace_noise])
@pytest.mark.parametrize("kind", SEARCHES)
def test_pitfall_2_neighbours_share_every_output_down_to_the_last_bit(kind, noise):
    # Integers plus integers: each output near either is seen from both, odd ones and even ones.
    # Noise of a quarter of the gap, at least 4: the nine outputs between the two have probability
    # .0008 or more from either, so one is missed in 20 000 draws with probability below 1e-5.
    query = make_query(kind, 2, grid_bits=4)
    values = (0.1875, 0.75 if kind is ClassScoreSum else 0.25)
    codes = [query.encode(np.full((1, len(query.column_names)), x)) for x in values]
    place = int(np.argmax(codes[0] != codes[1]))
    one, other = sorted(int(code[place]) for code in codes)
    scale = max(4.0, (other - one) / 4.0)
    seen = [set((value + noise(scale, 20_000)).tolist()) for value in (one, other)]
    middle = (one + other) // 2
    outputs = set(range(middle - 4, middle + 5))
    assert one != other and outputs <= seen[0] and outputs <= seen[1]


@pytest.mark.parametrize("kind", SEARCHES)
def test_pitfall_2_what_is_added_to_noise_is_an_integer_whatever_the_floats_were(kind):
    query = make_query(kind, 3, radius=1.1, intercept=0.3)
    for value in (0.1, -1.0, 1e308, 5e-324):
        records = in_data_units(query, np.full((1, len(query.column_names)), value))
        assert query.encode(records).dtype == np.int64
