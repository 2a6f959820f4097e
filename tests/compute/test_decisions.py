"""Decisions: whatever a node knows, it takes only steps that the table has and that are safe."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from shoal_compute.attesting import attest_abandonment
from shoal_compute.decisions import CallOff, CastVote, Decision, Freeze, GiveUp, SumUp, decide
from shoal_compute.rounds import Round
from shoal_compute.store import Kept
from shoal_protocol.attestations import AbandonmentReason, cohort_digest
from shoal_protocol.documents import sign
from shoal_protocol.phases import FINISHED, ROUND, Event, Phase
from tests.compute.federation import holdings, vote
from tests.compute.test_gossip import SPEC, known_round
from tests.protocol.examples import OPENED_AT, signing_key

PARTIES = ["compute-0", "compute-1", "compute-2", "aggregator"]
NODES = PARTIES[:3]
COHORTS = st.sampled_from([range(12), range(11), range(10), range(9)])
EVENTS = {
    Freeze: Event.FROZEN,
    SumUp: Event.COHORT_AGREED,
    GiveUp: Event.GIVEN_UP,
    CallOff: Event.CALLED_OFF,
}


@st.composite
def rounds(draw: st.DrawFn) -> Round:
    known = known_round(set(), draw(st.sampled_from(Phase)))
    known.held = BitMap(draw(COHORTS))
    for node, held in draw(st.dictionaries(st.sampled_from(NODES), COHORTS)).items():
        known.learn(holdings(SPEC.body, node, held), Kept.FIRST)
    for node, cohort in draw(st.dictionaries(st.sampled_from(NODES), COHORTS)).items():
        known.learn(vote(SPEC.body, node, cohort), Kept.FIRST)
    for name in draw(st.sets(st.sampled_from(PARTIES), max_size=1)):
        body = attest_abandonment(
            known, AbandonmentReason(code="votes_missing"), signing_key("compute-0")
        ).body
        signed = sign(body.model_copy(update={"party": name}), name, signing_key(name))
        known.learn(signed, Kept.FIRST)
    known.equivocation = draw(st.sampled_from([False, False, False, True]))
    return known


MOMENTS = st.sampled_from([0, 59, 60, 89, 90, 1000]).map(
    lambda seconds: OPENED_AT + timedelta(seconds=seconds)
)


@given(known=rounds(), now=MOMENTS)
def test_every_decision_is_a_step_that_the_table_has(known: Round, now: object) -> None:
    decision = decide(known, now)
    if isinstance(decision, CastVote):
        assert known.phase is Phase.FROZEN
    elif decision is not None:
        assert (known.phase, EVENTS[type(decision)]) in ROUND
    if known.phase in FINISHED:
        assert decision is None


@given(known=rounds(), now=MOMENTS)
def test_a_sum_needs_everyones_holdings_and_everyones_equal_vote(known: Round, now: object) -> None:
    decision = decide(known, now)
    if isinstance(decision, SumUp):
        assert set(known.holdings) == set(NODES)
        assert decision.cohort == BitMap.intersection(*known.holdings.values())
        named = {each.cohort for each in known.votes.values()}
        assert set(known.votes) == set(NODES)
        assert named == {cohort_digest(SPEC.digest, decision.cohort)}
        assert not known.abandonments and not known.equivocation
        assert now < SPEC.body.give_up_at


@given(known=rounds(), now=MOMENTS)
def test_a_vote_is_cast_once_and_only_for_a_cohort_that_is_large_enough(
    known: Round, now: object
) -> None:
    decision = decide(known, now)
    if isinstance(decision, CastVote):
        assert "compute-0" not in known.votes
        assert len(decision.cohort) >= SPEC.body.minimum_cohort
        assert all(decision.cohort <= held for held in known.holdings.values())


@given(known=rounds(), now=MOMENTS)
def test_what_may_be_out_is_never_given_up_by_the_node_alone(known: Round, now: object) -> None:
    known.phase = Phase.AGREED
    decision: Decision | None = decide(known, now)
    assert (decision is None) == ("aggregator" not in known.abandonments)
    assert decision is None or isinstance(decision, CallOff)


@given(known=rounds())
def test_no_round_stays_undecided_for_ever(known: Round) -> None:
    undecided = (Phase.ANNOUNCED, Phase.COLLECTING, Phase.FROZEN)
    decision = decide(known, SPEC.body.give_up_at)
    assert known.phase not in undecided or isinstance(decision, GiveUp | CallOff)
