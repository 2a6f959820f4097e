"""Committees at work: each data holder shares with three of five Compute nodes."""

from collections import Counter
from pathlib import Path

import pytest

from shoal_protocol.sharing.additive import AdditiveSharing
from shoal_protocol.sharing.received import parse
from shoal_protocol.sharing.threshold import ThresholdSharing
from tests.world.audit import audit
from tests.world.durable import Death, DurableSteps, When
from tests.world.federation import Federation
from tests.world.trust import HOLDER_POLICY, SITES, TASK_WITH_PROJECTION, Trust, make_trust

CLIENTS = sum(SITES.values())
ALL, TWO = AdditiveSharing(committee=3), ThresholdSharing(committee=3, threshold=2)
POLICY = HOLDER_POLICY.model_copy(update={"minimum_threshold": 2, "minimum_committee": 3})
HOLDERS = {site: {"policy": POLICY} for site in SITES}
SESSIONS = {site: {"policy": POLICY.model_copy(update={"allow_sessions": True})} for site in SITES}


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    home = tmp_path_factory.mktemp("five")
    return make_trust(home, nodes=5, minimum_threshold=2, minimum_committee=3)


def received(federation: Federation) -> dict[int, set[int]]:
    """Return the nodes that each data holder's envelopes went to."""
    found: dict[int, set[int]] = {}
    for message in federation.wire.log:
        if message.path.endswith("/shares"):
            header = parse(message.body).header
            found.setdefault(header.holder, set()).add(header.node)
    return found


async def test_all_nodes_together_release_what_each_committee_holds(
    five: Trust, tmp_path: Path
) -> None:
    async with Federation(five, tmp_path, holders=HOLDERS) as federation:
        report = await federation.learn(sharing=ALL, task=TASK_WITH_PROJECTION)
        results = await audit(federation)
        assert received(federation) == {0: {0, 1, 2}, 1: {1, 2, 3}, 2: {2, 3, 4}}
    assert len(results) == 2
    assert (report.cohort_sizes, report.partial_sums) == ((CLIENTS, CLIENTS), (5, 5))


async def test_sessions_are_opened_with_the_committee_alone(five: Trust, tmp_path: Path) -> None:
    async with Federation(five, tmp_path, holders=SESSIONS) as federation:
        report = await federation.learn(sharing=ALL, wrapping="session")
        await audit(federation)
        opened = Counter(holder for holder, _, _ in federation.session_keys)
    assert opened == {0: 3, 1: 3, 2: 3}
    assert report.cohort_sizes == (CLIENTS,)


@pytest.mark.parametrize("lost", [0, 2, 4])
async def test_a_node_that_never_comes_up_costs_nothing_by_threshold(
    five: Trust, tmp_path: Path, lost: int
) -> None:
    absent = [f"compute-{lost}"]
    async with Federation(five, tmp_path, holders=HOLDERS, absent=absent) as federation:
        report = await federation.learn(sharing=TWO)
        await audit(federation)
    assert (report.cohort_sizes, report.partial_sums) == ((CLIENTS,), (4,))


@pytest.mark.parametrize("step", ["cast", "agree"])
async def test_a_node_that_is_lost_once_it_attested_holdings_costs_the_round(
    five: Trust, tmp_path: Path, step: str
) -> None:
    durable = DurableSteps([Death(When.BEFORE, "compute-2", step)])
    with durable.watched():
        async with Federation(five, tmp_path, holders=HOLDERS) as federation:
            federation.absent.add("compute-2")
            job = await federation.submit(sharing=TWO)
            state = await federation.finish(job, seconds=600)
            assert not durable.plan
            assert list((await audit(federation)).values()) == [None]
    assert state["phase"] == "failed"


async def test_a_node_that_is_lost_before_it_froze_is_left_out(five: Trust, tmp_path: Path) -> None:
    durable = DurableSteps([Death(When.BEFORE, "compute-2", "freeze")])
    with durable.watched():
        async with Federation(five, tmp_path, holders=HOLDERS) as federation:
            federation.absent.add("compute-2")
            job = await federation.submit(sharing=TWO)
            assert (await federation.finish(job, seconds=600))["phase"] == "finished"
            (result,) = (await audit(federation)).values()
            assert result is not None
            assert len(result["partial_sums"]) == 4


async def test_a_data_holder_that_allows_no_committees_does_not_join(
    five: Trust, tmp_path: Path
) -> None:
    only = {
        site: {"policy": POLICY.model_copy(update={"minimum_committee": None})} for site in SITES
    }
    async with Federation(five, tmp_path, holders=only) as federation:
        job = await federation.submit(sharing=ALL)
        state = await federation.finish(job)
    assert (state["phase"], state["joined"]) == ("failed", 0)
