"""Centres and spreads of columns, from a round that measures them.

Later rounds take rows in spreads from their centres. So bounds that are too wide or lopsided cost
precision, and change nothing else.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.five_rounds.rounds import Noisy, Price, column_moments

Floats = NDArray[np.float64]

REACH: Final = 20.0
"""Spreads that a column reaches to each side before its values are cut."""
SMALLEST: Final = 0.02
"""The smallest spread that is believed, in halves of the bounds' range."""

_BETWEEN: Final = 0.15  # what a variance lacks of the widest that there is, if all are at bounds
_CLEAR: Final = 4.0  # deviations of noise that the widest must have for that to show
_FARTHEST: Final = 0.98  # of a mean from the middle: some values are elsewhere
_SPREADS: Final = np.geomspace(SMALLEST, 1.0, 80)


@dataclass(frozen=True)
class Measured:
    """Columns as a round measured them, in the units of the data, shapes (m,).

    `centres` are means and `spreads` standard deviations. `looseness` is how many times as small as
    measured a spread may well be: what a prior in spreads must be wider by. `shares` is of a column
    whose values are all at its bounds the share at the upper one, and NaN of any other.
    """

    centres: Floats
    spreads: Floats
    looseness: Floats
    shares: Floats

    def rows(self, values: Floats) -> Floats:
        """Return values, shape (n, k), of the first k columns, in spreads from their centres."""
        count = values.shape[1]
        units = (values - self.centres[:count]) / self.spreads[:count]
        return np.clip(units, -REACH, REACH)


def measured(values: Floats, bounds: Floats, price: Price, share: float) -> Measured:
    """Measure columns, shape (n, m), of public `bounds`, shape (m, 2), by a round of that share."""
    middles, halves = bounds.mean(axis=1), (bounds[:, 1] - bounds[:, 0]) / 2.0
    boxed = np.clip((values - middles) / halves, -1.0, 1.0)
    return _of(column_moments(boxed, price, share), middles, halves)


def _of(released: Noisy, middles: Floats, halves: Floats) -> Measured:
    means = np.clip(released.values[0], -_FARTHEST, _FARTHEST)
    squares, widest = released.values[1], 1.0 - means**2
    errors = released.sd * np.sqrt(1.0 + 4.0 * means**2)
    variances, precisions = np.array(
        [_variance(*pair) for pair in zip(squares - means**2, errors, strict=True)]
    ).T
    at_bounds = (1.0 - squares <= _BETWEEN * widest) & (widest > _CLEAR * released.sd)
    variances = np.where(at_bounds, widest, np.minimum(variances, widest))
    loose = np.sqrt(np.maximum(variances * precisions, 1.0))
    return Measured(
        centres=middles + halves * means,
        spreads=halves * np.sqrt(variances),
        looseness=np.where(at_bounds, 1.0, loose),
        shares=np.where(at_bounds, 0.5 + 0.5 * means, np.nan),
    )


def _variance(seen: float, error: float) -> tuple[float, float]:
    """Return the means of a variance and of its inverse, seen with a normal `error`.

    Spreads are as likely as not on a logarithmic scale beforehand.
    """
    variances = _SPREADS**2
    logs = -0.5 * ((seen - variances) / error) ** 2
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    return float(weights @ variances), float(weights @ (1.0 / variances))
