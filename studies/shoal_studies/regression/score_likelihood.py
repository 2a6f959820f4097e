"""The likelihood of noisy scores at public points, and the posterior of the coefficients.

At b, what weighted records fit best, the sum of scores at a point u is expected to be the sum over
rows of f v(u) (m(x'b) - m(x'u)) x: exactly, but for how the rows are distributed, for which a
public sample stands. So each round is a measurement with known noise and an error that grows with
the distance of b from its point.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from shoal_protocol.queries.design import Floats
from shoal_studies.quasi_likelihood import averaged
from shoal_studies.regression.design_sample import DesignSample
from shoal_studies.regression.measured import Solution

# The families of generalised linear models: how means change, and how targets scatter.
#
# Means and weights are the query's: `shoal_protocol.queries.scores`.


MODEL_ERROR: Final = 0.5
"""Error with which the sample stands for the data, of what a score is expected to be."""

_SHARED_SDS: Final = (0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 2.0)
_LONGEST_STEP: Final = 1.0


@dataclass(frozen=True)
class Measurement:
    """A sum of scores, shape (p,), at `point`, in spreads, with noise of standard deviation `sd`.

    Without a point residuals are as they are, from the `level` that all targets have in the mean.
    `error`, shape (p,), is what the sample's offsets may do to scores, being not the data's.
    """

    scores: Floats
    sd: float
    point: Floats | None = None
    level: float = 0.0
    error: Floats | float = 0.0


@dataclass(frozen=True, kw_only=True)
class MeasuredModel(ABC):
    """What rounds measured of a regression, and what is known of its rows.

    `centre` is the prior's mean, shape (p,), and `prior_sd` its standard deviation of slopes, where
    each is by itself times `looseness`, shape (q,). `far`, shape (q,), is what share of a feature's
    mean square rows far out have, which count less.
    """

    iterations: ClassVar[int] = 60
    tolerance: ClassVar[float] = 1e-6
    norm: ClassVar[float] = 2.0
    """Of a step: which of its norms ends the iterations, or shortens it."""

    sample: DesignSample
    centre: Floats
    prior_sd: float
    looseness: Floats
    far: Floats

    @property
    def shared_sds(self) -> tuple[float, ...]:
        """Standard deviations of a prior that slopes may share."""
        return _SHARED_SDS

    def slope_sds(self, shared_sd: float | None) -> Floats:
        """Return the prior's standard deviations of slopes, (q,), which share one or do not."""
        own = self.prior_sd * self.looseness
        return own if shared_sd is None else np.full(len(own), min(shared_sd, self.prior_sd))

    @abstractmethod
    def precision(self, shared_sd: float | None = None) -> Floats:
        """Return the prior's precision matrix, shape (p, p), by `slope_sds`."""

    @abstractmethod
    def gaps(self, point: Floats) -> Iterator[tuple[Floats, Floats, Floats]]:
        """Yield by what sums are above those expected if the parameters were `point`, shape (n,).

        With it the expectation's derivative, shape (n, p), and the variances of the gap, (n,).
        """


@dataclass(frozen=True)
class Estimate:
    """`mean` is the best estimate; `covariance` of its error holds noise, sampling and prior.

    `influence` is what of a deviation of scores goes into the estimate, shape (p, p), and
    `expected` the covariance if coefficients are alike, which is less. `wide` is under a prior for
    each by itself.
    """

    mean: Floats
    covariance: Floats
    wide: Solution
    influence: Floats
    expected: Floats


def estimate(model: MeasuredModel) -> Estimate:
    """Return the estimate with its error by noise and prior; sampling is the caller's to add.

    The mean is that under a prior whose standard deviation all coefficients share, unknown. The
    covariance is the mean square about it under a prior of `prior_sd` for each coefficient by
    itself, so that an interval holds a coefficient that is unlike the others, too.
    """
    mean, expected = best_estimate(model)
    wide = _solve(model, None, mean)
    away = mean - wide.mean
    return Estimate(
        mean,
        wide.covariance + np.outer(away, away),
        wide,
        np.eye(len(mean)) - wide.covariance @ model.precision(),
        expected,
    )


def best_estimate(model: MeasuredModel) -> tuple[Floats, Floats]:
    """Return mean and covariance, averaged over what standard deviation coefficients share.

    The next round may ask at the mean. Each solution is found from the one before.
    """
    solutions: list[Solution] = []
    for sd in model.shared_sds:
        solutions.append(_solve(model, sd, solutions[-1].mean if solutions else model.centre))
    return averaged(
        np.array([each.log_evidence for each in solutions]),
        np.array([each.mean for each in solutions]),
        np.array([each.covariance for each in solutions]),
    )


def _solve(model: MeasuredModel, shared_sd: float | None, start: Floats) -> Solution:
    """Return the posterior mode under one prior, by Gauss and Newton's method."""
    precision = model.precision(shared_sd)
    volume = 0.5 * float(np.linalg.slogdet(precision)[1])
    point, curvature, evidence = start, precision, 0.0
    for _ in range(model.iterations):
        away = point - model.centre
        curvature, slope = precision, -precision @ away
        evidence = volume + 0.5 * float(slope @ away)
        for gap, jacobian, variances in model.gaps(point):
            curvature = curvature + jacobian.T @ (jacobian / variances[:, None])
            slope = slope + jacobian.T @ (gap / variances)
            evidence -= 0.5 * float(np.sum(gap**2 / variances + np.log(variances)))
        step = np.linalg.solve(curvature, slope)
        length = float(np.linalg.norm(step, model.norm))
        point = point + step * min(1.0, _LONGEST_STEP / max(length, model.tolerance))
        if length < model.tolerance:
            break
    evidence -= 0.5 * float(np.linalg.slogdet(curvature)[1])
    return Solution(point, np.asarray(np.linalg.inv(curvature), dtype=np.float64), evidence)
