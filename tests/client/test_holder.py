"""The data holder against a scripted consortium: it joins, answers once, retries and survives."""

from pathlib import Path

import numpy as np
import pytest

from shoal_protocol.documents import Signed
from shoal_protocol.jobs import JobRequest
from tests.client.world import QUERY, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def joined(world: World, holder) -> Signed[JobRequest]:
    request = world.submit()
    await holder.step()
    return request


async def test_a_data_holder_joins_a_job_and_answers_its_round(world: World) -> None:
    holder = world.holder()
    request = await joined(world, holder)
    assert sorted(world.trainer.joined[request.digest]) == list(range(12))
    world.announce(request)
    await holder.step()
    expected = sum(QUERY.encode(world.records.of(k, ("age", "pressure"))) for k in range(12))
    assert np.array_equal(world.total(range(12)), expected)
    status = await holder.status()
    assert status.jobs[0].joins == {"acknowledged": 12}
    assert status.jobs[0].rounds[0].envelopes == {"acknowledged": 36}
    assert status.jobs[0].rounds[0].ended == "delivered"
    await holder.close()
