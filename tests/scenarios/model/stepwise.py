"""The same round without any reduction: every share, document and tick of a clock by itself.

It is only feasible for the smallest rounds, where it must reach exactly what `machine` reaches.
"""

from collections.abc import Iterator
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

from shoal_protocol.wire.phases import Phase
from tests.scenarios.model.machine import Collected, Machine, Node, State, put
from tests.scenarios.model.world import STAGES, Ballot, Stage, View, World


class Detailed(NamedTuple):
    """A node with all that it knows and its clock."""

    view: View
    stage: Stage
    signed: frozenset[tuple[str, Any]]


Detail = tuple[tuple[Detailed, ...], Collected | None]
BEFORE = (Phase.ANNOUNCED, Phase.COLLECTING)


class Stepwise:
    """Every single step of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.machine = Machine(world)

    @cached_property
    def start(self) -> Detail:
        nothing = ((),) * self.world.nodes
        view = View(Phase.ANNOUNCED, (0,) * self.world.clients, nothing, nothing)
        node = Detailed(view, "open", frozenset())
        return (node,) * len(self.world.honest), self.machine.start.aggregator

    def reachable(self) -> set[State]:
        """Return all that can be reached, as the reduced search describes it; count `states`."""
        seen, waiting = {self.start}, [self.start]
        while waiting:
            for after in self._successors(waiting.pop()):
                if after not in seen:
                    seen.add(after)
                    waiting.append(after)
        self.states = len(seen)
        return {described(nodes, collected) for nodes, collected in seen}

    def _successors(self, state: Detail) -> Iterator[Detail]:
        nodes, collected = state
        for own, node in enumerate(nodes):
            for after in self._of_node(own, node, state):
                yield put(nodes, own, after), collected
        if collected is not None:
            yield from self._of_aggregator(state)

    def _of_node(self, own: int, node: Detailed, state: Detail) -> Iterator[Detailed]:
        view = node.view
        if view.phase in (Phase.PUBLISHED, Phase.ABANDONED):
            return
        if node.stage != "over":
            yield node._replace(stage=STAGES[STAGES.index(node.stage) + 1])
        if view.phase in BEFORE and node.stage == "open":
            for client, count in enumerate(self.world.answers):
                if not view.held[client]:
                    for answer in range(1, count + 1):
                        held = put(view.held, client, answer)
                        yield node._replace(view=view._replace(phase=Phase.COLLECTING, held=held))
        if view.phase is not Phase.AGREED:
            yield from self._learning(own, node, state)
        called_off = view._replace(abandonments=view.abandonments | {-1})
        if state[1] is not None and state[1].phase == "abandoned":
            assert self.world.decide(own, called_off, node.stage).kind == "call_off"
            yield _over(node, Phase.ABANDONED)
        outcome = self.world.decide(own, view, node.stage)
        if outcome is None:
            return
        if outcome.kind == "freeze":
            holdings = put(view.holdings, own, view.held)
            frozen = view._replace(phase=Phase.FROZEN, holdings=holdings)
            yield Detailed(frozen, node.stage, node.signed | {("holdings", view.held)})
        elif outcome.kind == "vote":
            votes = put(view.votes, own, outcome.ballot)
            signed = node.signed | {("vote", outcome.ballot)}
            yield Detailed(view._replace(votes=votes), node.stage, signed)
        elif outcome.kind == "sum":
            summed = node._replace(signed=node.signed | {("sum", outcome.ballot.cohort)})
            yield _over(summed, Phase.AGREED)
        else:
            over = node._replace(signed=node.signed | {("abandonment", 0)})
            yield _over(over, Phase.ABANDONED)

    def _learning(self, own: int, node: Detailed, state: Detail) -> Iterator[Detailed]:
        view, lies = node.view, self._lies if self.world.liar else []
        for index in range(self.world.nodes):
            honest = index in self.world.honest
            for kind, content in state[0][index].signed if honest else lies:
                if index == own:
                    continue
                if kind == "abandonment":
                    learned = view._replace(abandonments=view.abandonments | {index})
                elif kind in ("holdings", "vote"):
                    name = "holdings" if kind == "holdings" else "votes"
                    known = getattr(view, name)
                    if known[index]:
                        learned = view._replace(
                            equivocation=view.equivocation or known[index] != content
                        )
                    else:
                        learned = view._replace(**{name: put(known, index, content)})
                else:
                    continue
                if learned != view:
                    yield node._replace(view=learned)

    @cached_property
    def _lies(self) -> list[tuple[str, Any]]:
        """Return every document of the liar's that verifies."""
        world = self.world
        groups = [
            each for n in range(2, world.nodes + 1) for each in combinations(range(world.nodes), n)
        ]
        return [
            ("abandonment", 0),
            *(("holdings", held) for held in world.possible_answers),
            *(("vote", Ballot(cohort, group)) for cohort in world.cohorts for group in groups),
        ]

    def _of_aggregator(self, state: Detail) -> Iterator[Detail]:
        nodes, collected = state
        coarse = described(nodes, collected)
        for action, after in self.machine.of_aggregator(coarse, collected):
            changed = nodes
            if action.kind in ("post", "call_off"):
                phase = after.nodes[action.node].phase
                changed = put(nodes, action.node, _over(nodes[action.node], phase))
            yield changed, after.aggregator


def _over(node: Detailed, phase: Phase) -> Detailed:
    nothing = ((),) * len(node.view.votes)
    view = View(phase, node.view.held, nothing, nothing)
    return Detailed(view, "open" if phase is not Phase.AGREED else node.stage, node.signed)


def described(nodes: tuple[Detailed, ...], collected: Collected | None) -> State:
    """Return the state without what the nodes know and without their clocks."""
    return State(tuple(map(_described, nodes)), collected)


def _described(node: Detailed) -> Node:
    held = dict(node.signed).get("holdings", ())
    phase = Phase.ANNOUNCED if node.view.phase in BEFORE else node.view.phase
    nothing = ((),) * len(node.view.votes)
    return Node(phase, held, nothing, nothing, node.signed)
