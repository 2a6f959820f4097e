"""Which of a client's records count: a choice that only its key makes."""

from itertools import pairwise

import numpy as np
import pytest

from shoal_holder.records import MOST_ROWS, Identity, Records, chosen_together, in_chosen_order
from tests.world.people import people, rows_at

SEED, OTHER_SEED = bytes(32), bytes([1]) * 32
STARTS = [0, 500, 1000]
FEW, MANY = 3, 5 * MOST_ROWS
RECORDS = people(
    ("x",),
    np.arange(float(FEW + MANY + 1))[:, None],
    [0, FEW, FEW + MANY, FEW + MANY + 1],
)


def rows_of(records: Records, position: int) -> list[float]:
    return rows_at(records, position, ("x",))[:, 0].tolist()


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
    records = people(("x",), rows, [0, len(rows)])
    found = [chosen(records, most) for most in (0, 5, 20, 100)]

    assert [len(each) for each in found] == [0, 5, 20, 33]
    for fewer, more in pairwise(found):
        assert more[: len(fewer)] == fewer
    assert not np.isnan(found[-1]).any()


def test_one_row_more_displaces_one_other_at_most() -> None:
    few, more = np.arange(40.0), np.arange(41.0)

    def taken(values: np.ndarray) -> set[float]:
        records = people(("x",), values[:, None], [0, len(values)])
        return set(chosen(in_chosen_order(records, [SEED]), 10))

    assert len(taken(few) - taken(more)) <= 1


class Counting(np.ndarray):
    """An array that counts the numbers that are copied out of it, whatever is looked at."""

    read = 0

    def __getitem__(self, key: object) -> np.ndarray:
        found = super().__getitem__(key)  # type: ignore[call-overload]
        if not np.may_share_memory(found, self):
            Counting.read += found.size
        return found

    def take(self, *where: object, **named: object) -> np.ndarray:
        found = np.asarray(self).take(*where, **named)  # type: ignore[arg-type]
        Counting.read += found.size
        return found


@pytest.mark.parametrize("with_gaps", [False, True])
def test_of_a_table_only_the_columns_that_are_asked_for_are_read(with_gaps: bool) -> None:
    """An answer has time for these alone, by `release_timing.encoding_seconds`."""
    rows, most, found = 500, 3, []
    for width in (10, 300):
        records = people([f"x_{each}" for each in range(width)], np.ones((2 * rows, width)), STARTS)
        for name in ("values", "missing", "empty"):
            records.__dict__[name] = getattr(records, name).view(Counting)
        Counting.read = 0
        asked = [f"x_{each}" for each in (7, 2, 5)]
        values, present = chosen_together(
            records, [0, None, 1], asked, most=most, with_gaps=with_gaps
        )
        assert present.sum() == 2 * most and values.sum() == 2 * most * len(asked)
        found.append(Counting.read)
    assert found[0] == found[1] <= 2 * (rows * len(asked) + most * len(asked))


def test_of_an_individuals_rows_as_many_count_as_its_identity_says() -> None:
    values = np.array([[1.0], [np.nan], [2.0], [3.0], [4.0], [5.0]])
    starts = np.array([0, 5, 6])
    for most, limit, expected in ((9, 9, [1, 2, 3, 4]), (2, 9, [1, 2]), (9, 1, [1])):
        records = Records(("x",), values, starts, Identity("id", ("a", "b"), limit))
        found, there = chosen_together(records, [0, 1], ("x",), most=most)
        assert found[0, there[0], 0].tolist() == expected
        assert found[1, there[1], 0].tolist() == [5.0]
