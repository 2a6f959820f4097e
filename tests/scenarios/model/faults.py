"""Faults that are planted in the product's decisions, to show that the search would find them."""

from collections.abc import Iterator
from dataclasses import replace

from shoal_protocol.wire.phases import Phase
from tests.scenarios.model.machine import Faithful, Node, put
from tests.scenarios.model.world import Cohort, Outcome, Stage, View, World


class SetBack(Faithful):
    """Once, a node loses all that it stored since it froze, as after restoring a backup."""

    name = "a node is set back to the state in which it froze"

    def mishaps(self, own: int, node: Node) -> Iterator[Node]:
        if node.phase in (Phase.FROZEN, Phase.AGREED) and node.made("vote") and not node.restored:
            nothing = ((),) * len(node.votes)
            holdings = tuple(node.held if each == own else () for each in range(len(node.votes)))
            yield Node(Phase.FROZEN, node.held, holdings, nothing, node.signed, True)


class FreezesTwice(Faithful):
    """Once, a frozen node takes shares again, and freezes again."""

    name = "a node freezes twice"

    def mishaps(self, own: int, node: Node) -> Iterator[Node]:
        if node.phase is Phase.FROZEN and not node.made("vote") and not node.restored:
            nothing = ((),) * len(node.votes)
            yield Node(Phase.ANNOUNCED, (), nothing, nothing, node.signed, True)


class SumsEarly(Faithful):
    """A node sums when one vote is missing."""

    name = "a node sums when one vote is missing"

    def decide(self, world: World, own: int, view: View, stage: Stage) -> Outcome | None:
        outcome = world.decide(own, view, stage)
        ballot = view.votes[own]
        if outcome is not None or not ballot or () not in view.votes:
            return outcome
        missing = view.votes.index(())
        votes = put(view.votes, missing, ballot)
        return world.decide(own, view._replace(votes=votes), stage)


class FollowsBlindly(Faithful):
    """A node votes as another one did, whatever it holds itself."""

    name = "a node follows a vote for clients that it does not hold"

    def decide(self, world: World, own: int, view: View, stage: Stage) -> Outcome | None:
        if view.phase is Phase.FROZEN and not view.votes[own]:
            for ballot in view.votes:
                if ballot and all(view.holdings[each] for each in ballot.nodes):
                    return Outcome("vote", ballot)
        return world.decide(own, view, stage)


class GivesUpLate(Faithful):
    """A node gives up after it has summed."""

    name = "a node gives up after it has summed"

    def mishaps(self, own: int, node: Node) -> Iterator[Node]:
        if node.phase is Phase.AGREED:
            signed = node.signed | {("abandonment", 0)}
            yield node._replace(phase=Phase.ABANDONED, signed=signed)


class IgnoresAnswers(Faithful):
    """A node looks at whose shares are held, and not of which answer they are."""

    name = "a node does not compare answers"

    def decide(self, world: World, own: int, view: View, stage: Stage) -> Outcome | None:
        if view.phase in (Phase.ANNOUNCED, Phase.COLLECTING):
            return world.decide(own, view, stage)
        holdings = tuple(tuple(min(each, 1) for each in held) for held in view.holdings)
        held = tuple(min(each, 1) for each in view.held)
        return world.decide(own, view._replace(held=held, holdings=holdings), stage)


class NamesClientsOnly(Faithful):
    """Sums over the same clients count as one, whatever answers they are of."""

    name = "a cohort's digest names clients and not their answers"

    def digest(self, world: World, cohort: Cohort) -> object:
        return frozenset(dict(cohort))


class IgnoresTheMinimum(Faithful):
    """A node votes for a cohort that is one client too small."""

    name = "a node votes for a cohort that is too small"

    def decide(self, world: World, own: int, view: View, stage: Stage) -> Outcome | None:
        return _laxer(world).decide(own, view, stage)


class IgnoresEquivocation(Faithful):
    """A node goes on when a party has signed two different documents."""

    name = "a node ignores equivocation"

    def decide(self, world: World, own: int, view: View, stage: Stage) -> Outcome | None:
        return world.decide(own, view._replace(equivocation=False), stage)


_LAXER: dict[World, World] = {}


def _laxer(world: World) -> World:
    if world not in _LAXER:
        _LAXER[world] = replace(world, dropouts=world.dropouts + 1)
    return _LAXER[world]
