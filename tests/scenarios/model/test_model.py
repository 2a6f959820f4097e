"""Small rounds, explored wholly: what must hold, what faults would break, what can still end."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_protocol.wire.phases import Phase
from tests.scenarios.model.configurations import LIMITS, PLANTED, SMALL, Configuration
from tests.scenarios.model.ends import ends
from tests.scenarios.model.machine import Machine
from tests.scenarios.model.search import Search
from tests.scenarios.model.world import AGGREGATOR, STAGES, Ballot, Outcome, View, World

pytestmark = pytest.mark.essential

THRESHOLD = World(3, (1, 1, 1), 1, 2)
COHORTS = [((0, 1), (1, 1)), ((0, 1), (1, 1), (2, 1))]  # of two and of three clients


def _shown(configurations: list[Configuration]) -> list[Any]:
    """Return them as parameters; those that take a second or more only where all are tried."""
    return [
        pytest.param(each, marks=[pytest.mark.exhaustive] if _is_large(each.world) else [])
        for each in configurations
    ]


def _is_large(world: World) -> bool:
    return world.nodes == 4 or (world.nodes == 3 and world.liar and sum(world.answers) > 3)


@pytest.mark.parametrize("configuration", _shown(SMALL), ids=str)
def test_no_state_of_a_small_round_breaks_an_invariant(configuration: Configuration) -> None:
    search = Search(Machine(configuration.world))
    found = search.run()
    assert found.broken == {}
    assert found.states == len(search.parents) > 1


@pytest.mark.parametrize("configuration", _shown([*LIMITS, *PLANTED]), ids=str)
def test_known_limits_and_planted_faults_break_what_they_are_said_to_break(
    configuration: Configuration,
) -> None:
    search = Search(Machine(configuration.world, configuration.fault))
    expected = configuration.breaks
    found = search.run(stop=lambda so_far: bool(expected) and expected <= so_far.broken.keys())
    assert found.broken.keys() == expected
    for key in found.broken.values():
        assert search.path(key), "the start breaks nothing"


@pytest.mark.parametrize(
    "world",
    [each.world for each in SMALL if not each.world.liar],
    ids=lambda each: f"M={each.nodes} t={each.threshold} answers {each.answers}",
)
def test_without_lies_every_state_can_end_and_every_hopeful_one_in_a_result(world: World) -> None:
    search = Search(Machine(world))
    search.run(keep_edges=True)
    found = ends(search)
    assert found.endless == 0
    assert found.hopeful > 10
    assert found.disappointed == 0


@given(data=st.data())
def test_a_node_that_has_voted_needs_no_more_holdings_than_its_vote_names(
    data: st.DataObject,
) -> None:
    own, others = THRESHOLD.possible_answers[-1], st.sampled_from(((), *THRESHOLD.possible_answers))
    held = (own, data.draw(others), data.draw(others))
    ballots = st.sampled_from([Ballot(cohort, (0, 1)) for cohort in COHORTS])
    votes = (data.draw(ballots), data.draw(st.just(()) | ballots), data.draw(st.just(()) | ballots))
    stage = data.draw(st.sampled_from(STAGES))
    without = THRESHOLD.decide(0, View(Phase.FROZEN, own, (*held[:2], ()), votes), stage)
    outcome = THRESHOLD.decide(0, View(Phase.FROZEN, own, held, votes), stage)
    assert _but_for_the_reason(outcome) == _but_for_the_reason(without)


def _but_for_the_reason(outcome: Outcome | None) -> Outcome | None:
    return outcome and outcome._replace(detail="")


@given(data=st.data())
def test_a_view_is_what_learning_its_documents_gives(data: st.DataObject) -> None:
    held = st.sampled_from(((), *THRESHOLD.possible_answers))
    ballots = st.sampled_from([Ballot(cohort, (0, 1)) for cohort in COHORTS])
    view = View(
        data.draw(st.sampled_from(Phase)),
        data.draw(st.sampled_from(THRESHOLD.possible_answers)),
        tuple(data.draw(held) for _ in range(3)),
        tuple(data.draw(st.just(()) | ballots) for _ in range(3)),
        frozenset(data.draw(st.sets(st.sampled_from([AGGREGATOR, 0, 1, 2])))),
    )
    short, long = THRESHOLD.round(0, view), THRESHOLD.learned(0, view)
    for name in ("held", "holdings", "votes", "abandonments", "equivocation", "phase"):
        assert getattr(short, name) == getattr(long, name)
