"""Which of a client's records count: a choice that only its key makes."""

from itertools import pairwise

import numpy as np

from shoal_holder.choice import MOST_ROWS, chosen_together, in_chosen_order
from shoal_holder.records import Records
from tests.world.people import people

SEED, OTHER_SEED = bytes(32), bytes([1]) * 32
FEW, MANY = 3, 5 * MOST_ROWS
RECORDS = people(
    ("x",),
    np.arange(float(FEW + MANY + 1))[:, None],
    [0, FEW, FEW + MANY, FEW + MANY + 1],
)


def rows_of(records: Records, position: int) -> list[float]:
    return records.of(position, ("x",))[:, 0].tolist()


def chosen(records: Records, most: int) -> list[float]:
    """Return the values of `x` of the first client's records that count."""
    values, there = chosen_together(records, [0], ("x",), most=most)
    return values[there][:, 0].tolist()


def test_of_a_client_with_very_many_rows_as_many_are_kept_as_a_choice_has_time_for() -> None:
    kept = in_chosen_order(RECORDS, [SEED, SEED, SEED])

    assert kept.counts.tolist() == [FEW, MOST_ROWS, 1]
    assert sorted(rows_of(kept, 0)) == rows_of(RECORDS, 0)
    assert rows_of(kept, 2) == rows_of(RECORDS, 2)
    assert set(rows_of(kept, 1)) < set(rows_of(RECORDS, 1))


def test_records_of_one_row_each_stay_as_they_are() -> None:
    single = people(("x",), np.arange(3.0)[:, None])
    assert in_chosen_order(single, [SEED] * 3) is single


def test_the_order_is_the_same_every_time_and_another_keys_choice_is_another() -> None:
    first, again = (rows_of(in_chosen_order(RECORDS, [SEED] * 3), 1) for _ in range(2))
    other = rows_of(in_chosen_order(RECORDS, [OTHER_SEED] * 3), 1)

    assert first == again
    assert first != other


def test_a_larger_bound_takes_the_smaller_ones_records_and_more() -> None:
    rows = np.arange(50.0)[:, None]
    rows[::3] = np.nan
    records = Records(("x",), rows, np.array([0, len(rows)]))
    found = [chosen(records, most) for most in (0, 5, 20, 100)]

    assert [len(each) for each in found] == [0, 5, 20, 33]
    for fewer, more in pairwise(found):
        assert more[: len(fewer)] == fewer
    assert not np.isnan(found[-1]).any()


def test_one_row_more_displaces_one_other_at_most() -> None:
    few, more = np.arange(40.0), np.arange(41.0)

    def taken(values: np.ndarray) -> set[float]:
        records = Records(("x",), values[:, None], np.array([0, len(values)]))
        return set(chosen(in_chosen_order(records, [SEED]), 10))

    assert len(taken(few) - taken(more)) <= 1
