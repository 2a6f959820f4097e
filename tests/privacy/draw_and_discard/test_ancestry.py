"""How many noises later snapshots share since a contribution, against crowds that are simulated.

A simulated crowd remembers of each instance which noises it has had since the contribution.
Seeds are fixed; each test says how often it would fail if the bound were exactly reached.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from figures.draw_and_discard.ancestry import Ancestry

RUNS = 400
UNMET = FEWER = 0.05

SERIAL = Ancestry(instances=5, later=500, overlap=0)
OVERLAPPING = Ancestry(instances=4, later=700, overlap=2)
GOING_ON = Ancestry(instances=4, later=700, overlap=2, goes_on=True)
SINGLE = Ancestry(instances=1, later=30, overlap=0)


def run(ancestry: Ancestry, generator: np.random.Generator) -> tuple[bool, int]:
    """Return whether any instance descends from the contribution, and how many noises all share.

    0 shared noises if only some descend from it. Lags are whatever `overlap` allows. If the crowd
    goes on, as many open draws as there may be are instances too.
    """
    k, overlap = ancestry.instances, ancestry.overlap
    # each instance's noises since the contribution, itself the first; None if it has none of it
    instances: list[tuple[int, ...] | None] = [None] * k
    history = [tuple(instances)]
    for submission in range(ancestry.later + 1):
        lag = int(generator.integers(0, min(overlap, submission) + 1))
        drawn = history[submission - lag][generator.integers(k)]
        here = (submission,) if submission == 0 else None if drawn is None else (*drawn, submission)
        instances[generator.integers(k)] = here
        history.append(tuple(instances))
    if ancestry.goes_on:
        for lag in range(1, overlap + 1):
            instances.append(history[-1 - lag][generator.integers(k)])
        k = ancestry.lineages
    alive = [each for each in instances if each is not None]
    if len(alive) < k:
        return bool(alive), 0
    shared = 0
    for noises in zip(*alive, strict=False):
        if len(set(noises)) > 1:
            break
        shared += 1
    return True, shared


def at_most(count: int, chance: float) -> bool:
    """Tell whether a count of `RUNS` is no further above its mean than 4 standard deviations."""
    return count <= RUNS * chance + 4.0 * math.sqrt(RUNS * chance * (1.0 - chance))


@pytest.mark.slow
@pytest.mark.parametrize("ancestry", [SERIAL, OVERLAPPING, GOING_ON, SINGLE], ids=str)
def test_a_contribution_that_lasts_has_as_many_noises_after_it_as_is_said(
    ancestry: Ancestry,
) -> None:
    # 4 standard deviations: a false alarm in 30,000 runs, were the bound exact
    generator = np.random.default_rng(11)
    found = [run(ancestry, generator) for _ in range(RUNS)]
    least = ancestry.trunk(unmet=UNMET, failure=FEWER)
    assert least >= 5
    short = sum(lasts and shared < least for lasts, shared in found)
    survival = ancestry.survival(unmet=UNMET)
    assert at_most(short, UNMET + survival * FEWER)
    assert at_most(sum(lasts for lasts, _ in found), survival)
    # and it is no idle bound: half as many again would be too many for some
    if ancestry.instances > 1:
        assert sum(lasts and shared < 3 * least for lasts, shared in found) > 0


def exact_chance_not_met(k: int, submissions: int) -> float:
    """Return the probability that k lineages have not met: i of them become i - 1 by i(i-1)/k^2."""
    left = np.zeros(k + 1)
    left[k] = 1.0
    counts = np.arange(k + 1)
    falls = counts * (counts - 1) / k**2
    for _ in range(submissions):
        moved = left * falls
        left = left - moved
        left[:-1] += moved[1:]
    return float(left[2:].sum())


@pytest.mark.parametrize("k", [2, 3, 10, 40])
@pytest.mark.parametrize("failure", [0.1, 1e-3, 1e-7])
def test_lineages_have_met_when_it_is_said_and_not_much_earlier(k: int, failure: float) -> None:
    meeting = Ancestry(instances=k, later=0, overlap=0).meeting(failure)
    assert exact_chance_not_met(k, meeting) <= failure
    assert exact_chance_not_met(k, meeting - 1 - k * k // 8) > failure


@pytest.mark.parametrize("overlap", [1_000, 15_000, 10**12])
def test_where_lineages_hardly_ever_meet_nothing_is_promised(overlap: int) -> None:
    crowded = Ancestry(instances=2, later=10**12, overlap=overlap)
    assert crowded.trunk(unmet=1e-6, failure=1e-6) == 0
    with pytest.raises(ValueError, match="cannot be said to meet"):
        replace(crowded, overlap=15_000).meeting(1e-6)


def test_what_is_still_open_counts_against_a_promise_for_all_that_comes_after() -> None:
    once = Ancestry(instances=10, later=20_000, overlap=5)
    more = replace(once, goes_on=True)
    assert (once.lineages, more.lineages) == (10, 15)
    # five draws, each from up to five submissions before
    assert more.meeting(1e-6) >= once.meeting(1e-6) + 5
    assert 0 < more.trunk(unmet=1e-6, failure=1e-6) < once.trunk(unmet=1e-6, failure=1e-6)
    serial = replace(once, overlap=0)
    assert replace(serial, goes_on=True).meeting(1e-6) == serial.meeting(1e-6)
    # a single instance is replaced by every submission: open draws of it need never meet
    single = Ancestry(instances=1, later=10**6, overlap=1, goes_on=True)
    assert single.trunk(unmet=1e-6, failure=1e-6) == 0
