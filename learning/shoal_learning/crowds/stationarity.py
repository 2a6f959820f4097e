"""Tests whether the spread of k instances has settled at its expected value.

The spread scatters widely about its expectation, with a standard deviation above that itself, and
it forgets by (1 - 2/k^2) for each update, so one snapshot says little. Coordinates share which
instance replaced which and scatter together; averaging them gains no more than the covariance
leaves. docs/mathematics.md proves this without a pull; in simulations it held under a pull as well:
at most 2 in 1000 settled crowds were taken for unsettled.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

FloatVector = NDArray[np.float64]
FloatMatrix = NDArray[np.float64]

LAPLACE_KURTOSIS: Final = 6.0
SHORTEST_WINDOW: Final = 5
"""In units of k^2 updates: what an average must cover at least."""

USUAL_WINDOW: Final = 50
"""Likewise. Half the noise is found over so many, and hardly over 20."""

STANDARD_ERRORS: Final = 4.0
SNAPSHOTS_NEEDED: Final = (
    "snapshots before the model (a simulated crowd takes them by snapshot_every=, a real job by "
    "waiting for it while it is open)"
)
_MOST_SNAPSHOTS: Final = 2000


@dataclass(frozen=True, kw_only=True)
class Stationarity:
    """The average spread of the last `window` updates, relative to its formula for noise alone.

    Noise alone gives 1; the records' own scores add to it, up to `at_most`. `long_enough`: it
    covers 5 k^2 updates or more. Of a single instance, which has no spread, `ratio` is NaN.
    """

    ratio: float
    at_most: float
    standard_error: float
    window: int
    snapshots: int
    long_enough: bool

    @property
    def can_tell(self) -> bool:
        """Whether 4 standard errors are less than 1: else even no spread at all would pass."""
        return self.long_enough and STANDARD_ERRORS * self.standard_error < 1.0

    @property
    def settled(self) -> bool:
        """Whether the ratio is in reach by 4 standard errors, and these are few enough to tell."""
        return self.can_tell and self._in_reach

    @property
    def _in_reach(self) -> bool:
        reach = STANDARD_ERRORS * self.standard_error
        return 1.0 - reach <= self.ratio <= self.at_most * (1.0 + reach)

    def __str__(self) -> str:
        if math.isnan(self.ratio):
            return "cannot tell: a single instance has no spread"
        found = (
            f"spread over {self.window:,} updates {self.ratio:.2f} times the formula's"
            f" (1 to {self.at_most:.2f}, standard error {self.standard_error:.2f})"
        )
        if not self.long_enough:
            return f"too early to tell: {found}"
        if not self._in_reach:
            return f"not settled: {found}"
        more = "; it takes a standard error below 0.25: more updates, or more snapshots of them"
        return f"settled: {found}" if self.can_tell else f"cannot tell: {found}{more}"


def relative_variance(instances: int, kurtosis: float) -> float:
    """Return the variance of one coordinate's stationary spread, relative to its squared mean.

    `kurtosis` is E u^4 / (E u^2)^2 of one update: 6 for Laplace, 6p if it touches 1 of p.
    """
    k = instances
    return (4 * k * k + k + 3 + (kurtosis - 3.0) * (k + 1)) / (3 * k * (k - 1))


def relative_covariance(instances: int, together: float) -> float:
    """Return the covariance of two coordinates' stationary spreads, relative to their means.

    `together` is E u_x^2 u_y^2 / (E u_x^2 E u_y^2): 1 for independent noise, 0 if one update
    touches a single coordinate. For many instances it is 2/9, as of gene trees [Tajima 1983].
    """
    k = instances
    return (2 * k * k - k + 3 + (together - 1.0) * 3 * (k + 1)) / (9 * k * (k - 1))


def averaging_left(updates: NDArray[np.int64], instances: int) -> float:
    """Return which part of the variance an average over snapshots, after `updates` (n,), leaves."""
    apart = np.abs(updates[:, None] - updates[None, :])
    return float(np.mean((1.0 - 2.0 / instances**2) ** apart))


def judge(
    updates: NDArray[np.int64],
    spreads: FloatMatrix,
    *,
    instances: int,
    formula: FloatVector,
    at_most: float,
    touched: float,
    window: int | None = None,
) -> Stationarity:
    """Compare spreads, shape (n, p), of snapshots taken after `updates`, shape (n,), ascending.

    `formula`, shape (p,), is the expected spread for noise alone, `at_most` the largest factor on
    it; `touched` is the part of updates that touch a coordinate: 1, or 1/p. Looks at the last
    `window` updates, 50 k^2 if it is None or as many as there are; of more than 2000 snapshots in
    it at 2000, the first and the last among them, for memory goes by their square.

    Raises:
        ValueError: shapes or order do not fit, or there are fewer than 2 snapshots to average.
    """
    if instances < 2:
        return Stationarity(
            ratio=math.nan,
            at_most=at_most,
            standard_error=math.inf,
            window=0,
            snapshots=len(updates),
            long_enough=False,
        )
    if spreads.shape != (len(updates), len(formula)) or (np.diff(updates) <= 0).any():
        raise ValueError(
            "one spread for each snapshot and coordinate, snapshots in ascending order"
        )
    span = USUAL_WINDOW * instances**2 if window is None else window
    if len(updates):
        chosen = np.flatnonzero(updates >= updates[-1] - span)
        updates, spreads = updates[chosen], spreads[chosen]
    if len(updates) < 2:
        raise ValueError(f"an average takes 2 snapshots or more in its window: {SNAPSHOTS_NEEDED}")
    if len(updates) > _MOST_SNAPSHOTS:
        spaced = np.linspace(0, len(updates) - 1, _MOST_SNAPSHOTS).round().astype(np.intp)
        updates, spreads = updates[spaced], spreads[spaced]
    single = relative_variance(instances, LAPLACE_KURTOSIS / touched)
    shared = relative_covariance(instances, 1.0 if touched == 1.0 else 0.0)
    coordinates = len(formula)
    variance = single / coordinates + shared * (1.0 - 1.0 / coordinates)
    covered = int(updates[-1] - updates[0])
    return Stationarity(
        ratio=float(np.mean(spreads / formula)),
        at_most=at_most,
        standard_error=float(np.sqrt(variance * averaging_left(updates, instances))),
        window=covered,
        snapshots=len(updates),
        long_enough=covered >= SHORTEST_WINDOW * instances**2,
    )
