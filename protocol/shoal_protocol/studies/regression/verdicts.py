"""The verdict on a regression: whether its intervals may be believed, and why they may not."""

from typing import Annotated, Final, Literal

from pydantic import Field

from shoal_protocol.wire.documents import Model

_AT_AN_EDGE: Final = (0.0205, 0.05)  # half ranges: as near as is told; where noise hides a spread
_HIDDEN: Final = 1.5  # looseness
_NEAR: Final = (0.35, 0.12)  # half ranges: as near as piled up values are; the same
_PILED_UP: Final = 1.35  # spreads over the mean's distance: as if 4 of 9 values were at the bound

VerdictKind = Literal["trustworthy", "doubtful", "prior"]


class Verdict(Model):
    """`kind` is what to make of intervals, and `reasons` say why.

    - "trustworthy": nothing that was measured speaks against them.
    - "prior": they hold what is true, above all because the prior does: the data tell little.
    - "doubtful": something was measured under which intervals were seen to fail.
    """

    kind: VerdictKind
    reasons: tuple[Annotated[str, Field(min_length=1, max_length=500)], ...] = ()

    def __str__(self) -> str:
        """Return the verdict on one line."""
        return ": ".join([self.kind, *(["; ".join(self.reasons)] if self.reasons else [])])


def misplaced(
    name: str,
    bounds: tuple[float, float],
    *,
    centre: float,
    spread: float,
    looseness: float,
    is_binary: bool,
) -> str | None:
    """Return that a column's mean and spread look as if its bounds cut most values, or None.

    Half of its values or more are there. Many quantities pile up at 0, and a column from about 0 to
    1 may be rare or common; one that `is_binary` has all values at its bounds. `looseness` is how
    many times as small a spread may be. Noise that hides a spread hides, too, whether values are
    cut to a bound or lie near it, within bounds that are far too wide.
    """
    lower, upper = bounds
    is_unit = -1.0 < lower <= 0.0 < 1.0 <= upper < 2.0
    half = upper / 2.0 - lower / 2.0
    edge = upper if centre > lower + half else lower
    away, narrow = abs(edge - centre) / half, spread / half
    if edge == 0.0 or (is_unit and edge == lower):
        return None
    is_hidden = looseness >= _HIDDEN
    if away <= _AT_AN_EDGE[is_hidden]:
        nearly = f"{name}: nearly all values are at or beyond its bound {edge:g}"
        if is_unit:
            return f"{nearly}: it hardly varies, or is not coded from 0 to 1"
        return f"{nearly}: is the unit right?"
    is_natural = edge == lower <= 0.0 or is_unit
    if is_natural or is_binary or away > _NEAR[is_hidden]:
        return None
    share = f"{name}: a large share of the values is at or beyond its bound {edge:g}"
    if is_hidden:
        return f"{share}, or its bounds are far too wide: is the unit right?"
    return share if narrow >= _PILED_UP * away else None
