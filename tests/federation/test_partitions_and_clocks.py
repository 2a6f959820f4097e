"""Partitions, clocks that differ, peers that hang or drip, and nodes that are away for hours.

Rounds last minutes here, as real ones do. The rule of thumb that these schedules show: what is over
before `give_up_at` delays a round, and what a round cannot do without until then ends it with
nothing released. Two clocks may differ by less than the grace period.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import permutations

import pytest

from tests.world.audit import audit
from tests.world.federation import Federation
from tests.world.trust import SITES, TASK_WITH_PROJECTION
from tests.world.wire import Fault, Rule

CLIENTS = sum(SITES.values())
LATE_SITE = "clinic-c"  # it has as many clients as may be missing
NODES = ("compute-0", "compute-1", "compute-2")
RING = tuple(zip(NODES, (*NODES[1:], NODES[0]), strict=True))
MINUTE, HOUR, TICK = 60.0, 3600.0, 20.0
TIMES = {"join_seconds": 10 * MINUTE, "round_seconds": 10 * MINUTE, "grace_seconds": 10 * MINUTE}
LONG = {"join_seconds": 10 * MINUTE, "round_seconds": HOUR, "grace_seconds": 8 * HOUR}


async def pass_time(federation: Federation, seconds: float, *, tick: float = TICK) -> None:
    end = federation.clock.now.timestamp() + seconds
    while federation.clock.now.timestamp() < end:
        await federation.step()
        federation.clock.move(tick)


async def released(federation: Federation, job: str, **limits: float) -> int:
    """Finish a job that must succeed; return the size of its one round's cohort."""
    state = await federation.finish(job, **({"seconds": HOUR, "tick": TICK} | limits))
    assert state["phase"] == "finished", state["reason"]
    (result,) = (await audit(federation)).values()
    assert result is not None
    return int(result["cohort_size"])


async def reason_of(federation: Federation, job: str, **limits: float) -> str:
    """Finish a job that must fail with nothing released; return why."""
    state = await federation.finish(job, **({"seconds": 2 * HOUR, "tick": TICK} | limits))
    assert state["phase"] == "failed", state
    assert list((await audit(federation)).values()) == [None]
    return str(state["reason"])


def befallen(federation: Federation, fault: Fault) -> int:
    return sum(message.fault is fault for message in federation.wire.log)


# Partitions


@pytest.mark.parametrize(
    ("sender", "receiver"),
    [
        pytest.param(*pair, marks=[] if pair in RING else [pytest.mark.exhaustive])
        for pair in permutations(NODES, 2)
    ],
)
async def test_a_cut_in_one_direction_between_two_nodes_for_minutes_changes_nothing(
    federation: Federation, sender: str, receiver: str
) -> None:
    job, _ = await federation.collecting(**TIMES)
    federation.absent.add(LATE_SITE)  # so that holdings are exchanged at the deadline only
    await federation.crash(LATE_SITE)
    await pass_time(federation, 8 * MINUTE)
    cut = federation.wire.cut(sender, receiver)
    await pass_time(federation, 5 * MINUTE)
    assert befallen(federation, Fault.LOST)
    federation.wire.rules.remove(cut)

    assert await released(federation, job) == CLIENTS - SITES[LATE_SITE]


# Clocks

THREE_MINUTES = 3 * MINUTE
SKEWS: dict[str, dict[str, float]] = {
    "one node fast": {"compute-1": THREE_MINUTES},
    "one node slow": {"compute-1": -THREE_MINUTES},
    "nodes apart": {"compute-0": THREE_MINUTES, "compute-2": -THREE_MINUTES},
    "aggregator fast": {"aggregator": THREE_MINUTES},
    "aggregator slow": {"aggregator": -THREE_MINUTES},
    "trainer fast": {"trainer": THREE_MINUTES},
    "trainer slow": {"trainer": -THREE_MINUTES},
    "clients apart": {"clinic-a": THREE_MINUTES, "clinic-b": -THREE_MINUTES},
    "all apart": {
        "compute-0": THREE_MINUTES,
        "compute-1": -THREE_MINUTES,
        "aggregator": THREE_MINUTES,
        "trainer": -THREE_MINUTES,
        "clinic-a": -THREE_MINUTES,
        "clinic-b": THREE_MINUTES,
    },
}


@pytest.mark.parametrize("skews", SKEWS.values(), ids=SKEWS)
async def test_clocks_that_are_three_minutes_off_change_nothing(
    federation: Federation, skews: dict[str, float]
) -> None:
    federation.clock.skew_seconds = dict(skews)
    job, _ = await federation.collecting(**TIMES)
    federation.absent.add(LATE_SITE)  # so that each node freezes by its clock
    await federation.crash(LATE_SITE)

    assert await released(federation, job) == CLIENTS - SITES[LATE_SITE]


async def test_a_clock_that_is_fast_by_more_than_the_grace_ends_rounds_with_nothing_released(
    federation: Federation,
) -> None:
    """The limit: a node whose time to give up comes before the others' deadline."""
    job, _ = await federation.collecting(**TIMES)
    federation.absent.add(LATE_SITE)
    await federation.crash(LATE_SITE)
    federation.clock.skew_seconds = {"compute-1": 11 * MINUTE}

    assert "holdings_missing" in await reason_of(federation, job)


@pytest.mark.parametrize("early", [False, True], ids=["just after", "just before"])
async def test_an_upload_at_the_deadline_counts_everywhere_or_nowhere(
    federation: Federation, early: bool
) -> None:
    """It reaches one node before its deadline and another after, by clocks that differ."""
    cuts = [federation.wire.cut(LATE_SITE, node, "/shares") for node in NODES]
    job, _ = await federation.collecting(**TIMES)
    await federation.step()
    for cut in cuts:
        federation.wire.rules.remove(cut)
    uploads = {m.receiver: m for m in federation.wire.log if m.fault is Fault.LOST}
    offset = -1.0 if early else 1.0
    skews = {"compute-0": -2.0, "compute-1": 0.0, "compute-2": 0.0 if early else -2.0}
    federation.clock.skew_seconds = skews
    deadline = datetime.fromisoformat((await federation.state(job))["rounds"][0]["deadline"])
    federation.clock.now = deadline + timedelta(seconds=offset)  # nobody has noticed yet
    statuses = {}
    for node in NODES:
        sent = uploads[node]
        answer = await federation.ask(node, sent.path, method="POST", content=sent.body)
        statuses[node] = answer.status_code

    assert statuses == {
        "compute-0": 201,
        "compute-1": 201 if early else 410,
        "compute-2": 201,
    }
    assert await released(federation, job) == CLIENTS - (not early) * SITES[LATE_SITE]


# Peers that hang, are slow or drip

STRETCHED = {
    "hangs and never answers": Rule(Fault.HANGS),
    "hangs and answers minutes later": Rule(Fault.HANGS, seconds=3 * MINUTE),
    "acts and answers a minute later": Rule(Fault.SLOW, seconds=MINUTE),
    "drips": Rule(Fault.DRIPS, seconds=8.0),
}


@pytest.mark.parametrize(
    ("service", "rule"),
    [
        pytest.param(
            service,
            rule,
            id=f"{service}-{name}",
            marks=[pytest.mark.exhaustive]
            if service != "compute-1" and name.endswith("later")
            else [],
        )
        for service in ("compute-1", "aggregator", "trainer")
        for name, rule in STRETCHED.items()
    ],
)
async def test_a_service_that_does_not_answer_in_time_around_the_deadline_delays_a_job(
    federation: Federation, service: str, rule: Rule
) -> None:
    job, _ = await federation.collecting(**TIMES)
    await federation.step(["clinic-a", "clinic-b"])
    federation.absent.add(LATE_SITE)
    await federation.crash(LATE_SITE)
    federation.wire.rules.append(replace(rule, receiver=service))
    await pass_time(federation, 13 * MINUTE)
    assert befallen(federation, rule.fault)
    federation.wire.rules.clear()

    assert await released(federation, job) == CLIENTS - SITES[LATE_SITE]


async def test_a_node_that_drips_in_one_round_keeps_no_site_from_the_next(
    federation: Federation,
) -> None:
    job, _ = await federation.collecting(task=TASK_WITH_PROJECTION, **TIMES)
    drip = Rule(Fault.DRIPS, "clinic-a", "compute-1", seconds=15.0)
    federation.wire.rules.append(drip)
    await pass_time(federation, MINUTE)
    assert befallen(federation, Fault.DRIPS)
    federation.wire.rules.remove(drip)
    state = await federation.finish(job, seconds=2 * HOUR, tick=TICK)

    assert state["phase"] == "finished", state["reason"]
    results = await audit(federation)
    assert [result and result["cohort_size"] for result in results.values()] == [CLIENTS] * 2


# Away for hours


async def test_a_trainer_that_comes_back_days_later_reports_what_was_released_meanwhile(
    federation: Federation,
) -> None:
    job, round_id = await federation.collecting(**LONG)
    await federation.step()
    await federation.crash("trainer")
    federation.absent.add("trainer")
    await pass_time(federation, HOUR, tick=MINUTE)
    federation.clock.move(72 * HOUR)
    assert await federation.result(round_id) is not None
    federation.absent.clear()

    assert await released(federation, job) == CLIENTS


# Whole jobs in bad weather


@pytest.mark.parametrize("seed", range(2))
async def test_a_job_ends_well_though_so_many_messages_are_lost_repeated_and_reordered(
    federation: Federation, seed: int
) -> None:
    chance = 0.5
    faults = (Fault.LOST, Fault.ANSWER_LOST, Fault.DUPLICATED, Fault.LATE)
    # what each node charged is asked of all nodes before a job is joined, which takes many tries
    job = await federation.submit(**TIMES | {"join_seconds": 2 * HOUR, "round_seconds": HOUR})
    federation.wire.rules += [
        Rule(fault, chance=chance / 2, seed=4 * seed + number, after=3 + number)
        for number, fault in enumerate(faults)
    ]
    assert await released(federation, job, seconds=4 * HOUR) == CLIENTS
    disturbed = sum(befallen(federation, fault) for fault in faults)
    assert disturbed > chance * len(federation.wire.log) / 2
