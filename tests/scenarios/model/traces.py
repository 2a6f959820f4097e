"""Chooses traces that together take every kind of step there is and reach every kind of end."""

from collections.abc import Iterable

from tests.scenarios.model.machine import Action, Machine, State
from tests.scenarios.model.search import Key, Search

Trace = list[tuple[Action, State]]


def kind_of(before: State, action: Action) -> tuple[str, ...]:
    """Return what makes a step differ from others for a reader."""
    outcome = "" if action.outcome is None else action.outcome.kind + action.outcome.detail
    phase = "" if not 0 <= action.node < len(before.nodes) else str(before.nodes[action.node].phase)
    whose = "liar" if action.node >= len(before.nodes) else "honest"
    return action.kind, outcome, action.stage, phase, whose


def end_of(state: State) -> tuple[str, ...]:
    """Return how a round stands at each party, whichever it is."""
    end = "" if state.aggregator is None else state.aggregator.phase
    return *sorted(str(node.phase) for node in state.nodes), end


def covering(machine: Machine, search: Search) -> list[Trace]:
    """Return traces out of a finished search: the first of each kind of step and of end."""
    firsts: dict[tuple[str, ...], Trace] = {}
    for key in search.parents:
        state = search.state(key)
        wanted: list[tuple[tuple[str, ...], Key]] = []
        steps = list(machine.successors(state))
        for action, after in steps:
            wanted.append((kind_of(state, action), search.key(after)))
        if not steps:
            wanted.append((end_of(state), key))
        for kind, target in wanted:
            if kind not in firsts:
                firsts[kind] = _through(search, key, target)
    return list(_without_prefixes(firsts.values()))


def _through(search: Search, key: Key, target: Key) -> Trace:
    trace = search.path(key)
    state = trace[-1][1] if trace else search.machine.start
    if search.key(state) != target:
        for action, after in search.machine.successors(state):
            if search.key(after) == target:
                return [*trace, (action, after)]
    return trace


def _without_prefixes(traces: Iterable[Trace]) -> Iterable[Trace]:
    kept: list[Trace] = []
    for trace in sorted(traces, key=len, reverse=True):
        if not any(trace == other[: len(trace)] for other in kept):
            kept.append(trace)
    return kept
