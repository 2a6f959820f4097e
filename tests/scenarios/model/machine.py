"""All that can happen to a round: how the states of its parties follow one another.

The network is the set of all documents ever signed: whoever decides may have been given any of
them, and no more than it needs for that decision, for the others may come later. A node's clock
may show anything whenever it is read. A crash changes nothing, as each step is one transaction.
"""

from collections.abc import Iterator
from functools import cached_property
from itertools import combinations, permutations, product
from typing import Any, Final, Literal, NamedTuple

from shoal_protocol.wire.phases import Phase
from tests.scenarios.model.world import (
    AGGREGATOR,
    STAGES,
    Answers,
    Ballot,
    Cohort,
    Outcome,
    Stage,
    View,
    World,
    agreement,
)

Unknown = tuple[()]


class Node(NamedTuple):
    """What an honest node keeps on file."""

    phase: Phase
    held: Answers  # () until it froze
    holdings: tuple[Answers, ...]  # as it knows them, by node
    votes: tuple[Ballot | Unknown, ...]
    signed: frozenset[tuple[str, Any]]  # every document that it ever signed, by kind
    restored: bool = False  # whether a planted fault befell it

    def made(self, kind: str) -> list[Any]:
        return sorted(content for each, content in self.signed if each == kind)


class Collected(NamedTuple):
    """What an honest aggregator keeps on file."""

    phase: Literal["open", "published", "abandoned"]
    sums: tuple[Cohort, ...]  # by node; () is none
    abandonments: frozenset[int] = frozenset()  # by whom, as long as the round is open

    @property
    def most(self) -> tuple[int, Cohort]:
        """Return how many sums are over the cohort that has the most, and that cohort."""
        stored = {cohort for cohort in self.sums if cohort}
        return max(((self.sums.count(each), each) for each in stored), default=(0, ()))


class State(NamedTuple):
    """The honest parties of a round."""

    nodes: tuple[Node, ...]
    aggregator: Collected | None  # None if it colludes: then it knows whatever was signed


class Action(NamedTuple):
    """One step: of whom, what, and with which knowledge."""

    kind: str
    node: int = -1
    outcome: Outcome | None = None
    view: View | None = None
    stage: Stage = "open"
    cohort: Cohort = ()

    def __str__(self) -> str:
        words = [self.kind, "" if self.node < 0 else f"node {self.node}"]
        if self.outcome is not None:
            words += [self.outcome.kind, str(self.outcome.ballot or self.outcome.detail or "")]
        if self.view is not None:
            words.append(f"knowing holdings {self.view.holdings} votes {self.view.votes}")
        if self.cohort:
            words.append(f"over {self.cohort}")
        return " ".join(word for word in words if word)


class Faithful:
    """The product as it is; a planted fault is a subclass."""

    name = "none"

    def decide(self, world: World, own: int, view: View, stage: Stage) -> Outcome | None:
        return world.decide(own, view, stage)

    def mishaps(self, own: int, node: Node) -> Iterator[Node]:
        yield from ()

    def digest(self, world: World, cohort: Cohort) -> object:
        """Return by what sums are told to be over one cohort."""
        return world.digest(cohort)


FAITHFUL: Final = Faithful()
ENDED: Final = (Phase.PUBLISHED, Phase.ABANDONED)


class Machine:
    """The transitions of one world."""

    def __init__(self, world: World, fault: Faithful = FAITHFUL) -> None:
        self.world = world
        self.fault = fault
        self._steps: dict[Any, list[tuple[Action, Node]]] = {}

    @cached_property
    def start(self) -> State:
        nothing = ((),) * self.world.nodes
        node = Node(Phase.ANNOUNCED, (), nothing, nothing, frozenset())
        honest = self.world.aggregator == "honest"
        return State(
            tuple(node for _ in self.world.honest),
            Collected("open", ((),) * self.world.nodes) if honest else None,
        )

    def successors(self, state: State) -> Iterator[tuple[Action, State]]:
        """Return what may happen next, and what comes of it."""
        for index, node in enumerate(state.nodes):
            for action, after in self._steps_of(index, node, self._offers(state, index)):
                yield action, _with(state, index, after)
        if state.aggregator is not None:
            yield from self.of_aggregator(state, state.aggregator)

    def _offers(self, state: State, own: int) -> tuple[Any, ...]:
        """Return for each other honest node the holdings and votes that it signed."""
        return tuple(
            ((), ()) if index == own else (tuple(node.made("holdings")), tuple(node.made("vote")))
            for index, node in enumerate(state.nodes)
        )

    def _steps_of(self, own: int, node: Node, offers: tuple[Any, ...]) -> list[tuple[Action, Node]]:
        key = (own, node, offers)
        if key not in self._steps:
            self._steps[key] = list(self._node_steps(own, node, offers))
        return self._steps[key]

    def _node_steps(self, own: int, node: Node, offers: Any) -> Iterator[tuple[Action, Node]]:
        for after in self.fault.mishaps(own, node):
            yield Action("mishap", own), after
        if node.phase in (Phase.AGREED, *ENDED):
            return
        found: list[tuple[Outcome, View]] = []
        for view in self._views(own, node, offers):
            for stage in STAGES[1:] if node.phase is Phase.FROZEN else STAGES:
                outcome = self.fault.decide(self.world, own, view, stage)
                if outcome is None or any(
                    outcome == other and _knows_less(less, view) for other, less in found
                ):
                    continue
                found.append((outcome, view))
                yield (
                    Action("decide", own, outcome, view, stage),
                    _carried_out(own, node, outcome, view),
                )

    def _views(self, own: int, node: Node, offers: Any) -> Iterator[View]:
        """Return what the node may know when it decides, less before more."""
        if node.phase in (Phase.ANNOUNCED, Phase.COLLECTING):
            for held in self.world.possible_answers:
                phase = Phase.COLLECTING if any(held) else Phase.ANNOUNCED
                yield View(phase, held, node.holdings, node.votes)
            return
        world = self.world
        # a node that has voted asks for no more holdings: test_model shows that they are idle
        chooses: list[list[Answers]] = []
        for index in range(world.nodes):
            known = node.holdings[index]
            if known or node.votes[own]:
                chooses.append([known])
            elif index in world.honest:
                chooses.append([(), *offers[index][0]])
            else:
                chooses.append([(), *world.possible_answers])
        for holdings in sorted(product(*chooses), key=lambda known: sum(map(bool, known))):
            yield from self._views_of_votes(own, node, offers, holdings)

    def _views_of_votes(
        self, own: int, node: Node, offers: Any, holdings: tuple[Answers, ...]
    ) -> Iterator[View]:
        """Return what the node may know of votes beside `holdings`.

        Of the liar's votes those are left out that no decision can need: over a cohort that is
        neither this node's nor follows from holdings known here.
        """
        chooses: list[list[Ballot | Unknown]] = []
        for index in range(self.world.nodes):
            known = node.votes[index]
            if known or index == own:
                chooses.append([known])
            elif index in self.world.honest:
                chooses.append([(), *offers[index][1]])
            else:
                chooses.append([(), *self._lies(node.votes[own], holdings)])
        for votes in sorted(product(*chooses), key=lambda known: sum(map(bool, known))):
            yield View(node.phase, node.held, holdings, votes)

    def _lies(self, own: Ballot | Unknown, holdings: tuple[Answers, ...]) -> list[Ballot]:
        if own:
            return [own]
        known = [index for index, held in enumerate(holdings) if held]
        groups = [
            group
            for size in range(self.world.threshold, len(known) + 1)
            for group in combinations(known, size)
        ]
        return [Ballot(agreement([holdings[index] for index in group]), group) for group in groups]

    def of_aggregator(self, state: State, collected: Collected) -> Iterator[tuple[Action, State]]:
        """Return what may happen next between an honest aggregator and the nodes."""
        for index, node in enumerate(state.nodes):
            if node.phase is Phase.AGREED:
                for cohort in node.made("sum"):
                    after, acknowledged = self.take_sum(collected, index, cohort)
                    if after != collected:
                        yield (
                            Action("store", index, cohort=cohort),
                            state._replace(aggregator=after),
                        )
                    if acknowledged:
                        told = _with(state, index, _ended(node, Phase.PUBLISHED))
                        yield Action("post", index, cohort=cohort), told._replace(aggregator=after)
            if collected.phase == "abandoned" and node.phase not in ENDED:
                told = self._knowing_the_abandonment(node)
                if self.fault.decide(self.world, index, told, "open") == Outcome("call_off"):
                    ended = _with(state, index, _ended(node, Phase.ABANDONED))
                    yield Action("call_off", index), ended
            if node.made("abandonment"):
                after = self.take_abandonment(collected, index)
                if after != collected:
                    yield Action("report", index), state._replace(aggregator=after)
        for liar in range(len(state.nodes), self.world.nodes):
            for cohort in {each for each in collected.sums if each} or self.lied_sums(state):
                after, _ = self.take_sum(collected, liar, cohort)
                if after != collected:
                    yield Action("store", liar, cohort=cohort), state._replace(aggregator=after)
            after = self.take_abandonment(collected, liar)
            if after != collected:
                yield Action("report", liar), state._replace(aggregator=after)
        if collected.phase == "open":
            yield Action("end"), state._replace(aggregator=self.ended(collected))

    def _knowing_the_abandonment(self, node: Node) -> View:
        held = node.held or (0,) * self.world.clients
        return View(node.phase, held, node.holdings, node.votes, frozenset({AGGREGATOR}))

    def lied_sums(self, state: State) -> set[Cohort]:
        """Return the cohorts over which the liar may post a sum before anyone else did."""
        return {each for each in self.world.cohorts if len(each) >= self.world.minimum_cohort}

    def take_sum(self, collected: Collected, node: int, cohort: Cohort) -> tuple[Collected, bool]:
        """Return the aggregator after it was offered a partial sum, and whether it took it."""
        known = collected.sums[node]
        if collected.phase == "abandoned" or (known and known != cohort):
            return collected, False
        if known:
            return collected, True
        elsewhere = sum(1 for other in collected.sums if other and other != cohort)
        if node in collected.abandonments or elsewhere > self._dispensable:
            return collected, False
        return collected._replace(sums=put(collected.sums, node, cohort)), True

    def take_abandonment(self, collected: Collected, node: int) -> Collected:
        """Return the aggregator after a node told it that it gave up."""
        if collected.sums[node] or collected.phase != "open":
            return collected
        abandonments = collected.abandonments | {node}
        if len(abandonments) > self._dispensable:
            return Collected("abandoned", collected.sums)
        return collected._replace(abandonments=abandonments)

    def is_complete(self, collected: Collected) -> bool:
        """Tell whether there are enough sums over one cohort, at the latest."""
        return collected.most[0] >= self.world.threshold

    def ended(self, collected: Collected) -> Collected:
        """Return the aggregator after it decided, at the latest."""
        published = self.is_complete(collected)
        return Collected("published" if published else "abandoned", collected.sums)

    @property
    def _dispensable(self) -> int:
        return self.world.nodes - self.world.threshold

    @cached_property
    def symmetries(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Return the ways to rename honest nodes and clients that change nothing."""
        world = self.world
        liars = tuple(range(len(world.honest), world.nodes))
        clients = [
            each
            for each in permutations(range(world.clients))
            if all(world.answers[old] == world.answers[new] for old, new in enumerate(each))
        ]
        return [
            ((*nodes, *liars), each) for nodes in permutations(world.honest) for each in clients
        ]


def renamed(node: Node, nodes: tuple[int, ...], clients: tuple[int, ...]) -> Node:
    """Return what `node` keeps if node i is called nodes[i] and client j is called clients[j]."""

    def answers(held: Answers) -> Answers:
        return _permuted(held, clients) if held else held

    def ballot(each: Ballot | Unknown) -> Ballot | Unknown:
        if not each:
            return each
        return Ballot(cohort(each.cohort), tuple(sorted(nodes[index] for index in each.nodes)))

    def cohort(each: Cohort) -> Cohort:
        return tuple(sorted((clients[client], answer) for client, answer in each))

    how: dict[str, Any] = {"holdings": answers, "vote": ballot, "sum": cohort}
    return Node(
        node.phase,
        answers(node.held),
        _permuted(tuple(map(answers, node.holdings)), nodes),
        _permuted(tuple(map(ballot, node.votes)), nodes),
        frozenset((kind, how[kind](what) if kind in how else what) for kind, what in node.signed),
        node.restored,
    )


def renamed_sums(
    collected: Collected, nodes: tuple[int, ...], clients: tuple[int, ...]
) -> Collected:
    """Return the aggregator's file under other names."""
    sums = tuple(
        tuple(sorted((clients[client], answer) for client, answer in each))
        for each in collected.sums
    )
    abandonments = frozenset(nodes[index] for index in collected.abandonments)
    return Collected(collected.phase, _permuted(sums, nodes), abandonments)


def _carried_out(own: int, node: Node, outcome: Outcome, view: View) -> Node:
    if outcome.kind == "freeze":
        return Node(
            Phase.FROZEN,
            view.held,
            put(view.holdings, own, view.held),
            view.votes,
            node.signed | {("holdings", view.held)},
            node.restored,
        )
    if outcome.kind == "vote":
        votes = put(view.votes, own, outcome.ballot)
        signed = node.signed | {("vote", outcome.ballot)}
        return node._replace(holdings=view.holdings, votes=votes, signed=signed)
    if outcome.kind == "sum":
        signed = node.signed | {("sum", outcome.ballot.cohort)}
        return _ended(node._replace(signed=signed), Phase.AGREED)
    if outcome.kind == "give_up":
        signed = node.signed | {("abandonment", 0)}
        return _ended(node._replace(signed=signed), Phase.ABANDONED)
    raise ValueError(f"{outcome.kind} is no step of a node by itself")


def _ended(node: Node, phase: Phase) -> Node:
    """Return the node in a phase in which nothing that it learns matters any more."""
    nothing = ((),) * len(node.votes)
    return node._replace(phase=phase, holdings=nothing, votes=nothing)


def _knows_less(less: View, more: View) -> bool:
    return less.held == more.held and all(
        a in ((), b)
        for a, b in zip(less.holdings + less.votes, more.holdings + more.votes, strict=True)
    )


def _with(state: State, index: int, node: Node) -> State:
    return state._replace(nodes=put(state.nodes, index, node))


def put(values: tuple[Any, ...], index: int, value: Any) -> tuple[Any, ...]:
    """Return `values` with another value at `index`."""
    return (*values[:index], value, *values[index + 1 :])


def _permuted(values: tuple[Any, ...], order: tuple[int, ...]) -> tuple[Any, ...]:
    moved = list(values)
    for old, new in enumerate(order[: len(values)]):
        moved[new] = values[old]
    return tuple(moved)
