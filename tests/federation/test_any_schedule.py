"""Whatever befalls a job, in any order: it releases the exact sum over its cohort, or nothing."""

from pathlib import Path

import pytest

from bench import faults
from shoal_protocol.sharing.schemes import ADDITIVE
from tests.world.trust import Trust


@pytest.mark.parametrize("number", range(2))
async def test_a_round_releases_the_exact_sum_over_its_cohort_or_nothing(
    trust: Trust, tmp_path: Path, number: int
) -> None:
    """`python -m bench.faults` runs thousands of such jobs."""
    tally = await faults.run_job(trust, tmp_path, ADDITIVE, f"any schedule {number}")
    assert tally.is_clean, tally
    assert tally.faults.total() > 0
