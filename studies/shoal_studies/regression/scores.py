"""The likelihood of coefficients by noisy sums of scores, under one plausible design."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from shoal_studies.regression import constants
from shoal_studies.regression.families import Residuals, TargetFamily
from shoal_studies.regression.plausible_designs import DesignRows
from shoal_protocol.queries.design import Floats


@dataclass
class ScoreSumReleased:
    """One round's sum of scores f cut(v (y - m)) A x, shape (s,), f = min(1, R / |A x|).

    m is the mean at `point`, or `level` for all without one. `squares`, shape (s,), are sums of the
    scores' squares, and `cut_count` how many residuals were cut; None in the round of moments.
    """

    family: TargetFamily
    values: Floats
    noise_sd: float
    cut: float
    low: float
    high: float
    squared_radius: float
    basis: Floats  # (s, p)
    level: float = 0.0
    point: Floats | None = None
    weighing_dispersion: float = 1.0
    squares: Floats | None = None
    squares_sd: float = 0.0
    cut_count: float = 0.0
    cut_count_sd: float = 0.0
    _tables: dict = field(default_factory=dict)

    def shown(self, design: DesignRows) -> Floats:
        """Return rows in the basis, shrunk into the ball: shape (s, p)."""
        z = design.rows @ self.basis.T
        if self.point is None:
            return z * design.shrunk[:, None]
        squares = np.sum(z**2, axis=1)
        return z * np.sqrt(np.minimum(1.0, self.squared_radius / squares))[:, None]

    def residuals(self, there: Floats) -> Residuals:
        if self.point is None:
            means = np.full(len(there), self.level)
            weights = np.ones(len(there))
        else:
            means = self.family.mean(there)
            weights = self.family.weight(means, self.weighing_dispersion)
        return Residuals(means, weights, self.cut, self.low, self.high)

    def there(self, design: DesignRows) -> Floats:
        if self.point is None:
            return np.zeros(len(design.rows))
        return design.predictors(self.point)

    def expected(self, design, records, point, dispersion):
        """Return expected scores, shape (s,), and their derivative, (s, p)."""
        table = self.table(design, point, dispersion)
        mean, slope = table(self.there(design), design.predictors(point))
        z = self.shown(design) * (records * design.weights)[:, None]
        return z.T @ mean, (z * slope[:, None]).T @ design.rows

    def table(self, design, point, dispersion):
        if dispersion not in self._tables:
            self._tables[dispersion] = self.family.expectation(
                self.there(design), design.predictors(point), self.residuals, dispersion
            )
        return self._tables[dispersion]

    def forget(self):
        self._tables.clear()


@dataclass(frozen=True)
class Fit:
    mean: Floats
    covariance: Floats
    log_evidence: float
    jacobian: Floats  # of the last sum


@dataclass(frozen=True)
class ScoreLikelihood:
    """All sums of scores, over `records` records, each of weight one."""

    sums: Sequence[ScoreSumReleased]
    records: float

    def fit(self, design, prior_mean, precision, *, dispersion, design_error, start, tolerance=1e-3):
        point = start.copy()
        volume = 0.5 * np.linalg.slogdet(precision)[1]
        for _ in range(40):
            away = point - prior_mean
            curvature, slope = precision.copy(), -precision @ away
            evidence = volume + 0.5 * float(slope @ away)
            for each in self.sums:
                expected, jacobian = each.expected(design, self.records, point, dispersion)
                variance = each.noise_sd**2 + design_error**2 * float(np.mean(expected**2))
                gap = each.values - expected
                curvature += jacobian.T @ jacobian / variance
                slope = slope + jacobian.T @ gap / variance
                evidence -= 0.5 * float(gap @ gap / variance + len(gap) * np.log(variance))
            step = np.linalg.solve(curvature, slope)
            length = float(np.sqrt(design.weights @ (design.rows @ step) ** 2))
            point = point + step * min(1.0, 1.0 / max(length, 1e-9))
            if length < tolerance:
                break
        evidence -= 0.5 * np.linalg.slogdet(curvature)[1]
        return Fit(point, np.linalg.inv(curvature), float(evidence), jacobian)

    def log_dispersions(self, design: DesignRows, point: Floats, extra=None) -> Floats:
        """Return the log likelihood of each dispersion by squares and cut residuals."""
        family = self.sums[-1].family
        logs = np.zeros(len(family.dispersions))
        for each in self.sums:
            if each.squares is None:
                continue
            z = self.sums and each.shown(design)
            lengths = np.sum(z**2, axis=1)
            residuals = each.residuals(each.there(design))
            predictors = design.predictors(point)
            for k, dispersion in enumerate(family.dispersions.tolist()):
                _, square, share = family.cut(predictors, residuals, dispersion)
                whole = self.records * float(design.weights @ (lengths * square))
                cut = self.records * float(design.weights @ share)
                noise = each.squares_sd**2 * z.shape[1]
                scatter = 2.0 * self.records * float(design.weights @ (lengths * square) ** 2)
                logs[k] -= 0.5 * ((each.squares.sum() - whole) ** 2 / (noise + scatter) + np.log(noise + scatter))
                v = each.cut_count_sd**2 + cut + 1.0
                logs[k] -= 0.5 * ((each.cut_count - cut) ** 2 / v + np.log(v))
        return logs
