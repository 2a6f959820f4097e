"""Variational inference over mini-batch rounds as tasks: public parameters, no data, no algorithm.

The approximation is a normal distribution with independent coordinates, in the model's
unconstrained space. Each round asks `batch` clients for the sum of their clipped gradients.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from shoal_protocol.queries import QueryName
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.queries.models import (
    InstalledModel,
    LogisticRegressionModel,
    PoissonRegressionModel,
)
from shoal_protocol.wire.encoding import Digest

Rounds = Annotated[int, Field(ge=1, le=100_000, strict=True)]
Batch = Annotated[int, Field(ge=2, strict=True)]
Positive = Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)]
LearningRate = Annotated[float, Field(ge=1e-6, le=10.0, allow_inf_nan=False)]


class _VariationalTask(BaseModel):
    """What all have: how many rounds, of how many clients, and how gradients are bounded.

    `batch` is how many clients a round asks, None all that joined. `clip` bounds the l2 norm of one
    record's gradient: noise grows with it, and what is beyond it is shrunk. `learning_rate` is
    about how far a coordinate moves in a round.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rounds: Rounds
    batch: Batch | None
    clip: Positive
    learning_rate: LearningRate = 0.1
    grid_bits: Annotated[int, Field(ge=10, le=30, strict=True)] = 20
    records_per_client: Annotated[int, Field(ge=1, le=1000, strict=True)] = 1

    @model_validator(mode="after")
    def _fits_the_grid(self) -> "_VariationalTask":
        if not 1.0 <= self.clip * 2.0**self.grid_bits <= 2.0**30:
            raise ValueError("clip times 2^grid_bits must lie between 1 and 2^30: change grid_bits")
        return self

    def participations(self, population: int) -> int:
        """Return how many rounds one client of so many is asked in at most: ceil(T B / N)."""
        batch = population if self.batch is None else min(self.batch, population)
        return -(-self.rounds * batch // population)

    def query_name(self, number: int) -> QueryName:
        """Return the name of the query that round `number` asks."""
        return "gradient_sum"

    def query_names(self) -> tuple[QueryName, ...]:
        """Return the names of all queries that the rounds ask."""
        return ("gradient_sum",)


class _RegressionTask(_VariationalTask):
    """A regression of `target` on `features` and a constant, all public but the coefficients.

    Columns are normalised: centred at the middle of their bounds, divided by half the range.
    `intercept` is the constant coordinate in a row (0: no constant term). Coefficients are normal
    with mean 0 and standard deviation `prior_sd`, in these units; what the constant term adds to
    the linear predictor has twice that.
    """

    features: Annotated[tuple[ColumnBounds, ...], Field(min_length=1, max_length=510)]
    target: ColumnBounds
    intercept: Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)] = 0.3

    @model_validator(mode="after")
    def _consistent(self) -> "_RegressionTask":
        names = [feature.name for feature in self.features]
        if len(set(names)) != len(names):
            raise ValueError("two features have the same name")
        if self.target.name in names:
            raise ValueError("the target must not be one of the features")
        if "intercept" in names:
            raise ValueError("no feature may be called 'intercept': the constant term is")
        if 0.0 < self.intercept < 0.01:
            raise ValueError("the intercept must be 0.01 or more, or 0 for no constant term")
        return self

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The features in order, then the target: the columns of a client's records."""
        return (*self.features, self.target)


class LogisticRegressionTask(_RegressionTask):
    """Bayesian logistic regression: the target is at its upper bound (1) or its lower one (0)."""

    name: Literal["logistic_regression"] = "logistic_regression"
    clip: Positive = 1.0
    learning_rate: LearningRate = 0.2
    prior_sd: Positive = 3.0

    @property
    def model(self) -> LogisticRegressionModel:
        """The model whose gradients are asked for."""
        return LogisticRegressionModel(intercept=self.intercept)

    @property
    def posterior_names(self) -> tuple[str, ...]:
        """The kinds of posterior that the job may end with."""
        return ("logistic_regression",)


class PoissonRegressionTask(_RegressionTask):
    """Bayesian Poisson regression with logarithmic link: the target counts, from 0 to its bound."""

    name: Literal["poisson_regression"] = "poisson_regression"
    clip: Positive = 2.0
    prior_sd: Positive = 1.0

    @model_validator(mode="after")
    def _counts(self) -> "PoissonRegressionTask":
        if self.target.lower != 0.0:
            raise ValueError("a count's lower bound must be 0")
        return self

    @property
    def model(self) -> PoissonRegressionModel:
        """The model whose gradients are asked for."""
        return PoissonRegressionModel(intercept=self.intercept, largest_count=self.target.upper)

    @property
    def posterior_names(self) -> tuple[str, ...]:
        """The kinds of posterior that the job may end with."""
        return ("poisson_regression",)


class NumpyroTask(_VariationalTask):
    """Any NumPyro model of one record with global latents, installed at both ends.

    `entry_point` is its name in the group "shoal.models", `digest` that of the sources that hold
    it (`shoal model digest` shows it), `unconstrained` how many numbers its latents are in
    unconstrained space. The model gets the columns in the data's units, cut to their bounds, or
    with `normalised` taken to [-1, 1].
    """

    name: Literal["numpyro_model"] = "numpyro_model"
    entry_point: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    digest: Digest
    unconstrained: Annotated[int, Field(ge=1, le=10_000, strict=True)]
    columns: Annotated[tuple[ColumnBounds, ...], Field(min_length=1, max_length=511)]
    normalised: bool = False
    clip: Positive = 1.0

    @model_validator(mode="after")
    def _distinct(self) -> "NumpyroTask":
        if len({bounds.name for bounds in self.columns}) != len(self.columns):
            raise ValueError("two columns have the same name")
        return self

    @property
    def model(self) -> InstalledModel:
        """The model whose gradients are asked for."""
        return InstalledModel(
            entry_point=self.entry_point,
            digest=self.digest,
            unconstrained=self.unconstrained,
            normalised=self.normalised,
        )

    @property
    def posterior_names(self) -> tuple[str, ...]:
        """The kinds of posterior that the job may end with."""
        return ("numpyro_model",)


VariationalTask = LogisticRegressionTask | PoissonRegressionTask | NumpyroTask
