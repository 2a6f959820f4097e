"""The likelihood of coefficients by noisy sums of scores, if records are as a design's rows.

At b, which weighted records fit best, a sum of scores at a point u is expected to be the sum over
rows of f h(x'u, x'b) A x, h the mean of a weighted, cut residual. So each sum is a measurement of b
with known noise.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from shoal_protocol.queries.design import Floats
from shoal_studies.regression.families import CutMean, Residuals, TargetFamily
from shoal_studies.regression.plausible_designs import DesignRows

_STEPS: Final = 12
_TOLERANCE: Final = 1e-3  # root mean square change of predictors


@dataclass(frozen=True, kw_only=True)
class Scores:
    """A sum over records of f cut(v (y - m)) z, z = A x, with noise of `noise_sd`: shape (s,).

    A is the `basis`, shape (s, p), and m the mean at `point`, shape (p,), or `level` for all
    records where there is none. Rows are shrunk by f into a ball of `squared_radius`; infinite: not
    at all. In the round of moments, `is_of_moments`, they are multiplied by f^2 of that round.

    `squares`, shape (s,), are sums of the scores' squares, and `cut_count` how many residuals were
    cut; both are None where a round does not say so.
    """

    family: TargetFamily
    values: Floats
    noise_sd: float
    cut: float
    low: float
    high: float
    basis: Floats
    squared_radius: float = np.inf
    is_of_moments: bool = False
    level: float = 0.0
    point: Floats | None = None
    weighing_dispersion: float = 1.0
    squares: Floats | None = None
    squares_sd: float = 0.0
    cut_count: float = 0.0
    cut_count_sd: float = 0.0
    tables: dict[float, CutMean] = field(default_factory=dict, compare=False)

    def rows(self, design: DesignRows) -> Floats:
        """Return f z of a design's rows, shape (n, s)."""
        turned = design.rows @ self.basis.T
        if self.is_of_moments:
            return np.asarray(turned * design.shrunk[:, None])
        squares = np.maximum(np.sum(turned**2, axis=1), 1e-300)
        return np.asarray(turned * np.sqrt(np.minimum(1.0, self.squared_radius / squares))[:, None])

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
    ) -> Callable[[Floats], tuple[Floats, Floats]]:
        """Return a function of coefficients, shape (p,): expected scores and their derivative.

        Shapes (s,) and (s, p). Tables are made once for each dispersion, about coefficients `near`.
        """
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


@dataclass(frozen=True)
class Fit:
    """Coefficients under one design: the mode, its covariance by noise and prior, the evidence."""

    mean: Floats
    covariance: Floats
    log_evidence: float


@dataclass(frozen=True)
class ScoreLikelihood:
    """All sums of scores, of `records` records, each with a weight of one."""

    sums: Sequence[Scores]
    records: float

    def fit(
        self,
        design: DesignRows,
        prior: NormalPrior,
        *,
        dispersion: float,
        design_error: float,
        start: Floats,
    ) -> Fit:
        """Return the fit by Gauss and Newton's method, from coefficients `start`."""
        point = start
        expectations = [
            each.expectation(design, self.records, dispersion, start) for each in self.sums
        ]
        curvature, evidence = prior.precision, -np.inf
        volume = 0.5 * float(np.linalg.slogdet(prior.precision)[1])
        for _ in range(_STEPS):
            away = point - prior.mean
            curvature, slope = prior.precision, -prior.precision @ away
            evidence = volume + 0.5 * float(slope @ away)
            for each, expectation in zip(self.sums, expectations, strict=True):
                expected, jacobian = expectation(point)
                variance = each.noise_sd**2 + design_error**2 * float(np.mean(expected**2))
                gap = each.values - expected
                curvature = curvature + jacobian.T @ jacobian / variance
                slope = slope + jacobian.T @ gap / variance
                evidence -= 0.5 * float(gap @ gap / variance + len(gap) * np.log(variance))
            step = np.linalg.solve(curvature, slope)
            length = float(np.sqrt(design.weights @ (design.rows @ step) ** 2))
            point = point + step * min(1.0, 1.0 / max(length, _TOLERANCE))
            if length < _TOLERANCE:
                break
        evidence -= 0.5 * float(np.linalg.slogdet(curvature)[1])
        return Fit(point, np.asarray(np.linalg.inv(curvature)), evidence)

    def log_dispersions(self, design: DesignRows, point: Floats, dispersions: Floats) -> Floats:
        """Return the log likelihood of `dispersions`, shape (k,), by squares and what was cut.

        At coefficients `point`, and up to a constant.
        """
        family = self.sums[-1].family
        logs = np.zeros(len(dispersions))
        predictors = design.predictors(point)
        for each in self.sums:
            if each.squares is None:
                continue
            lengths = np.sum(each.rows(design) ** 2, axis=1)
            residuals, noise = each.residuals(each.asked(design)), each.squares_sd**2
            for place, dispersion in enumerate(dispersions.tolist()):
                _, squares, shares = family.cut(predictors, residuals, dispersion)
                own = lengths * squares
                whole = self.records * float(design.weights @ own)
                scattered = 2.0 * self.records * float(design.weights @ own**2)
                logs[place] += _log_normal(
                    float(each.squares.sum()) - whole, noise * len(each.squares) + scattered
                )
                if each.cut_count_sd:
                    cut = self.records * float(design.weights @ shares)
                    logs[place] += _log_normal(
                        each.cut_count - cut, each.cut_count_sd**2 + cut + 1.0
                    )
        return logs


def _log_normal(away: float, variance: float) -> float:
    return -0.5 * (away**2 / variance + float(np.log(variance)))
