"""Studies by variational inference: logistic regression, and an analyst's own NumPyro model.

Rounds ask mini-batches for gradients. The approximation is a normal distribution in the model's
unconstrained space. Each round asks `batch` clients for the sum of their clipped gradients. Tasks
and posteriors need no NumPyro.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator

from shoal_protocol.jobs.job_request import RoundTerms
from shoal_protocol.queries import GradientSum
from shoal_protocol.queries.columns import ColumnBounds, distinct
from shoal_protocol.queries.models import GradientModel, InstalledModel, LogisticRegressionModel
from shoal_protocol.trust.dictionary import Coding, codings_of_target
from shoal_protocol.trust.policy import LARGEST_POPULATION
from shoal_protocol.wire.encoding import Digest
from shoal_studies.catalogue.study import Study, require_features, round_terms
from shoal_studies.posteriors.base import BasePosterior
from shoal_studies.posteriors.variational import VariationalPosterior

Rounds = Annotated[int, Field(ge=1, le=100_000, strict=True)]
Batch = Annotated[int, Field(ge=2, le=LARGEST_POPULATION, strict=True)]
Positive = Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)]
LearningRate = Annotated[float, Field(ge=1e-6, le=10.0, allow_inf_nan=False)]


class VariationalStudy(Study):
    """How many rounds a study has, of how many clients, and how gradients are bounded.

    `batch` is how many clients a round asks, None all that joined. `clip` bounds the l2 norm of one
    record's gradient: noise grows with it, and what is beyond it is shrunk. `learning_rate` is
    about how far a coordinate moves in a round.
    """

    rounds: Rounds
    batch: Batch | None
    clip: Positive
    learning_rate: LearningRate = 0.1
    grid_bits: Annotated[int, Field(ge=10, le=30, strict=True)] = 20

    @model_validator(mode="after")
    def _fits_the_grid(self) -> "VariationalStudy":
        if not 1.0 <= self.clip * 2.0**self.grid_bits <= 2.0**30:
            raise ValueError("clip times 2^grid_bits must lie between 1 and 2^30: change grid_bits")
        return self

    def participations(self, population: int) -> int:
        """Return how many rounds one client of so many is asked in at most: ceil(T B / N)."""
        batch = population if self.batch is None else min(self.batch, population)
        return -(-self.rounds * batch // population)

    @property
    @abstractmethod
    def model(self) -> GradientModel:
        """The model whose gradients are asked for."""

    def gradient_query(self, point: Sequence[float]) -> GradientSum:
        """Return the query of a round that takes gradients at `point`.

        The point is the trainer's to choose: whatever it is, each gradient is clipped, so a client
        loses no more than the round costs, and a bad point only makes a bad posterior.

        Raises:
            ValueError: the point does not have one coordinate for each latent, or is too far out.
        """
        return GradientSum(
            model=self.model,
            columns=tuple(bounds.column() for bounds in self.columns),
            point=tuple(point),
            clip=self.clip,
            grid_bits=self.grid_bits,
            records_per_client=self.records_per_client,
        )

    def kinds_of_rounds(self, *, least: int, most: int) -> tuple[RoundTerms, ...]:
        """Return the terms of all rounds, which differ in the point alone."""
        dimension = self.model.dimension(len(self.columns))
        return (round_terms(self.gradient_query([0.0] * dimension), rounds=self.rounds),)


class LogisticRegressionTask(VariationalStudy):
    """Bayesian logistic regression: the target is at its upper bound (1) or its lower one (0).

    It shows the algorithm of section 3.2 of Heikkilä et al. 2017 without NumPyro; a `regression`
    tells more. Columns are normalised: centred at the middle of their bounds, divided by half the
    range, and so are the coefficients: the latents are "intercept" and the features' names.
    `intercept` is the constant coordinate in a row (0: no constant term). Coefficients are normal
    with mean 0 and standard deviation `prior_sd`, in these units; what the constant term adds to
    the linear predictor has twice that.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (VariationalPosterior,)
    example: ClassVar[str] = """\
[task]
name = "logistic_regression"
rounds = 100
batch = 400                    # clients asked in a round: more than dropouts + colluders + 1

[features]                     # public bounds, from general knowledge, never from the data
age = [18, 100]
body_mass_index = [10, 60]

[target]                       # yes is whatever lies above the middle
smoker = [0, 1]
"""

    name: Literal["logistic_regression"] = "logistic_regression"
    features: Annotated[tuple[ColumnBounds, ...], Field(min_length=1, max_length=510)]
    target: ColumnBounds
    intercept: Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)] = 0.3
    clip: Positive = 1.0
    learning_rate: LearningRate = 0.2
    prior_sd: Positive = 3.0

    @model_validator(mode="after")
    def _consistent(self) -> "LogisticRegressionTask":
        require_features(self.features, self.target)
        if 0.0 < self.intercept < 0.01:
            raise ValueError("the intercept must be 0.01 or more, or 0 for no constant term")
        return self

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The features in order, then the target: the columns of a client's records."""
        return (*self.features, self.target)

    @property
    def codings(self) -> tuple[Coding, ...]:
        return (*super().codings, *codings_of_target("logistic", self.target))

    @property
    def model(self) -> LogisticRegressionModel:
        """The model whose gradients are asked for."""
        return LogisticRegressionModel(intercept=self.intercept)


class NumpyroTask(VariationalStudy):
    """Any NumPyro model of one record with global latents, installed at both ends.

    `entry_point` is its name in the group "shoal.models", `digest` that of the sources that hold
    it (`shoal model digest` shows it), `unconstrained` how many numbers its latents are in
    unconstrained space. The model gets the columns in the data's units, cut to their bounds, or
    with `normalised` taken to [-1, 1].
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (VariationalPosterior,)
    example: ClassVar[str] = """\
[task]
name = "numpyro_model"
entry_point = "blood-pressure" # of a package that trainer and data holders have installed
digest = "%s"
unconstrained = 3              # numbers that the model's latents are
rounds = 100
batch = 400                    # clients asked in a round: more than dropouts + colluders + 1

[columns]                      # public bounds, from general knowledge, never from the data
age = [18, 100]
systolic_pressure = [60, 220]
""" % ("0" * 64)

    name: Literal["numpyro_model"] = "numpyro_model"
    entry_point: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    digest: Digest
    unconstrained: Annotated[int, Field(ge=1, le=10_000, strict=True)]
    columns: Annotated[
        tuple[ColumnBounds, ...], Field(min_length=1, max_length=511), AfterValidator(distinct)
    ]
    normalised: bool = False
    clip: Positive = 1.0

    @property
    def model(self) -> InstalledModel:
        """The model whose gradients are asked for."""
        return InstalledModel(
            entry_point=self.entry_point,
            digest=self.digest,
            unconstrained=self.unconstrained,
            normalised=self.normalised,
        )
