"""Every service and data holder is killed before and after each kind of message, and restarted.

The outcome must be the one of a run in which nothing happened: the same cohort, the same sum.
"""

from typing import Any

import pytest

from tests.world.audit import audit
from tests.world.federation import Federation
from tests.world.trust import SITES, TASK_WITH_PROJECTION, Trust
from tests.world.wire import Fault, Rule

# by who dies: sender, receiver, path and how many of them, in a job's order
TO = {
    "compute-1": [
        ("trainer", "compute-1", "/v1/rounds$", 1),
        ("clinic-a", "compute-1", "/shares", 2),
        ("clinic-c", "compute-1", "/shares", 2),
        (None, "compute-1", "/v1/gossip", 3),  # from whom, the round's relay decides
    ],
    "aggregator": [
        ("trainer", "aggregator", "/v1/rounds$", 1),
        ("trainer", "aggregator", "/result", 3),
        ("compute-0", "aggregator", "/partial-sums", 1),
        ("compute-1", "aggregator", "/partial-sums", 1),
        ("compute-2", "aggregator", "/partial-sums", 1),
    ],
    "trainer": [
        ("clinic-a", "trainer", "/request", 1),
        ("clinic-a", "trainer", "/joins", 2),
        ("clinic-c", "trainer", "/joins", 1),
        ("clinic-a", "trainer", "/rounds/0", 2),
    ],
}
FROM = {
    "compute-1": [
        ("compute-1", None, "/v1/gossip", 3),
        ("compute-1", "aggregator", "/partial-sums", 1),
    ],
    "trainer": [
        ("trainer", "aggregator", "/v1/rounds$", 1),
        ("trainer", "compute-0", "/v1/rounds$", 1),
        ("trainer", "compute-2", "/v1/rounds$", 1),
        ("trainer", "aggregator", "/result", 2),
    ],
    "clinic-c": [
        ("clinic-c", "trainer", "/request", 1),
        ("clinic-c", "trainer", "/joins", 1),
        ("clinic-c", "trainer", "/rounds/0", 2),
        ("clinic-c", "compute-0", "/shares", 1),
        ("clinic-c", "compute-1", "/shares", 1),
        ("clinic-c", "compute-2", "/shares", 2),
    ],
}
SCHEDULES = [
    (who, fault, messages)
    for table, faults in (
        (TO, (Fault.RECEIVER_DIES_BEFORE, Fault.RECEIVER_DIES_AFTER)),
        (FROM, (Fault.SENDER_DIES_BEFORE, Fault.SENDER_DIES_AFTER)),
    )
    for who, messages in table.items()
    for fault in faults
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


@pytest.fixture
async def expected(
    undisturbed: dict[str, Any], trust: Trust, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    if not undisturbed:
        async with Federation(trust, tmp_path_factory.mktemp("undisturbed")) as calm:
            undisturbed |= await outcome(calm)
    return undisturbed


@pytest.mark.parametrize(
    ("fault", "messages"),
    [pytest.param(fault, messages, id=f"{who} {fault.name}") for who, fault, messages in SCHEDULES],
)
async def test_who_dies_at_every_kind_of_message_and_is_restarted_changes_nothing(
    federation: Federation,
    expected: dict[str, Any],
    fault: Fault,
    messages: list[tuple[str | None, str | None, str, int]],
) -> None:
    federation.wire.rules += [
        Rule(fault, sender, receiver, path, range(count))
        for sender, receiver, path, count in messages
    ]
    assert await outcome(federation) == expected
    for sender, receiver, path, count in messages:
        rule = Rule(fault, sender, receiver, path)
        deaths = [m for m in federation.wire.log if m.fault is fault and rule.fits(m)]
        assert len(deaths) == count, f"{rule} befell {len(deaths)} messages"


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
