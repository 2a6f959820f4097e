"""Exponential families as tasks: public parameters only, no data and no algorithm.

All of them are one round. Priors are conjugate, and in the units of the data; `records_per_client`
is how many records a client may hold at most, all of which privacy covers. How many there are, or
none, is seen through noise like everything else.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from shoal_protocol.queries import QueryName
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.queries.columns import ColumnName, FiniteFloat

_FARTHEST: Final = 1e6  # half ranges of a column: what a prior may be about

_Pseudocount = Annotated[float, Field(ge=1e-3, le=1e6, allow_inf_nan=False)]
_Positive = Annotated[float, Field(gt=0.0, le=1e30, allow_inf_nan=False)]
_Level = Annotated[float, Field(ge=-1e15, le=1e15, allow_inf_nan=False)]


class _OneRound(BaseModel):
    """What all families share. `name` is also what their posteriors are called."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    asks: ClassVar[QueryName]

    name: str
    records_per_client: Annotated[int, Field(ge=1, le=1000, strict=True)] = 1

    @property
    def rounds(self) -> int:
        """How many rounds the job has: one."""
        return 1

    @property
    def batch(self) -> int | None:
        """How many clients a round asks; None for all that joined."""
        return None

    @property
    def posterior_names(self) -> tuple[str, ...]:
        """The kinds of posterior that the job may end with."""
        return (self.name,)

    def participations(self, population: int) -> int:
        """Return how many rounds one client of so many may be asked in, at most."""
        return 1

    def query_name(self, number: int) -> QueryName:
        """Return the name of the query that the round asks."""
        return self.asks

    def query_names(self) -> tuple[QueryName, ...]:
        """Return the names of all queries that the rounds ask."""
        return (self.asks,)


class BernoulliTask(_OneRound):
    """The probability that `column` is `success`; whatever is anything else is a failure.

    Prior: Beta(prior_successes, prior_failures). `failure` is what the column is otherwise, for
    those who read the task.
    """

    asks: ClassVar[QueryName] = "counts"

    name: Literal["bernoulli"] = "bernoulli"
    column: ColumnName
    success: _Level = 1.0
    failure: _Level = 0.0
    prior_successes: _Pseudocount = 1.0
    prior_failures: _Pseudocount = 1.0

    @model_validator(mode="after")
    def _consistent(self) -> "BernoulliTask":
        if self.success == self.failure:
            raise ValueError("success and failure must be two values")
        self.columns[0].column()
        return self

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The one column of a client's records."""
        return (_spanning(self.column, (self.failure, self.success)),)


class CategoricalTask(_OneRound):
    """The probabilities of the public `levels` of `column`.

    Values that are no level make up a cell of their own, "other". Without `other` the analyst
    states that there are none: should there be, they are counted nowhere, and the posterior takes
    what is missing for noise. Prior: Dirichlet, `concentration` for each cell.
    """

    asks: ClassVar[QueryName] = "counts"

    name: Literal["categorical"] = "categorical"
    column: ColumnName
    levels: Annotated[tuple[_Level, ...], Field(min_length=2, max_length=255)]
    other: bool = True
    concentration: _Pseudocount = 1.0

    @model_validator(mode="after")
    def _consistent(self) -> "CategoricalTask":
        if len(set(self.levels)) != len(self.levels):
            raise ValueError("two levels are the same")
        self.columns[0].column()
        return self

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The one column of a client's records."""
        return (_spanning(self.column, self.levels),)


class PoissonTask(_OneRound):
    """The rate of counts that are cut to `upper`, which the posterior knows.

    Prior: gamma with shape `prior_shape` and rate `prior_rate`, its mean their quotient; None
    makes that mean half the bound. Noise grows with the bound, and beyond it nothing is told
    apart: about the largest count that is likely is a good choice.
    """

    asks: ClassVar[QueryName] = "first_moments"

    name: Literal["poisson"] = "poisson"
    column: ColumnName
    upper: Annotated[int, Field(ge=1, le=10_000, strict=True)]
    prior_shape: _Pseudocount = 1.0
    prior_rate: Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> "PoissonTask":
        self.columns[0].column()
        return self

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The one column of a client's records."""
        return (ColumnBounds(name=self.column, lower=0.0, upper=float(self.upper)),)


class NormalMeanTask(_OneRound):
    """The mean of normal records of known standard deviation `sd`, cut to the column's bounds.

    Prior: normal; None makes its mean the middle of the bounds, its standard deviation half their
    range. The posterior knows of the cut.
    """

    asks: ClassVar[QueryName] = "first_moments"

    name: Literal["normal_mean"] = "normal_mean"
    column: ColumnBounds
    sd: _Positive
    prior_mean: FiniteFloat | None = None
    prior_sd: _Positive | None = None

    @model_validator(mode="after")
    def _consistent(self) -> "NormalMeanTask":
        _require_near([self.column] * 2, [self.prior_mean] * 2, [self.sd, self.prior_sd])
        return self

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The one column of a client's records."""
        return (self.column,)


class _NormalScatter(_OneRound):
    """What is public of a normal family with unknown covariance, besides its columns.

    Prior: normal-inverse-Wishart. The mean is worth `prior_mean_records` records. A client holds
    one record at most. `intercept` weighs the sums against the
    squares: the noise on a column's sum is proportional to (q + k^2) / k, on the squares to
    q + k^2, for q columns and intercept k.
    """

    asks: ClassVar[QueryName] = "second_moment_matrix"

    records_per_client: Annotated[int, Field(ge=1, le=1, strict=True)] = 1
    prior_mean_records: _Pseudocount = 0.1
    intercept: Annotated[float, Field(ge=0.01, le=1.0, allow_inf_nan=False)] = 0.5
    grid_bits: Annotated[int, Field(ge=10, le=15, strict=True)] = 12


class NormalTask(_NormalScatter):
    """Mean and standard deviation of normal records in one column.

    Prior: normal-inverse-Wishart, here normal-inverse-gamma, around `prior_mean` (None: the middle
    of the bounds) and `prior_sd` (None: a third of half their range). The bounds' cut is not
    modelled: choose bounds that records hardly ever pass.
    """

    name: Literal["normal"] = "normal"
    column: ColumnBounds
    prior_mean: FiniteFloat | None = None
    prior_sd: _Positive | None = None
    prior_freedom: Annotated[float, Field(ge=1.0, le=1e6, allow_inf_nan=False)] = 3.0

    @model_validator(mode="after")
    def _consistent(self) -> "NormalTask":
        _require_near([self.column], [self.prior_mean], [self.prior_sd])
        return self

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The one column of a client's records."""
        return (self.column,)


class MultivariateNormalTask(_NormalScatter):
    """Mean and covariance of normal records in several columns.

    Prior: normal-inverse-Wishart around `prior_means` (None: the middles of the bounds) and
    uncorrelated columns of `prior_sds` (None: thirds of half the ranges); `prior_freedom` None
    makes it the number of columns plus two. The bounds' cut is not modelled: choose bounds that
    records hardly ever pass.
    """

    name: Literal["multivariate_normal"] = "multivariate_normal"
    variables: Annotated[tuple[ColumnBounds, ...], Field(min_length=2, max_length=12)]
    prior_means: tuple[FiniteFloat, ...] | None = None
    prior_sds: tuple[_Positive, ...] | None = None
    prior_freedom: Annotated[float, Field(ge=1.0, le=1e6, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> "MultivariateNormalTask":
        size = len(self.variables)
        if len({column.name for column in self.variables}) != size:
            raise ValueError("two columns have the same name")
        for prior in (self.prior_means, self.prior_sds):
            if prior is not None and len(prior) != size:
                raise ValueError("prior_means and prior_sds must have one number for each column")
        if self.prior_freedom is not None and self.prior_freedom <= size - 1:
            raise ValueError("prior_freedom must be above the number of columns less one")
        means, sds = (prior or [None] * size for prior in (self.prior_means, self.prior_sds))
        _require_near(self.variables, means, sds)
        return self

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The columns of a client's records, in order."""
        return self.variables


FamilyTask = (
    BernoulliTask
    | CategoricalTask
    | PoissonTask
    | NormalMeanTask
    | NormalTask
    | MultivariateNormalTask
)


def _spanning(name: str, levels: tuple[float, ...]) -> ColumnBounds:
    return ColumnBounds(name=name, lower=min(levels), upper=max(levels))


def _require_near(
    columns: Sequence[ColumnBounds],
    means: Sequence[float | None],
    sds: Sequence[float | None],
) -> None:
    """Refuse hyperparameters that a float cannot hold beside the columns' bounds."""
    for column, mean in zip(columns, means, strict=True):
        if mean is not None and abs(mean - column.centre) > _FARTHEST * column.half_range:
            raise ValueError("a prior mean is farther from the bounds than a million half ranges")
    for column, sd in zip(columns, sds, strict=True):
        if sd is not None and not 1.0 / _FARTHEST <= sd / column.half_range <= _FARTHEST:
            raise ValueError("a standard deviation is not within a million times of half a range")
