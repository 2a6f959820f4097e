"""Whole jobs in which nothing goes wrong."""

from pathlib import Path

import pytest

from shoal.jobs.job_failures import JobRefused
from shoal_holder.noise import exact_noise
from tests.world.audit import audit
from tests.world.federation import PRIVACY, Federation
from tests.world.trust import SITES, TASK_WITH_PROJECTION, Trust

CLIENTS = sum(SITES.values())


async def test_a_job_ends_with_a_posterior(federation: Federation) -> None:
    report = await federation.learn()

    (result,) = (await audit(federation)).values()
    assert result is not None
    assert report.population_size == CLIENTS
    assert report.cohort_sizes == (CLIENTS,)
    assert report.privacy.epsilon <= 2.0
    assert len(report.posterior.mean) == 2  # the constant and the slope


async def test_a_job_with_projection_takes_two_rounds_within_its_price(
    federation: Federation,
) -> None:
    report = await federation.learn(task=TASK_WITH_PROJECTION)

    results = await audit(federation)
    assert len(results) == len(report.rounds) == 2
    assert None not in results.values()
    assert report.privacy.epsilon <= 2.0


async def test_a_job_with_exact_noise_ends_with_a_posterior(trust: Trust, tmp_path: Path) -> None:
    async with Federation(trust, tmp_path, noise=exact_noise) as federation:
        report = await federation.learn()

        (result,) = (await audit(federation)).values()
        assert result is not None
        assert report.cohort_sizes == (CLIENTS,)


async def test_two_runs_with_the_same_labels_are_the_same_to_the_last_byte(
    trust: Trust, tmp_path: Path
) -> None:
    sent = []
    for run in ("first", "second"):
        async with Federation(trust, tmp_path / run) as federation:
            await federation.learn(task=TASK_WITH_PROJECTION)
            sent.append([(each.sender, each.path, each.body) for each in federation.wire.log])

    assert sent[0] == sent[1]


async def test_jobs_are_run_side_by_side(federation: Federation) -> None:
    first = await federation.submit(task=TASK_WITH_PROJECTION)
    second = await federation.submit()

    states = [await federation.finish(job) for job in (first, second)]

    assert [state["phase"] for state in states] == ["finished", "finished"]
    results = await audit(federation)
    assert len(results) == 3
    assert None not in results.values()


async def test_clocks_that_differ_by_seconds_do_no_harm(federation: Federation) -> None:
    federation.clock.skew_seconds = {
        "clinic-a": -4.0,
        "clinic-b": 5.0,
        "compute-0": 3.0,
        "compute-1": -3.0,
        "aggregator": 6.0,
        "trainer": -2.0,
    }
    report = await federation.learn(task=TASK_WITH_PROJECTION)

    assert report.cohort_sizes == (CLIENTS, CLIENTS)
    await audit(federation)


async def test_a_job_that_costs_more_than_is_left_is_not_taken(federation: Federation) -> None:
    all_there_is = PRIVACY.model_copy(update={"epsilon": 4.0})
    await federation.learn(privacy=all_there_is)

    with pytest.raises(JobRefused, match="budget-exceeded"):
        await federation.submit()

    assert len(await audit(federation)) == 1
