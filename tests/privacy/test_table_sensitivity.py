"""The sensitivity of tables: every pair of neighbours is tried, also with missing values."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shoal_protocol.queries import Axis, Column, EdgeCut, LevelCut, Table, Tables
from shoal_protocol.queries.columns import Power, Term
from shoal_protocol.queries.sums import tables_from
from tests.privacy.sensitivity_search import EXTREME_FLOATS, exceeds, largest_distance

GAUSSIAN, LAPLACE = MECHANISMS = ("discrete_gaussian", "discrete_laplace")
TREE = (Table(axes=(Axis(cut=0, merged=2),)), Table(axes=(Axis(cut=0),)))
CROSS = Table(axes=(Axis(cut=0, merged=2), Axis(cut=1)), scale=0.6)
TERM = Term(factors=(Power(variable="c0", lower=0.0, upper=1.0, exponent=1),))
SHAPES = {
    "one table": TREE[1:],
    "a tree": TREE,
    "a tree and a cross": (*TREE, CROSS),
    "scales": (TREE[0].model_copy(update={"scale": 7.3}), CROSS),
}


def make(tables=(*TREE, CROSS), *, records=1, indicator=None, grid_bits=20):
    cuts = (
        EdgeCut(column=0, indicator=indicator, edges=(0.0, 1.0, 2.0, 3.0, 4.0)),
        LevelCut(column=1, levels=(5.0, -1.0)),
    )
    used = 1 + any(axis.cut for table in tables for axis in table.axes)
    columns = [Column(name=f"c{place}", centre=0.5, scale=0.5) for place in range(used)]
    if indicator is not None:
        columns.append(Column(name="flag", centre=0.5, scale=0.5))
    return Tables(
        columns=tuple(columns),
        cuts=cuts[:used],
        tables=tables,
        grid_bits=grid_bits,
        records_per_client=records,
    )


def all_clients(query):
    """Every client there can be, up to the order of its records: from none of them to the most."""
    values = [(-2.0, 1.5, 2.5, 9.0, math.nan), (5.0, -1.0, 0.0, math.nan), (0.0, 1.0, math.nan)]
    rows = list(itertools.product(*values[: len(query.columns)]))
    for size in range(query.records_per_client + 1):
        for records in itertools.combinations_with_replacement(rows, size):
            yield np.array(records).reshape(size, len(query.columns))


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("records", [1, 2])
@pytest.mark.parametrize("tables", SHAPES.values(), ids=SHAPES)
def test_pitfall_15_the_sensitivity_of_tables_is_reached_and_never_exceeded(
    tables, records, mechanism
):
    query = make(tables, records=records)
    declared = query.design(mechanism).sensitivity / query.grid
    assert largest_distance(query, mechanism, all_clients(query)) == pytest.approx(
        declared, rel=1e-14
    )
    clients = list(all_clients(query))
    worst = clients if records == 1 else clients[::17]
    for one, two in itertools.product(worst, worst):
        assert not exceeds(query, mechanism, one, two)


@given(
    mechanism=st.sampled_from(MECHANISMS),
    numbers=st.lists(
        st.sampled_from((*EXTREME_FLOATS, math.nan)) | st.floats(allow_infinity=False),
        min_size=12,
        max_size=12,
    ),
    scales=st.lists(st.floats(0.01, 100.0), min_size=3, max_size=3),
    records=st.integers(0, 2),
)
def test_pitfall_15_no_float_whatever_moves_tables_further(mechanism, numbers, scales, records):
    tables = [
        table.model_copy(update={"scale": scale})
        for table, scale in zip((*TREE, CROSS), scales, strict=True)
    ]
    query = make(tuple(tables), records=2, indicator=2)
    one, other = np.array(numbers).reshape(2, 2, 3)
    for each in (one, other):
        *cells, count = query.encode(each) / query.grid
        assert count == 2 and all(0 <= cell <= 2 for cell in cells)
        assert sum(cells) == 2 * len(tables)  # each record is in one cell of each table
    assert not exceeds(query, mechanism, one, other[:records])


@pytest.mark.parametrize("bad", [math.inf, -math.inf])
def test_pitfall_15_what_is_infinite_is_not_counted(bad):
    with pytest.raises(ValueError, match="not a finite number"):
        make().encode(np.array([[0.0, bad]]))
    with pytest.raises(ValueError, match="at most 1 records"):
        make().encode(np.zeros((2, 2)))


@pytest.mark.parametrize(
    "change",
    [
        {"columns": ()},
        {"columns": make().columns[:1]},
        {"columns": (make().columns[0],) * 2},
        {"cuts": make().cuts[:1]},
        {"cuts": (make().cuts[0], LevelCut(column=1, indicator=7, levels=(1.0,)))},
        {"tables": ()},
        {"tables": TREE},
        {"tables": (Table(axes=(Axis(cut=0, merged=3),)), CROSS)},
        {"tables": (*TREE, CROSS.model_dump() | {"scale": 0.0})},
        {"grid_bits": 3},
        {"records_per_client": 0},
        {"levels": (1.0,)},
        {"columns": (make().columns[0], make().columns[1].model_copy(update={"term": TERM}))},
    ],
)
def test_tables_that_contradict_themselves_are_refused(change):
    with pytest.raises(ValidationError):
        Tables.model_validate(make().model_dump() | change)


def test_a_missing_value_is_a_cell_like_any_other():
    query = make(records=9, indicator=2)
    values = [
        *[(-5.0, 5.0, 0.0), (0.0, 5.0, 0.0), (1.0, 7.0, 0.0), (3.9, -1.0, 0.5), (4.0, -1.0, 0.0)],
        *[(math.nan, 5.0, 0.0), (2.0, 5.0, 1.0), (2.0, 5.0, math.nan), (2.0, math.nan, 0.0)],
    ]
    halves, bins, crossed = tables_from(query, query.encode(np.array(values)).astype(float)[:])
    assert halves.tolist() == [3, 3, 3]
    assert bins.tolist() == [2, 1, 1, 2, 3]
    assert crossed.tolist() == [2, 0, 1, 0, 2, 0, 4]
    assert (query.encode(np.empty((0, 3))) == 0).all()
