"""A network that loses, repeats, delays and reorders: outcomes are as if it had not."""

import pytest

from tests.world.audit import audit
from tests.world.federation import Federation
from tests.world.trust import SITES, TASK_WITH_PROJECTION
from tests.world.wire import Fault, Rule

CLIENTS = sum(SITES.values())
FIRST = (0,)
KINDS = ("/v1/rounds$", "/joins", "/rounds/0", "/shares", "/v1/gossip", "/partial-sums", "/result")


async def cohorts_of_a_job(federation: Federation, job: str) -> list[int]:
    state = await federation.finish(job)
    assert state["phase"] == "finished", state
    results = await audit(federation)
    assert None not in results.values()
    return [result["cohort_size"] for result in results.values() if result is not None]


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.ANSWER_LOST], ids=lambda fault: fault.name)
async def test_the_first_message_of_each_kind_and_pair_may_be_lost_or_its_answer(
    federation: Federation, fault: Fault
) -> None:
    job = await federation.submit()
    federation.wire.rules += [
        Rule(fault, sender, receiver, kind, FIRST)
        for kind in KINDS
        for sender in federation.names
        for receiver in federation.services
    ]
    assert await cohorts_of_a_job(federation, job) == [CLIENTS]
    befallen = {(m.sender, m.receiver) for m in federation.wire.log if m.fault is fault}
    assert len(befallen) >= 3 * 4 + 4 + 6 + 3  # holders, trainer, gossip, partial sums


async def test_every_message_may_come_twice(federation: Federation) -> None:
    job = await federation.submit(task=TASK_WITH_PROJECTION)
    federation.wire.rules.append(Rule(Fault.DUPLICATED, after=2))

    assert await cohorts_of_a_job(federation, job) == [CLIENTS, CLIENTS]


@pytest.mark.parametrize("first", range(3))
async def test_every_third_message_may_come_after_others_when_its_sender_gave_up_on_it(
    federation: Federation, first: int
) -> None:
    job = await federation.submit(join_seconds=60)  # a join may be every third message, too
    federation.wire.rules.append(Rule(Fault.LATE, nth=range(first, 10_000, 3), after=5))

    assert await cohorts_of_a_job(federation, job) == [CLIENTS]


async def test_a_partial_sum_that_never_arrives_ends_the_round_with_nothing_released(
    federation: Federation,
) -> None:
    job = await federation.submit()
    federation.wire.cut("compute-2", "aggregator")
    state = await federation.finish(job, tick=5.0)

    assert state["phase"] == "failed"
    assert "partial_sums_missing" in state["reason"]
    ((round_id, result),) = (await audit(federation)).items()
    assert result is None
    for node in federation.nodes:  # none waits for a release that will not come
        seen = (await federation.ask(node, f"/v1/rounds/{round_id}")).json()
        assert seen["phase"] in ("published", "abandoned"), seen
