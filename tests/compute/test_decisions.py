"""Decisions: whatever a node knows, it takes only steps that the table has and that are safe."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from shoal_compute.attesting import abandonment
from shoal_compute.decisions import CallOff, CastVote, Decision, Freeze, GiveUp, SumUp, decide
from shoal_compute.rounds import Round, open_round
from shoal_compute.store import Kept
from shoal_protocol.rounds.attestations import AbandonmentReason, Holdings, cohort_digest, cohort_of
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.schemes import ThresholdSharing
from shoal_protocol.trust.roster_changes import roster_of
from shoal_protocol.wire.documents import Signed, sign
from shoal_protocol.wire.phases import FINISHED, ROUND, Event, Phase
from tests.world import examples
from tests.world.around_node import holdings, vote
from tests.world.examples import OPENED_AT, PLACE, POLICY, signing_key
from tests.world.parties import party, reachable

COHORTS = st.sampled_from([range(12), range(11), range(10), range(9)])
EVENTS = {
    Freeze: Event.FROZEN,
    SumUp: Event.COHORT_AGREED,
    GiveUp: Event.GIVEN_UP,
    CallOff: Event.CALLED_OFF,
}


def spec_of(nodes: int, threshold: int) -> tuple[Signed[RoundSpec], object]:
    policy = POLICY.model_copy(update={"minimum_threshold": 2})
    trust = reachable(nodes, policy=policy)
    sharing = {} if threshold == nodes else {"sharing": ThresholdSharing(threshold=threshold)}
    body = examples.spec(manifest=trust, **sharing)
    assert body.threshold == threshold
    return sign(body, "trainer", signing_key("trainer")), trust


ADDITIVE, TWO_OF_THREE, THREE_OF_FOUR = spec_of(3, 3), spec_of(3, 2), spec_of(4, 3)
SETTINGS = (ADDITIVE, TWO_OF_THREE, THREE_OF_FOUR)
DEADLINE, PROCEED_AT, GIVE_UP_AT = (OPENED_AT + timedelta(seconds=each) for each in (60, 75, 90))
MOMENTS = st.sampled_from(
    [OPENED_AT, DEADLINE - timedelta(seconds=1), DEADLINE, PROCEED_AT, GIVE_UP_AT]
)


def blank(setting: tuple[Signed[RoundSpec], object], phase: Phase = Phase.FROZEN) -> Round:
    """Return the round at compute-0, which knows no document and holds all shares."""
    spec, trust = setting
    return open_round(spec, spec.body.clients(), trust, party("compute-0", trust), phase=phase)


def abandon(known: Round, name: str) -> None:
    reason = AbandonmentReason(code="votes_missing")
    body = abandonment(known, reason, PLACE)
    signed = sign(body.model_copy(update={"party": name}), name, signing_key(name))
    known.learn(signed, Kept.FIRST)


def told(known: Round, *documents: Signed) -> Round:
    for signed in documents:
        known.learn(signed, Kept.FIRST)
    return known


@st.composite
def rounds(draw: st.DrawFn, settings: tuple = SETTINGS) -> Round:
    setting = draw(st.sampled_from(settings))
    known = blank(setting, draw(st.sampled_from(Phase)))
    spec = known.spec.body
    names = st.sampled_from(spec.compute_nodes)
    known.held = BitMap(draw(COHORTS))
    for node, held in draw(st.dictionaries(names, COHORTS)).items():
        attempt = draw(st.sampled_from(["first", "first", "another"]))
        known.learn(holdings(spec, node, held, attempt), Kept.FIRST)
    for node, cohort in draw(st.dictionaries(names, COHORTS)).items():
        holders = draw(st.sets(names, min_size=spec.threshold))
        known.learn(vote(spec, node, cohort, known.in_order(holders)), Kept.FIRST)
    for name in draw(st.sets(names | st.just("aggregator"), max_size=2)):
        abandon(known, name)
    known.equivocation = draw(st.sampled_from([False, False, False, True]))
    return known


@given(known=rounds(), now=MOMENTS)
def test_every_decision_is_a_step_that_the_table_has(known: Round, now: datetime) -> None:
    decision = decide(known, now)
    if isinstance(decision, CastVote):
        assert known.phase is Phase.FROZEN
    elif decision is not None:
        assert (known.phase, EVENTS[type(decision)]) in ROUND
    if known.phase in FINISHED:
        assert decision is None


@given(known=rounds(), now=MOMENTS)
def test_a_sum_needs_votes_for_its_cohort_of_enough_nodes_that_still_take_part(
    known: Round, now: datetime
) -> None:
    decision = decide(known, now)
    if isinstance(decision, SumUp):
        spec, own = known.spec.body, known.votes[known.own]
        agreed = {name for name, each in known.votes.items() if each.cohort == own.cohort}
        assert len(agreed - known.abandonments.keys()) >= spec.threshold
        assert known.own not in known.abandonments
        assert own.cohort == cohort_digest(known.id, decision.cohort)
        assert decision.cohort == cohort_of(known.holdings[name] for name in own.holders)
        assert not known.equivocation
        assert now < spec.give_up_at


@pytest.mark.slow
@given(known=rounds(settings=(ADDITIVE,)), now=MOMENTS)
def test_an_additive_sum_needs_everyones_holdings_and_everyones_equal_vote(
    known: Round, now: datetime
) -> None:
    if isinstance(decide(known, now), SumUp):
        names = set(known.spec.body.compute_nodes)
        assert set(known.votes) == names and not known.abandonments
        assert len({each.cohort for each in known.votes.values()}) == 1


@given(known=rounds(), now=MOMENTS)
def test_a_vote_is_cast_once_and_only_for_a_large_cohort_all_of_which_this_node_holds(
    known: Round, now: datetime
) -> None:
    decision = decide(known, now)
    if isinstance(decision, CastVote):
        spec = known.spec.body
        assert known.own not in known.votes
        assert len(decision.cohort.holders) >= spec.minimum_cohort
        everyone = len(decision.holders) == len(spec.compute_nodes)
        assert everyone or (len(decision.holders) >= spec.threshold and now >= spec.proceed_at)
        frozen = [known.holdings[name] for name in decision.holders]
        assert decision.cohort == cohort_of(frozen)
        if known.own in known.holdings:
            assert decision.cohort == cohort_of([*frozen, known.holdings[known.own]])


@pytest.mark.slow
@given(known=rounds(), now=MOMENTS)
def test_what_may_be_out_is_never_given_up_by_the_node_alone(known: Round, now: datetime) -> None:
    known.phase = Phase.AGREED
    decision: Decision | None = decide(known, now)
    assert (decision is None) == ("aggregator" not in known.abandonments)
    assert decision is None or isinstance(decision, CallOff)


@given(known=rounds())
def test_no_round_stays_undecided_for_ever(known: Round) -> None:
    undecided = (Phase.ANNOUNCED, Phase.COLLECTING, Phase.FROZEN)
    decision = decide(known, known.spec.body.give_up_at)
    assert known.phase not in undecided or isinstance(decision, GiveUp | CallOff)


@given(known=rounds(), now=MOMENTS)
def test_equivocation_ends_the_round_whatever_the_scheme(known: Round, now: datetime) -> None:
    known.equivocation = True
    decision = decide(known, now)
    assert decision is None or isinstance(decision, GiveUp | CallOff)
    if isinstance(decision, GiveUp):
        assert decision.reason.code == "misconduct"


def test_a_missing_node_is_waited_for_until_the_time_to_proceed() -> None:
    known = blank(TWO_OF_THREE)
    spec = known.spec.body
    told(known, *(holdings(spec, f"compute-{node}", range(11)) for node in (0, 1)))
    assert decide(known, PROCEED_AT - timedelta(milliseconds=1)) is None
    decision = decide(known, PROCEED_AT)
    assert decision == CastVote(("compute-0", "compute-1"), examples.held(range(11)))


def test_a_missing_node_is_never_done_without_under_additive_sharing() -> None:
    known = blank(ADDITIVE)
    spec = known.spec.body
    told(known, *(holdings(spec, f"compute-{node}", range(11)) for node in (0, 1)))
    assert decide(known, GIVE_UP_AT - timedelta(milliseconds=1)) is None
    assert isinstance(decide(known, GIVE_UP_AT), GiveUp)


def test_a_peers_vote_is_followed_before_an_own_one_is_made_up() -> None:
    known = blank(THREE_OF_FOUR)
    spec, voters = known.spec.body, ("compute-1", "compute-2", "compute-3")
    told(known, holdings(spec, "compute-0", range(12)), holdings(spec, "compute-1", range(10)))
    told(known, *(holdings(spec, name, range(11)) for name in voters[1:]))
    three = ("compute-0", "compute-2", "compute-3")
    told(known, vote(spec, "compute-2", range(11), three))
    assert decide(known, PROCEED_AT) == CastVote(three, examples.held(range(11)))
    # before that, not all being among its holders, it is not
    assert decide(known, DEADLINE) == CastVote(spec.compute_nodes, examples.held(range(10)))


@pytest.mark.parametrize("lacking", ["a share", "its answer"])
def test_a_vote_over_a_client_that_this_node_cannot_sum_is_not_followed(lacking: str) -> None:
    known = blank(TWO_OF_THREE)
    spec, others = known.spec.body, ("compute-1", "compute-2")
    told(known, *(holdings(spec, name, range(12)) for name in others))
    if lacking == "a share":
        told(known, holdings(spec, "compute-0", range(11)))
        expected = examples.held(range(11))
    else:
        told(known, holdings(spec, "compute-0", range(12), "another"))
        expected = None
    told(known, vote(spec, "compute-1", range(12), others))
    decision = decide(known, PROCEED_AT)
    if expected is None:
        assert isinstance(decision, GiveUp) and decision.reason.code == "cohort_too_small"
    else:
        assert decision == CastVote(spec.compute_nodes, expected)


def test_a_vote_that_does_not_follow_from_the_holdings_is_not_followed() -> None:
    known = blank(TWO_OF_THREE)
    spec, pair = known.spec.body, ("compute-0", "compute-1")
    told(known, *(holdings(spec, name, range(12)) for name in pair))
    told(known, vote(spec, "compute-1", range(11), pair))
    assert decide(known, PROCEED_AT) == CastVote(pair, examples.held(range(12)))


@pytest.mark.parametrize(
    ("setting", "lost", "given_up"),
    [
        (ADDITIVE, 1, True),
        (TWO_OF_THREE, 1, False),
        (TWO_OF_THREE, 2, True),
        (THREE_OF_FOUR, 1, False),
        (THREE_OF_FOUR, 2, True),
    ],
)
@pytest.mark.parametrize("how", ["abandoned", "voted otherwise"])
def test_a_node_gives_up_once_more_are_lost_than_the_scheme_can_spare(
    setting: tuple, lost: int, given_up: bool, how: str
) -> None:
    known = blank(setting)
    spec = known.spec.body
    told(known, *(holdings(spec, name, range(12)) for name in spec.compute_nodes))
    told(known, vote(spec, "compute-0", range(12)))
    for name in spec.compute_nodes[1 : lost + 1]:
        if how == "abandoned":
            abandon(known, name)
        else:
            told(known, vote(spec, name, range(11)))
    decision = decide(known, DEADLINE)
    assert isinstance(decision, GiveUp) == given_up
    if isinstance(decision, GiveUp):
        code = "called_off_by_node" if how == "abandoned" else "votes_differ"
        assert decision.reason.code == code
        lost_nodes = ", ".join(spec.compute_nodes[1 : lost + 1])
        assert decision.reason.detail == (f"given up by {lost_nodes}" if how == "abandoned" else "")


def test_who_is_silent_when_time_is_up_is_named() -> None:
    known = blank(ADDITIVE)
    spec = known.spec.body
    told(known, holdings(spec, "compute-0", range(11)), holdings(spec, "compute-2", range(11)))
    reason = AbandonmentReason(code="holdings_missing", detail="no holdings from compute-1")
    assert decide(known, GIVE_UP_AT) == GiveUp(reason)
    told(known, holdings(spec, "compute-1", range(11)), vote(spec, "compute-1", range(11)))
    reason = AbandonmentReason(code="votes_missing", detail="no vote from compute-0, compute-2")
    assert decide(known, GIVE_UP_AT) == GiveUp(reason)
    told(known, *(vote(spec, f"compute-{node}", range(11)) for node in (0, 2)))
    assert decide(known, GIVE_UP_AT) == GiveUp(AbandonmentReason(code="votes_missing"))


def test_a_node_that_holds_too_little_is_done_without_from_the_time_to_proceed() -> None:
    known = blank(THREE_OF_FOUR)
    spec = known.spec.body
    frozen = [holdings(spec, name, range(12)) for name in spec.compute_nodes]
    told(known, *frozen[:2], holdings(spec, "compute-2", range(3)), frozen[3])
    assert decide(known, PROCEED_AT - timedelta(milliseconds=1)) is None
    three = ("compute-0", "compute-1", "compute-3")
    assert decide(known, PROCEED_AT) == CastVote(three, examples.held(range(12)))


@pytest.mark.parametrize("own", [range(3), range(12)])
def test_a_cohort_that_is_too_small_whoever_is_left_out_is_given_up(own: range) -> None:
    known = blank(TWO_OF_THREE)
    spec = known.spec.body
    told(known, holdings(spec, "compute-0", own), holdings(spec, "compute-1", range(3)))
    others = range(12) if own == range(3) else range(3)
    told(known, holdings(spec, "compute-2", others))
    decision = decide(known, PROCEED_AT)
    assert isinstance(decision, GiveUp) and decision.reason.code == "cohort_too_small"


def of_three_clinics(*, minimum_holders: int) -> Round:
    """Return a round at compute-0 that asks 12 slots of clinics of 8, 2 and 3; 8 suffice."""
    clinics = roster_of([(signing_key(f"clinic {n}").verify_key, n) for n in (8, 2, 3)])
    policy = POLICY.model_copy(update={"minimum_holders": minimum_holders})
    trust = reachable(3, policy=policy, of=clinics)
    body = examples.spec(manifest=trust, population=BitMap(range(12)), dropouts=4)
    known = blank((sign(body, "trainer", signing_key("trainer")), trust))
    known.held = known.intake.asked.holders
    return known


@pytest.mark.parametrize("minimum_holders", [1, 2])
def test_a_cohort_of_too_few_data_holders_is_given_up_however_many_slots_they_have(
    minimum_holders: int,
) -> None:
    known = of_three_clinics(minimum_holders=minimum_holders)
    spec = known.spec.body
    for name in spec.compute_nodes:
        of_the_first = Holdings.attest(
            examples.held(range(1)),
            known.intake.asked.holders,
            manifest=spec.manifest,
            round_id=spec.digest,
            node=name,
            entry=PLACE,
        )
        told(known, sign(of_the_first, name, signing_key(name)))
    told(known, vote(spec, "compute-1", range(1), spec.compute_nodes))
    decision = decide(known, DEADLINE)
    if minimum_holders == 1:
        assert isinstance(decision, CastVote)
        assert known.size(decision.cohort) == spec.minimum_cohort == 8
    else:
        assert isinstance(decision, GiveUp) and decision.reason.code == "cohort_too_small"


def test_under_additive_sharing_a_cohort_that_is_too_small_is_given_up_at_once() -> None:
    known = blank(ADDITIVE)
    spec = known.spec.body
    told(known, *(holdings(spec, name, range(9)) for name in spec.compute_nodes))
    assert isinstance(decide(known, DEADLINE), GiveUp)


def test_votes_of_enough_nodes_are_summed_without_the_rest() -> None:
    known = blank(TWO_OF_THREE)
    spec, pair = known.spec.body, ("compute-0", "compute-1")
    told(known, *(holdings(spec, name, range(11)) for name in pair))
    told(known, *(vote(spec, name, range(11), pair) for name in pair))
    assert decide(known, PROCEED_AT) == SumUp(examples.held(range(11)))


@pytest.mark.parametrize(("held", "freezes"), [(range(11), True), (range(10), False)])
def test_a_slow_clock_does_not_hold_up_a_round_in_which_all_others_are_frozen(
    held: range, freezes: bool
) -> None:
    known = blank(ADDITIVE, Phase.COLLECTING)
    known.held = BitMap(held)
    spec = known.spec.body
    told(known, holdings(spec, "compute-1", range(12)))
    assert decide(known, OPENED_AT) is None
    told(known, holdings(spec, "compute-2", range(11)))
    assert decide(known, OPENED_AT) == (Freeze() if freezes else None)
