"""The likelihood of coefficients by noisy sums of scores, if records are as a design's rows.

At b, which weighted records fit best, a sum of scores at a point u is expected to be the sum over
rows of f h(x'u, x'b) A x, h the mean of a weighted, cut residual. So each sum is a measurement of b
with known noise.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.queries.design import Floats
from shoal_studies.regression import constants
from shoal_studies.regression.families import CutMean, Residuals, TargetFamily
from shoal_studies.regression.plausible_designs import DesignRows

_STEPS: Final = 12
_TOLERANCE: Final = 0.03  # root mean square change of predictors: the next would be its square
_LEAST_SCORE: Final = 1e-12


Expectation = Callable[[Floats], tuple[Floats, Floats]]
"""Returns what values are expected to be at coefficients, shape (p,), and the derivative of that:
shapes (v,) and (v, p)."""


@dataclass(frozen=True, kw_only=True)
class Scores(ABC):
    """Sums over records of residuals times f z, z = A x, with noise of `noise_sd`: shape (v,).

    A is the `basis`, shape (s, p). Rows are shrunk by f into a ball of `squared_radius`; infinite:
    not at all. In the round of moments, `is_of_moments`, they are multiplied by f^2 of that round.
    Residuals are those at `point`, shape (p,); there may be none.

    `squares` are sums of the scores' squares; None where a round does not release them.
    """

    values: Floats
    noise_sd: float
    basis: Floats
    squared_radius: float = np.inf
    is_of_moments: bool = False
    point: Floats | None = None
    squares: Floats | None = None
    squares_sd: float = 0.0

    def rows(self, design: DesignRows) -> Floats:
        """Return f z of a design's rows, shape (n, s)."""
        turned = design.rows @ self.basis.T
        if self.is_of_moments:
            return np.asarray(turned * design.shrunk[:, None])
        squares = np.maximum(np.sum(turned**2, axis=1), 1e-300)
        return np.asarray(turned * np.sqrt(np.minimum(1.0, self.squared_radius / squares))[:, None])

    def kept(self, design: DesignRows) -> Floats:
        """Return f of a design's rows, shape (n,)."""
        return np.asarray(self.rows(design)[:, 0] / design.rows[:, 0])

    @staticmethod
    def changes(design: DesignRows, step: Floats) -> Floats:
        """Return by what a `step` of coefficients changes the rows' predictors, shape (n, m)."""
        return np.asarray(design.rows @ step.reshape(-1, design.rows.shape[1]).T)

    def moved(self, design: DesignRows, point: Floats) -> float:
        """Return how far predictors at `point` are from those asked: a root mean square."""
        assert self.point is not None  # noqa: S101 - of rounds of scores alone
        changes = self.changes(design, point - self.point)
        return float(np.sqrt(design.weights @ changes**2).max())

    def variances(self, expected: Floats, design_error: float) -> Floats:
        """Return the variances of values about those `expected` under a design, shape (v,)."""
        error = design_error**2 * float(np.mean(expected**2))
        return np.full(len(expected), self.noise_sd**2 + error)

    @abstractmethod
    def expectation(
        self, design: DesignRows, records: float, dispersion: float, near: Floats
    ) -> Expectation:
        """Return what is expected of so many `records`; coefficients will be about `near`."""


@dataclass(frozen=True, kw_only=True)
class TargetScores(Scores):
    """Those of a target y, whose residuals are cut(v (y - m)); m is its mean at the point.

    Without a point it is `level` for all records. `cut_count` is how many residuals were cut, with
    noise of `cut_count_sd`; 0 where a round does not say so.
    """

    family: TargetFamily
    cut: float
    low: float
    high: float
    level: float = 0.0
    weighing_dispersion: float = 1.0
    cut_count: float = 0.0
    cut_count_sd: float = 0.0
    tables: dict[float, CutMean] = field(default_factory=dict, compare=False)

    def asked(self, design: DesignRows) -> Floats:
        """Return predictors at the point, shape (n,); 0 where there is none."""
        if self.point is None:
            return np.zeros(len(design.rows))
        return design.predictors(self.point)

    def residuals(self, asked: Floats) -> Residuals:
        """Return how residuals are taken of rows with these predictors at the point."""
        if self.point is None:
            means, weights = np.full(len(asked), self.level), np.ones(len(asked))
        else:
            means = self.family.mean(asked)
            weights = self.family.weight(means, self.weighing_dispersion)
        return Residuals(means, weights, self.cut, self.low, self.high)

    def expectation(
        self, design: DesignRows, records: float, dispersion: float, near: Floats
    ) -> Expectation:
        """Return what is expected; tables are made once for each dispersion."""
        asked = self.asked(design)
        if dispersion not in self.tables:
            self.tables[dispersion] = self.family.cut_mean(
                asked, design.predictors(near), self.residuals, dispersion
            )
        cut_mean = self.tables[dispersion]
        rows = self.rows(design) * (records * design.weights)[:, None]

        def expected(point: Floats) -> tuple[Floats, Floats]:
            mean, slope = cut_mean(asked, design.predictors(point))
            return rows.T @ mean, (rows * slope[:, None]).T @ design.rows

        return expected


@dataclass(frozen=True)
class NormalPrior:
    """Coefficients are normal beforehand: shapes (p,) and (p, p)."""

    mean: Floats
    precision: Floats

    @property
    def sd(self) -> Floats:
        """Standard deviations, shape (p,)."""
        return np.sqrt(np.diagonal(np.linalg.inv(self.precision)))

    def of(self, places: NDArray[np.intp]) -> "NormalPrior":
        """Return the prior of the coefficients at these places, the others being at their means."""
        return NormalPrior(self.mean[places], self.precision[np.ix_(places, places)])

    @cached_property
    def _root(self) -> Floats:
        """What makes the precision one: shape (p, p)."""
        return np.asarray(np.linalg.inv(np.linalg.cholesky(self.precision)))

    def covariance_with(self, information: Floats) -> Floats:
        """Return the inverse of both precisions' sum, shape (p, p), surely positive definite.

        Nonsense sums may tell a billion times more of one direction than of another: plain inverses
        of such matrices have negative variances. In units of the prior they have not.
        """
        values, vectors = np.linalg.eigh(self._root @ information @ self._root.T)
        turned = self._root.T @ vectors
        return np.asarray((turned / (1.0 + np.maximum(values, 0.0))) @ turned.T)


@dataclass(frozen=True)
class Fit:
    """Coefficients under one design: the mode, its covariance by noise and prior, the evidence."""

    mean: Floats
    covariance: Floats
    log_evidence: float


def sampling_covariance(jacobian: Floats, scatter: Floats, prior: NormalPrior) -> Floats:
    """Return the covariance by the records' own scatter, shape (p, p), as the sandwich has it.

    `jacobian`, shape (v, p), is that of scores, which scatter by `scatter`, (v, v). What they do
    not tell, the `prior` does.
    """
    return prior.covariance_with(jacobian.T @ np.linalg.pinv(scatter, hermitian=True) @ jacobian)


@dataclass(frozen=True)
class DesignLikelihood:
    """The likelihood of coefficients under one design and dispersion, near `start`, shape (p,).

    All `sums` of scores are of `records` records, each with a weight of one.
    """

    sums: Sequence[Scores]
    records: float
    design: DesignRows
    dispersion: float
    start: Floats

    @cached_property
    def _expectations(self) -> Sequence[Expectation]:
        return [
            each.expectation(self.design, self.records, self.dispersion, self.start)
            for each in self.sums
        ]

    @cached_property
    def _at_start(self) -> Sequence[tuple[Floats, Floats]]:
        return [each(self.start) for each in self._expectations]

    def fit(self, prior: NormalPrior, design_error: float) -> Fit:
        """Return the fit by Gauss and Newton's method."""
        point, expected_at = self.start, self._at_start
        volume = 0.5 * float(np.linalg.slogdet(prior.precision)[1])
        steps = 1
        while True:
            away = point - prior.mean
            told, slope = np.zeros_like(prior.precision), -prior.precision @ away
            evidence = volume + 0.5 * float(slope @ away)
            for each, (expected, jacobian) in zip(self.sums, expected_at, strict=True):
                variances = each.variances(expected, design_error)
                gap = each.values - expected
                told = told + jacobian.T @ (jacobian / variances[:, None])
                slope = slope + jacobian.T @ (gap / variances)
                evidence -= 0.5 * float(np.sum(gap**2 / variances + np.log(variances)))
            covariance = prior.covariance_with(told)
            step = covariance @ slope
            changes = self.sums[0].changes(self.design, step)
            length = float(np.sqrt(self.design.weights @ changes**2).max())
            point = point + step * min(1.0, 1.0 / max(length, _TOLERANCE))
            if length < _TOLERANCE or steps == _STEPS:
                evidence += 0.5 * float(slope @ step + np.linalg.slogdet(covariance)[1])
                return Fit(point, covariance, evidence)
            expected_at, steps = [each(point) for each in self._expectations], steps + 1


def log_dispersions(
    sums: Sequence[TargetScores],
    records: float,
    design: DesignRows,
    point: Floats,
    dispersions: Floats,
    *,
    weighing: tuple[float, float] = (1.0, 1.0),
) -> Floats:
    """Return the log likelihood of each of `dispersions`, shape (k,), by squares and what was cut.

    At coefficients `point`, and up to a constant. `weighing` are the mean of the records' weights,
    and the mean of their squares over it. All k sums have the same records' scatter, which would
    count k times: its variance is multiplied by k. Each has its own noise.
    """
    logs = np.zeros(len(dispersions))
    seen = [each for each in sums if each.squares is not None]
    if not seen:
        return logs
    last, predictors = seen[-1], design.predictors(point)
    totals = np.array([each.squares.sum() for each in sums if each.squares is not None])
    lengths = [weighing[1] * np.sum(each.rows(design) ** 2, axis=1) for each in seen]
    residuals = [each.residuals(each.asked(design)) for each in seen]
    noise = np.array([each.values.size * each.squares_sd**2 for each in seen])
    for place, dispersion in enumerate(dispersions.tolist()):
        cut = [last.family.cut(predictors, each, dispersion) for each in residuals]
        own = [length * squares for length, (_, squares, _) in zip(lengths, cut, strict=True)]
        whole = records * np.array([design.weights @ each for each in own])
        scatter = 2.0 * records * np.array([design.weights @ each**2 for each in own])
        logs[place] = np.sum(_log_normal(totals - whole, noise + len(seen) * scatter))
        if last.cut_count_sd:
            count = records / weighing[0] * float(design.weights @ cut[-1][2])
            gap = last.cut_count - count
            logs[place] += _log_normal(gap, last.cut_count_sd**2 + count + 1.0)
    return logs


def _log_normal(away: Floats | float, variance: Floats | float) -> Floats:
    return np.asarray(-0.5 * (away**2 / variance + np.log(variance)))


def scatter_seen(
    expected: Floats, squares: Floats, squares_sd: float
) -> tuple[float, float, Floats]:
    """Return how many times more than expected scores scatter: in all, and each, shape (v,).

    Between them is the standard deviation of the first, by noise. `expected`, shape (v, v), is the
    scores' covariance by the model, and `squares`, shape (v,), what was seen, with noise of
    `squares_sd`.
    """
    whole, error = float(np.trace(expected)), squares_sd * math.sqrt(len(squares))
    precision = (whole / error) ** 2
    pooled = float(squares.sum()) / whole * precision + constants.PRIOR_SCATTER_SD**-2.0
    precision += constants.PRIOR_SCATTER_SD**-2.0
    pooled = max(pooled / precision, constants.LEAST_SCATTER)
    own = np.maximum(np.diagonal(expected), _LEAST_SCORE * whole)  # of a column that is nothing, 0
    trusted = 1.0 / (1.0 + (squares_sd / own / (constants.SCATTER_UNLIKE * pooled)) ** 2)
    each = pooled + trusted * (squares / own - pooled)
    return pooled, precision**-0.5, np.maximum(each, constants.LEAST_SCATTER)
