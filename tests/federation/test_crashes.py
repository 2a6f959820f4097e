"""Every service and data holder is killed before and after each kind of message, and restarted.

The outcome must be the one of a run in which nothing happened: the same cohort, the same sum.
"""

from typing import Any

import pytest

from tests.simulation.audit import audit
from tests.simulation.federation import Federation
from tests.simulation.trust import SITES, TASK_WITH_PROJECTION, Trust
from tests.simulation.wire import Fault, Rule

RECEIVER = (Fault.RECEIVER_DIES_BEFORE, Fault.RECEIVER_DIES_AFTER)
SENDER = (Fault.SENDER_DIES_BEFORE, Fault.SENDER_DIES_AFTER)

# what compute-1, the aggregator, the trainer and a data holder take part in, in a job's order
TO_COMPUTE = [
    ("trainer", "/v1/rounds$", (0,)),
    ("clinic-a", "/shares", (0,)),
    ("clinic-c", "/shares", (0,)),
    ("compute-0", "/v1/gossip", (0,)),
    ("compute-0", "/v1/gossip", (1,)),
    ("compute-2", "/v1/gossip", (0,)),
    ("compute-2", "/v1/gossip", (1,)),
]
FROM_COMPUTE = [
    ("compute-0", "/v1/gossip", (0,)),
    ("compute-0", "/v1/gossip", (1,)),
    ("compute-2", "/v1/gossip", (0,)),
    ("compute-2", "/v1/gossip", (1,)),
    ("aggregator", "/partial-sums", (0,)),
]
TO_AGGREGATOR = [
    ("trainer", "/v1/rounds$", (0,)),
    ("trainer", "/result", (0,)),
    ("trainer", "/result", (2,)),
    (None, "/partial-sums", (0,)),
    (None, "/partial-sums", (1,)),
    (None, "/partial-sums", (2,)),
]
TO_TRAINER = [
    ("clinic-a", "/request", (0,)),
    ("clinic-a", "/joins", (0,)),
    ("clinic-c", "/joins", (0,)),
    ("clinic-a", "/rounds/0", (0,)),
    ("clinic-a", "/rounds/0", (1,)),
]
FROM_TRAINER = [
    ("aggregator", "/v1/rounds$", (0,)),
    ("compute-0", "/v1/rounds$", (0,)),
    ("compute-2", "/v1/rounds$", (0,)),
    ("aggregator", "/result", (0,)),
    ("aggregator", "/result", (1,)),
]
FROM_HOLDER = [
    ("trainer", "/request", (0,)),
    ("trainer", "/joins", (0,)),
    ("trainer", "/rounds/0", (1,)),
    ("compute-0", "/shares", (0,)),
    ("compute-2", "/shares", (0,)),
]


@pytest.fixture(scope="session")
def undisturbed() -> dict[str, Any]:
    """What the round of a job released when nothing happened; filled by the first who asks."""
    return {}


async def outcome(federation: Federation, **changes: Any) -> dict[str, Any]:
    job = await federation.submit(**changes)
    state = await federation.finish(job)
    assert state["phase"] == "finished", state
    results = await audit(federation)
    return {
        "values": [result and result["values"] for result in results.values()],
        "cohorts": [result and result["cohort_size"] for result in results.values()],
        "posterior": (await federation.report(job)).posterior,
    }


async def befallen_by(federation: Federation, rule: Rule) -> dict[str, Any]:
    federation.wire.rules.append(rule)
    result = await outcome(federation)
    assert any(message.fault is rule.fault for message in federation.wire.log), "nothing befell it"
    return result


@pytest.fixture
async def expected(
    undisturbed: dict[str, Any], trust: Trust, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    if not undisturbed:
        async with Federation(trust, tmp_path_factory.mktemp("undisturbed")) as calm:
            undisturbed |= await outcome(calm)
    return undisturbed


@pytest.mark.parametrize("fault", RECEIVER, ids=lambda fault: fault.name)
@pytest.mark.parametrize(("sender", "path", "nth"), TO_COMPUTE)
async def test_a_compute_node_that_dies_at_a_message_changes_nothing(
    federation: Federation, expected: Any, sender: str, path: str, nth: tuple[int], fault: Fault
) -> None:
    rule = Rule(fault, sender, "compute-1", path, nth)
    assert await befallen_by(federation, rule) == expected


@pytest.mark.parametrize("fault", SENDER, ids=lambda fault: fault.name)
@pytest.mark.parametrize(("receiver", "path", "nth"), FROM_COMPUTE)
async def test_a_compute_node_that_dies_at_a_message_of_its_own_changes_nothing(
    federation: Federation, expected: Any, receiver: str, path: str, nth: tuple[int], fault: Fault
) -> None:
    rule = Rule(fault, "compute-1", receiver, path, nth)
    assert await befallen_by(federation, rule) == expected


@pytest.mark.parametrize("fault", RECEIVER, ids=lambda fault: fault.name)
@pytest.mark.parametrize(("sender", "path", "nth"), TO_AGGREGATOR)
async def test_an_aggregator_that_dies_at_a_message_changes_nothing(
    federation: Federation,
    expected: Any,
    sender: str | None,
    path: str,
    nth: tuple[int],
    fault: Fault,
) -> None:
    rule = Rule(fault, sender, "aggregator", path, nth)
    assert await befallen_by(federation, rule) == expected


@pytest.mark.parametrize("fault", RECEIVER, ids=lambda fault: fault.name)
@pytest.mark.parametrize(("sender", "path", "nth"), TO_TRAINER)
async def test_a_trainer_that_dies_at_a_message_changes_nothing(
    federation: Federation, expected: Any, sender: str, path: str, nth: tuple[int], fault: Fault
) -> None:
    rule = Rule(fault, sender, "trainer", path, nth)
    assert await befallen_by(federation, rule) == expected


@pytest.mark.parametrize("fault", SENDER, ids=lambda fault: fault.name)
@pytest.mark.parametrize(("receiver", "path", "nth"), FROM_TRAINER)
async def test_a_trainer_that_dies_at_a_message_of_its_own_changes_nothing(
    federation: Federation, expected: Any, receiver: str, path: str, nth: tuple[int], fault: Fault
) -> None:
    rule = Rule(fault, "trainer", receiver, path, nth)
    assert await befallen_by(federation, rule) == expected


@pytest.mark.parametrize("fault", SENDER, ids=lambda fault: fault.name)
@pytest.mark.parametrize(("receiver", "path", "nth"), FROM_HOLDER)
async def test_a_data_holder_that_dies_at_a_message_of_its_own_changes_nothing(
    federation: Federation, expected: Any, receiver: str, path: str, nth: tuple[int], fault: Fault
) -> None:
    rule = Rule(fault, "clinic-c", receiver, path, nth)
    assert await befallen_by(federation, rule) == expected


async def test_a_federation_in_which_all_die_after_every_step_ends_a_job_all_the_same(
    federation: Federation,
) -> None:
    job = await federation.submit(task=TASK_WITH_PROJECTION)
    deaths = 0
    while not await federation.is_over(job):
        assert deaths < 400, "it never came about"
        for name in federation.names:
            await federation.step([name])
            await federation.crash(name)
            deaths += 1
        federation.clock.move(1.0)
    state = await federation.finish(job)

    assert state["phase"] == "finished", state
    results = await audit(federation)
    assert [result and result["cohort_size"] for result in results.values()] == [
        sum(SITES.values())
    ] * 2
