"""Clocks that jump by minutes in the middle of a crowd job, at the trainer or at a data holder.

A jump costs contributions, as a job that is open for less long would. It costs nobody more than
was allowed, loses nothing that was acknowledged, and makes no honest trainer look like a liar.
"""

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shoal_studies.crowds.simulation import CrowdModel
from tests.federation.test_crowd_jobs import (
    HOLDERS,
    OPEN_SECONDS,
    TICK,
    charged,
    crowd_status,
    finish,
    open_crowd,
)
from tests.world.federation import Federation
from tests.world.trust import SITES, Trust

JUMPER, *OTHERS = SITES
BEYOND = 2 * OPEN_SECONDS  # seconds: past the job's end, or to before its beginning
WITHIN = OPEN_SECONDS // 4


@pytest.fixture
async def crowded(open_trust: Trust, tmp_path: Path) -> AsyncIterator[Federation]:
    async with Federation(open_trust, tmp_path, holders=HOLDERS) as running:
        yield running


async def half(federation: Federation) -> str:
    """Open a job and let half of its time pass."""
    job = await open_crowd(federation)
    passed = 0.0
    while passed < OPEN_SECONDS / 2:
        await federation.step()
        federation.clock.move(TICK)
        passed += TICK
    return job


async def check(federation: Federation, model: CrowdModel) -> dict[str, Counter[str]]:
    """See that nothing was lost, overpaid or called a lie; return what became of contributions."""
    found = {}
    for site in SITES:
        status = await crowd_status(federation, site)
        assert status is not None and status.verdict == "borne out"
        found[site] = Counter(status.contributions)
    charges = await charged(federation)
    assert max(charges.values()) <= 2
    assert sum(charges.values()) == sum(each.total() for each in found.values())
    acknowledged = sum(each["acknowledged"] for each in found.values())
    assert 0 < acknowledged <= model.contributions <= sum(charges.values())
    return found


@pytest.mark.parametrize("seconds", [-BEYOND, -WITHIN, WITHIN, BEYOND])
@pytest.mark.parametrize("party", ["trainer", JUMPER])
async def test_a_clock_that_jumps_loses_nothing_acknowledged_and_accuses_nobody(
    crowded: Federation, party: str, seconds: float
) -> None:
    job = await half(crowded)
    crowded.clock.skew_seconds[party] = seconds
    found = await check(crowded, await finish(crowded, job))
    if party == JUMPER:
        for site in OTHERS:  # they do not notice
            assert found[site]["acknowledged"] == 2 * SITES[site]
