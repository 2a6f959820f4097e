"""Decisions in committees: who votes when, and that all whose holdings count have to agree."""

from datetime import datetime

import pytest
from pyroaring import BitMap

from shoal_compute.decisions import CastVote, Freeze, GiveUp, SumUp, decide
from shoal_compute.rounds import Round, open_round
from shoal_compute.shares import AcceptedShare
from shoal_protocol.rounds.attestations import StoredAnswers
from shoal_protocol.sharing.envelope import Header, seal
from shoal_protocol.sharing.schemes import ThresholdSharing
from shoal_protocol.sharing.shares import SEED_BYTES, Share, ShareKind
from shoal_protocol.wire.documents import sign
from shoal_protocol.wire.phases import Phase
from shoal_protocol.wire.service_errors import NotInPopulation
from tests.compute.test_decisions import GIVE_UP_AT, PROCEED_AT, abandon, told
from tests.world import examples
from tests.world.around_node import holdings, vote
from tests.world.examples import OPENED_AT, POLICY, answer_id, signing_key
from tests.world.parties import party, reachable

TRUST = reachable(
    5, policy=POLICY.model_copy(update={"minimum_threshold": 2, "minimum_committee": 3})
)
SPEC = examples.spec(manifest=TRUST, sharing=ThresholdSharing(threshold=2, committee=3))
SIGNED = sign(SPEC, "trainer", signing_key("trainer"))
NODES, EVERYBODY = SPEC.compute_nodes, range(12)
WITHOUT_0, WITHOUT_4 = NODES[1:], NODES[:4]


def known_at(own: str, *, phase: Phase = Phase.FROZEN) -> Round:
    known = open_round(SIGNED, BitMap(), TRUST, party(own, TRUST), phase=phase)
    known.held = BitMap(known.intake.asked_here)
    return known


def holding(known: Round, nodes: tuple[str, ...]) -> Round:
    return told(known, *(holdings(SPEC, name, EVERYBODY) for name in nodes))


def whole(nodes: tuple[str, ...] = NODES) -> CastVote:
    return CastVote(nodes, examples.held(EVERYBODY))


def turn(rank: int, nodes: int = 4) -> datetime:
    return PROCEED_AT + (GIVE_UP_AT - PROCEED_AT) / (nodes + 1) * rank


def test_a_node_asks_only_those_in_whose_committee_it_is_and_freezes_when_it_has_them() -> None:
    known = known_at("compute-1", phase=Phase.COLLECTING)
    assert list(known.intake.asked_here) == [0, 1, 4, 5, 6, 9, 10, 11]
    assert decide(known, OPENED_AT) == Freeze()
    known.held.remove(11)
    assert decide(known, OPENED_AT) is None


@pytest.mark.parametrize("own", NODES)
def test_with_all_holdings_all_vote_alike_at_once(own: str) -> None:
    assert decide(holding(known_at(own), NODES), OPENED_AT) == whole()


def test_the_first_node_begins_without_those_that_are_lost_and_the_next_wait_for_their_turn() -> (
    None
):
    for rank, own in enumerate(WITHOUT_0):
        known = holding(known_at(own), WITHOUT_0)
        assert decide(known, OPENED_AT) is None
        before = turn(rank) if rank else PROCEED_AT
        if rank:
            assert decide(known, turn(rank - 1)) is None
        assert decide(known, before) == whole(WITHOUT_0)


def test_a_vote_is_followed_at_once_by_those_whom_it_names_and_by_nobody_else() -> None:
    begun = vote(SPEC, "compute-1", EVERYBODY, WITHOUT_0)
    named = told(holding(known_at("compute-3"), NODES[1:]), begun)
    assert decide(named, PROCEED_AT) == whole(WITHOUT_0)
    late = told(holding(known_at("compute-0"), NODES), begun)
    assert decide(late, PROCEED_AT) is None


def test_a_node_that_gave_up_is_left_out_whatever_it_holds() -> None:
    known = holding(known_at("compute-1"), NODES)
    abandon(known, "compute-0")
    assert decide(known, PROCEED_AT) == whole(WITHOUT_0)
    told(known, vote(SPEC, "compute-2", EVERYBODY, NODES))
    assert decide(known, PROCEED_AT) is None


def test_a_sum_needs_the_votes_of_all_that_are_to_publish() -> None:
    known = holding(known_at("compute-0"), NODES)
    for name in NODES:
        assert not isinstance(decide(known, OPENED_AT), SumUp)
        told(known, vote(SPEC, name, EVERYBODY))
    assert decide(known, OPENED_AT) == SumUp(examples.held(EVERYBODY))


def test_one_vote_that_differs_or_one_node_that_gave_up_ends_the_round() -> None:
    for spoil in (
        lambda known: told(known, vote(SPEC, "compute-1", EVERYBODY, WITHOUT_4)),
        lambda known: abandon(known, "compute-1"),
    ):
        known = told(holding(known_at("compute-0"), NODES), vote(SPEC, "compute-0", EVERYBODY))
        assert decide(known, OPENED_AT) is None
        spoil(known)
        decision = decide(known, OPENED_AT)
        assert isinstance(decision, GiveUp)
        assert decision.reason.code == "votes_differ"


def test_holders_whose_committee_lost_too_many_nodes_are_left_out_and_the_others_summed() -> None:
    policy = POLICY.model_copy(update={"minimum_threshold": 2, "minimum_committee": 3})
    trust = reachable(7, policy=policy)
    spec = examples.spec(manifest=trust, sharing=SPEC.sharing, dropouts=3)
    signed = sign(spec, "trainer", signing_key("trainer"))
    known = open_round(signed, BitMap(), trust, party("compute-2", trust), phase=Phase.FROZEN)
    there = spec.compute_nodes[2:]  # of the committees from nodes 6 and 0 on one node is left
    told(known, *(holdings(spec, name, EVERYBODY) for name in there))
    left = [holder for holder in EVERYBODY if holder % 7 not in (6, 0)]
    assert decide(known, PROCEED_AT) == CastVote(there, examples.held(left))


def test_the_shares_of_a_cohort_are_told_apart_by_committee() -> None:
    known = known_at("compute-1")
    cohort: StoredAnswers = examples.held(range(11))
    assert {start: list(each) for start, each in known.by_committee(cohort.holders).items()} == {
        4: [4, 9],
        0: [0, 5, 10],
        1: [1, 6],
    }


@pytest.mark.parametrize(("holder", "allowed"), [(1, True), (2, False), (3, False), (4, True)])
def test_a_node_takes_no_share_of_a_holder_whose_committee_it_is_not_in(
    holder: int, allowed: bool
) -> None:
    known = known_at("compute-1")
    header = Header(
        SPEC.sharing.kind_for(holder=holder if allowed else 1, node=1, nodes=5),
        1,
        holder,
        TRUST.digest,
        SPEC.digest,
        answer_id(holder),
    )
    size = SEED_BYTES if header.kind is ShareKind.SEED else 8 * SPEC.dimension
    envelope = seal(
        Share(header.kind, bytes(size)),
        header,
        box_key=examples.box_key(1),
        key=examples.client_key(holder),
        random_bytes=examples.random_bytes("a share"),
    )

    [judged] = known.intake.validate_all([envelope], TRUST.roster)
    assert isinstance(judged, AcceptedShare if allowed else NotInPopulation)
