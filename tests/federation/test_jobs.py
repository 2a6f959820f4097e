"""Whole jobs in which nothing goes wrong."""

from itertools import count
from pathlib import Path
from unittest.mock import patch

from tests.world.audit import audit
from tests.world.federation import Federation
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


async def test_two_runs_with_the_same_labels_are_the_same_to_the_last_byte(
    trust: Trust, tmp_path: Path
) -> None:
    sent = []
    for run in ("first", "second"):
        drawn = (f"{number:032x}" for number in count())
        # what a service draws for its journal alone
        with patch("secrets.token_hex", lambda _bytes, drawn=drawn: next(drawn)):
            async with Federation(trust, tmp_path / run) as federation:
                await federation.learn(task=TASK_WITH_PROJECTION)
                sent.append([(each.sender, each.path, each.body) for each in federation.wire.log])

    assert sent[0] == sent[1]
