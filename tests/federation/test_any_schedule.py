"""Whatever befalls a job, in any order: it releases the exact sum over its cohort, or nothing."""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.world.audit import audit
from tests.world.federation import Federation
from tests.world.trust import SITES, TASK, TASK_WITH_PROJECTION, Trust
from tests.world.wire import Fault, Rule

SERVICES = ("compute-0", "compute-1", "compute-2", "aggregator", "trainer")
PARTIES = (*SITES, *SERVICES)
KINDS = (
    "/v1/rounds$",
    "/memberships",
    "/rounds/",
    "/shares",
    "/v1/gossip",
    "/ends",
    "/outcome",
)

RULES = st.builds(
    Rule,
    st.sampled_from(Fault),
    st.none() | st.sampled_from(PARTIES),
    st.none() | st.sampled_from(SERVICES),
    st.just("") | st.sampled_from(KINDS),
    st.lists(st.integers(0, 12), min_size=1, max_size=4, unique=True).map(tuple),
    st.integers(0, 8),
    st.sampled_from([5.0, 30.0, 300.0, 1e9]),
)
CUTS = st.lists(
    st.tuples(
        st.sampled_from(PARTIES), st.sampled_from(SERVICES), st.integers(0, 15), st.integers(1, 60)
    ),
    max_size=2,
)
DEATHS = st.lists(
    st.tuples(st.sampled_from(PARTIES), st.integers(0, 15), st.integers(0, 40)), max_size=3
)
SKEWS = st.dictionaries(st.sampled_from(PARTIES), st.floats(-8.0, 8.0), max_size=3)


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rules=st.lists(RULES, min_size=1, max_size=6),
    cuts=CUTS,
    deaths=DEATHS,
    skews=SKEWS,
    projection=st.booleans(),
)
def test_a_round_releases_the_exact_sum_over_its_cohort_or_nothing(
    trust: Trust,
    rules: list[Rule],
    cuts: list[tuple[str, str, int, int]],
    deaths: list[tuple[str, int, int]],
    skews: dict[str, float],
    projection: bool,
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(befall(trust, Path(directory), rules, cuts, deaths, skews, projection))


async def befall(
    trust: Trust,
    directory: Path,
    rules: list[Rule],
    cuts: list[tuple[str, str, int, int]],
    deaths: list[tuple[str, int, int]],
    skews: dict[str, float],
    projection: bool,
) -> None:
    async with Federation(trust, directory) as federation:
        job = await federation.submit(task=TASK_WITH_PROJECTION if projection else TASK)
        federation.clock.skew_seconds = skews
        federation.wire.rules += rules
        barriers = {}
        for tick in range(400):
            for cut in cuts:
                sender, receiver, begin, length = cut
                if tick == begin:
                    barriers[cut] = federation.wire.cut(sender, receiver)
                elif tick == begin + length and cut in barriers:
                    federation.wire.rules.remove(barriers.pop(cut))
            for name, when, down in deaths:
                if tick == when and name not in federation.absent:
                    await federation.crash(name)
                    federation.absent.add(name)
                elif tick == when + down + 1:
                    federation.absent.discard(name)
            if "trainer" not in federation.absent and await federation.is_over(job):
                break
            await federation.step()
            federation.clock.move(1.0 if tick < 60 else 10.0)
        federation.absent.clear()
        state = await federation.finish(job)

        results = await audit(federation)
        released = [result for result in results.values() if result is not None]
        if state["phase"] == "finished":
            assert len(released) == len(results) == 1 + projection
            report = await federation.report(job)
            assert list(report.cohort_sizes) == [each["cohort_size"] for each in released]
        else:
            assert state["phase"] == "failed"
            assert state["reason"]
