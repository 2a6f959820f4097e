"""Tells whoever owns the records which of their values lie beyond the bounds of a task.

A job cuts such values to the bounds in silence, for nobody may look. Only a simulation is told.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.queries.terms import Level
from shoal_protocol.trust.codings import Coding

_SHARES: Final = (0.01, 0.05)  # of values beyond bounds, that are told, and that are doubted
_TIMES: Final = (0.5, 0.95)  # the same two of times: those beyond the last one are censored there
_MOST_CODES: Final = 3


@dataclass(frozen=True)
class Beyond:
    """What lies beyond bounds, in sentences; the first `doubted` speak against intervals."""

    said: tuple[str, ...] = ()
    doubted: int = 0

    @property
    def reasons(self) -> tuple[str, ...]:
        """What speaks against intervals."""
        return self.said[: self.doubted]


def beyond_bounds(
    columns: Iterable[ColumnBounds],
    codings: Iterable[Coding],
    values_of: Callable[[str], NDArray[np.float64] | None],
) -> Beyond:
    """Return which variables have more than one value in a hundred beyond the bounds of `columns`.

    `values_of` gives a variable's values, shape (n,), NaN where missing; None if it is no quantity.
    Outcomes and levels that have `codings` are none either. A twentieth of the values beyond makes
    intervals doubtful. Of times half are told, and nearly all doubted: those beyond the last one
    are censored there.

    Raises:
        ValueError: the bounds are 0 and 1, and the variable has up to three codes, others than 0
            and 1.
    """
    kinds = {each.variable: each.kind for each in codings}
    found: list[tuple[bool, str]] = []
    for name, lower, upper in dict.fromkeys(_read(columns)):
        kind = kinds.get(name)
        values = None if kind in ("event", "levels", "classes") else values_of(name)
        values = np.zeros(0) if values is None else values[~np.isnan(values)]
        count = int(np.sum((values < lower) | (values > upper)))
        if not count:
            continue
        share, codes = count / len(values), np.unique(values)
        said = (
            f"{count:,} of {len(values):,} values of {name} ({share:.0%}) lie beyond the bounds "
            f"({lower:g}, {upper:g})"
        )
        if (
            (lower, upper) == (0.0, 1.0)
            and len(codes) <= _MOST_CODES
            and bool((codes == np.floor(codes)).all())
        ):
            *first, last = [f"{each:g}" for each in codes.tolist()]
            shown = f"{', '.join(first)} and {last}" if first else last
            raise ValueError(
                f"{said}: is it coded {shown}? Give bounds that hold its codes, name a level, as "
                f"level({name}, {codes[:2][-1]:g}) does, or leave out codes of what is missing"
            )
        told, doubtful = _TIMES if kind == "time" else _SHARES
        if share <= told:
            continue
        if len(np.unique(np.clip(values, lower, upper))) == 1:
            said += ", so that it never varies within them: is the unit right?"
        else:
            said += f", and are {'censored there' if kind == 'time' else 'cut to them'}"
        found.append((share >= doubtful, said))
    found.sort(key=lambda each: not each[0])
    return Beyond(tuple(said for _, said in found), sum(is_doubted for is_doubted, _ in found))


def _read(columns: Iterable[ColumnBounds]) -> Iterable[tuple[str, float, float]]:
    """Yield variables and the bounds to which columns, or factors of their terms, cut them."""
    for each in columns:
        if each.term is None:
            yield each.name, each.lower, each.upper
            continue
        for factor in each.term.factors:
            if not isinstance(factor, Level):
                yield factor.variable, factor.lower, factor.upper
