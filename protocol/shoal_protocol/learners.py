"""What an analyst may ask to be learned: public parameters only, no data and no algorithm.

Bounds must come from general knowledge of the columns, never from the data: nothing here is
charged to the privacy budget. Values outside the bounds are cut to them by the client.
"""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from shoal_protocol.queries import Column

_LARGEST: Final = 1e30  # of a bound: products and squares of it are still floats
_NARROWEST: Final = 1e-9  # of a range, relative to its bounds: a float tells 1e6 places in it apart

_Bound = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST, allow_inf_nan=False)]


class ColumnBounds(BaseModel):
    """A column's name and the public range that its values are assumed to lie in."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(min_length=1, max_length=64)]
    lower: _Bound
    upper: _Bound

    @model_validator(mode="after")
    def _usable(self) -> "ColumnBounds":
        if not self.lower < self.upper:
            raise ValueError("the lower bound of a column must be below its upper bound")
        largest = max(abs(self.lower), abs(self.upper))
        if self.upper - self.lower < max(_NARROWEST * largest, 1.0 / _LARGEST):
            raise ValueError("the bounds of a column are too close to be told apart")
        self.column()  # the same rules for names
        return self

    @property
    def centre(self) -> float:
        """The middle of the range."""
        return self.lower / 2.0 + self.upper / 2.0

    @property
    def half_range(self) -> float:
        """Half the width of the range."""
        return self.upper / 2.0 - self.lower / 2.0

    def column(self) -> Column:
        """Return the column of a query that takes the range to [-1, 1]."""
        return Column(name=self.name, centre=self.centre, scale=self.half_range)


class LinearRegressionTask(BaseModel):
    """Bayesian linear regression of `target` on `features` and a constant.

    Columns are normalised: centred at the middle of their bounds, divided by half the range.
    `projection` spends a fifth of mu^2 on a first round that measures the columns' spread, so that
    the second round's noise fits the data instead of the bounds (Algorithm 2 of Heikkilä et al.
    2017, corrected). `radius` bounds the norm of a normalised row, `intercept` is the constant
    coordinate in that row (0: no constant term); None lets the learner choose by a public rule.
    `prior_sd` is the prior standard deviation of a coefficient in normalised units, or, with
    projection, in units of the measured spreads; the constant term's is twice that.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["linear_regression"] = "linear_regression"
    features: Annotated[tuple[ColumnBounds, ...], Field(min_length=1, max_length=510)]
    target: ColumnBounds
    projection: bool
    radius: Annotated[float, Field(gt=0.0, le=1e6, allow_inf_nan=False)] | None = None
    intercept: Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)] = 0.3
    prior_sd: Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)] = 0.5
    grid_bits: Annotated[int, Field(ge=10, le=15, strict=True)] = 12
    records_per_client: Annotated[int, Field(ge=1, le=1000, strict=True)] = 1

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
        if self.radius is not None and self.radius < 2.0**-self.grid_bits:
            raise ValueError("the radius is finer than the grid: raise grid_bits or the radius")
        return self

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The features in order, then the target: the columns of a client's records."""
        return (*self.features, self.target)

    def query_names(self) -> tuple[str, ...]:
        """Return the names of the queries that the task's rounds ask, in order."""
        matrix = "second_moment_matrix"
        return ("second_moments", matrix) if self.projection else (matrix,)


Task = LinearRegressionTask
"""Every task that a job may name; more members make this a union discriminated by `name`."""
