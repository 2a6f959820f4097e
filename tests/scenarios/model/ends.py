"""Which ends can still be reached from every state of a finished search, without lies."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from shoal_protocol.wire.phases import FINISHED, Phase
from tests.scenarios.model.machine import Node, State
from tests.scenarios.model.search import Search
from tests.scenarios.model.world import World, agreement


@dataclass(frozen=True)
class Ends:
    """Counts of explored states."""

    endless: int  # no end of all parties can be reached
    hopeful: int  # enough nodes may still sum over one cohort
    disappointed: int  # hopeful, and yet no result can be reached
    split: int  # nobody gave up, and yet too few nodes can agree: each has its one vote


def ends(search: Search) -> Ends:
    """Judge a search that kept its edges."""
    states = {key: search.state(key) for key in search.parents}
    over = {key for key, state in states.items() if is_over(state)}
    result = {key for key, state in states.items() if is_published(state)}
    can_end, can_publish = search.can_reach(over), search.can_reach(result)
    world = search.machine.world
    hopeful = {key for key, state in states.items() if is_hopeful(world, state)}
    split = {key for key, state in states.items() if is_split(world, state)}
    disappointed = hopeful - can_publish
    return Ends(len(states.keys() - can_end), len(hopeful), len(disappointed), len(split))


def is_over(state: State) -> bool:
    """Tell whether every party is done."""
    done = state.aggregator is not None and state.aggregator.phase != "open"
    return done and all(node.phase in FINISHED for node in state.nodes)


def is_published(state: State) -> bool:
    """Tell whether there is a result."""
    return state.aggregator is not None and state.aggregator.phase == "published"


def is_hopeful(world: World, state: State) -> bool:
    """Tell whether there are enough nodes that did not give up and can sum over one cohort.

    They have voted for it, or can still vote as they did, or else have not voted at all and hold
    enough clients in common.
    """
    if state.aggregator is None or state.aggregator.phase == "abandoned":
        return False
    left = [node for node in state.nodes if node.phase is not Phase.ABANDONED]
    yet_to_vote = [node for node in left if not node.made("vote")]
    for cohort in {vote.cohort for node in left for vote in node.made("vote")}:
        voters = [node for node in left if any(v.cohort == cohort for v in node.made("vote"))]
        shares = set(cohort)
        followers = [
            node
            for node in yet_to_vote
            if not node.held or shares <= set(agreement([node.held, voters[0].held]))
        ]
        if len(voters) + len(followers) >= world.threshold:
            return True
    return any(
        has_enough_in_common(world, group) for group in combinations(yet_to_vote, world.threshold)
    )


def has_enough_in_common(world: World, group: Sequence[Node]) -> bool:
    """Tell whether these nodes hold a large enough cohort, or may yet when all have frozen."""
    held = [node.held for node in group if node.held]
    return not held or len(agreement(held)) >= world.minimum_cohort


def is_split(world: World, state: State) -> bool:
    """Tell whether votes alone stand in the way of a result."""
    if state.aggregator is None or state.aggregator.phase != "open":
        return False
    if any(node.phase is Phase.ABANDONED for node in state.nodes):
        return False
    forgotten = [node._replace(signed=frozenset()) for node in state.nodes]
    return not is_hopeful(world, state) and is_hopeful(
        world, state._replace(nodes=tuple(forgotten))
    )
