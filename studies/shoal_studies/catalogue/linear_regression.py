"""Linear regression of a target on features, with intervals that account for the noise."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from shoal_protocol.jobs.job_request import AS_STATED, Range, RoundTerms
from shoal_protocol.queries import (
    Query,
    QueryName,
    SecondMomentMatrix,
    SecondMoments,
)
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.queries.design import Floats
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.wire.encoding import PositiveSize
from shoal_studies.catalogue.measurements import (
    SMALLEST_SPREAD,
    measured_spreads,
)
from shoal_studies.catalogue.study import FixedStudy, require_features, round_terms
from shoal_studies.posteriors.base import (
    BasePosterior,
    RegressionPosterior,
    normal_intervals,
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
        require_features(self.features, self.target)
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
