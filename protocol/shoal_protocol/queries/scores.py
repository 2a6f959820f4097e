"""The query of a regression's round: sums of scores at a public point, and of their squares."""

import math
from typing import Annotated, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from shoal_protocol.queries import quantisation
from shoal_protocol.queries.design import Mechanism, NoiseDesign
from shoal_protocol.queries.gradients import LARGEST_COORDINATE
from shoal_protocol.queries.models.regressions import probability, rate
from shoal_protocol.queries.weighted_rows import RegressionMoments, shrinking

Family = Literal["logistic", "poisson", "negative_binomial", "gamma"]
"""What a target is: one of two classes, a count, a count that scatters more than Poisson's, a
positive number that scatters in proportion to its mean."""

SQUARES_SCALE: Final = 2.0
"""Noise of squares, and of the number of cut residuals, over that of scores."""
LARGEST_PREDICTOR: Final = 30.0
"""Beyond it predictors are cut: its mean is a float, and far from any data."""

Floats = NDArray[np.float64]
Coordinate = Annotated[float, Field(ge=-LARGEST_COORDINATE, le=LARGEST_COORDINATE)]
_Positive = Annotated[float, Field(gt=0.0, le=LARGEST_COORDINATE)]


class ScoreSum(RegressionMoments):
    """Sum over the records of B w, w^2, B^2 for each cut residual, and B^2 times their number.

    w = trunc(B s f^2 cut(v (y - m)) x / (R c)): x is the constant and the features, f = min(1, R /
    |x|) with R the `radius`, m the mean of the family at the predictor x'`point`, and v a weight
    that hangs on m alone. What is beyond +-c, the `residual_cut`, is cut to it. So |w| <= B,
    whatever the point, the `dispersion` and the cut.

    The target y is of two classes 1 above the middle of its bounds and 0 below it, else itself, cut
    to its bounds.
    """

    name: Literal["score_sum"] = "score_sum"
    family: Family
    point: Annotated[tuple[Coordinate, ...], Field(min_length=2, max_length=512)]
    dispersion: _Positive
    residual_cut: _Positive

    @model_validator(mode="after")
    def _has_features(self) -> Self:
        if len(self.regressed) < 2 or self.intercept == 0.0:
            raise ValueError("scores need a constant, a feature and a target")
        if len(self.point) != self.width:
            raise ValueError("the point has one coordinate for the constant and each feature")
        if self.radius is None:
            raise ValueError("scores need a radius")
        return self

    @property
    def width(self) -> int:
        """p, the length of a score: one for the constant, and one for each feature."""
        return len(self.regressed)

    @property
    def squared_norm_limit(self) -> int:
        """Largest squared norm of a score, in lattice units: B^2, for it is in the unit ball."""
        return self.grid**2

    @property
    def dimension(self) -> int:
        """Length of the vector, 2 p + 2."""
        return 2 * self.width + 2

    def design(self, mechanism: Mechanism) -> NoiseDesign:
        """Half as much noise on scores as on squares and on the number of cut residuals.

        A record in another's place moves B w and w^2 / 2, in L2, by 2 B^2: with a and b the sizes
        of a coordinate in both, the two move by (a + b)^2 (1 + (a - b)^2 / 4) B^4 at most, which is
        no more than 2 (a^2 + b^2) B^4. With half a cut residual that is sqrt(4 + 1/4) B^2. One left
        out moves them by sqrt(1 + 1/4 + 1/4) B^2.

        In L1, with n = sqrt(p + 1), s = a + b and e = |a - b|, the two move by s + s e / 2, at most
        n (s^2 + e^2) / 4 + n / p: over all coordinates 2 n. So it is (2 sqrt(p + 1) + 1/2) B^2 and
        (sqrt(p) + 1) B^2.
        """
        if mechanism == "discrete_gaussian":
            changed, left_out = math.sqrt(4.25), math.sqrt(1.5)
        else:
            changed, left_out = 2.0 * math.sqrt(self.width + 1) + 0.5, math.sqrt(self.width) + 1.0
        blocks, square = ((self.width, 1.0), (self.width + 1, SQUARES_SCALE)), self.grid**2
        return self._with_count(
            mechanism, *blocks, changed=changed * square, left_out=left_out * square
        )

    def _arranged(self, boxed: Floats) -> Floats:
        """Return scores over R c, within the unit ball, and whether each was cut: (r, p + 1)."""
        regressed, shares = self._parted(boxed)
        rows, radius = super()._arranged(regressed[:, :-1]), self.radius or 0.0
        means = mean_of(self.family, rows @ np.array(self.point))
        weights = weight_of(self.family, means, self.dispersion)
        with np.errstate(over="ignore"):  # infinite residuals are cut, too
            residuals = (self._targets(regressed[:, -1]) - means) * weights
        cut = np.clip(residuals, -self.residual_cut, self.residual_cut)
        sizes = shrinking(rows, radius) ** 2 * (cut / self.residual_cut) / radius * shares
        return np.column_stack([rows * sizes[:, None], cut != residuals])

    def _targets(self, boxed: Floats) -> Floats:
        """Return targets as the family takes them, shape (r,), of those in [-1, 1]."""
        if self.family == "logistic":
            return np.asarray(boxed > 0.0, dtype=np.float64)
        target = self.regressed[-1]
        return target.centre + target.scale * boxed

    def _on_the_lattice(self, arranged: Floats) -> NDArray[np.int64]:
        scores = quantisation.to_lattice(arranged[:, :-1], radius=1.0, grid_bits=self.grid_bits)
        return np.column_stack([scores, arranged[:, -1].astype(np.int64)])

    def summed(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sums of `rows`, shape (r, p + 1), and their number, shape (2 p + 2,)."""
        scores = rows[:, :-1]
        sums = [self.grid * scores.sum(axis=0), np.sum(scores * scores, axis=0)]
        cut = self.grid**2 * rows[:, -1].sum()
        return self._counted(np.append(np.concatenate(sums), cut), rows)


def mean_of(family: Family, predictors: Floats) -> Floats:
    """Return the means of targets with these predictors, any shape.

    Logistic models have their canonical link, all others the logarithm (McCullagh and Nelder 1989,
    section 2.2).
    """
    cut = np.clip(predictors, -LARGEST_PREDICTOR, LARGEST_PREDICTOR)
    return probability(cut) if family == "logistic" else rate(cut)


def weight_of(family: Family, means: Floats, dispersion: float) -> Floats:
    """Return what a residual y - mean is multiplied by, so that its spread stays about the same.

    It hangs on the features alone, so sums of weighted residuals are 0 at the truth: 1 / (1 + a m)
    of scattered counts with dispersion a, sqrt(a / (a + m)) of counts of about a, and 1 / (a + m)
    of positive numbers, of which small ones are below a.
    """
    match family:
        case "negative_binomial":
            return 1.0 / (1.0 + dispersion * means)
        case "poisson":
            return np.sqrt(dispersion / (dispersion + means))  # which no tiny dispersion overflows
        case "gamma":
            return 1.0 / (dispersion + means)
        case _:
            return np.ones_like(means)
