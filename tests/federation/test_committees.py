"""Committees at work: each data holder shares with three of five Compute nodes."""

from pathlib import Path
from typing import Any

import pytest

from shoal_command.certificate import certificate_facts
from shoal_protocol.certificates.checks import verify_certificate
from shoal_protocol.rounds.attestations import Holdings, PartialSum, Result, Vote
from shoal_protocol.rounds.round_audit import account_of
from shoal_protocol.sharing.received import parse
from shoal_protocol.sharing.schemes import AdditiveSharing, ThresholdSharing
from shoal_protocol.wire.documents import from_json
from tests.federation.test_certificates import learned
from tests.world.audit import audit
from tests.world.durable import Death, DurableSteps, When
from tests.world.federation import Federation
from tests.world.trust import HOLDER_POLICY, SITES, TASK_WITH_PROJECTION, Trust, make_trust

CLIENTS = sum(SITES.values())
ALL, TWO = AdditiveSharing(committee=3), ThresholdSharing(committee=3, threshold=2)
POLICY = HOLDER_POLICY.model_copy(update={"minimum_threshold": 2, "minimum_committee": 3})
HOLDERS = {site: {"policy": POLICY} for site in SITES}


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    home = tmp_path_factory.mktemp("five")
    return make_trust(home, nodes=5, minimum_threshold=2, minimum_committee=3)


async def shown(federation: Federation, name: str, path: str) -> list[Any]:
    return list((await federation.ask(name, path)).json()["documents"])


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


async def test_a_certificate_of_committees_holds_and_says_who_could_open_an_answer(
    five: Trust, tmp_path: Path
) -> None:
    async with Federation(five, tmp_path, holders=HOLDERS) as federation:
        job, encoded = await learned(federation, sharing=TWO)
        [round_id] = await audit(federation)
        documents = [
            from_json(each, Holdings, Vote, PartialSum, Result)
            for name, path in (
                ("compute-0", "documents"),
                ("aggregator", "outcome"),
            )
            for each in await shown(federation, name, f"/v1/rounds/{round_id}/{path}")
        ]
    verified = verify_certificate(encoded, five.consortium.signed_manifest.encode())
    assert verified.certificate.job == job
    said = certificate_facts(verified)
    assert said["prices"][-1]["who"] == "2 or more Compute nodes of its own committee of 3"
    assert said["prices"][-2]["who"].startswith("1 of 5 Compute nodes")
    assert [each["size"] for each in said["coalitions"]] == [2, 4]
    assert said["coalitions"][0]["opens"] == pytest.approx(3 / 10)
    # the account of the round finds everybody in the cohort, and no misconduct
    spec = verified.certificate.rounds[0].spec
    found = account_of(spec, five.consortium, documents)
    assert (found.outcome, found.misconduct) == ("published", ())
    assert found.groups["in the cohort"] == spec.body.clients()
    assert len(documents) == 5 + 5 + 5 + 1


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
