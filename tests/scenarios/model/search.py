"""Explores every state of a round once, up to renaming; it knows nothing of rounds."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.scenarios.model.invariants import unaccounted, violations
from tests.scenarios.model.machine import Action, Machine, State, renamed, renamed_sums

Key = tuple[int, ...]


@dataclass
class Found:
    """What a search has seen."""

    states: int = 0
    steps: int = 0
    broken: dict[str, Key] = field(default_factory=dict)  # the first state that breaks each
    blamed: dict[str, Action] = field(default_factory=dict)


class Search:
    """A breadth-first search over one machine's states."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._numbers: dict[Any, int] = {}
        self._parts: list[Any] = []
        self._renamed: list[dict[int, int]] = [{} for _ in machine.symmetries]
        self.parents: dict[Key, Key | None] = {}
        self.edges: dict[Key, list[Key]] = {}

    def run(
        self,
        *,
        keep_edges: bool = False,
        stop: Callable[[Found], bool] = lambda found: False,
        progress: Callable[[int], None] = lambda states: None,
    ) -> Found:
        """Explore until nothing is new, or `stop` says so."""
        machine, found = self.machine, Found()
        first = self.key(machine.start)
        self.parents[first] = None
        waiting = deque([first])
        while waiting and not stop(found):
            key = waiting.popleft()
            state = self.state(key)
            found.states += 1
            if found.states % 10_000 == 0:
                progress(found.states)
            for name in violations(machine.world, state, machine.fault):
                found.broken.setdefault(name, key)
            following = []
            for action, after in machine.successors(state):
                found.steps += 1
                next_key = self.key(after)
                following.append(next_key)
                for name in unaccounted(machine.world, action, after):
                    found.broken.setdefault(name, next_key)
                if next_key not in self.parents:
                    self.parents[next_key] = key
                    waiting.append(next_key)
            if keep_edges:
                self.edges[key] = following
        return found

    def key(self, state: State) -> Key:
        """Return the numbers that stand for a state and all that differ from it by names."""
        numbers = [self._number(node) for node in state.nodes]
        collected = None if state.aggregator is None else self._number(state.aggregator)
        best: Key | None = None
        for index, (nodes, _) in enumerate(self.machine.symmetries):
            moved = [0] * len(numbers)
            for old, number in enumerate(numbers):
                moved[nodes[old]] = self._rename(index, number)
            key = (*moved,) if collected is None else (*moved, self._rename(index, collected))
            if best is None or key < best:
                best = key
        assert best is not None
        return best

    def state(self, key: Key) -> State:
        """Return a state that the numbers stand for."""
        honest = len(self.machine.world.honest)
        parts = [self._parts[number] for number in key]
        return State(tuple(parts[:honest]), parts[honest] if len(parts) > honest else None)

    def path(self, key: Key) -> list[tuple[Action, State]]:
        """Return the actions that lead from the start to the state of `key`, with their states."""
        keys: list[Key] = []
        step: Key | None = key
        while step is not None:
            keys.append(step)
            step = self.parents[step]
        state, taken = self.machine.start, []
        for following in reversed(keys[:-1]):
            for action, after in self.machine.successors(state):
                if self.key(after) == following:
                    taken.append((action, after))
                    state = after
                    break
            else:
                raise ValueError("the path is lost")
        return taken

    def can_reach(self, goals: set[Key]) -> set[Key]:
        """Return the explored states from which one of `goals` can be reached."""
        before: dict[Key, list[Key]] = {}
        for key, following in self.edges.items():
            for each in following:
                before.setdefault(each, []).append(key)
        reached, waiting = set(goals), deque(goals)
        while waiting:
            for key in before.get(waiting.popleft(), ()):
                if key not in reached:
                    reached.add(key)
                    waiting.append(key)
        return reached

    def _number(self, part: Any) -> int:
        number = self._numbers.setdefault(part, len(self._parts))
        if number == len(self._parts):
            self._parts.append(part)
        return number

    def _rename(self, symmetry: int, number: int) -> int:
        table = self._renamed[symmetry]
        if number not in table:
            nodes, clients = self.machine.symmetries[symmetry]
            part = self._parts[number]
            how = renamed if hasattr(part, "held") else renamed_sums
            table[number] = self._number(how(part, nodes, clients))
        return table[number]
