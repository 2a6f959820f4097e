"""The sensitivity of counts, of levels and over bins: every pair of neighbours is tried."""

import itertools
import math

import numpy as np
import pytest
from pydantic import ValidationError

from shoal_protocol.queries import Column, Counts, EdgeCut, LevelCut
from shoal_protocol.queries.sums import in_units
from tests.privacy.sensitivity_search import EXTREME_FLOATS, exceeds, largest_distance

GAUSSIAN, LAPLACE = MECHANISMS = ("discrete_gaussian", "discrete_laplace")
LEVELS = [1, 2, 3]
EDGES = [(0.0, 1.0, 2.0), (-1.5, 0.0, 1e-300, 7.0)]


def counts_of(cut, *, records=1, grid_bits=20):
    return Counts(
        columns=(Column(name="c", centre=0.5, scale=0.5),),
        cut=cut,
        grid_bits=grid_bits,
        records_per_client=records,
    )


def make_counts(levels, **more):
    cut = LevelCut(column=0, levels=tuple(float(each) for each in range(levels)))
    return counts_of(cut, **more)


def make_bins(edges, **more):
    return counts_of(EdgeCut(column=0, edges=edges), **more)


def values_of(query):
    return query.cut.edges if isinstance(query.cut, EdgeCut) else query.cut.levels


def all_clients(query):
    """Every client there can be, up to the order of its records: from none of them to the most."""
    for size in range(query.records_per_client + 1):
        for records in itertools.combinations_with_replacement([*values_of(query), -7.5], size):
            yield np.array(records)[:, None]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("records", [1, 2, 3])
@pytest.mark.parametrize("shape", [*LEVELS, *EDGES], ids=str)
def test_pitfall_15_the_sensitivity_of_counts_and_bins_is_reached_and_never_exceeded(
    shape, records, mechanism
):
    query = (make_counts if shape in LEVELS else make_bins)(shape, records=records)
    declared = query.design(mechanism).sensitivity / query.grid
    clients = list(all_clients(query))
    assert largest_distance(query, mechanism, clients) == pytest.approx(declared, rel=1e-14)
    for one, two in itertools.product(clients, repeat=2):
        assert not exceeds(query, mechanism, one, two)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("query", [*map(make_counts, LEVELS), *map(make_bins, EDGES)])
def test_pitfall_15_any_float_is_counted_in_one_cell(query, mechanism):
    ends = values_of(query)
    nearby = [math.nextafter(end, to) for end in ends for to in (-math.inf, math.inf)]
    clients = [np.array([[each]]) for each in (*EXTREME_FLOATS, *ends, *nearby)]
    for one, two in itertools.product(clients, clients):
        assert sorted(query.encode(one)) == [0] * (query.cut.cells - 1) + [query.grid] * 2
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


@pytest.mark.parametrize("query", [make_counts(2), make_bins(EDGES[0])])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_pitfall_15_what_is_not_a_finite_number_is_not_counted(bad, query):
    with pytest.raises(ValueError, match="not a finite number"):
        query.encode(np.array([[bad]]))


def test_counts_are_whole_records_on_the_lattice_whoever_has_no_level():
    query = make_counts(2, records=4)
    assert query.encode(np.array([[0.0], [1.0], [1.0], [9.0]])).tolist() == [
        count << 20 for count in (1, 2, 1, 4)
    ]
    alone = make_counts(1, records=3)
    assert alone.encode(np.array([[0.0], [9.0], [9.0]])).tolist() == [1 << 20, 2 << 20, 3 << 20]
    assert in_units(query, np.array([1 << 19, 0, 3 << 20, 0])).tolist() == [0.5, 0.0, 3.0, 0.0]


@pytest.mark.parametrize(
    "change",
    [
        {"cut": {"kind": "levels", "column": 0, "levels": ()}},
        {"cut": {"kind": "levels", "column": 0, "levels": (0.0, -0.0)}},
        {"cut": {"kind": "levels", "column": 0, "levels": (math.nan,)}},
        {"cut": {"kind": "levels", "column": 1, "levels": (0.0,)}},
        {"cut": {"kind": "levels", "column": 0, "indicator": 0, "levels": (0.0,)}},
        {"columns": ()},
        {"grid_bits": 3},
        {"grid_bits": 25},
        {"records_per_client": 0},
        {"weights": (1.0,)},
    ],
)
def test_a_count_that_contradicts_itself_is_refused(change):
    with pytest.raises(ValidationError):
        Counts.model_validate(make_counts(2).model_dump() | change)
