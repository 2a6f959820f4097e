"""What must hold in every state of a round, whoever lies and whatever is lost."""

from collections.abc import Iterator

from tests.scenarios.model.machine import FAITHFUL, Action, Faithful, Node, State
from tests.scenarios.model.world import Cohort, World, agreement


def released(world: World, state: State) -> set[Cohort]:
    """Return the cohorts whose sum may be known.

    An honest aggregator gives out its result and nothing else. A colluding one has every partial
    sum that was ever signed, and the liar's.
    """
    if state.aggregator is not None:
        return {state.aggregator.most[1]} if state.aggregator.phase == "published" else set()
    signed = [cohort for node in state.nodes for cohort in node.made("sum")]
    return {each for each in signed if signed.count(each) + world.liar >= world.threshold}


def violations(world: World, state: State, fault: Faithful = FAITHFUL) -> Iterator[str]:
    """Return which invariants the state breaks."""
    out = released(world, state)
    if len(out) > 1:
        yield "two cohorts are released"
    if any(len(cohort) < world.minimum_cohort for cohort in out):
        yield "a cohort with too little noise is released"
    for node in state.nodes:
        if any(len(node.made(kind)) > 1 for kind in ("holdings", "vote", "sum", "abandonment")):
            yield "an honest node signs two documents of a kind"
        if node.made("sum") and node.made("abandonment"):
            yield "a node abandons what it has summed"
    added: dict[object, list[tuple[Node, Cohort]]] = {}  # by the digest under which they add up
    for node in state.nodes:
        for cohort in node.made("sum"):
            added.setdefault(fault.digest(world, cohort), []).append((node, cohort))
    for sums in added.values():
        common = set(agreement([node.held for node, _ in sums]))
        if not all(set(cohort) <= common for _, cohort in sums):
            yield "a client is summed with shares of two answers, or without a share"
    if state.aggregator is not None and state.aggregator.phase == "abandoned" and out:
        yield "the aggregator abandons what is released"
    if world.threshold == world.nodes and out:
        if any(node.made("abandonment") for node in state.nodes):
            yield "a node abandons what is released"


def unaccounted(world: World, action: Action, state: State) -> Iterator[str]:
    """Return what is wrong with a sum, judged by the documents for which it is made."""
    if action.outcome is None or action.outcome.kind != "sum":
        return
    ballot = action.outcome.ballot
    if len(ballot.nodes) < world.threshold:
        yield "a share is left out without a signed account"
    elif agreement([action.view.holdings[index] for index in ballot.nodes]) != ballot.cohort:
        yield "a share is left out without a signed account"
