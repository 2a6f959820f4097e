"""How studies take the values of a variable, and what is said of one that is coded otherwise.

Whoever owns the records is told what was found in them: nobody else may be.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.queries.terms import Level, Term
from shoal_protocol.trust.dictionary import Category, Date, Flag, Number

_SHOWN: Final = 5

CodingKind = Literal["classes", "outcome", "event", "time", "count", "positive", "weight", "levels"]


@dataclass(frozen=True)
class Coding:
    """What values of a variable are: one of two classes, an event or none, a time, and so on.

    `values` are the two classes, or the levels that are told apart, or the value that is the event,
    which is 1 if there is none; of a time its lower bound.
    """

    variable: str
    kind: CodingKind
    values: tuple[float, ...] = ()

    def fault_of(self, values: NDArray[np.float64]) -> str | None:
        """Return what is wrong with values, shape (n,), and what was found; None if nothing is."""
        name, found = repr(self.variable), np.unique(values[~np.isnan(values)])
        others = found[~np.isin(found, self.values)]
        match self.kind:
            case "classes" | "outcome" if len(others) and len(found) > 2:
                odd = [each for each in found.tolist() if each not in (0.0, 1.0)]
                return (
                    f"the target {name} has {_count(len(found))} values in the records, "
                    f"{_shown(found)}: if {odd[-1]:g} means missing, make it missing (NaN); two "
                    f"classes have two values{self._one_class(found[1])}"
                )
            case "classes" | "outcome" if len(others):
                low, high = self.values
                cure = (
                    f"give the values of both as its bounds{self._one_class(others[-1])}"
                    if self.kind == "classes"
                    else "name the values of both, as success=2, failure=1"
                )
                return (
                    f"the target {name} is {_shown(others)} in the records, and of two classes, "
                    f"coded {low:g} and {high:g}: {cure}"
                )
            case "event" if not self.values and not np.isin(found, (0.0, 1.0)).all():
                return uncoded_event(self.variable, f"{found[-1]:g}")
            case "event" if self.values and len(found) and not np.isin(self.values, found).all():
                return (
                    f"the event {name} is never {self.values[0]:g} in the records, but "
                    f"{_shown(found)}: name the value that is the event"
                )
            case "time" if (found < min(self.values)).any():
                below = _shown(found[found < self.values[0]])
                return (
                    f"the time {name} is below its lower bound {self.values[0]:g} in the records, "
                    f"at {below}: it counts from when a record is first at risk"
                )
            case "count" if (found < 0.0).any() or (found != np.floor(found)).any():
                wrong = found[(found < 0.0) | (found != np.floor(found))]
                return (
                    f"the target {name} is {_shown(wrong)} in the records, and a count is a whole "
                    "number, 0 or more: a rate is a count with an offset, the logarithm of what it "
                    "is for"
                )
            case "positive" if (found <= 0.0).any():
                wrong = found[found <= 0.0]
                return f"the target {name} is {_shown(wrong)} in the records, and must be above 0"
            case "weight" if (found < 0.0).any():
                wrong = found[found < 0.0]
                return f"the weight {name} is {_shown(wrong)} in the records: none is below 0"
            case "weight" if len(found) and not found.any():
                return f"the weight {name} is 0 in all records, so that none of them counts"
            case "levels" if len(others) and not np.isin(self.values, found).all():
                absent = np.array(self.values)[~np.isin(self.values, found)]
                return f"{name} is {_shown(others)} in the records, and never {_shown(absent)}"
            case _:
                return None

    def _one_class(self, value: float) -> str:
        """Return how to name one class, where a formula can."""
        return f", or name one, as level({self.variable}, {value:g}) does" * (
            self.kind == "classes"
        )


def _count(number: int) -> str:
    return "three" if number == 3 else f"{number:,}"


def _shown(values: NDArray[np.float64]) -> str:
    more = " and others" if len(values) > _SHOWN else ""
    return ", ".join(f"{each:g}" for each in values[:_SHOWN].tolist()) + more


def codings_of_terms(terms: Iterable[Term | None]) -> tuple[Coding, ...]:
    """Return the levels that terms list of their variables."""
    factors = (factor for term in terms if term is not None for factor in term.factors)
    listed = {each.variable: each.among for each in factors if isinstance(each, Level)}
    return tuple(Coding(name, "levels", among) for name, among in listed.items() if among)


def codings_of_target(family: str, target: ColumnBounds) -> tuple[Coding, ...]:
    """Return how a regression's target is coded; none where a term makes it."""
    if target.term is not None:
        return ()
    if family == "logistic":
        return (Coding(target.name, "classes", (target.lower, target.upper)),)
    counts = ("poisson", "negative_binomial")
    kind: CodingKind | None = (
        "count" if family in counts else "positive" if family == "gamma" else None
    )
    return () if kind is None else (Coding(target.name, kind),)


def codings_of_events(time: ColumnBounds, event: str, value: float | None) -> tuple[Coding, ...]:
    """Return how times and events are coded; a `value` that is the event may be named."""
    named = () if value is None else (value,)
    times = () if time.term else (Coding(time.name, "time", (time.lower,)),)
    return (*times, Coding(event, "event", named))


def event_fault_of(variable: Number | Flag | Category | Date | None) -> str | None:
    """Return why a variable is no indicator of an event, 0 or 1, or None."""
    if isinstance(variable, Category):
        return uncoded_event(variable.name, f'"{variable.levels[-1]}"')
    if variable is None or variable.limits == (0.0, 1.0):
        return None
    return uncoded_event(variable.name, f"{variable.limits[1]:g}")


def uncoded_event(name: str, example: str) -> str:
    """Return that an event is not coded 0 and 1, and how to say which value it is."""
    return (
        f"the event {name!r} is not coded 0 and 1: name the value that is the event, as "
        f'event={{"{name}": {example}}}, and make what means missing, as 9 often does, missing '
        "(NaN)"
    )
