"""Scores wherever they are taken and cut; and weaknesses planted in all queries of a regression."""

import itertools
import math
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shoal_protocol.queries import (
    ClassScoreSum,
    HazardScoreSum,
    NoiseBlock,
    NoiseDesign,
    ScoreSum,
    WeightedRowMatrix,
)
from shoal_protocol.queries.scores import LARGEST_COORDINATE, Family, mean_of, weight_of
from shoal_protocol.wire.encoding import LARGEST
from tests.privacy.sensitivity_search import EXTREME_FLOATS, exceeds, search
from tests.world.strategies import make_query, score_sums

GAUSSIAN, LAPLACE = MECHANISMS = ("discrete_gaussian", "discrete_laplace")
FAMILIES = get_args(Family)
EXTREMES = (5e-324, 1e-300, 1e-6, LARGEST)
FAR = (LARGEST, -LARGEST, LARGEST)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mechanism", [GAUSSIAN, pytest.param(LAPLACE, marks=pytest.mark.exhaustive)]
)
@pytest.mark.parametrize("family", FAMILIES)
def test_pitfall_15_no_point_dispersion_or_cut_exceeds_the_sensitivity(family, mechanism):
    for far, dispersion, cut in itertools.product((1.0, -1.0), EXTREMES, EXTREMES):
        query = make_query(
            ScoreSum,
            3,
            radius=0.9,
            intercept=0.3,
            records=1 if cut < 1.0 else 3,
            family=family,
            point=tuple(far * each for each in FAR),
            dispersion=dispersion,
            residual_cut=cut,
        )
        found = search(query, mechanism, starts=4, seed=1)
        assert not found.exceeds
        # Else weights may be too small for a score of a step of the lattice.
        if cut < 1.0 and dispersion == 1e-6 and (family == "logistic" or far < 0.0):
            assert found.distance > 0.5


@pytest.mark.parametrize("family", FAMILIES)
def test_pitfall_15_a_target_as_wide_as_floats_makes_no_row_that_is_not_in_the_ball(family):
    middle, half = 9e29, 8.9e29
    for sign, dispersion, cut in itertools.product((1.0, -1.0), EXTREMES, EXTREMES):
        query = make_query(
            ScoreSum, 3, family=family, point=FAR, dispersion=dispersion, residual_cut=cut
        )
        target = query.columns[-1].model_copy(update={"centre": sign * middle, "scale": half})
        wide = query.model_dump() | {"columns": (*query.columns[:-1], target), "grid_bits": 4}
        query = ScoreSum.model_validate(wide | {"records_per_client": len(EXTREME_FLOATS)})
        rows = query.rows(np.array([[1.0, -1.0, each] for each in EXTREME_FLOATS]))
        assert np.all(np.sum(rows[:, :-1] ** 2, axis=1) <= query.squared_norm_limit)
        assert set(rows[:, -1].tolist()) <= {0, 1}


@pytest.mark.parametrize(("centre", "scale"), [(0.0, math.inf), (1.7e30, 1e29), (-1e29, 1e41)])
def test_pitfall_15_a_target_beyond_all_data_is_refused(centre, scale):
    query = make_query(ScoreSum, 3)
    target = query.columns[-1].model_dump() | {"centre": centre, "scale": scale}
    with pytest.raises(ValidationError, match=r"finite|than or equal"):
        ScoreSum.model_validate(
            query.model_dump() | {"columns": (*query.model_dump()["columns"][:-1], target)}
        )


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_and_means_are_floats_wherever_a_point_is(family):
    predictors = np.array([-1e9, -30.0, 0.0, 30.0, 1e9])
    means = mean_of(family, predictors)
    assert np.all(np.isfinite(means)) and (family == "normal" or np.all(means >= 0.0))
    for dispersion in EXTREMES:
        weights = weight_of(family, means, dispersion)
        assert np.all((weights >= 0.0) & (weights <= (1.1e13 if family == "gamma" else 1.0)))


@given(
    query=score_sums,
    numbers=st.lists(
        st.sampled_from(EXTREME_FLOATS) | st.floats(allow_nan=False, allow_infinity=False),
        min_size=21,
        max_size=21,
    ),
)
def test_a_score_is_in_its_ball_and_no_coordinate_above_the_largest_value(query, numbers):
    records = np.resize(np.array(numbers), (query.records_per_client, len(query.columns)))
    rows = query.rows(records)
    assert np.all(np.sum(rows[:, :-1] ** 2, axis=1) <= query.grid**2)
    assert np.all((rows[:, -1] == 0) | (rows[:, -1] == 1))
    assert np.abs(query.encode(records)).max() <= query.largest_value


def basis_of(matrix):
    """Return the basis whose rows are those of a lower-triangular matrix."""
    return tuple(tuple(row[: place + 1].tolist()) for place, row in enumerate(matrix))


def bases(size):
    """Yield bases of so many coordinates, or of fewer."""
    numbers = np.random.default_rng(size).uniform(-1.0, 1.0, (size, size))
    yield "random", 10.0 * numbers
    yield "ill-conditioned", np.diag(np.geomspace(1e-6, 1e5, size)) + 1e-3 * numbers
    yield "large", LARGEST_COORDINATE * np.where(numbers > 0.0, 1.0, -1.0)
    yield "of zeros but for one row", numbers * (np.arange(size) == size - 1)[:, None] * 8.0
    yield "of fewer coordinates", 10.0 * numbers[: size - 1, : size - 1]
    yield "of hardly anything", 1e-300 * numbers


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("records", [1, 3])
@pytest.mark.parametrize("kind", [ScoreSum, ClassScoreSum, HazardScoreSum])
def test_pitfall_15_no_basis_exceeds_the_sensitivity(kind, records, mechanism):
    plain = make_query(kind, 5, records=records)
    for name, matrix in bases(plain.coordinates):
        query = kind.model_validate(plain.model_dump() | {"basis": basis_of(matrix)})
        found = search(query, mechanism, starts=4, seed=1)
        assert not found.exceeds, name
        if name == "random":
            assert found.distance > 0.6


def test_a_basis_of_ones_on_the_diagonal_is_none():
    for kind in (ScoreSum, ClassScoreSum, HazardScoreSum):
        query = make_query(kind, 5, records=4, radius=0.7)
        ones = query.model_copy(update={"basis": basis_of(np.eye(query.coordinates))})
        records = np.random.default_rng(1).uniform(-1.0, 1.0, (4, 5))
        assert np.array_equal(ones.encode(records), query.encode(records))
        for mechanism in MECHANISMS:
            assert ones.design(mechanism) == query.design(mechanism)


def test_a_coordinate_beyond_the_basis_has_no_score_and_counts_in_predictors():
    query = make_query(ScoreSum, 3, point=(0.0, 0.0, 2.0), basis=((1.0,), (0.0, 1.0)))
    assert query.dimension == 6
    low, high = (query.encode(np.array([[0.25, offset, 0.9]])) for offset in (-1.0, 1.0))
    assert np.all(low[:2] > 0) and np.all(high[:2] < 0)


def test_squares_of_a_thousand_records_on_the_finest_grid_are_exact():
    query = make_query(ScoreSum, 2, records=1000, grid_bits=15, intercept=0.9, radius=0.9)
    records = np.tile([0.0, -1.0], (1000, 1))
    [row] = query.rows(records[:1]).tolist()
    sums = [1000 * each for each in row]
    assert abs(sums[0]) > 1000 * 2**15 * 0.99
    expected = [2**15 * sums[0], 2**15 * sums[1], sums[0] ** 2, sums[1] ** 2]
    assert query.encode(records).tolist() == [*expected, 4**15 * sums[2], 4**15 * 1000]
    assert max(map(abs, expected)) <= query.largest_value == 1000**2 * 4**15
    assert query.largest_value * 2048 < 2**61  # of so many clients a sum is in the ring


def test_a_residual_at_the_cut_is_not_cut_and_one_beyond_it_is():
    # At 0 a count's mean is 1.
    query = make_query(ScoreSum, 2, family="poisson", point=(0.0, 0.0), residual_cut=0.5)
    targets = (0.5, 0.5 - 1e-15, 0.5 + 1e-15, -1.0, 1.0)
    cut = [int(query.rows(np.array([[0.0, each]]))[0, -1]) for each in targets]
    assert cut == [0, 1, 0, 1, 0]


class OutOfTheBall(ScoreSum):
    """Scores that are not checked in integers, as other queries' rows are in a box."""

    def _on_the_lattice(self, arranged):
        return np.trunc(arranged * np.append(np.full(self.width, self.grid), 1.0)).astype(np.int64)


class ResidualsNotCut(OutOfTheBall):
    def _arranged(self, boxed):
        found = super()._arranged(boxed)
        rows = np.column_stack([np.full(len(boxed), self.intercept), boxed[:, :-1]])
        means = mean_of(self.family, rows @ np.array(self.point))
        residuals = self._targets(boxed[:, -1]) - means
        residuals *= weight_of(self.family, means, self.dispersion)
        cut = np.maximum(np.abs(residuals) / self.residual_cut, 1.0)
        return np.column_stack([found[:, :-1] * cut[:, None], found[:, -1]])


class NotWeighted(OutOfTheBall):
    """cut(v (y - m)) x / c: what is left if f / R is forgotten."""

    def _arranged(self, boxed):
        found = super()._arranged(boxed)
        rows = np.column_stack([np.full(len(boxed), self.intercept), boxed[:, :-1]])
        norms = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), self.radius)
        return np.column_stack([found[:, :-1] * norms, found[:, -1]])


class TargetAsLongAsFeatures(WeightedRowMatrix):
    """t forgotten, and rows not checked in integers."""

    def _arranged(self, boxed):
        rows = super()._arranged(boxed)
        rows[:, -1] /= self.target_limit
        return rows

    def _on_the_lattice(self, arranged):
        return np.trunc(arranged * self.grid).astype(np.int64)


class OfSeveralClasses(ClassScoreSum):
    """A record of several classes is of all of them; scores are not checked in integers."""

    def _arranged(self, boxed):
        found = super()._arranged(boxed)
        rows = np.column_stack([np.full(len(boxed), self.intercept), boxed[:, : -self.classes]])
        norms = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), self.radius)
        weighted = rows / norms / math.sqrt(2.0)
        said = boxed[:, -self.classes :] > 0.0
        more = said & (np.cumsum(said, axis=1) > 1)
        extra = more[:, :, None] * weighted[:, None, :]
        return found + extra.reshape(found.shape)

    def _on_the_lattice(self, arranged):
        return np.trunc(arranged * self.grid).astype(np.int64)


class HazardsNotShrunk(HazardScoreSum):
    """(k d, k m, (D - M) x) / (c R): f forgotten, and rows not checked in integers."""

    _on_the_lattice = OfSeveralClasses._on_the_lattice

    def _arranged(self, boxed):
        rows = np.column_stack([np.full(len(boxed), self.intercept), boxed[:, :-2]])
        norms = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), self.radius)
        return super()._arranged(boxed) * (norms / self.radius)


def with_scales(design, scales):
    """Return a design whose blocks have other scales, its sensitivity as it was."""
    pairs = zip(design.blocks, scales, strict=True)
    blocks = [
        NoiseBlock(coordinates=block.coordinates, relative_scale=scale or block.relative_scale)
        for block, scale in pairs
    ]
    return NoiseDesign(sensitivity=design.sensitivity, blocks=tuple(blocks))


PLANTED = [
    make_query(ResidualsNotCut, 4),
    make_query(NotWeighted, 4, intercept=0.3),
    make_query(TargetAsLongAsFeatures, 4, radius=0.9),
    make_query(OfSeveralClasses, 7, classes=5),
    make_query(HazardsNotShrunk, 4, radius=0.5),
]


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("query", PLANTED, ids=lambda query: type(query).__name__)
def test_a_planted_weakness_of_a_regressions_query_is_caught(query, mechanism):
    assert search(query, mechanism, starts=12, seed=1).exceeds


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("kind", [ResidualsNotCut, NotWeighted, TargetAsLongAsFeatures])
def test_a_row_that_was_made_too_long_is_shrunk_into_its_ball_all_the_same(kind, mechanism):
    base = WeightedRowMatrix if issubclass(kind, WeightedRowMatrix) else ScoreSum

    class InTheBall(kind):
        _on_the_lattice = base._on_the_lattice

    query = make_query(InTheBall, 4, radius=0.9, intercept=0.3)
    assert not search(query, mechanism, starts=6, seed=1).exceeds


@pytest.mark.parametrize("width", [4, 10, 40])
def test_many_records_against_one_opposite_record_are_no_further_apart_than_is_declared(width):
    """Squares are of sums, so what is left of nine records is more than nine records alone."""
    records = 10
    edge = 1.0 / math.sqrt(width)
    query = make_query(ScoreSum, width, records=records, intercept=edge, grid_bits=15)
    rows = np.full((records, width), edge)
    rows[:, -1] = -1.0
    one, other = rows, rows[:1] * np.append(np.ones(width - 1), -1.0)
    assert not exceeds(query, LAPLACE, one, other)
    design = query.design(LAPLACE)
    reach = query.unit / design.blocks[-1].relative_scale

    class AsOfRecords(ScoreSum):
        """The number's noise for sqrt(p) + 1 of a client left out, whose rows have squares."""

        def design(self, mechanism):
            most = 2.0 * math.sqrt(width + 1) + 0.5 - (math.sqrt(width) + 1.0)
            assert most * query.unit > reach
            return with_scales(design, (None, None, None, 1.0 / most))

    assert exceeds(AsOfRecords(**query.model_dump()), LAPLACE, one, other) == (width > 4)


def test_opposite_scores_of_which_one_was_cut_are_as_far_apart_as_is_declared():
    query = make_query(ScoreSum, 4)
    one, other = (np.array([[0.5, 0.5, 0.5, target]]) for target in (1.0, -1.0))
    gap = query.encode(one) - query.encode(other)
    assert gap[:4].tolist() == [query.grid**2] * 4
    assert gap[4:].tolist() == [0, 0, 0, 0, -(query.grid**2), 0]
    assert query.design(GAUSSIAN).sensitivity == pytest.approx(math.sqrt(4.25) * query.grid**2)
    assert not exceeds(query, GAUSSIAN, one, other)


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_opposite_class_scores_are_as_far_apart_as_is_declared(classes):
    """Who is likely changes between two records that are alike but for that."""
    query = make_query(ClassScoreSum, classes + 2, classes=classes, grid_bits=15)
    edge = math.sqrt(0.375)
    rows = np.full((2, classes + 2), -1.0)
    rows[:, :2] = edge
    rows[:, 0] += np.array([1.0, -1.0]) * 4e-3
    rows[0, 3] = rows[1, 2] = 1.0  # each is of the class that is unlikely there
    found = np.linalg.norm(query.rows(rows[:1]) - query.rows(rows[1:])) / query.grid
    assert 2.0 * (1.0 - 1e-2) < found <= 2.0
    assert not exceeds(query, GAUSSIAN, rows[:1], rows[1:])
