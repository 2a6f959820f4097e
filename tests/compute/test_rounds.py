"""Rounds from announcement to their end: what is released, and when nothing is."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shoal_protocol.rounds.attestations import (
    Abandonment,
    AbandonmentReason,
    Holdings,
    PartialSum,
    Vote,
)
from shoal_protocol.sharing.schemes import ThresholdSharing
from shoal_protocol.wire.documents import sign
from tests.world.around_node import (
    Federation,
    called_off,
    holdings,
    vote,
)
from tests.world.examples import PLACE, POLICY, signing_key
from tests.world.parties import reachable
from tests.world.wire import Fault, Rule

EVERYONE = ["published"] * 3
NOBODY = ["abandoned"] * 3


def of_kind(documents: list, kind: type) -> list:
    return [signed for signed in documents if isinstance(signed.body, kind)]


@pytest.fixture
async def spare(tmp_path: Path) -> AsyncIterator[Federation]:
    """A federation whose policy allows that two of three nodes suffice."""
    policy = POLICY.model_copy(update={"minimum_threshold": 2})
    made = Federation(tmp_path, trust=reachable(policy=policy))
    yield made
    await made.close()


TWO_SUFFICE = {"sharing": ThresholdSharing(threshold=2)}


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
        entry=PLACE,
    )
    for node in (0, 1):
        await spare.gossip(node, [sign(body, "compute-2", signing_key("compute-2"))])
    spare.clock.move(75)
    spare.wire.rules.append(Rule(Fault.LOST, receiver="compute-2"))
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
        await spare.gossip(0, [called_off(spec.body)])
    await spare.step([0])
    for spec in charged:
        assert (await spare.state(0, spec))["phase"] == "abandoned"
    too_much, enough = (spare.spec(number=2, mu=part * budget) for part in (0.81, 0.79))
    reply = await spare.request(0, "POST", "/v1/rounds", too_much.encode())
    assert reply.json()["type"] == "urn:shoal:problem:budget-exceeded"
    await spare.announce(enough, [0])


async def test_an_agreed_round_is_abandoned_on_the_aggregators_signed_word(
    federation: Federation,
) -> None:
    spec = federation.spec()
    await federation.announce(spec)
    await federation.upload_all(spec)
    federation.wire.rules.append(Rule(Fault.LOST, receiver="aggregator"))
    await federation.step(times=3)
    federation.wire.rules.clear()
    federation.clock.move(100)  # past give_up_at
    await federation.aggregator.step()
    await federation.step(times=2)
    assert await federation.phases(spec) == NOBODY
    documents = await federation.documents(0, spec)
    assert of_kind(documents, PartialSum) == []
    assert {each.signer for each in of_kind(documents, Abandonment)} == {"aggregator"}


async def test_a_partial_sum_goes_to_the_aggregator_alone(
    federation: Federation,
) -> None:
    spec = federation.spec()
    await federation.announce(spec)
    await federation.upload_all(spec)
    # it has the sums; no node knows that
    federation.wire.rules.append(Rule(Fault.ANSWER_LOST, receiver="aggregator"))
    await federation.step(times=3)
    federation.crash(1)
    federation.clock.move(100)  # past give_up_at
    await federation.step(times=2)
    assert await federation.phases(spec) == ["agreed"] * 3
    for node in range(3):
        assert of_kind(await federation.documents(node, spec), PartialSum) == []
        told = await federation.gossip(node, [], {spec.digest: []})
        assert {each["body"]["kind"] for each in told["documents"]} == {"holdings", "vote"}
    federation.wire.rules.clear()
    federation.clock.move(6)
    await federation.step()
    assert await federation.phases(spec) == EVERYONE
    for node in range(3):
        assert of_kind(await federation.documents(node, spec), PartialSum) == []
        assert f"compute-{node}" in federation.sums(spec)


async def test_nobody_but_the_aggregator_can_call_an_agreed_round_off(
    federation: Federation,
) -> None:
    spec = federation.spec()
    await federation.announce(spec)
    await federation.upload_all(spec)
    federation.wire.rules.append(Rule(Fault.LOST, receiver="aggregator"))
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
    assert (await federation.state(0, spec))["failure"]["code"] == "misconduct"
    federation.crash(0)
    kept = of_kind(await federation.documents(0, spec), kind)
    assert {each.digest for each in kept if each.signer == "compute-1"} == {
        each.digest for each in both
    }
    assert federation.sums(spec) == {}
