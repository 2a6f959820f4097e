"""Averages clipped steps over the assumed records and over the spread of instances.

Noise keeps an instance's weights spread around the optimum. At a high learning rate they lie so far
off that most steps are clipped, which weakens the pull and adds scatter. Pull and scatter are
averaged over a normal law of the weights (statistical linearisation), whose variance follows from
them in turn.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal.planning.assumptions import Assumed, settled
from shoal.planning.study import ErrorParts
from shoal_learning.crowds.theory import Contraction
from shoal_protocol.crowds.tasks import CrowdTask
from shoal_protocol.queries.models import Family

Floats = NDArray[np.float64]

CLIP_RATIO: Final[dict[Family, float]] = {"linear": 1.0, "logistic": 1.0, "poisson": 2.0}
"""clip / learning_rate: the largest residual times feature that a step keeps whole."""

_STRAYING: Final = np.concatenate([[0.0], np.geomspace(1e-4, 1e4, 33)])
"""Sizes of the instances' variances that are tabled: the mean of variance times fall."""

_EVERY: Final = 16  # of the assumed points, where it is averaged over instances besides
_NODES: Final = 9  # of Gauss and Hermite's rule, for the predictors of instances
_ITERATIONS: Final = 60


@dataclass(frozen=True)
class _Local:
    """Mean step, its slope and its mean square, at a spread of instances; shapes (p,)."""

    mean: Floats
    fall: Floats
    square: Floats


class Steps:
    """Clipped steps on the assumed records; in units of the learning rate."""

    def __init__(self, assumed: Assumed) -> None:
        """Find where the mean step is zero, and what steps are like around that.

        Raises:
            ValueError: the assumed records have no estimate.
        """
        self._study = assumed.study
        self._assumed = assumed
        self._rows = assumed.rows(1.0)
        slopes = assumed.slopes(self._rows)
        self._settled, self._falls = settled(self._mean_step, assumed.truth, slopes=slopes)
        self._squares = np.array([np.sum(each) for each in self._clipped(self._settled, power=2)])
        self._table = [self._averaged(size) for size in _STRAYING]

    @property
    def fastest(self) -> float:
        """The learning rate above which a touched coefficient would overshoot."""
        return 1.0 / float(self._falls.max())

    def error(self, task: CrowdTask, count: int) -> ErrorParts:
        """Return the averaged model's error after `count` contributions; all begins at zero."""
        touched, rate = task.touched / task.dimension, task.learning_rate
        local, drawn = self._around(task, count)
        falls = local.fall
        scattered, left = np.empty(len(falls)), np.empty(len(falls))
        for fall in np.unique(falls):
            brings = Contraction(
                instances=task.instances,
                update_variance=1.0,
                pull=touched * rate * float(fall),
                touched=touched,
                open_sessions=self._study.open_sessions,
            )
            keeps = replace(brings, update_variance=0.0)
            same = falls == fall
            scattered[same] = brings.squared_error_after(count, start_error=0.0)
            left[same] = keeps.squared_error_after(count, start_error=1.0)
        scattered, left = np.maximum(0.0, scattered), np.maximum(0.0, left)  # but for rounding
        still = np.sqrt(left)
        # records that are used again do not scatter anew: what they have in common stays
        again = 1.0 - 1.0 / self._study.contributions_per_client
        known = (1.0 - still) ** 2
        common = again * known * self._squares / self._falls**2 / self._study.clients
        own = touched * rate**2 * np.minimum(self._squares, drawn)
        return ErrorParts.of(
            # what instances stray by, and so what their steps scatter more, is the noise's doing
            noise=np.sqrt(scattered * (task.update_variance + touched * rate**2 * drawn - own)),
            sampling=np.sqrt(scattered * own + common),
            bias=self._settled + (1.0 - still) * local.mean / falls - self._assumed.truth,
            unfinished=still * self._settled,
        )

    def _around(self, task: CrowdTask, count: int) -> tuple[_Local, Floats]:
        """Return the steps around instances as they stray, and how much they scatter by themselves.

        Shapes (p,). Of a step's mean square, what follows from the fall is left out of the latter.
        """
        rate, noise = task.learning_rate, task.noise_variance
        touches = count * task.touched / task.dimension
        touches /= task.instances + self._study.open_sessions  # of one weight of one instance
        size, local, variance = 0.0, self._at(0.0), np.zeros(len(self._falls))
        for _ in range(_ITERATIONS):
            resting = (rate * local.square + noise / rate) / (2.0 * local.fall)
            variance = -np.expm1(-2.0 * rate * local.fall * touches) * resting
            found = float(np.mean(variance * self._falls))
            local = self._at(found)
            if abs(found - size) <= 1e-6 * found:
                break
            size = found
        return local, np.maximum(0.0, local.square - local.fall**2 * variance)

    def _at(self, size: float) -> _Local:
        place = int(np.searchsorted(_STRAYING, size, side="right")) - 1
        place = min(place, len(_STRAYING) - 2)
        below, above = self._table[place], self._table[place + 1]
        share = (size - _STRAYING[place]) / (_STRAYING[place + 1] - _STRAYING[place])
        share = min(1.0, float(share))

        def between(low: Floats, high: Floats) -> Floats:
            mixed: Floats = (1.0 - share) * low + share * high
            return mixed

        return _Local(
            between(below.mean, above.mean),
            between(below.fall, above.fall),
            between(below.square, above.square),
        )

    def _averaged(self, size: float) -> _Local:
        """Return steps averaged over instances that stray, by a variance of `size` over fall.

        From fewer points than the exact ones, and so in ratio to what these give without straying.
        Predictors of one row are normal then; by Stein's lemma the mean of step times deviation is
        the variance times the mean slope.
        """
        if size == 0.0:
            return _Local(np.zeros(len(self._falls)), self._falls, self._squares)
        nodes, masses = np.polynomial.hermite_e.hermegauss(_NODES)
        masses = masses / masses.sum()
        rows = self._rows[::_EVERY]
        weights = self._assumed.weights[::_EVERY]
        strays = np.sqrt(rows**2 @ (size / self._falls))
        found = []
        for variances in (1e-6 * strays, strays):
            mean, fall, square = (np.zeros(len(self._falls)) for _ in range(3))
            for node, mass in zip(nodes, masses, strict=True):
                moved = rows @ self._settled + node * variances
                for place, steps in enumerate(self._steps(moved, _EVERY)):
                    averaged = np.sum(weights * steps, axis=1)
                    mean[place] += mass * averaged.sum()
                    fall[place] -= mass * node * np.sum(averaged * rows[:, place] / variances)
                    square[place] += mass * np.sum(weights * steps**2)
            found.append(_Local(mean, fall, square))
        near, far = found
        return _Local(
            (far.mean - near.mean) * _EVERY,
            self._falls * far.fall / near.fall,
            self._squares * far.square / near.square,
        )

    def _mean_step(self, weights: Floats) -> Floats:
        return np.array([np.sum(each) for each in self._clipped(weights, power=1)])

    def _clipped(self, weights: Floats, *, power: int) -> Iterator[Floats]:
        """Yield each coordinate's clipped steps, raised to `power` and weighted, shapes (n, m)."""
        for steps in self._steps(self._rows @ weights, 1):
            yield self._assumed.weights * steps**power

    def _steps(self, predictors: Floats, every: int) -> Iterator[Floats]:
        """Yield each coordinate's clipped steps on every so manieth point, shapes (n, m)."""
        ratio = CLIP_RATIO[self._study.family]
        residuals = self._assumed.residuals(predictors, every)
        if self._study.clipping == "residual":
            residuals = np.clip(residuals, -ratio, ratio)
        for column in self._rows[::every].T:
            yield np.clip(residuals * column[:, None], -ratio, ratio)
