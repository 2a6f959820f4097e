"""The sensitivity of counts, of levels and over bins: every pair of neighbours is tried."""

import itertools
import math

import numpy as np
import pytest
from pydantic import ValidationError

from shoal_protocol.queries import BinCounts, Column, Counts
from shoal_protocol.queries.sums import in_units
from tests.privacy.sensitivity_search import EXTREME_FLOATS, exceeds, largest_distance

GAUSSIAN, LAPLACE = MECHANISMS = ("discrete_gaussian", "discrete_laplace")
SHAPES = [(1, True), (2, False), (2, True), (3, True)]
EDGES = [(0.0, 1.0, 2.0), (-1.5, 0.0, 1e-300, 7.0)]


def make_counts(levels, *, other, records=1, grid_bits=20):
    return Counts(
        columns=(Column(name="c", centre=0.5, scale=0.5),),
        levels=tuple(float(each) for each in range(levels)),
        other=other,
        grid_bits=grid_bits,
        records_per_client=records,
    )


def make_bins(edges, *, records=1, grid_bits=20):
    return BinCounts(
        columns=(Column(name="c", centre=0.5, scale=0.5),),
        edges=edges,
        grid_bits=grid_bits,
        records_per_client=records,
    )


def all_clients(query):
    """Every client there can be, up to the order of its records: from none of them to the most."""
    values = [*(query.edges if isinstance(query, BinCounts) else query.levels), -7.5]
    for size in range(query.records_per_client + 1):
        for records in itertools.combinations_with_replacement(values, size):
            yield np.array(records)[:, None]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("records", [1, 2, 3])
@pytest.mark.parametrize("shape", [*SHAPES, *EDGES], ids=str)
def test_pitfall_15_the_sensitivity_of_counts_and_bins_is_reached_and_never_exceeded(
    shape, records, mechanism
):
    if shape in SHAPES:
        query = make_counts(shape[0], other=shape[1], records=records)
    else:
        query = make_bins(shape, records=records)
    declared = query.design(mechanism).sensitivity / query.grid
    clients = list(all_clients(query))
    assert largest_distance(query, mechanism, clients) == pytest.approx(declared, rel=1e-14)
    for one, two in itertools.product(clients, repeat=2):
        assert not exceeds(query, mechanism, one, two)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("levels", "other"), SHAPES)
def test_pitfall_15_no_float_whatever_is_counted_in_two_cells_or_moves_counts_further(
    levels, other, mechanism
):
    query = make_counts(levels, other=other)
    clients = [np.array([[each]]) for each in (*EXTREME_FLOATS, *query.levels)]
    for one, two in itertools.product(clients, clients):
        assert np.abs(query.encode(one)).max() <= query.grid
        assert other is False or query.encode(one)[-1] == query.grid
        assert not exceeds(query, mechanism, one, two)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("edges", EDGES)
def test_pitfall_15_any_float_is_counted_in_one_bin(edges, mechanism):
    query = make_bins(edges)
    nearby = [math.nextafter(edge, to) for edge in edges for to in (-math.inf, math.inf)]
    clients = [np.array([[each]]) for each in (*EXTREME_FLOATS, *edges, *nearby)]
    for one, two in itertools.product(clients, clients):
        assert sorted(query.encode(one)) == [0] * (query.cells - 1) + [query.grid] * 2
        assert not exceeds(query, mechanism, one, two)


def test_a_bin_begins_at_its_lower_edge_and_the_outer_ones_have_all_beyond():
    query = make_bins((0.0, 1.0, 2.0, 3.0), records=9)
    values = [-5.0, 0.0, 0.9, 1.0, 1.5, 2.0, 3.0, 3.5]
    counts = query.encode(np.array(values)[:, None]) >> 20
    assert counts.tolist() == [3, 2, 3, 8]
    assert (query.encode(np.empty((0, 1))) == 0).all()


@pytest.mark.parametrize(
    "edges", [(), (0.0,), (0.0, 1.0), (0.0, 0.0, 1.0), (0.0, -0.0, 1.0), (0.0, 2.0, 1.0)]
)
def test_edges_that_make_no_two_bins_are_refused(edges):
    with pytest.raises(ValidationError):
        make_bins(edges)


@pytest.mark.parametrize("query", [make_counts(2, other=True), make_bins(EDGES[0])])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_pitfall_15_what_is_not_a_finite_number_is_not_counted(bad, query):
    with pytest.raises(ValueError, match="not a finite number"):
        query.encode(np.array([[bad]]))


def test_counts_are_whole_records_on_the_lattice_whoever_has_no_level():
    query = make_counts(2, other=True, records=4)
    assert query.encode(np.array([[0.0], [1.0], [1.0], [9.0]])).tolist() == [
        count << 20 for count in (1, 2, 1, 4)
    ]
    alone = make_counts(1, other=True, records=3)
    assert alone.encode(np.array([[0.0], [9.0], [9.0]])).tolist() == [1 << 20, 2 << 20, 3 << 20]
    assert in_units(query, np.array([1 << 19, 0, 3 << 20, 0])).tolist() == [0.5, 0.0, 3.0, 0.0]


@pytest.mark.parametrize(
    "change",
    [
        {"levels": ()},
        {"levels": (0.0,), "other": False},
        {"levels": (0.0, -0.0)},
        {"levels": (math.nan,)},
        {"columns": ()},
        {"grid_bits": 3},
        {"grid_bits": 25},
        {"records_per_client": 0},
        {"weights": (1.0,)},
    ],
)
def test_a_count_that_contradicts_itself_is_refused(change):
    with pytest.raises(ValidationError):
        Counts.model_validate(make_counts(2, other=True).model_dump() | change)
