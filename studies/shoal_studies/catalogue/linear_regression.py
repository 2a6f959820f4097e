"""Linear regression of a target on features, with intervals that account for the noise.

A projection first measures the columns' spreads, and chooses thresholds on auxiliary data. The last
round releases a matrix of second moments, of which the posterior is made.

Projection thresholds are step 3 of Algorithm 2: synthetic data of the same size are cut to
thresholds, given the noise that the next round will have, and fitted; the thresholds that recover
the synthetic coefficients best are used for the true data. Nothing there costs privacy. All
candidates and data sets are fitted at once.
"""

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, ClassVar, Final, Literal

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray
from pydantic import Field, model_validator

from shoal_protocol.jobs.job_request import AS_STATED, Range, RoundTerms
from shoal_protocol.queries import (
    Column,
    Mechanism,
    Query,
    QueryName,
    SecondMomentMatrix,
    SecondMoments,
)
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.sums import matrix_from
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.wire.encoding import PositiveSize
from shoal_studies.catalogue.measurements import (
    SMALLEST_SPREAD,
    measured_spreads,
    noise_ratio,
    query_of,
    record_count,
    record_law,
)
from shoal_studies.catalogue.study import FixedStudy, require_due, require_features, round_terms
from shoal_studies.contract import Learner, RequestedRound
from shoal_studies.posteriors.base import (
    BasePosterior,
    RegressionPosterior,
    normal_intervals,
    to_data_units,
)
from shoal_studies.quasi_likelihood import (
    NoisyMoments,
    noise_aware_posterior,
    ridge_estimates,
)

_ASSUMED_SECOND_MOMENT: Final = 0.13  # of a normalised column: bounds about 2.8 deviations wide
BOXES: Final = (*(step / 10.0 for step in range(1, 22)), 2.5, 3.0, 4.0)
"""Thresholds to choose from, in spreads: the paper's, from .1 to 2.1, and wider ones."""

_SQUARED_NORMS: Final = (0.5, 0.7, 1.0, 1.4, 2.0, 3.0)  # of the ball, relative to the mean row's


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Box thresholds as multiples of the spreads; the ball's radius in box units, None without."""

    features: float
    target: float
    radius: float | None


def thresholds_for(task: "LinearRegressionTask") -> Iterator[Thresholds]:
    """Yield all thresholds that the task's projection may choose from."""
    boxes = itertools.product(BOXES, BOXES) if task.thresholds is None else [task.thresholds]
    for x_box, y_box in boxes:
        if task.method == "box_projection":
            yield Thresholds(features=x_box, target=y_box, radius=None)
            continue
        mean_square = len(task.features) * mean_square_in_box(x_box) + mean_square_in_box(y_box)
        for size in _SQUARED_NORMS:
            radius = math.sqrt(task.intercept**2 + size * mean_square)
            yield Thresholds(features=x_box, target=y_box, radius=radius)


def mean_square_in_box(box: float) -> float:
    """Return the mean square of a standard normal cut to [-box, box], over the largest there."""
    normal = NormalDist()
    beyond = 2.0 * normal.cdf(-box)
    return (1.0 - beyond - 2.0 * box * normal.pdf(box)) / box**2 + beyond


def query_for(
    task: "LinearRegressionTask",
    population: int,
    earlier: Sequence[ReleasedSum],
    chosen: Thresholds | None = None,
) -> Query:
    """Return the query of the round after `earlier`; a projection's last one needs `chosen`.

    Raises:
        ValueError: there is no such round, or `chosen` is missing.
    """
    names = task.asked()[len(earlier) :]
    if not names:
        raise ValueError("the task has no further round")
    name = names[0]
    if name != "second_moment_matrix" or not task.projects:
        return _query(task, name, scales=task.scales, radius=_radius(task, population))
    if chosen is None:
        raise ValueError("a projection's last round needs thresholds")
    scales = (measured_spreads(earlier[-1]) * _factors(task, chosen)).tolist()
    radius = None if chosen.radius is None else _tidy(chosen.radius)
    return _query(task, name, scales=[_tidy(scale) for scale in scales], radius=radius)


def _factors(task: "LinearRegressionTask", chosen: Thresholds) -> NDArray[np.float64]:
    return np.array([chosen.features] * len(task.features) + [chosen.target])


def _radius(task: "LinearRegressionTask", population: int) -> float:
    """Return the radius of a ball that follows from no earlier sum: the task's, or by a rule.

    The rule assumes that the columns' second moment is .13.
    """
    if task.radius is not None:
        return task.radius
    width = len(task.columns)
    # the fewer records, the more noise matters, and the more rows may be shrunk
    deviations = 1.1 * math.log10(max(1.0, population / 400.0))
    squared_norm = _ASSUMED_SECOND_MOMENT * (width + deviations * math.sqrt(2.0 * width))
    return _tidy(math.sqrt(task.intercept**2 + squared_norm))


def _kind(task: "LinearRegressionTask", name: QueryName, least: int, most: int) -> RoundTerms:
    """Return the terms of a round, whatever the sums of those before turn out to be.

    With `least` to `most` clients. A projection's spreads are from .05 to 1 of half a range.
    """
    stretch = AS_STATED
    radii: list[float] = []
    if name == "second_moment_matrix" and task.projects:
        allowed = list(thresholds_for(task))
        boxes = [box for each in allowed for box in (each.features, each.target)]
        stretch = Range(least=SMALLEST_SPREAD * min(boxes), most=max(boxes))
        radii = [each.radius for each in allowed if each.radius is not None]
    else:
        radii = [_radius(task, population) for population in (least, most)]
    query = _query(task, name, scales=task.scales, radius=min(radii, default=None))
    radius = Range(least=min(radii), most=max(radii)) if radii else None
    return round_terms(query, stretch=stretch, radius=radius)


def _query(
    task: "LinearRegressionTask",
    name: QueryName,
    *,
    scales: Sequence[float],
    radius: float | None,
) -> SecondMoments | SecondMomentMatrix:
    kind = SecondMoments if name == "second_moments" else SecondMomentMatrix
    return kind(
        columns=tuple(
            bounds.column().model_copy(update={"scale": scale})
            for bounds, scale in zip(task.columns, scales, strict=True)
        ),
        intercept=task.intercept,
        radius=radius,
        grid_bits=task.grid_bits,
        records_per_client=task.records_per_client,
    )


def _tidy(value: float) -> float:
    """Round to six digits, so that a published query is readable."""
    return float(f"{value:.6g}")


class LinearRegressionPosterior(RegressionPosterior):
    """Gaussian posterior of a linear regression's coefficients, in the data's own units.

    `names` are "intercept", then the features. `records` is how many records went into it.
    """

    name: Literal["linear_regression"] = "linear_regression"
    residual_sd: PositiveSize

    def predict(self, rows: Floats) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the target, shapes (n,), for `rows`, shape (n, m).

        The standard deviation is a new record's: coefficients and residual together.

        Raises:
            ValueError: `rows` does not have one column per feature.
        """
        mean, sd = self._predictor(rows)
        return mean, np.hypot(sd, self.residual_sd)

    def predict_interval(self, rows: Floats, level: float) -> Floats:
        """Return central intervals that hold about `level` of a new record's target, shape (n, 2).

        Raises:
            ValueError: as `predict`; or `level` is not strictly between 0 and 1.
        """
        return normal_intervals(*self.predict(rows), level)

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        bounds = (
            "taken as given: where columns fill them, where they are far too wide, and where noise "
            "is as large as what the features tell, intervals hold less often than they say; "
            "LinearRegression measures its columns, and says so"
        )
        return (("Residual sd", f"{self.residual_sd:.4g}"), ("Bounds", bounds))

    @property
    def caution(self) -> str | None:
        return self.prior.caution(self.names, self.mean, self.sd)


_Threshold = Annotated[float, Field(ge=0.05, le=20.0, allow_inf_nan=False)]

RegressionMethod = Literal["plain", "box_projection", "ball_projection"]


class LinearRegressionTask(FixedStudy):
    """Bayesian linear regression of `target` on `features` and a constant.

    Columns are normalised: centred at the middle of their bounds, and divided by half the range.
    `method` says what keeps rows short, so that noise may be small:

    - "plain": a ball of `radius`, or by a public rule that takes the mean square of a normalised
      column to be .13. Rows beyond it are shrunk, which intervals do not count: where columns fill
      their bounds, give the `radius` that holds their rows, at the price of more noise.
    - "box_projection", "ball_projection": a round measures the columns' spreads; columns are cut
      to multiples of them, and for the latter rows are shrunk into a ball too. Multiples and ball
      are chosen on auxiliary data (Algorithm 2 of Heikkilä et al. 2017, corrected).

    `intercept` is the constant coordinate in a row (0: no constant term). `prior_sd` is the prior
    standard deviation of a coefficient in normalised units, or, with a projection, in units of the
    measured spreads; the constant term's is twice that. `residual_sd` is that of the target about
    the line, in the same units, if it is known; None learns it.

    Of a projection alone: `measuring_share` is the measuring round's part of the job's mu^2, or of
    its epsilon; the last round gets the rest. `thresholds` are the multiples for the features and
    for the target, if they are not to be chosen. The auxiliary data have coefficients of `prior_sd`
    and residuals of `residual_sd`, the paper's 1 / sqrt(lambda_0) and 1 / sqrt(lambda); where that
    is None, half of the target's variance is explained.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (LinearRegressionPosterior,)
    example: ClassVar[str] = """\
[task]
name = "linear_regression"
method = "plain"               # or box_projection, ball_projection

[features]                     # public bounds, from general knowledge, never from the data
age = [18, 100]
body_mass_index = [10, 60]

[target]
systolic_pressure = [60, 220]

"""

    name: Literal["linear_regression"] = "linear_regression"
    features: Annotated[tuple[ColumnBounds, ...], Field(min_length=1, max_length=510)]
    target: ColumnBounds
    method: RegressionMethod
    radius: Annotated[float, Field(gt=0.0, le=1e6, allow_inf_nan=False)] | None = None
    intercept: Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)] = 0.3
    prior_sd: Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)] = 0.5
    residual_sd: Annotated[float, Field(ge=0.01, le=100.0, allow_inf_nan=False)] | None = None
    measuring_share: Annotated[float, Field(ge=0.01, le=0.99, allow_inf_nan=False)] = 0.2
    thresholds: tuple[_Threshold, _Threshold] | None = None
    grid_bits: Annotated[int, Field(ge=10, le=15, strict=True)] = 12

    @model_validator(mode="after")
    def _consistent(self) -> "LinearRegressionTask":
        require_features(self.features, self.target.name)
        if 0.0 < self.intercept < 2.0**-self.grid_bits:
            raise ValueError("the intercept is finer than the grid: raise grid_bits or set it to 0")
        if self.radius is not None and self.radius < 2.0**-self.grid_bits:
            raise ValueError("the radius is finer than the grid: raise grid_bits or the radius")
        if self.thresholds is not None and not self.projects:
            raise ValueError('method "plain" cuts columns at their bounds: leave thresholds out')
        return self

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The features in order, then the target: the columns of a client's records."""
        return (*self.features, self.target)

    @property
    def scales(self) -> tuple[float, ...]:
        """What the columns are divided by, before any projection."""
        return tuple(column.half_range for column in self.columns)

    @property
    def projects(self) -> bool:
        """Whether thresholds relative to measured spreads are chosen before the last round."""
        return self.method in ("box_projection", "ball_projection")

    def kinds_of_rounds(self, *, least: int, most: int) -> tuple[RoundTerms, ...]:
        last = _kind(self, "second_moment_matrix", least, most)
        return (_kind(self, "second_moments", least, most), last) if self.projects else (last,)

    def learner(self) -> Learner:
        return LinearRegression(self)


_COARSE: Final = set(BOXES[1::3])
_LARGEST_SAMPLE: Final = 2000
_SEED: Final = 1703_01106
_REMEMBERED: Final = 256  # a trainer asks at a submission, and again in the round


@functools.lru_cache(maxsize=_REMEMBERED)
def choose_thresholds(
    task: LinearRegressionTask, *, records: int, mechanism: Mechanism, noise_ratio: float
) -> Thresholds:
    """Return the thresholds with the smallest mean squared error of prediction.

    Every third box is tried, and then all that are near the best. Auxiliary data are those of
    equations (4) to (6) of Heikkilä et al. 2017, x ~ N(0, I), b ~ N(0, prior_sd^2 I),
    y ~ N(x'b, residual_sd^2), standardised; without `residual_sd` half of the target's variance is
    explained. `noise_ratio` is the standard deviation of the summed noise, at relative scale 1,
    over the sensitivity to one record; Laplace noise is taken for normal. More than 2000 records
    are represented by 2000 with the same ratio of noise to signal. The random numbers depend on the
    arguments alone: the same arguments give the same answer.
    """
    every = list(thresholds_for(task))
    errors = functools.partial(
        _mean_errors, task=task, records=records, mechanism=mechanism, noise_ratio=noise_ratio
    )
    few = [each for each in every if {each.features, each.target} <= _COARSE] or every
    best = few[int(np.argmin(errors(few)))]
    near = [
        each
        for each in every
        if _is_near(each.features, best.features) and _is_near(each.target, best.target)
    ]
    return near[int(np.argmin(errors(near)))]


def _is_near(box: float, best: float) -> bool:
    return abs(box - best) <= max(0.2, best / 3.0) + 1e-9


def _mean_errors(
    candidates: list[Thresholds],
    *,
    task: LinearRegressionTask,
    records: int,
    mechanism: Mechanism,
    noise_ratio: float,
) -> Floats:
    """Return each candidate's error on the same auxiliary data, up to a common factor."""
    features = len(task.features)
    sample = min(records, _LARGEST_SAMPLE)
    ratio = noise_ratio * sample / records
    noise_sds = np.array([_noise_sds(task, each.radius, mechanism, ratio) for each in candidates])
    generator = Generator(PCG64(_SEED))
    errors = np.zeros(len(candidates))
    for _ in range(6 if features <= 60 else 1):  # auxiliary data sets
        x, y, b = _records(generator, sample, features, task.prior_sd, task.residual_sd)
        noise = _noise(generator, features + 2)
        moments = _moments(candidates, x, y, task.intercept)
        errors += _errors(candidates, moments, noise, noise_sds, b, task.intercept, sample)
    return errors


def _noise_sds(
    task: LinearRegressionTask, radius: float | None, mechanism: Mechanism, noise_ratio: float
) -> tuple[float, float]:
    """Return the noise's standard deviation on and off the diagonal, in normalised units.

    It is that of the query for normalised columns on the finest grid.
    """
    query = SecondMomentMatrix(
        columns=tuple(Column(name=str(j), centre=0.0, scale=1.0) for j in range(len(task.columns))),
        intercept=task.intercept,
        radius=radius,
        grid_bits=15,
        records_per_client=1,
    )
    design = query.design(mechanism)
    unit = noise_ratio * design.sensitivity / query.grid**2
    return unit * design.blocks[0].relative_scale, unit * design.blocks[-2].relative_scale


def _records(
    generator: Generator, sample: int, features: int, prior_sd: float, residual_sd: float | None
) -> tuple[Floats, Floats, Floats]:
    """Return x, y and the coefficients b of one auxiliary data set, standardised."""
    x = generator.standard_normal((sample, features))
    b = generator.standard_normal(features)
    signal = float(np.linalg.norm(b))
    residual = signal if residual_sd is None else residual_sd / prior_sd
    spread = math.hypot(signal, residual)
    b /= spread
    return x, x @ b + residual / spread * generator.standard_normal(sample), b


def _noise(generator: Generator, width: int) -> Floats:
    upper = np.triu(generator.standard_normal((width, width)))
    return np.asarray(upper + np.triu(upper, 1).T)


def _moments(candidates: list[Thresholds], x: Floats, y: Floats, intercept: float) -> Floats:
    """Return each candidate's matrix of moments, shape (candidates, p, p), the constant first.

    Rows that differ only in their ball are cut to their box once.
    """
    moments = np.empty((len(candidates), x.shape[1] + 2, x.shape[1] + 2))
    cut = {box: np.clip(x / box, -1.0, 1.0) for box in {each.features for each in candidates}}
    constant = np.full(len(x), intercept)
    boxes: dict[tuple[float, float], tuple[Floats, Floats]] = {}
    for index, each in enumerate(candidates):
        box = (each.features, each.target)
        if box not in boxes:
            target = np.clip(y / each.target, -1.0, 1.0)
            rows = np.column_stack([constant, cut[each.features], target])
            boxes = {box: (rows, np.einsum("ij,ij->i", rows, rows))}
        rows, squares = boxes[box]
        weighted = rows
        if each.radius is not None:
            weighted = rows * np.minimum(1.0, each.radius**2 / squares)[:, None]
        moments[index] = rows.T @ weighted
    return moments


def _errors(
    candidates: list[Thresholds],
    moments: Floats,
    noise: Floats,
    noise_sds: Floats,
    coefficients: Floats,
    intercept: float,
    sample: int,
) -> Floats:
    """Return each candidate's expected squared error of predicting x'b for new, uncut rows."""
    first = 0 if intercept > 0.0 else 1
    noise, moments = noise[first:, first:], moments[:, first:, first:]
    diagonal, off_diagonal = noise_sds[:, 0], noise_sds[:, 1]
    same = np.eye(len(noise))
    scales = off_diagonal[:, None, None] * (1.0 - same) + diagonal[:, None, None] * same
    estimates = ridge_estimates(moments + scales * noise, off_diagonal, sample)
    features = np.array([each.features for each in candidates])
    target = np.array([each.target for each in candidates])
    slopes = estimates[:, -len(coefficients) :] * (target / features)[:, None]
    errors: Floats = np.sum((slopes - coefficients) ** 2, axis=1)
    if intercept > 0.0:
        errors += (target * intercept * estimates[:, 0]) ** 2
    return errors


@dataclass(frozen=True)
class LinearRegression:
    """The learner of one `LinearRegressionTask`."""

    task: LinearRegressionTask

    def next(self, population: int, sums: Sequence[ReleasedSum]) -> RequestedRound | BasePosterior:
        """Return the next round, or the posterior when `sums` suffice.

        Raises:
            ValueError: `population` is not positive, or `sums` do not answer this task's rounds.
        """
        require_due(self.task, population, sums)
        if len(sums) == self.task.rounds:
            spreads = measured_spreads(sums[-2]) if self.task.projects else None
            return _posterior(sums[-1], self.task, spreads)
        last = len(sums) == self.task.rounds - 1
        chosen = self._thresholds(sums[-1]) if last and self.task.projects else None
        query = query_for(self.task, population, sums, chosen)
        return RequestedRound(query=query, share=self.shares()[len(sums)])

    def shares(self) -> tuple[float, ...]:
        """Return the rounds' shares of the job's mu^2, or of its epsilon, in order."""
        share = self.task.measuring_share
        return (share, 1.0 - share) if self.task.projects else (1.0,)

    def _thresholds(self, measured: ReleasedSum) -> Thresholds:
        """Choose thresholds for the noise of the last round, known from that of `measured`."""
        this, last = self.shares()
        ratio = noise_ratio(measured, part=this / last)
        return choose_thresholds(
            self.task,
            records=int(_about(record_count(measured))),
            mechanism=measured.mechanism,
            noise_ratio=_about(ratio * self.task.records_per_client),
        )


def _about(number: float) -> float:
    """Round to two digits, so that similar cohorts share one search for thresholds."""
    return float(f"{number:.2g}")


def _posterior(
    released: ReleasedSum,
    task: LinearRegressionTask,
    spreads: NDArray[np.float64] | None,
) -> BasePosterior:
    """Return the posterior; `prior_sd` is in units of `spreads`, one per column, where there are
    any, and else of the columns' bounds."""
    units = np.array(task.scales) if spreads is None else spreads
    query = query_of(released, SecondMomentMatrix)
    matrix = matrix_from(query, released.values)
    diagonal_sd, off_diagonal_sd = (released.noise_sd[[0, -2]] / query.grid**2).tolist()
    rows, rows_sd = record_law(released)
    scales = np.array([column.scale for column in query.columns]) / units
    prior = task.prior_sd * scales[:-1] / scales[-1]
    constant = query.constant / query.grid
    if constant > 0.0:
        prior = np.append(2.0 * task.prior_sd / (constant * scales[-1]), prior)
    limit = query.squared_norm_limit
    moments = NoisyMoments(
        matrix=matrix,
        diagonal_sd=diagonal_sd,
        off_diagonal_sd=off_diagonal_sd,
        records=max(rows, 1.0),
        records_sd=rows_sd,
        largest_square=query.width if limit is None else limit / query.grid**2,
    )
    shrinkage = math.sqrt(_mean_squared_shrinkage(query, moments))
    told = None if task.residual_sd is None else task.residual_sd / scales[-1] * shrinkage
    result = noise_aware_posterior(moments, prior, residual_sd=told)
    residual_sd = result.residual_sd / shrinkage
    covariance = result.covariance
    if spreads is not None:
        covariance = covariance + np.diag((_pulls(query, spreads) * result.mean) ** 2)
    *features, target = query.columns
    centres, widths = np.array([(each.centre, each.scale) for each in features]).T
    transform = to_data_units(centres, widths, target.scale)
    if constant > 0.0:
        transform[:, 0] *= constant
    else:
        transform = transform[:, 1:]
    offset = np.append(target.centre, np.zeros(len(features)))
    return LinearRegressionPosterior(
        names=("intercept", *(column.name for column in features)),
        target=target.name,
        coefficients=(offset + transform @ result.mean).tolist(),
        covariance=(transform @ covariance @ transform.T).tolist(),
        residual_sd=residual_sd * target.scale,
        records=record_count(released),
        prior_mean=tuple(offset.tolist()),
        prior_sd=tuple(np.sqrt(transform**2 @ prior**2).tolist()),
    )


def _pulls(query: SecondMomentMatrix, spreads: Floats) -> Floats:
    """Return what cutting changes in each coefficient, over what it leaves, if columns are normal.

    For weak slopes, by Price's theorem: of a slope P(|x| < c) P(|y| < c') / E min(x^2, c^2) is left
    for standard normal x and y with thresholds c and c', of a constant P(|y| < c').
    """
    *boxes, target_box = (np.array([column.scale for column in query.columns]) / spreads).tolist()
    target = _within(target_box)
    left = [_within(box) * target / (box**2 * mean_square_in_box(box)) for box in boxes]
    return 1.0 / np.array([*([target] if query.constant else []), *left]) - 1.0


def _within(box: float) -> float:
    return math.erf(box / math.sqrt(2.0))


def _mean_squared_shrinkage(query: SecondMomentMatrix, moments: NoisyMoments) -> float:
    """Return the mean squared factor by which the ball shrank rows, by the constant's share of it.

    A row shrunk by c has its residual shrunk by c too. Noise allowing, c^2 is the constant's second
    moment over the number of rows; it is combined with a prior guess of .85 +- .15.
    """
    if query.squared_norm_limit is None or query.intercept == 0.0:
        return 1.0
    square = (query.constant / query.grid) ** 2
    seen = float(moments.matrix[0, 0]) / (moments.records * square)
    error = math.hypot(moments.diagonal_sd / square, moments.records_sd) / moments.records
    precision: float = error**-2.0
    estimate = (seen * precision + 0.85 / 0.15**2) / (precision + 1.0 / 0.15**2)
    return min(max(estimate, 0.4), 1.0)
