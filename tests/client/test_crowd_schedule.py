"""When clients contribute: at random over the job's time, as often as they may, never too late."""

import os
from collections import Counter
from datetime import timedelta

import pytest
from scipy import stats

from shoal_holder.crowds.schedule import LAST_MOMENTS, Schedule
from shoal_holder.noise import FairBits
from tests.world.clock import NOW

END = NOW + timedelta(seconds=1000)
LATEST = 1000 * (1 - LAST_MOMENTS)


def moments(schedule: Schedule) -> list[tuple[float, int]]:
    """Return (seconds, client) of all contributions, in order."""
    found = []
    while (moment := schedule.next_moment) is not None:
        [client] = schedule.due(moment, most=1)
        found.append(((moment - NOW).total_seconds(), client))
    return found


def test_each_client_contributes_as_often_as_it_may_in_time() -> None:
    schedule = Schedule({0: 3, 1: 1, 2: 0, 3: -1}, now=NOW, end=END, random_bytes=os.urandom)
    found = moments(schedule)
    assert Counter(client for _, client in found) == {0: 3, 1: 1}
    assert found == sorted(found)
    assert 0.0 < found[0][0] and found[-1][0] <= LATEST


@pytest.mark.parametrize("each", [1, 4])
def test_the_moments_are_uniform_over_the_time(each: int) -> None:
    """Kolmogorov and Smirnov's test of 4000 moments: fails on right ones once in 10^9 runs."""
    left = dict.fromkeys(range(4000 // each), each)
    found = moments(Schedule(left, now=NOW, end=END, random_bytes=os.urandom))
    seconds = [moment / LATEST for moment, _ in found]
    assert len(seconds) == 4000
    assert stats.kstest(seconds, "uniform").pvalue > 1e-9


def test_a_schedule_that_begins_again_has_the_rest_in_what_is_left_of_the_time() -> None:
    later = NOW + timedelta(seconds=500)
    found = moments(Schedule({0: 50}, now=later, end=END, random_bytes=os.urandom))
    assert len(found) == 50
    assert all(500 < seconds <= 950 for seconds, _ in found)


def test_who_is_late_is_due_in_portions() -> None:
    schedule = Schedule(dict.fromkeys(range(10), 1), now=NOW, end=END, random_bytes=os.urandom)
    portions = [schedule.due(END, most=4) for _ in range(4)]
    assert [len(each) for each in portions] == [4, 4, 2, 0]
    assert sorted(client for each in portions for client in each) == list(range(10))


def test_a_time_that_is_over_leaves_everything_due_now() -> None:
    schedule = Schedule({0: 1}, now=END, end=NOW, random_bytes=os.urandom)
    assert schedule.next_moment == END


def test_a_record_is_chosen_by_lot_among_all() -> None:
    """Chi-square over 7 records, 7000 draws: fails on a fair lot once in 10^9 runs."""
    lots = FairBits(os.urandom)
    counts = Counter(lots.below(7) for _ in range(7000))
    assert stats.chisquare([counts[each] for each in range(7)]).pvalue > 1e-9
