"""Why something does not work is said, by the party that knows it, to who must act."""

from pathlib import Path

import pytest

from shoal.jobs.job_failures import JobFailed
from shoal.jobs.job_settings import JobSettings
from tests.federation.test_approvals import HOLDERS, decide, stands
from tests.world.federation import GRACE_SECONDS, JOIN_SECONDS, PRIVACY, ROUND_SECONDS, Federation
from tests.world.trust import SITES, TASK, Trust


def settings(federation: Federation) -> JobSettings:
    return JobSettings(
        **PRIVACY.model_dump(),
        minimum_population=10,
        maximum_population=sum(SITES.values()),
        join_seconds=JOIN_SECONDS,
        round_seconds=ROUND_SECONDS,
        grace_seconds=GRACE_SECONDS,
    )


async def reason_of(federation: Federation, job: str, **limits: float) -> str:
    """Finish a job that must fail; return why, as the analyst's library raises it."""
    await federation.finish(job, **limits)
    with pytest.raises(JobFailed) as failed:
        await federation.after(federation.analyst.job(job).result())
    listed = (await federation.after(federation.analyst.jobs())).jobs
    assert next(each.reason for each in listed if each.job == job) in str(failed.value)
    return str(failed.value)


async def test_a_missing_approval_and_a_refusal_of_owners_are_said(
    trust: Trust, tmp_path: Path
) -> None:
    async with Federation(trust, tmp_path, holders=HOLDERS) as federation:
        job = await federation.submit(join_seconds=60)
        await federation.until(lambda: stands(federation, job, 3, 0))
        await decide(federation, "clinic-a", job, "refuse")
        reason = await reason_of(federation, job)
        assert "0 clients joined, 10 are needed: " in reason
        assert "data holders 1, 2: the owners did not approve the job in time" in reason
        assert "data holder 0: the owners refused the job" in reason
        assert "job check" not in reason


async def test_a_service_that_is_away_is_named_with_why_and_nobody_is_charged(
    federation: Federation,
) -> None:
    await federation.step()
    federation.absent.add("compute-1")
    await federation.crash("compute-1")
    reason = await reason_of(federation, await federation.submit())
    assert "round 0 failed: not all services accepted it in time (not_accepted; " in reason
    assert "compute-1 (it refuses connections" in reason
    assert "nobody was charged" in reason
    checked = await federation.after(federation.analyst.check(TASK, settings(federation)))
    assert "compute-1 is away: it refuses connections" in checked.reached and not checked.would_run
