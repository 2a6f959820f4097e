"""Whole jobs in which nothing goes wrong, and jobs that lack clients."""

from tests.simulation.federation import Federation


async def test_a_job_ends_with_a_posterior(federation: Federation) -> None:
    report = await federation.learn()

    assert report.population_size == 14
    assert report.cohort_sizes == (14,)
