"""The services do what the model says: along traces, and for every offer to the aggregator."""

from collections import deque
from pathlib import Path

import pytest

from tests.scenarios.model.machine import Collected, Machine
from tests.scenarios.model.replay import Collector, Replay
from tests.scenarios.model.search import Search
from tests.scenarios.model.traces import covering
from tests.scenarios.model.world import Cohort, World

pytestmark = pytest.mark.slow

Offer = tuple[int, Cohort]
NONE: Cohort = ()
ONE, OTHER = ((0, 1), (1, 1)), ((0, 1), (2, 1))  # of the clients 0 and 1, or 0 and 2


@pytest.mark.parametrize(
    "world",
    [
        pytest.param(World(2, (2, 1, 1), 1), marks=pytest.mark.exhaustive),
        World(2, (1, 1, 1), 1, liar=True),
        pytest.param(World(3, (1, 1), 0, 2, liar=True), marks=pytest.mark.exhaustive),
    ],
    ids=["M=2 with two answers", "M=2 with a liar", "t=2 of M=3 with a liar"],
)
async def test_the_services_follow_traces_of_every_kind_of_step_and_end(
    world: World, tmp_path: Path
) -> None:
    machine = Machine(world)
    search = Search(machine)
    search.run()
    traces = covering(machine, search)
    assert len(traces) > 5
    for number, trace in enumerate(traces):
        replay = Replay(world, tmp_path / f"{number}")
        try:
            await replay.along(trace)
        finally:
            await replay.close()


@pytest.mark.parametrize(
    ("nodes", "needed"),
    [(2, None), pytest.param(3, 2, marks=pytest.mark.exhaustive)],
    ids=["M=2", "t=2 of M=3"],
)
async def test_the_aggregator_judges_every_offer_in_every_state_as_the_model_does(
    tmp_path: Path, nodes: int, needed: int | None
) -> None:
    world = World(nodes, (1, 1, 1), 1, needed, liar=True)
    machine = Machine(world)
    offers = [(node, cohort) for node in range(nodes) for cohort in (ONE, OTHER, NONE)]
    assert machine.start.aggregator is not None
    ways: dict[Collected, list[Offer]] = {machine.start.aggregator: []}
    waiting = deque(ways)
    while waiting:
        collected = waiting.popleft()
        for number, offer in enumerate(offers):
            after, taken = judged(machine, collected, offer)
            directory = tmp_path / f"{len(ways)}-{len(waiting)}-{number}"
            await check(world, directory, ways[collected], offer, after, taken)
            if not any(alike(after, each) for each in ways):
                ways[after] = [*ways[collected], offer]
                waiting.append(after)
    assert len(ways) >= 5


def alike(one: Collected, other: Collected) -> bool:
    """Tell whether two differ by the names of nodes and of cohorts at most."""
    swap: dict[Cohort, Cohort] = {NONE: NONE, ONE: OTHER, OTHER: ONE}
    sums = sorted(other.sums)
    swapped = sorted(swap[each] for each in other.sums)
    lost = len(one.abandonments) == len(other.abandonments)
    return one.phase == other.phase and lost and sorted(one.sums) in (sums, swapped)


def judged(machine: Machine, collected: Collected, offer: Offer) -> tuple[Collected, bool | None]:
    """Return the aggregator after an offer, and whether it takes a sum."""
    node, cohort = offer
    if cohort:
        return machine.take_sum(collected, node, cohort)
    return machine.take_abandonment(collected, node), None


async def check(
    world: World,
    directory: Path,
    before: list[Offer],
    offer: Offer,
    after: Collected,
    taken: bool | None,
) -> None:
    """Make the offers to an aggregator, compare it after the last one, and let it decide."""
    collector, machine = Collector(world, directory), Machine(world)
    try:
        await collector.announce()
        collected = machine.start.aggregator
        assert collected is not None
        for each in before:
            await collector.offer(*each)
            collected, _ = judged(machine, collected, each)
            await collector.settle(collected)
        assert taken in (await collector.offer(*offer), None)
        await collector.compare(after)
        if after.phase == "open":
            await collector.end()
            await collector.compare(machine.ended(after))
    finally:
        await collector.close()
