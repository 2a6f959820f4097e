"""What working out an answer takes: memory and time by public numbers alone, and no more."""

import tracemalloc
from pathlib import Path
from typing import Any, cast

import pytest
from pyroaring import BitMap

from bench.allowances import place, queries
from shoal_holder.contribution import MOST_ENTRIES
from shoal_holder.faults import Faults
from shoal_holder.records import MOST_ROWS
from shoal_holder.rounds import Answers, encoding_allowed
from shoal_holder.status import silent
from shoal_kit.clock import system_clock
from shoal_protocol.queries import Query

ARRAYS = 24  # of the largest size that are there at once


def peak(directory: Path, query: Query, slots: int, columns: int) -> int:
    """Return how many bytes are taken at once to work out an answer for so many slots."""
    here = place(columns, 1, lacking=False)
    faults = Faults(directory, system_clock)
    work = Answers(cast(Any, here), cast(Any, None), silent, faults)
    asked = list(range(slots))
    tracemalloc.start()
    try:
        work.encoded("", query, asked, BitMap(asked))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("columns", "most"), [(2, 100), (10, 50), (200, 2)])
def test_memory_follows_neither_from_slots_nor_from_records_that_count(
    tmp_path: Path, columns: int, most: int
) -> None:
    for query in queries(columns, most):
        taken = peak(tmp_path, query, 400, columns)
        assert taken < ARRAYS * 8 * MOST_ENTRIES, query.name


def test_a_long_vector_of_many_slots_takes_no_more_than_one_of_few(tmp_path: Path) -> None:
    entries = 5000
    [query] = queries(entries, 1)
    few, many = (peak(tmp_path, query, slots, entries) for slots in (50, 400))
    assert many < 1.2 * few < ARRAYS * 8 * MOST_ENTRIES


@pytest.mark.parametrize("columns", [2, 10, 100])
def test_an_answer_has_time_for_all_rows_of_the_columns_that_it_asks_for(columns: int) -> None:
    """At a nanosecond a value, and for all records that may count, whatever a place holds."""
    for query in queries(columns, 1):
        for slots in (1, 400):
            allowed = encoding_allowed(query, slots)
            assert allowed > 1e-9 * slots * MOST_ROWS * len(query.column_names)
            more = query.model_copy(update={"records_per_client": 1000})
            assert encoding_allowed(more, slots) > 100 * 1e-9 * slots * 1000 + allowed
