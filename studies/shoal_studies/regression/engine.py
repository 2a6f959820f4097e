"""Learner of regressions: rounds of columns, of moments, and of scores."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from shoal_studies.contract import RequestedRound
from shoal_studies.regression import constants
from shoal_studies.regression.families import FAMILIES, TargetFamily
from shoal_studies.regression.measured import RegressionSums
from shoal_studies.regression.plausible_designs import (
    DesignRows,
    PlausibleDesigns,
    released_design,
)
from shoal_studies.regression.scores import Fit, ScoreLikelihood, ScoreSumReleased
from shoal_protocol.queries import Column, ScoreSum, WeightedRowMatrix
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.sums import matrix_from, scores_from
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.studies import regression as rules
from shoal_protocol.studies.measurements import query_of

SHARES: Final = (0.1, 0.2, 0.2, 0.2, 0.3)
_REACH: Final = 4.0
_CUTS: Final = {"normal": 3.0, "poisson": 3.0, "negative_binomial": 4.0, "gamma": 4.0}
CONSTANT_SD: Final = 5.0
BOUND: Final = 0.003
HIERARCHY = True


class RegressionJob(RegressionSums):
    """Everything that follows from the sums released so far, one or more."""

    shares = SHARES

    @property
    def family(self) -> TargetFamily:
        return FAMILIES[self.task.family]

    @property
    def size(self) -> int:
        return 1 + len(self.task.features)

    @cached_property
    def level(self) -> float:
        """The target's mean, as the family takes it."""
        centre, target = float(self.columns.centres[-1]), self.task.target
        if self.task.family == "logistic":
            share = (centre - target.lower) / (2.0 * target.half_range)
            return min(max(share, BOUND), 1.0 - BOUND)
        if self.task.family == "normal":
            return 0.0
        return max(centre, BOUND * target.upper)

    @property
    def spread(self) -> float:
        """The target's standard deviation, in the unit of `level`."""
        if self.task.family == "logistic":
            return math.sqrt(self.level * (1.0 - self.level))
        if self.task.family == "normal":
            return 1.0
        return float(self.columns.spreads[-1])

    @property
    def unit(self) -> float:
        """One unit of the family's targets, in the data's."""
        if self.task.family == "logistic":
            return 2.0 * self.task.target.half_range
        return float(self.columns.spreads[-1]) if self.task.family == "normal" else 1.0

    @property
    def origin(self) -> float:
        """Where the family's targets are 0, in the data's units."""
        if self.task.family == "logistic":
            return self.task.target.lower
        return float(self.columns.centres[-1]) if self.task.family == "normal" else 0.0

    @property
    def offset(self) -> float | None:
        return None if self.task.offset is None else float(self.columns.spreads[-2])

    @property
    def weighing_dispersion(self) -> float:
        if self.task.family == "gamma":
            return min(0.1 * self.level, 1e6)
        if self.task.family != "negative_binomial":
            return self.level if self.task.family == "poisson" else 1.0
        seen = (self.spread**2 - self.level) / self.level**2
        return min(max(seen, 0.05), 5.0)

    @property
    def moments_query(self) -> WeightedRowMatrix:
        target = self.task.target
        reach = 1.0 if self.task.family == "logistic" else _REACH * self.spread
        centre = self.origin + self.level * self.unit
        column = Column(
            name=target.name,
            centre=centre,
            scale=min(reach * self.unit, max(target.upper - centre, centre - target.lower)),
            term=target.term,
        )
        radius = rules.default_squared_radius(self.task)
        return rules.moments_query(self.task, (*self.features, column), radius)

    @cached_property
    def weighted_records(self) -> float:
        return self.records[0] * self.weighing[0]

    @cached_property
    def designs(self) -> PlausibleDesigns:
        released = released_design(
            self.task.predictors,
            self.sums[0],
            self.sums[1],
            records=self.records[0],
            weighted_records=self.weighted_records,
            offset=self.offset,
        )
        return PlausibleDesigns(released, np.random.default_rng([1703, len(self.sums)]))

    def score_sums(self) -> list[ScoreSumReleased]:
        return [self._moments(self.sums[1]), *map(self._scores, self.sums[2:])]

    @property
    def _limits(self) -> tuple[float, float]:
        target = self.task.target
        return (target.lower - self.origin) / self.unit, (target.upper - self.origin) / self.unit

    def _moments(self, released: ReleasedSum) -> ScoreSumReleased:
        query = query_of(released, WeightedRowMatrix)
        matrix = matrix_from(query, released.values)
        column = query.regressed[-1]
        scale = rules.REACH * column.scale / (query.target_limit * self.unit)
        low, high = self._limits
        return ScoreSumReleased(
            self.family,
            matrix[: self.size, -1] * scale,
            float(released.noise_sd[-2]) / query.grid**2 * scale,
            cut=column.scale / self.unit,
            low=low,
            high=high,
            squared_radius=0.0,
            basis=np.eye(self.size),
            level=(column.centre - self.origin) / self.unit,
        )

    def _scores(self, released: ReleasedSum) -> ScoreSumReleased:
        query = query_of(released, ScoreSum)
        found = scores_from(query, released.values.astype(np.float64))
        sds = scores_from(query, released.noise_sd)
        radius = query.radius * rules.REACH
        unit = radius * query.residual_cut / self.residual_unit
        basis = np.zeros((self.size, self.size))
        for place, row in enumerate(query.basis):
            basis[place, : place + 1] = row
        # the query's rows are in REACH spreads
        point = np.array(query.point)[: self.size] / rules.REACH
        point = self._from_units(point)
        low, high = self._limits
        return ScoreSumReleased(
            self.family,
            found.scores * unit,
            float(sds.scores[0]) * unit,
            cut=query.residual_cut / self.residual_unit,
            low=low,
            high=high,
            squared_radius=radius**2,
            basis=basis,
            point=point,
            weighing_dispersion=query.dispersion,
            squares=found.squares * unit**2,
            squares_sd=float(sds.squares[0]) * unit**2,
            cut_count=found.cut,
            cut_count_sd=sds.cut,
        )

    @property
    def residual_unit(self) -> float:
        return self.unit if self.task.family == "normal" else 1.0

    def _from_units(self, point: Floats) -> Floats:
        if self.task.family != "normal":
            return point
        found = point / self.unit
        found[0] -= self.origin / self.unit
        return found

    def _to_units(self, point: Floats) -> Floats:
        if self.task.family != "normal":
            return point
        found = point * self.unit
        found[0] += self.origin
        return found

    # priors

    @cached_property
    def prior_mean(self) -> Floats:
        centre = np.zeros(self.size)
        level = self.level
        if self.task.family == "logistic":
            centre[0] = math.log(level / (1.0 - level))
        elif self.task.family != "normal":
            centre[0] = math.log(level)
        return centre

    def precision(self, covariance: Floats, sd: float) -> Floats:
        """Return the prior's precision: N(0, sd^2 C^-1) of slopes in spreads."""
        constant = 1.0 if self.task.family == "normal" else CONSTANT_SD
        found = np.zeros((self.size, self.size))
        found[0, 0] = constant**-2.0
        found[1:, 1:] = covariance / sd**2
        return found

    # fits

    def fits(self, count: int):
        """Return a mixture over designs, prior parts, design errors and dispersions."""
        designs = [self.designs.draw() for _ in range(count)]
        likelihood = ScoreLikelihood(self.score_sums(), self.weighted_records)
        covariance = np.mean([each.covariance for each in designs], axis=0)[: self.size - 1, : self.size - 1]
        prior_sd = self.task.prior_sd
        parts = constants.PRIOR_PARTS if HIERARCHY else (1.0,)
        precisions = [self.precision(covariance, prior_sd * part) for part in parts]
        family, middle = self.family, designs[0]
        start = self.prior_mean.copy()
        dispersions = family.dispersions
        generator = np.random.default_rng([2018, len(self.sums)])
        logs = np.zeros(len(dispersions))
        dispersion = self._first_dispersion()
        mid = precisions[len(parts) // 2]
        for k in range(3 if len(dispersions) > 1 else 1):
            for each in likelihood.sums:
                each.forget()
            fitted = likelihood.fit(
                middle, self.prior_mean, mid, dispersion=dispersion, design_error=0.3 if k == 0 else 0.1, start=start
            )
            start = fitted.mean
            if len(dispersions) > 1 and len(likelihood.sums) > 1:
                logs = likelihood.log_dispersions(middle, start)
                w = np.exp(logs - logs.max())
                w /= w.sum()
                dispersion = float(np.exp(w @ np.log(dispersions)))
            elif self.task.family == "normal":
                dispersion = self._first_dispersion(start, middle)
        self.middle_dispersion = dispersion
        for each in likelihood.sums:
            each.forget()
        # design error and prior part by evidence over a few designs
        few = designs[:4]
        table = np.empty((len(constants.DESIGN_ERRORS), len(parts)))
        for i, error in enumerate(constants.DESIGN_ERRORS):
            for j, precision in enumerate(precisions):
                table[i, j] = np.logaddexp.reduce(
                    [
                        likelihood.fit(each, self.prior_mean, precision, dispersion=dispersion, design_error=error, start=start).log_evidence
                        for each in few
                    ]
                )
        odds = np.exp(table - table.max())
        odds /= odds.sum()
        picks = generator.choice(odds.size, size=count, p=odds.ravel())
        found = []
        for each, pick in zip(designs, picks, strict=True):
            i, j = np.unravel_index(pick, odds.shape)
            found.append(
                likelihood.fit(each, self.prior_mean, precisions[j], dispersion=dispersion, design_error=constants.DESIGN_ERRORS[i], start=start)
            )
        logs = np.array([each.log_evidence - table[np.unravel_index(p, odds.shape)] for each, p in zip(found, picks, strict=True)])
        weights = np.exp(logs - logs.max())
        weights /= weights.sum()
        return designs, likelihood, found, weights, odds, table

    def _first_dispersion(self, point=None, design=None) -> float:
        if self.task.family == "logistic":
            return 1.0
        if self.task.family == "normal":
            if point is None:
                return 0.7
            query = query_of(self.sums[1], WeightedRowMatrix)
            matrix = matrix_from(query, self.sums[1].values)
            column = query.regressed[-1]
            yy = matrix[-1, -1] * (column.scale / (query.target_limit * self.unit)) ** 2
            eta = design.predictors(point)
            size = self.weighted_records * design.weights * design.shrunk
            left = (yy - size @ eta**2) / size.sum()
            error = float(self.sums[1].noise_sd[0]) / query.grid**2 * (column.scale / (query.target_limit * self.unit)) ** 2 / size.sum()
            return math.sqrt(min(max(left, 0.02, 0.25*error), 1.5))
        if self.task.family == "gamma":
            return min(max((self.spread / self.level) ** 2, 0.01), 2.0)
        return min(max((self.spread**2 - self.level) / self.level**2, 0.01), 5.0)

    def basis_and_point(self):
        designs, likelihood, found, weights, odds, table = self.fits(constants.POINT_DESIGNS)
        mean = sum(w * each.mean for w, each in zip(weights, found, strict=True))
        c = np.mean([each.covariance for each in designs], axis=0)
        m = np.mean([each.means for each in designs], axis=0)
        k = self.size - 1
        c, m = c[:k, :k], m[:k]
        inverse = np.linalg.inv(np.linalg.cholesky(c))
        basis = np.zeros((self.size, self.size))
        basis[0, 0] = 1.0
        basis[1:, 1:] = inverse
        basis[1:, 0] = -inverse @ m
        return basis, mean

    def reading(self):
        designs, likelihood, found, weights, odds, table = self.fits(constants.DESIGNS)
        means = np.array([each.mean for each in found])
        mean = weights @ means
        last, middle, dispersion = likelihood.sums[-1], designs[0], self.middle_dispersion
        z = last.shown(middle)
        residuals = last.residuals(last.there(middle))
        _, square, share = self.family.cut(middle.predictors(mean), residuals, dispersion)
        n = self.weighted_records
        meat = n * self.weighing[1] * z.T @ (z * (middle.weights * square)[:, None])
        own = float(np.trace(meat))
        error = last.squares_sd * math.sqrt(len(z.T)) / own
        ratio = last.squares.sum() / own
        scatter = max(1.0 + (ratio - 1.0) / (1.0 + error**2), 0.25)
        jacobian = last.expected(middle, n, mean, dispersion)[1]
        precision = self.precision(middle.covariance[: self.size - 1, : self.size - 1], self.task.prior_sd)
        sampling = np.linalg.inv(jacobian.T @ np.linalg.solve(meat * scatter, jacobian) + precision)
        covariances = np.array([each.covariance + sampling for each in found])
        away = means - mean
        noise = np.tensordot(weights, covariances, 1) + away.T @ (weights[:, None] * away)
        transform = self.columns.to_data_units(1.0)[: self.size, : self.size] * (self.residual_unit)
        shift = np.zeros(self.size)
        if self.task.family == "normal":
            shift[0] = self.origin
        if self.offset is not None:
            shift[0] -= self.columns.centres[-2]
        return dict(
            mean=transform @ mean + shift,
            covariance=transform @ noise @ transform.T,
            means=means @ transform.T + shift,
            sds=np.sqrt(np.array([np.diagonal(transform @ c @ transform.T) for c in covariances])),
            weights=weights, odds=odds, scatter=scatter, phi=dispersion, share=float(middle.weights @ share), cut=last.cut_count / n,
            internal=(mean, noise), designs=designs, ess=1 / np.sum(weights**2), sampling=np.sqrt(np.diagonal(transform @ sampling @ transform.T)),
        )

    posterior = reading

    @property
    def cut(self) -> float:
        """The largest weighted residual that is not cut, in the family's unit."""
        if self.task.family == "logistic":
            return 1.0
        level = self.level
        times = _CUTS[self.task.family]
        if self.task.family == "normal":
            return times * self.middle_dispersion
        if self.task.family == "poisson":
            return times * max(min(self.spread, 3.0 * math.sqrt(level) + level), math.sqrt(level))
        if self.task.family == "gamma":
            return times * min(max(self.spread / self.level, 0.05), 1.5)
        d = self.weighing_dispersion
        return times * math.sqrt(level + d * level**2) / (1.0 + d * level)

    def score_query(self) -> ScoreSum:
        basis, point = self.basis_and_point()
        rows = tuple(
            tuple(float(f"{each:.6g}") for each in row[: place + 1])
            for place, row in enumerate(basis.tolist())
        )
        point = self._to_units(point)
        whole = (*point.tolist(), *(() if self.offset is None else (self.offset,)))
        query = rules.score_query(
            self.task,
            self.features,
            point=whole,
            dispersion=self.weighing_dispersion,
            residual_cut=self.cut * self.residual_unit,
        )
        return query.model_copy(update={"basis": rows})


@dataclass(frozen=True)
class RegressionLearner:
    task: rules.RegressionTask

    def next(self, population, sums):
        if not sums:
            return RequestedRound(query=rules.first_query(self.task), share=SHARES[0])
        job = RegressionJob(self.task, sums)
        if len(sums) == 1:
            return RequestedRound(query=job.moments_query, share=SHARES[1])
        if len(sums) < len(SHARES):
            return RequestedRound(query=job.score_query(), share=SHARES[len(sums)])
        return job.posterior()
