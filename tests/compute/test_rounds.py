"""Rounds from announcement to their end: what is released, and when nothing is."""

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from structlog.testing import capture_logs

from shoal_hosting.server.logs import withhold_private_values
from shoal_protocol.rounds.attestations import (
    Abandonment,
    AbandonmentReason,
    Holdings,
    PartialSum,
    Vote,
)
from shoal_protocol.sharing.threshold import ThresholdSharing
from shoal_protocol.wire.documents import sign
from tests.world.around_node import (
    POPULATION,
    Federation,
    envelopes,
    expected,
    holdings,
    vote,
)
from tests.world.examples import POLICY, signing_key
from tests.world.parties import reachable

EVERYONE = ["published"] * 3
NOBODY = ["abandoned"] * 3


def of_kind(documents: list, kind: type) -> list:
    return [signed for signed in documents if isinstance(signed.body, kind)]


@pytest.mark.slow
async def test_a_round_releases_the_sum_over_all_who_uploaded(federation: Federation) -> None:
    spec = federation.spec()
    await federation.announce(spec)
    assert await federation.phases(spec) == ["announced"] * 3
    await federation.upload_all(spec, range(11))
    assert await federation.phases(spec) == ["collecting"] * 3
    federation.clock.move(60)
    await federation.step(times=3)
    assert await federation.phases(spec) == EVERYONE
    assert np.array_equal(federation.result(spec), expected(spec.body, range(11)))


@pytest.fixture
async def spare(tmp_path: Path) -> AsyncIterator[Federation]:
    """A federation whose policy allows that two of three nodes suffice."""
    policy = POLICY.model_copy(update={"minimum_threshold": 2})
    made = Federation(tmp_path, trust=reachable(policy=policy))
    yield made
    await made.close()


TWO_SUFFICE = {"sharing": ThresholdSharing(threshold=2)}


async def test_under_threshold_sharing_a_round_goes_on_without_a_node_that_is_gone(
    spare: Federation,
) -> None:
    spec = spare.spec(**TWO_SUFFICE)
    await spare.announce(spec)
    await spare.upload_all(spec, range(11))
    spare.wire.cut.add("compute-2.example")
    spare.clock.move(60)
    await spare.step([0, 1], times=3)
    assert (await spare.phases(spec))[:2] == ["frozen"] * 2
    spare.clock.move(15)
    await spare.step([0, 1], times=3)
    assert (await spare.phases(spec))[:2] == ["published"] * 2
    assert np.array_equal(spare.result(spec), expected(spec.body, range(11)))
    spare.wire.cut.clear()
    spare.clock.move(2)
    await spare.step(times=4)
    assert await spare.phases(spec) == EVERYONE  # it adopts the others' cohort
    assert np.array_equal(spare.result(spec), expected(spec.body, range(11)))


async def test_under_threshold_sharing_a_node_that_was_away_during_uploads_costs_nothing(
    spare: Federation,
) -> None:
    spec = spare.spec(**TWO_SUFFICE)
    await spare.announce(spec)
    await spare.upload_all(spec, range(11), nodes=[0, 1])
    spare.clock.move(60)
    await spare.step(times=3)
    assert await spare.phases(spec) == ["frozen"] * 3
    spare.clock.move(15)
    await spare.step(times=3)
    assert (await spare.phases(spec))[:2] == ["published"] * 2
    assert np.array_equal(spare.result(spec), expected(spec.body, range(11)))
    assert (await spare.state(2, spec))["reason"] == "cohort_too_small"


async def test_under_threshold_sharing_a_node_that_gives_up_speaks_for_itself_only(
    spare: Federation,
) -> None:
    spec = spare.spec(**TWO_SUFFICE)
    await spare.announce(spec)
    await spare.upload_all(spec, range(11))
    body = Abandonment(
        manifest=spec.body.manifest,
        round=spec.digest,
        party="compute-2",
        reason=AbandonmentReason(code="sum_failed"),
    )
    for node in (0, 1):
        await spare.gossip(node, [sign(body, "compute-2", signing_key("compute-2"))])
    spare.clock.move(75)
    spare.wire.cut.add("compute-2.example")
    await spare.step([0, 1], times=3)
    assert (await spare.phases(spec))[:2] == ["published"] * 2


async def test_under_threshold_sharing_no_charge_is_given_back(spare: Federation) -> None:
    budget = spare.consortium.manifest.policy.cap.mu
    charged = [
        spare.spec(**TWO_SUFFICE, mu=0.6 * budget),
        spare.spec(number=1, mu=0.6 * budget),
    ]
    for spec in charged:
        await spare.announce(spec)
        await spare.gossip(0, [spare.aggregator.call_off(spec.body)])
    await spare.step([0])
    for spec in charged:
        assert (await spare.state(0, spec))["phase"] == "abandoned"
    too_much, enough = (spare.spec(number=2, mu=part * budget) for part in (0.81, 0.79))
    reply = await spare.request(0, "POST", "/v1/rounds", too_much.encode())
    assert reply.json()["type"] == "urn:shoal:problem:budget-exceeded"
    await spare.announce(enough, [0])


async def test_a_cohort_below_the_minimum_releases_nothing(federation: Federation) -> None:
    spec = federation.spec()  # of 12, 2 may be missing
    await federation.announce(spec)
    await federation.upload_all(spec, range(9))
    await federation.upload_all(spec, [9, 10], nodes=[0])
    federation.clock.move(60)
    await federation.step(times=3)
    assert await federation.phases(spec) == NOBODY
    assert (await federation.state(1, spec))["reason"] in ("cohort_too_small", "called_off_by_node")
    assert spec.digest not in federation.aggregator.sums
    for node in range(3):
        assert of_kind(await federation.documents(node, spec), PartialSum) == []


@pytest.mark.slow
async def test_without_all_holdings_a_node_gives_up_in_time(federation: Federation) -> None:
    spec = federation.spec()
    await federation.announce(spec)
    await federation.upload_all(spec)
    federation.wire.cut.add("compute-2.example")
    await federation.step([0, 1], times=3)
    federation.clock.move(89)
    await federation.step([0, 1])
    assert (await federation.phases(spec))[:2] == ["frozen"] * 2
    federation.clock.move(1)
    await federation.step([0, 1])
    assert (await federation.phases(spec))[:2] == ["abandoned"] * 2
    assert (await federation.state(0, spec))["reason"] == "holdings_missing"
    assert (await federation.state(1, spec))["reason"] == "called_off_by_node"


async def test_a_lost_peer_is_told_once_by_its_name_and_again_when_it_is_back(
    federation: Federation,
) -> None:
    spec = federation.spec()
    await federation.announce(spec)
    await federation.upload_all(spec)
    federation.wire.cut.add("compute-2.example")
    with capture_logs() as lines:
        for _ in range(4):
            await federation.step([0])
            federation.clock.move(6)
        federation.wire.cut.clear()
        for _ in range(2):
            await federation.step([0])
            federation.clock.move(6)
    about = [(each["log_level"], each["event"], each["party"]) for each in lines if "party" in each]
    assert about == [
        ("warning", "no gossip with a peer", "compute-2"),
        ("info", "gossip with a peer again", "compute-2"),
    ]
    shown = [withhold_private_values(None, "info", dict(each)) for each in lines]
    assert "[withheld]" not in [each.get("party") for each in shown]


async def test_lost_answers_make_nodes_repeat_themselves_and_change_nothing(
    federation: Federation,
) -> None:
    spec = federation.spec()
    await federation.announce(spec)
    await federation.upload_all(spec)
    federation.wire.lost_replies |= {"aggregator.example", "compute-1.example"}
    for _ in range(4):
        await federation.step(times=2)
        federation.clock.move(6)
    assert (await federation.phases(spec)) == ["agreed"] * 3
    first = dict(federation.aggregator.sums[spec.digest])
    federation.wire.lost_replies.clear()
    federation.clock.move(6)
    await federation.step()
    assert await federation.phases(spec) == EVERYONE
    assert federation.aggregator.sums[spec.digest] == first


async def test_an_agreed_round_is_abandoned_on_the_aggregators_signed_word(
    federation: Federation,
) -> None:
    spec = federation.spec()
    await federation.announce(spec)
    await federation.upload_all(spec)
    federation.wire.cut.add("aggregator.example")
    await federation.step(times=3)
    signed = federation.aggregator.call_off(spec.body)
    federation.wire.cut.clear()
    federation.clock.move(6)
    await federation.step(times=2)
    assert await federation.phases(spec) == NOBODY
    documents = await federation.documents(0, spec)
    assert of_kind(documents, PartialSum) == []
    assert signed in documents


async def test_a_partial_sum_goes_to_the_aggregator_alone(
    federation: Federation,
) -> None:
    spec = federation.spec()
    await federation.announce(spec)
    await federation.upload_all(spec)
    federation.wire.lost_replies.add("aggregator.example")  # it has the sums; no node knows that
    await federation.step(times=3)
    federation.crash(1)
    federation.clock.move(100)  # past give_up_at
    await federation.step(times=2)
    assert await federation.phases(spec) == ["agreed"] * 3
    for node in range(3):
        assert of_kind(await federation.documents(node, spec), PartialSum) == []
        told = await federation.gossip(node, [], {spec.digest: []})
        assert {each["body"]["kind"] for each in told["documents"]} == {"holdings", "vote"}
    federation.wire.lost_replies.clear()
    federation.clock.move(6)
    await federation.step()
    assert await federation.phases(spec) == EVERYONE
    for node in range(3):
        assert of_kind(await federation.documents(node, spec), PartialSum) == []
        assert f"compute-{node}" in federation.aggregator.sums[spec.digest]


async def test_nobody_but_the_aggregator_can_call_an_agreed_round_off(
    federation: Federation,
) -> None:
    spec = federation.spec()
    await federation.announce(spec)
    await federation.upload_all(spec)
    federation.wire.cut.add("aggregator.example")
    await federation.step(times=3)
    for node in (1, 2):
        equivocation = holdings(spec.body, f"compute-{node}", range(10))
        await federation.gossip(0, [equivocation])
    await federation.step([0], times=2)
    assert (await federation.state(0, spec))["phase"] == "agreed"


@pytest.mark.parametrize("kind", [Holdings, Vote])
async def test_two_different_documents_of_one_signer_are_kept_and_end_the_round(
    federation: Federation, kind: type
) -> None:
    spec = federation.spec()
    await federation.announce(spec, [0])
    await federation.upload_all(spec, nodes=[0])
    await federation.step([0])
    make = holdings if kind is Holdings else vote
    both = [make(spec.body, "compute-1", range(size)) for size in (12, 11)]
    await federation.gossip(0, both)
    await federation.gossip(0, [make(spec.body, "compute-1", range(10))])
    await federation.step([0])
    assert (await federation.state(0, spec))["reason"] == "misconduct"
    federation.crash(0)
    kept = of_kind(await federation.documents(0, spec), kind)
    assert {each.digest for each in kept if each.signer == "compute-1"} == {
        each.digest for each in both
    }
    assert federation.aggregator.sums == {}


async def test_votes_for_different_cohorts_end_the_round(federation: Federation) -> None:
    spec = federation.spec()
    await federation.announce(spec, [0])
    await federation.upload_all(spec, nodes=[0])
    await federation.step([0])
    peers = ("compute-1", "compute-2")
    await federation.gossip(0, [holdings(spec.body, peer, POPULATION) for peer in peers])
    await federation.step([0])
    await federation.gossip(0, [vote(spec.body, "compute-1", range(11))])
    await federation.step([0])
    assert (await federation.state(0, spec))["reason"] == "votes_differ"
    documents = await federation.documents(0, spec)
    assert {signed.signer for signed in of_kind(documents, Vote)} == {"compute-0", "compute-1"}


async def test_a_peers_abandonment_ends_the_round_here(federation: Federation) -> None:
    spec = federation.spec()
    await federation.announce(spec)
    await federation.upload_all(spec, range(3), nodes=[0, 1])
    await federation.upload_all(spec, nodes=[2])
    federation.clock.move(60)
    await federation.step(times=3)
    assert await federation.phases(spec) == NOBODY
    reasons = {(await federation.state(node, spec))["reason"] for node in range(3)}
    assert reasons <= {"cohort_too_small", "called_off_by_node"}
    for node in range(3):
        kept = of_kind(await federation.documents(node, spec), Abandonment)
        assert {signed.signer for signed in kept} == {f"compute-{peer}" for peer in range(3)}


async def test_uploads_after_the_deadline_are_refused_even_if_nothing_froze_yet(
    federation: Federation,
) -> None:
    spec = federation.spec()
    await federation.announce(spec)
    await federation.upload_all(spec, range(11))
    federation.clock.move(60)
    late = await federation.upload(0, spec, envelopes(spec.body, 11)[0])
    assert (late.status_code, late.json()["type"]) == (410, "urn:shoal:problem:too-late")
    assert (await federation.state(0, spec))["held"] == 11


async def test_the_same_envelope_again_is_fine_in_every_phase(federation: Federation) -> None:
    spec = federation.spec()
    await federation.announce(spec)
    await federation.upload_all(spec)
    envelope = envelopes(spec.body, 3)[0]
    other = envelopes(spec.body, 3, attempt="second")[0]
    for phase in ("collecting", "frozen", "published"):
        assert (await federation.state(0, spec))["phase"] == phase
        assert (await federation.upload(0, spec, envelope)).status_code == 200
        refused = await federation.upload(0, spec, other)
        assert refused.status_code == (409 if phase == "collecting" else 410)
        await federation.step([0] if phase == "collecting" else [0, 1, 2], times=3)


async def test_a_peer_that_never_answers_holds_nobody_up(federation: Federation) -> None:
    first, second = federation.spec(), federation.spec(number=1)
    await federation.announce(first)
    await federation.announce(second)
    await federation.upload_all(first)
    federation.wire.silent.add("compute-2.example")
    await federation.step([0, 1], times=2)
    assert (await federation.phases(first))[:2] == ["frozen"] * 2
    await federation.upload_all(second)
    await federation.step([0, 1], times=2)
    assert (await federation.phases(second))[:2] == ["frozen"] * 2
    federation.clock.move(90)
    await federation.step([0, 1], times=2)
    assert (await federation.phases(first))[:2] == ["abandoned"] * 2
    assert set(federation.aggregator.abandonments[first.digest]) == {"compute-0", "compute-1"}
