"""The query of a survival regression's round: sums of events and hazards at a public point."""

import math
from itertools import pairwise
from typing import Annotated, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from shoal_protocol.queries import quantisation
from shoal_protocol.queries.design import Mechanism, NoiseDesign
from shoal_protocol.queries.gradients import LARGEST_COORDINATE
from shoal_protocol.queries.moments import Moments
from shoal_protocol.queries.weighted_rows import shrinking
from shoal_protocol.wire.numbers import Real

SQUARES_SCALE: Final = 2.0
"""Noise of squares over that of scores."""
MOST_INTERVALS: Final = 32
_LARGEST_PREDICTOR: Final = 30.0
_ABOVE_ROUNDING: Final = 1.0 + 1e-9

Floats = NDArray[np.float64]
_Coordinate = Annotated[float, Field(ge=-LARGEST_COORDINATE, le=LARGEST_COORDINATE)]


class HazardScoreSum(Moments):
    """Sum over the records of B w, and of the squares of its last coordinates, those of features.

    w = trunc(B f^2 (k d, k m, (D - M) x) / (c R)): x are the features, k the constant, f = min(1, R
    / |(k, x)|) with R the `radius`, d_j is 1 if the event was in interval j, m_j the hazard that
    the record passed through in it, D and M are their sums. The hazard in interval j is the
    exponential of the sum of the j-th of `point` and x times the last of it. A record is followed
    until M is c, the `hazard_cut`, and what happens to it later is left out.

    The last columns are the time, and what is above the middle of its bounds where the time is an
    event's. Interval j is from one of the `edges` to the next, without the former, and the first
    from the beginning of time.
    """

    name: Literal["hazard_score_sum"] = "hazard_score_sum"
    edges: Annotated[tuple[Real, ...], Field(min_length=2, max_length=MOST_INTERVALS + 1)]
    point: Annotated[tuple[_Coordinate, ...], Field(min_length=2, max_length=544)]
    hazard_cut: Annotated[float, Field(ge=1.0, le=100.0)]

    @model_validator(mode="after")
    def _has_features(self) -> Self:
        if len(self.columns) < 3 or self.intercept == 0.0:
            raise ValueError("hazards need a constant, a feature, a time and an event")
        if any(lower >= upper for lower, upper in pairwise(self.edges)):
            raise ValueError("each edge is larger than the one before")
        if len(self.point) != self.intervals + self.features:
            raise ValueError("the point has one coordinate for each interval and each feature")
        if self.radius is None or self.radius**2 < 2.0 * self.intercept**2:
            raise ValueError("hazards need a radius of sqrt(2) times the constant at least")
        return self

    @property
    def intervals(self) -> int:
        """J, how many intervals there are."""
        return len(self.edges) - 1

    @property
    def features(self) -> int:
        """q, how many features there are: all columns but time and event."""
        return len(self.columns) - 2

    @property
    def width(self) -> int:
        """2 J + q, the length of a row: events, hazards, scores."""
        return 2 * self.intervals + self.features

    @property
    def squared_norm_limit(self) -> int:
        """Largest squared norm of a row, in lattice units: B^2, for it is in the unit ball."""
        return self.grid**2

    @property
    def dimension(self) -> int:
        """Length of the vector, 2 J + 2 q + 1."""
        return self.width + self.features + 1

    def design(self, mechanism: Mechanism) -> NoiseDesign:
        """As of `ScoreSum`, without cut residuals: fewer coordinates have squares.

        A record in another's place moves the sums by L2 2 B^2, one left out by sqrt(1 + 1/4) B^2.
        In L1 events and hazards of a record are k (1 + c) / (c R) <= 2 k / R at most, scores and
        squares 2 sqrt(q + 1) B^2 and (sqrt(q) + 1/2) B^2; or, with p the width for q, all of them.
        """
        if mechanism == "discrete_gaussian":
            changed, left_out = 2.0, math.sqrt(1.25)
        else:
            counted = 2.0 * self.intercept / (self.radius or 1.0) * _ABOVE_ROUNDING
            pairs = (counted, self.features), (0.0, self.width)
            changed = min(2.0 * (one + math.sqrt(size + 1)) for one, size in pairs)
            left_out = min(one + math.sqrt(size) for one, size in pairs) + 0.5
        blocks, square = ((self.width, 1.0), (self.features, SQUARES_SCALE)), self.grid**2
        return self._with_count(
            mechanism, *blocks, changed=changed * square, left_out=left_out * square
        )

    def _arranged(self, boxed: Floats) -> Floats:
        """Return events, hazards and scores over c R, within the unit ball: (r, 2 J + q)."""
        x, time = boxed[:, :-2], self.columns[-2]
        rows = np.column_stack([np.full(len(x), self.intercept), x])
        log_hazards, slopes = np.split(np.array(self.point), [self.intervals])
        happened, passed = followed(
            time.centre + time.scale * boxed[:, -2],
            boxed[:, -1] > 0.0,
            np.array(self.edges),
            np.add.outer(x @ slopes, log_hazards),
            self.hazard_cut,
        )
        residuals = happened.sum(axis=1) - passed.sum(axis=1)
        largest = self.hazard_cut * (self.radius or 0.0)
        sizes = shrinking(rows, self.radius or 0.0) ** 2 / largest
        parts = (self.intercept * happened, self.intercept * passed, x * residuals[:, None])
        return np.column_stack(parts) * sizes[:, None]

    def _on_the_lattice(self, arranged: Floats) -> NDArray[np.int64]:
        return quantisation.to_lattice(arranged, radius=1.0, grid_bits=self.grid_bits)

    def summed(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sums of `rows`, shape (r, 2 J + q), and their number: (2 J + 2 q + 1,)."""
        scores = rows[:, 2 * self.intervals :]
        sums = [self.grid * rows.sum(axis=0), np.sum(scores * scores, axis=0)]
        return self._counted(np.concatenate(sums), rows)


def followed(
    times: Floats, events: NDArray[np.bool_], edges: Floats, log_hazards: Floats, cut: float
) -> tuple[Floats, Floats]:
    """Return in which interval each record's event was, and the hazard it passed in each: (r, J).

    `log_hazards`, shape (r, J), are in each interval. Times and `events` have shape (r,). A record
    is followed until its hazards add up to `cut`: a rule that knows of no event, so residuals are 0
    in the mean all the same (Andersen et al. 1993, section III.2).
    """
    rates = np.exp(np.clip(log_hazards, -_LARGEST_PREDICTOR, _LARGEST_PREDICTOR))
    spent = np.clip(times[:, None] - edges[:-1], 0.0, np.diff(edges))
    passed = np.cumsum(rates * spent, axis=1)
    places = np.searchsorted(edges[1:], times, side="left")  # an edge ends its interval
    counted = events & (times <= edges[-1]) & (passed[:, -1] <= cut)
    happened = counted[:, None] & (places[:, None] == np.arange(len(edges) - 1))
    within = np.diff(np.minimum(passed, cut), axis=1, prepend=0.0)
    return happened.astype(np.float64), within
