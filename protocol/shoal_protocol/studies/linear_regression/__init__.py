"""Linear regression of a target on features, with intervals that account for the noise."""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Final, Literal

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.jobs.terms import RoundTerms
from shoal_protocol.posteriors.base import BasePosterior, FloatMatrix, FloatVector
from shoal_protocol.posteriors.grounds import Grounded
from shoal_protocol.posteriors.intervals import normal_quantiles
from shoal_protocol.queries import Column, Query, QueryName
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.queries.quantisation import to_box, to_unit_length
from shoal_protocol.rounds.released_sum import ReleasedSum
from shoal_protocol.studies.linear_regression import round_rules
from shoal_protocol.studies.study import Study
from shoal_protocol.wire.numbers import Finite, PositiveSize


class LinearRegressionPosterior(Grounded):
    """Gaussian posterior of a linear regression's coefficients, in the data's own units.

    `names` are "intercept", then the features. The covariance accounts for the records' scatter
    and for the privacy noise alike. `records` is how many records went into it. With `unit_rows`,
    one column per feature, the coefficients are those of rows that were centred and scaled by these
    columns, cut to [-1, 1] and divided by their norm; `predict` does the same.
    """

    name: Literal["linear_regression"] = "linear_regression"
    coefficients: tuple[Finite, ...]
    covariance: tuple[tuple[Finite, ...], ...]
    residual_sd: PositiveSize
    unit_rows: tuple[Column, ...] | None = None

    @model_validator(mode="after")
    def _shapes_agree(self) -> "LinearRegressionPosterior":
        size = len(self.names)
        if len(self.coefficients) != size or [len(row) for row in self.covariance] != [size] * size:
            raise ValueError("names, coefficients and covariance must have the same size")
        columns = self.unit_rows
        if columns is not None and tuple(column.name for column in columns) != self.features:
            raise ValueError("unit rows need one column per feature, in order")
        return self

    @property
    def mean(self) -> FloatVector:
        return np.array(self.coefficients)

    @property
    def covariance_matrix(self) -> FloatMatrix:
        """Posterior covariance of the coefficients, shape (k, k)."""
        return np.array(self.covariance)

    @property
    def sd(self) -> FloatVector:
        return np.sqrt(np.diagonal(self.covariance_matrix))

    @property
    def _record_sd(self) -> float:
        return self.residual_sd

    def _quantiles(self, low: float, high: float) -> FloatMatrix:
        return normal_quantiles(self.mean, self.sd, high)

    def _scaled(self, rows: FloatMatrix) -> FloatMatrix:
        if self.unit_rows is None:
            return rows
        centres = np.array([column.centre for column in self.unit_rows])
        scales = np.array([column.scale for column in self.unit_rows])
        return to_unit_length(to_box(rows, centres, scales))

    def _attributes(self) -> Mapping[str, str | int | float]:
        return {**super()._attributes(), "residual_sd": self.residual_sd}

    def sample(self, count: int, generator: np.random.Generator) -> FloatMatrix:  # noqa: TID251
        """Return `count` draws of the coefficients, shape (count, k): no privacy depends on them.

        The square root of the covariance is its symmetric one, so a singular matrix is fine.
        """
        values, vectors = np.linalg.eigh(self.covariance_matrix)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        standard: FloatMatrix = generator.standard_normal((count, len(self.names)))
        draws: FloatMatrix = self.mean + standard @ root.T
        return draws


__all__ = [
    "Centring",
    "LinearRegressionPosterior",
    "LinearRegressionTask",
    "RegressionMethod",
]

RegressionMethod = Literal["plain", "norm_ball", "box_projection", "ball_projection", "unit_rows"]
Centring = Literal["bounds", "private"]

_ROUNDS: Final[dict[RegressionMethod, tuple[QueryName, ...]]] = {
    "plain": ("second_moment_matrix",),
    "norm_ball": ("norm_counts", "second_moment_matrix"),
    "box_projection": ("second_moments", "second_moment_matrix"),
    "ball_projection": ("second_moments", "second_moment_matrix"),
    "unit_rows": ("unit_row_matrix",),
}


class LinearRegressionTask(Study):
    """Bayesian linear regression of `target` on `features` and a constant.

    Columns are normalised: centred, and divided by half the range of their bounds. With `centring`
    "bounds" the centres are the middles of the bounds, with "private" a first round measures the
    columns' means. `method` says what keeps rows short, so that noise may be small:

    - "plain": a ball of `radius`, or by a public rule that takes the bounds to fit the data.
    - "norm_ball": a ball that leaves three quarters of the rows as they are, or more with more
      clients; a round counts rows by their norm.
    - "box_projection", "ball_projection": a round measures the columns' spreads; columns are cut
      to multiples of them, and for the latter rows are shrunk into a ball too. Multiples and ball
      are chosen on auxiliary data (Algorithm 2 of Heikkilä et al. 2017, corrected).
    - "unit_rows": each record's features are divided by their norm. This is another model: what
      counts are the features' proportions.

    Rounds before the last are paid for from the same budget. `intercept` is the constant coordinate
    in a row (0: no constant term). `prior_sd` is the prior standard deviation of a coefficient in
    normalised units, or, with a projection, in units of the measured spreads; the constant term's
    is twice that.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (LinearRegressionPosterior,)
    example: ClassVar[str] = """\
[task]
name = "linear_regression"
method = "norm_ball"           # or plain, box_projection, ball_projection, unit_rows

[features]                     # public bounds, from general knowledge, never from the data
age = [18, 100]
body_mass_index = [10, 60]

[target]
systolic_pressure = [60, 220]

"""

    name: Literal["linear_regression"] = "linear_regression"
    features: Annotated[tuple[ColumnBounds, ...], Field(min_length=1, max_length=510)]
    target: ColumnBounds
    method: RegressionMethod = "norm_ball"
    centring: Centring = "bounds"
    radius: Annotated[float, Field(gt=0.0, le=1e6, allow_inf_nan=False)] | None = None
    intercept: Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)] = 0.3
    prior_sd: Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)] = 0.5
    grid_bits: Annotated[int, Field(ge=10, le=15, strict=True)] = 12

    @model_validator(mode="after")
    def _consistent(self) -> "LinearRegressionTask":
        names = [feature.name for feature in self.features]
        if len(set(names)) != len(names):
            raise ValueError("two features have the same name")
        if self.target.name in names:
            raise ValueError("the target must not be one of the features")
        if "intercept" in names:
            raise ValueError("no feature may be called 'intercept': the constant term is")
        if 0.0 < self.intercept < 2.0**-self.grid_bits:
            raise ValueError("the intercept is finer than the grid: raise grid_bits or set it to 0")
        if self.radius is not None and self.method in ("norm_ball", "unit_rows"):
            raise ValueError("this method has a radius of its own: leave radius out")
        if self.radius is not None and self.radius < 2.0**-self.grid_bits:
            raise ValueError("the radius is finer than the grid: raise grid_bits or the radius")
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

    @property
    def rounds(self) -> int:
        """How many rounds the job has."""
        return len(self.query_names())

    @property
    def batch(self) -> int | None:
        """How many clients a round asks; None for all that joined."""
        return None

    def participations(self, population: int) -> int:
        return self.rounds

    def query_name(self, number: int) -> QueryName:
        return self.query_names()[number]

    def query_names(self) -> tuple[QueryName, ...]:
        centring: tuple[QueryName, ...] = ("first_moments",) if self.centring == "private" else ()
        return centring + _ROUNDS[self.method]

    def kinds_of_rounds(self, *, least: int, most: int) -> tuple[RoundTerms, ...]:
        return round_rules.kinds_of_rounds(self, least=least, most=most)

    def check_query(
        self, query: Query, *, number: int, population: int, earlier: Sequence[ReleasedSum]
    ) -> None:
        round_rules.check_query(query, self, number=number, population=population, earlier=earlier)
