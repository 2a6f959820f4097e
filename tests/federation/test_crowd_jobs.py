"""Crowd jobs from end to end: the real trainer and data holders, on a network with faults."""

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.jobs.job_settings import CrowdSettings
from shoal.jobs.job_states import CrowdState
from shoal_holder.crowds.status import CrowdStatus
from shoal_holder.policy import Policy
from shoal_protocol.crowds.tasks import CrowdTask
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.wire.phases import CrowdPhase
from shoal_studies.crowds.simulation import CrowdModel
from tests.world.federation import Federation
from tests.world.spending import costs_of
from tests.world.trust import HOLDER_POLICY, SITES, Trust
from tests.world.wire import Fault, Rule

CLIENTS = sum(SITES.values())
OPEN_SECONDS = 100
TICK = 6.0  # seconds: what is due is found a little later, and the tests are quick
TASK = CrowdTask(
    family="linear",
    features=(ColumnBounds(name="age", lower=0.0, upper=120.0),),
    target=ColumnBounds(name="pressure", lower=60.0, upper=200.0),
    clip=0.05,
    epsilon=0.5,
    learning_rate=0.1,
    instances=3,
)
POLICY = Policy.model_validate(
    HOLDER_POLICY.model_dump() | {"maximum_local_epsilon": 1.0, "crowd_families": ("linear",)}
)
HOLDERS: dict[str, dict[str, Any]] = {site: {"policy": POLICY} for site in SITES}


@pytest.fixture
async def crowded(open_trust: Trust, tmp_path: Path) -> AsyncIterator[Federation]:
    async with Federation(open_trust, tmp_path, holders=HOLDERS) as running:
        yield running


async def open_crowd(federation: Federation, **changes: Any) -> str:
    arguments: dict[str, Any] = {
        "task": TASK,
        "contributions": 1000,
        "contributions_per_client": 2,
        "session_seconds": 60,
        "open_seconds": OPEN_SECONDS,
    }
    arguments |= changes
    task = arguments.pop("task")
    opened = federation.analyst.open_crowd(task, CrowdSettings(**arguments))
    return (await federation.after(opened)).id


async def state(federation: Federation, job: str) -> CrowdState:
    return await federation.after(federation.analyst.crowd(job).state())


async def finish(federation: Federation, job: str) -> CrowdModel:
    """Step until the job is closed and every data holder has compared its closing."""

    async def is_judged() -> bool:
        return all([await verdict(federation, site) for site in SITES])

    async def is_closed() -> bool:
        answer = await federation.ask("trainer", f"/v1/crowds/{job}/closing")
        return answer.status_code == 200

    await federation.until(is_closed, tick=TICK)
    federation.wire.rules.clear()
    await federation.until(is_judged, tick=TICK)
    handle = federation.analyst.crowd(job)
    closing = await federation.after(handle.verify())
    assert closing is not None
    return CrowdModel.closed((await federation.after(handle.request())).task, closing)


async def crowd_status(federation: Federation, site: str) -> CrowdStatus | None:
    if not federation.is_up(site):
        return None
    found = (await federation.holder(site).status()).crowds
    return found[0] if found else None


async def verdict(federation: Federation, site: str) -> str | None:
    found = await crowd_status(federation, site)
    return None if found is None else found.verdict


async def charged(federation: Federation) -> Counter[int]:
    counts: Counter[int] = Counter()
    for site in SITES:
        spent = await costs_of(federation.holder(site))
        counts.update({client: len(costs) for client, costs in spent.items()})
    return counts


async def test_a_crowd_learns_and_everybody_bears_the_trainer_out(crowded: Federation) -> None:
    job = await open_crowd(crowded)
    model = await finish(crowded, job)
    assert model.contributions == 2 * CLIENTS
    assert await charged(crowded) == {client: 2 for client in range(CLIENTS)}
    for site, clients in SITES.items():
        found = await crowd_status(crowded, site)
        assert found is not None
        assert (found.contributions, found.verdict) == ({"acknowledged": 2 * clients}, "borne out")
    after = await state(crowded, job)
    assert (after.phase, after.contributors) == (CrowdPhase.CLOSED, CLIENTS)
    assert np.array_equal(
        model.instances, (await crowded.after(crowded.analyst.crowd(job).wait(print))).instances
    )


FAULTS = {
    "answers to submissions are lost": Rule(
        Fault.ANSWER_LOST, receiver="trainer", path="submissions", chance=0.5
    ),
    "submissions are lost": Rule(Fault.LOST, receiver="trainer", path="submissions", chance=0.5),
    "submissions come twice": Rule(Fault.DUPLICATED, receiver="trainer", path="submissions"),
    "submissions come late": Rule(Fault.LATE, receiver="trainer", path="submissions", chance=0.3),
    "draws are lost": Rule(Fault.LOST, receiver="trainer", path="draws", chance=0.5),
    "answers to draws are lost": Rule(
        Fault.ANSWER_LOST, receiver="trainer", path="draws", chance=0.5
    ),
    "the trainer dies when a submission came": Rule(
        Fault.RECEIVER_DIES_AFTER, receiver="trainer", path="submissions", chance=0.2
    ),
    "the trainer dies before a submission": Rule(
        Fault.RECEIVER_DIES_BEFORE, receiver="trainer", path="submissions", chance=0.2
    ),
    "a data holder dies when it sent a submission": Rule(
        Fault.SENDER_DIES_AFTER, sender="clinic-a", path="submissions", chance=0.5
    ),
    "a data holder dies before it sends a submission": Rule(
        Fault.SENDER_DIES_BEFORE, sender="clinic-a", path="submissions", chance=0.5
    ),
    "a data holder dies when it has drawn": Rule(
        Fault.SENDER_DIES_AFTER, sender="clinic-a", path="draws", chance=0.5
    ),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_whatever_the_network_does_each_charge_is_one_contribution(
    crowded: Federation, name: str
) -> None:
    """What was acknowledged is in the closing once; nobody is charged beyond what is allowed."""
    crowded.wire.rules.append(FAULTS[name])
    job = await open_crowd(crowded)
    model = await finish(crowded, job)
    counts = await charged(crowded)
    assert max(counts.values()) <= 2
    outcomes: Counter[str] = Counter()
    for site in SITES:
        found = await crowd_status(crowded, site)
        assert found is not None and found.verdict == "borne out"
        outcomes.update(found.contributions)
    acknowledged = outcomes["acknowledged"]
    assert acknowledged <= model.contributions <= sum(outcomes.values()) == sum(counts.values())
    assert acknowledged > CLIENTS  # most came through


async def test_rounds_and_crowds_share_one_budget(open_trust: Trust, tmp_path: Path) -> None:
    """A job in rounds takes nearly all of it: the crowd gets what is left, which is nothing."""
    async with Federation(open_trust, tmp_path, holders=HOLDERS) as federation:
        report = await federation.learn(
            privacy=federation.request().body.privacy.model_copy(update={"epsilon": 4.0})
        )
        assert report.privacy.epsilon <= 4.0
        job = await open_crowd(federation)
        for _ in range(OPEN_SECONDS // 6):
            await federation.step()
            federation.clock.move(TICK)
        assert (await state(federation, job)).contributions == 0
        assert max((await charged(federation)).values()) == 1  # the round


async def test_a_job_in_rounds_and_a_crowd_job_are_worked_on_side_by_side(
    open_trust: Trust, tmp_path: Path
) -> None:
    """Each client pays both from one ledger, and neither job notices the other."""
    policy = Policy.model_validate(POLICY.model_dump() | {"maximum_epsilon": 20.0})
    holders = {site: {"policy": policy} for site in SITES}
    async with Federation(open_trust, tmp_path, holders=holders) as federation:
        crowd = await open_crowd(federation)
        report = await federation.learn()
        model = await finish(federation, crowd)
        assert report.cohort_sizes == (CLIENTS,)
        assert model.contributions == 2 * CLIENTS
        assert await charged(federation) == {client: 3 for client in range(CLIENTS)}
