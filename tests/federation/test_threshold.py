"""Threshold sharing at work: a round outlives the loss of a node, at whatever step it is lost."""

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from shoal_compute import attesting
from shoal_compute.rounds import Round
from shoal_protocol.sharing import summation
from shoal_protocol.sharing.schemes import ThresholdSharing
from shoal_protocol.wire.encoding import Uint64Vector
from shoal_studies.posterior_report import PosteriorReport
from tests.world.audit import audit
from tests.world.durable import Death, DurableSteps, When
from tests.world.federation import Federation
from tests.world.trust import HOLDER_POLICY, SITES, Trust, make_trust

CLIENTS = sum(SITES.values())
TWO, THREE = ThresholdSharing(threshold=2), ThresholdSharing(threshold=3)
HOLDERS = {
    site: {"policy": HOLDER_POLICY.model_copy(update={"minimum_threshold": 2})} for site in SITES
}
# one node's durable steps in a round; "agree" stores its partial sum, "publish" that it was taken
STEPS = ("add_shares", "freeze", "cast", "agree", "publish")


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return make_trust(tmp_path_factory.mktemp("three"), nodes=3, minimum_threshold=2)


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return make_trust(tmp_path_factory.mktemp("five"), nodes=5, minimum_threshold=3)


@dataclasses.dataclass(frozen=True)
class Ended:
    """What became of a job, and the audited results of its rounds."""

    state: dict[str, Any]
    results: Sequence[dict[str, Any] | None]
    report: PosteriorReport | None


async def run(
    trust: Trust,
    directory: Path,
    *,
    sharing: ThresholdSharing,
    deaths: Sequence[Death] = (),
    in_order: bool = True,
    **changes: Any,
) -> Ended:
    """Run a job in which nodes die and stay dead."""
    durable = DurableSteps(list(deaths), in_order)
    with durable.watched():
        async with Federation(trust, directory, holders=HOLDERS) as federation:
            federation.absent |= {death.party for death in deaths}
            job = await federation.submit(sharing=sharing, **changes)
            state = await federation.finish(job, seconds=600)
            assert not durable.plan, "a death did not come about"
            results = list((await audit(federation)).values())
            is_done = state["phase"] == "finished"
            return Ended(state, results, await federation.report(job) if is_done else None)


@pytest.mark.parametrize(
    "when",
    [pytest.param(When.BEFORE, marks=pytest.mark.exhaustive), When.AFTER],
    ids=["before", "after"],
)
@pytest.mark.parametrize("step", STEPS)
async def test_a_round_in_which_one_of_three_nodes_is_lost_for_good_gives_the_exact_sum(
    three: Trust, tmp_path: Path, step: str, when: When
) -> None:
    ended = await run(three, tmp_path, sharing=TWO, deaths=[Death(when, "compute-1", step)])
    assert ended.report is not None, ended.state
    (result,) = ended.results  # compared by the audit with what the clients contributed
    assert result is not None
    assert result["cohort_size"] == CLIENTS
    used = [each["node"] for each in result["partial_sums"]]
    had_sent = step == "publish"  # the aggregator had taken its sum
    assert used == ["compute-0"] + ["compute-1"] * had_sent + ["compute-2"]
    assert ended.report.partial_sums == (2 + had_sent,)
    assert ended.report.compute_nodes == (3,)


@contextmanager
def lying(node: str) -> Iterator[None]:
    """Have a node sign partial sums that are off by one in their first coordinate."""
    partial_sum = attesting.partial_sum

    def lie(known: Round, cohort: Any, total: Uint64Vector, *rest: Any, **named: Any) -> Any:
        if known.own == node:
            total = total.copy()
            total[0] = summation.plus(THREE, total[:1], np.ones(1, np.uint64))[0]
        return partial_sum(known, cohort, total, *rest, **named)

    with patch.object(attesting, "partial_sum", lie):
        yield


async def test_a_wrong_sum_of_one_of_five_nodes_is_left_out_and_the_node_named(
    five: Trust, tmp_path: Path
) -> None:
    with lying("compute-3"):
        async with Federation(five, tmp_path, holders=HOLDERS) as federation:
            job = await federation.submit(sharing=THREE)
            state = await federation.finish(job)
            assert state["phase"] == "finished", state
            ((round_id, result),) = (await audit(federation)).items()
            assert result is not None
            named = [each["node"] for each in result["partial_sums"]]
            assert named == ["compute-0", "compute-1", "compute-2", "compute-4"]
            wrong = await federation.ask("aggregator", f"/v1/rounds/{round_id}/wrong-sums")
            assert [each["signer"] for each in wrong.json()["documents"]] == ["compute-3"]


async def test_a_wrong_sum_of_one_of_three_nodes_is_seen_and_nothing_is_released(
    three: Trust, tmp_path: Path
) -> None:
    with lying("compute-1"):
        ended = await run(three, tmp_path, sharing=TWO)
    assert ended.state["phase"] == "failed"
    assert "sum_failed" in ended.state["reason"]
    assert ended.results == [None]
