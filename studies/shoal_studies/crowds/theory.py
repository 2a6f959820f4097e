"""Error of k instances that updates pull towards the optimum.

Formulas are per coordinate, and exact unless they say otherwise. In one update an instance is
drawn, its copy b becomes b + u, and the result replaces an instance drawn independently of the
first. Proofs: docs/mathematics.md, section 9.
"""

import math
from dataclasses import replace
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Contraction:
    """Updates that pull: a drawn b, if it is touched, becomes b - (pull / touched) b + noise.

    b is measured from the optimum, and `touched` is the probability of a touch. `pull` and
    `update_variance` are means over all updates: for the variant "one" of p coordinates `touched`
    is 1/p, `pull` is learning_rate times curvature over p, and `update_variance` the noise's
    variance over p.

    Near the optimum a GLM's clipped score step is this where clipping is rare and coordinates are
    uncorrelated, with curvature the mean of mu'(t) x_j^2 over records; the scatter of the records'
    own scores adds to `update_variance`.

    `open_sessions`, m, is how many other submissions come between a draw and its own: learning
    then goes by pull / (k + m), which is exact for m = 0, and of first order in the pull otherwise.
    Stationary variances are exact for any m.
    """

    instances: Annotated[int, Field(ge=1)]
    update_variance: Annotated[float, Field(ge=0.0)]
    pull: Annotated[float, Field(gt=0.0)]
    touched: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    open_sessions: Annotated[float, Field(ge=0.0)] = 0.0

    def __post_init__(self) -> None:
        if self.pull >= 2.0 * self.touched:
            raise ValueError("a pull must lie below twice the probability of a touch")

    @property
    def instance_variance(self) -> float:
        """Stationary mean square of one instance, update_variance / (pull (2 - pull / touched))."""
        return self.update_variance / self._squares_lost

    @property
    def averaged_variance(self) -> float:
        """Stationary mean square of the mean: averaging gains 1 + pull (k - 1) for m = 0, not k."""
        return self.instance_variance / self._gain

    def squared_error_after(self, updates: float, *, start_error: float) -> float:
        """Return the mean square of the averaged model, all instances `start_error` off at first.

        Expected squares of one instance and of the mean follow two linear equations. Open sessions
        make the updates go by more slowly, and averaging gain more: to first order.
        """
        k = self.instances
        if self.open_sessions:
            slowed = updates * k / (k + self.open_sessions)
            alone = replace(self, open_sessions=0.0)
            started = replace(alone, update_variance=0.0)
            noise = alone.squared_error_after(slowed, start_error=0.0) * alone._gain / self._gain
            return noise + started.squared_error_after(slowed, start_error=start_error)
        if k == 1:
            return self.instance_variance + (start_error**2 - self.instance_variance) * _power(
                1.0 - self._squares_lost, updates
            )
        kept_mean = 1.0 - self.pull
        kept_square = 1.0 - self._squares_lost
        square_left = math.exp(updates * math.log1p(-self._squares_lost / k))
        slope = 1.0 - 2.0 * self.pull / k - 2.0 * kept_mean / k**2
        # mean' = slope mean + feed square + update_variance / k^2, square' likewise on its own
        feed = (1.0 + kept_square) / k**2
        square_off = start_error**2 - self.instance_variance
        mean_off = start_error**2 - self.averaged_variance
        mean_left = _power(slope, updates)
        between = 1.0 - self._squares_lost / k - slope
        if abs(between) < 1e-12:
            carried = updates * _power(slope, updates - 1)
        else:
            carried = (square_left - mean_left) / between
        return self.averaged_variance + mean_off * mean_left + feed * square_off * carried

    @property
    def _gain(self) -> float:
        """By what averaging divides the mean square: docs/mathematics.md, proposition 9.3."""
        k = self.instances
        if k == 1:
            return 1.0
        stays, moves = 1.0 - 1.0 / k, (1.0 - self.pull) / k
        middle = (1.0 + stays**2 - moves**2) / (2.0 * stays)
        root = middle - math.sqrt(max(middle**2 - 1.0, 0.0))
        power, share = math.pow(root, self.open_sessions), moves / (1.0 / root - stays)
        # of the mean now and m updates before: their covariance over the variance
        correlation = (power + share) / (1.0 + share * power)
        return 1.0 + (k - 1) * (1.0 - (1.0 - self.pull) * correlation)

    @property
    def _squares_lost(self) -> float:
        """The part of its square that a drawn instance loses to the pull, on average."""
        return self.pull * (2.0 - self.pull / self.touched)


def _power(base: float, exponent: float) -> float:
    """Return base^exponent; a base below 0, as of two instances that pull hard, has whole ones."""
    if base == 0.0:
        return float(exponent == 0.0)
    size = math.exp(exponent * math.log(abs(base)))
    return -size if base < 0.0 and round(exponent) % 2 else size
