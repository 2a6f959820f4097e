"""An analyst in crowd jobs: what she is shown by the trainer's word, and what must be signed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from shoal.jobs.analyst import Analyst, CrowdJob
from shoal_protocol.crowds.draws import CrowdClosing
from shoal_protocol.wire.errors import MalformedDocument
from tests.client.test_crowd_lies import another_seed, other_end, rewritten
from tests.world.around_holder_crowds import CrowdWorld, Lies
from tests.world.examples import signing_key


@pytest.fixture
async def world(tmp_path: Path) -> CrowdWorld:
    """A job to which four clients contributed three times each."""
    world = CrowdWorld(tmp_path)
    holder = world.holder()
    await world.run(holder, seconds=1000, tick=50)
    await holder.close()
    assert len(world.crowds.taken) == 12
    return world


def job_of(world: CrowdWorld, job: str | None = None) -> CrowdJob:
    key = signing_key("analyst")
    transport = world.transport
    analyst = Analyst(
        name="analyst", key=key, book=world.book, clock=world.clock, transport=transport
    )
    return analyst.crowd(job or world.job)


def test_an_analyst_closes_her_job_early_and_has_its_model(world: CrowdWorld) -> None:
    world.clock.move(-600.0)
    job = job_of(world)
    closing = job.close()
    assert closing.closing_request is not None and closing.closed_at < world.crowds.closes_at
    assert job.verify() == closing == job.close()
    assert str(closing).endswith("early, as analyst asked, after 12 contributions.")
    assert job.wait() == job.result()


@pytest.mark.parametrize("lie", [another_seed, other_end])
def test_a_closing_that_does_not_follow_is_no_result_or_is_not_verified(
    world: CrowdWorld, lie: Callable[[CrowdClosing], CrowdClosing]
) -> None:
    """Another seed shows at once; weights that no log leads to, when the logs are followed."""
    world.crowds.closed = True
    world.crowds.lies = Lies(closing=lie)
    with pytest.raises(MalformedDocument):
        job_of(world).verify()
    if lie is another_seed:
        with pytest.raises(MalformedDocument, match="another seed"):
            job_of(world).result()


def test_a_log_that_was_rewritten_is_not_verified(world: CrowdWorld) -> None:
    world.crowds.closed = True
    world.crowds.lies = Lies(log=rewritten)
    with pytest.raises(MalformedDocument, match="instance"):
        job_of(world).verify()
