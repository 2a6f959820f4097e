"""Linear regression as a task: public parameters only, no data and no algorithm."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from shoal_protocol.queries import QueryName
from shoal_protocol.tasks.bounds import ColumnBounds


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

    @property
    def rounds(self) -> int:
        """How many rounds the job has."""
        return 2 if self.projection else 1

    @property
    def batch(self) -> int | None:
        """How many clients a round asks; None for all that joined."""
        return None

    @property
    def posterior_names(self) -> tuple[str, ...]:
        """The kinds of posterior that the job may end with."""
        return ("linear_regression",)

    def participations(self, population: int) -> int:
        """Return how many rounds one client of so many may be asked in, at most."""
        return self.rounds

    def query_name(self, number: int) -> QueryName:
        """Return the name of the query that round `number` asks."""
        return "second_moments" if self.projection and number == 0 else "second_moment_matrix"

    def query_names(self) -> tuple[QueryName, ...]:
        """Return the names of all queries that the rounds ask."""
        return tuple(self.query_name(number) for number in range(self.rounds))
