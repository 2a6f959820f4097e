"""Studies by variational inference: logistic regression, and an analyst's own NumPyro model.

Rounds ask mini-batches for gradients. The approximation is a normal distribution in the model's
unconstrained space. Each round asks `batch` clients for the sum of their clipped gradients. Tasks
and posteriors need no NumPyro.
"""

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from statistics import NormalDist
from typing import Annotated, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import AfterValidator, Field, model_validator

from shoal_protocol.jobs.job_request import RoundTerms
from shoal_protocol.posteriors.base import (
    BasePosterior,
    Prior,
    RegressionPosterior,
    expected_probabilities,
    logistic_log_density,
    normal_intervals,
    normal_quantiles,
)
from shoal_protocol.posteriors.variational import VariationalPosterior
from shoal_protocol.queries import Column, GradientSum, QueryName
from shoal_protocol.queries.columns import ColumnBounds, distinct
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.models import (
    GradientModel,
    InstalledModel,
    LogisticRegressionModel,
    probability,
)
from shoal_protocol.queries.models.numpyro_models import Latent
from shoal_protocol.studies.study import Study, require_features, round_terms
from shoal_protocol.trust.dictionary import Coding, codings_of_target
from shoal_protocol.trust.policy import LARGEST_POPULATION
from shoal_protocol.wire.encoding import Digest

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

    def query_names(self) -> tuple[QueryName, ...]:
        """Return the name of the query that all rounds ask."""
        return ("gradient_sum",)

    def kinds_of_rounds(self, *, least: int, most: int) -> tuple[RoundTerms, ...]:
        """Return the terms of all rounds, which differ in the point alone."""
        dimension = self.model.dimension(len(self.columns))
        return (round_terms(self.gradient_query([0.0] * dimension), rounds=self.rounds),)


class LogisticRegressionPosterior(RegressionPosterior, VariationalPosterior):
    """Coefficients of a logistic regression, in the data's own units: see VariationalPosterior.

    `names` are "intercept", then the features.

    In normalised units u_j = (x_j - centre_j) / scale_j the predictor is `intercept` b_0 +
    sum b_j u_j. `location` and `scale` are those of b, which is normal. Without a constant term
    `intercept` is 0 and there is no b_0.
    """

    name: Literal["logistic_regression"] = "logistic_regression"
    feature_columns: Annotated[tuple[Column, ...], Field(min_length=1)]
    intercept: Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]

    @model_validator(mode="after")
    def _one_for_each_coefficient(self) -> Self:
        if len(self.location) != len(self.feature_columns) + (self.intercept > 0.0):
            raise ValueError("location must have one number for each coefficient")
        if self.names != ("intercept", *(column.name for column in self.feature_columns)):
            raise ValueError("names must be the intercept and the features, in order")
        return self

    @property
    def mean(self) -> Floats:
        return np.asarray(self._to_data_units @ np.array(self.location))

    @property
    def covariance_matrix(self) -> Floats:
        """Posterior covariance of the coefficients, shape (k, k)."""
        root = self.root_of(self._to_data_units)
        return np.asarray(root @ root.T)

    @property
    def sd(self) -> Floats:
        return np.sqrt(np.diagonal(self.covariance_matrix))

    def _quantiles(self, low: float, high: float) -> Floats:
        return normal_quantiles(self.mean, self.sd, high)

    @property
    def prior(self) -> Prior | None:
        if self.prior_sd is None:
            return None
        sd = np.linalg.norm(self._to_data_units * np.array(self.prior_sd), axis=1)
        return Prior(np.zeros(len(sd)), sd)

    def sample(self, count: int, generator: np.random.Generator) -> Floats:  # noqa: TID251
        standard: Floats = generator.standard_normal((count, len(self.location)))
        return np.asarray(self.unconstrained_from(standard) @ self._to_data_units.T)

    @property
    def _to_data_units(self) -> Floats:
        """The linear map, shape (k, d), from normalised coefficients to those of the data."""
        centres = np.array([column.centre for column in self.feature_columns])
        slopes = 1.0 / np.array([column.scale for column in self.feature_columns])
        matrix: Floats = np.vstack([-centres * slopes, np.diag(slopes)])
        if self.intercept == 0.0:
            return matrix
        first = np.zeros(len(matrix))
        first[0] = self.intercept
        return np.column_stack([first, matrix])

    def _design(self, rows: Floats) -> Floats:
        """Values are cut to the features' bounds, as they were when it was learned."""
        centres = np.array([column.centre for column in self.feature_columns])
        scales = np.array([column.scale for column in self.feature_columns])
        return super()._design(np.clip(rows, centres - scales, centres + scales))

    def _predictor(self, rows: Floats) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the linear predictor, shapes (n,), for `rows`.

        Values are cut to the features' bounds, as they were when it was learned.
        """
        rows = self._checked_rows(rows)
        centres = np.array([column.centre for column in self.feature_columns])
        scales = np.array([column.scale for column in self.feature_columns])
        design = np.clip((rows - centres) / scales, -1.0, 1.0)
        if self.intercept > 0.0:
            design = np.column_stack([np.full(len(design), self.intercept), design])
        return design @ np.array(self.location), np.linalg.norm(self.root_of(design), axis=1)

    def predict(self, rows: Floats) -> tuple[Floats, Floats]:
        """Return the probability that the target is at its upper bound, and its posterior sd.

        Shapes (n,), for `rows`, shape (n, m); means over the posterior by Gauss and Hermite's rule.

        Raises:
            ValueError: `rows` does not have one column per feature.
        """
        return expected_probabilities(*self._predictor(rows))

    def predict_interval(self, rows: Floats, level: float) -> Floats:
        """Return intervals that hold `level` of the posterior of that probability, shape (n, 2).

        Raises:
            ValueError: as `predict`; or `level` is not strictly between 0 and 1.
        """
        return probability(normal_intervals(*self._predictor(rows), level))

    def _log_densities(self, targets: Floats, predictors: Floats) -> Floats:
        return logistic_log_density(targets, predictors)


class LogisticRegressionTask(VariationalStudy):
    """Bayesian logistic regression: the target is at its upper bound (1) or its lower one (0).

    Columns are normalised: centred at the middle of their bounds, divided by half the range.
    `intercept` is the constant coordinate in a row (0: no constant term). Coefficients are normal
    with mean 0 and standard deviation `prior_sd`, in these units; what the constant term adds to
    the linear predictor has twice that.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (LogisticRegressionPosterior,)
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


_POINTS: Final = 4096
_MEASURED: Final = (
    "how often such intervals hold was measured on a line with an unknown scale, 86 % to 97 % of "
    "those at 90 %: simulate the job to see how your model does"
)


class NumpyroPosterior(VariationalPosterior):
    """Posterior of a NumPyro model's latents: see VariationalPosterior.

    `latents` say how unconstrained numbers become latents, in order; `names`, mean, sd, intervals
    and draws are of the latents themselves, with one entry for each of their numbers. They are
    computed on 4,096 points that fill the distribution evenly, good to about two digits.
    """

    variable = "latents"
    dimension = "latent"

    name: Literal["numpyro_model"] = "numpyro_model"
    entry_point: str
    digest: Digest
    columns: Annotated[tuple[str, ...], Field(min_length=1)]  # of a record
    latents: Annotated[tuple[Latent, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _one_for_each_number(self) -> Self:
        if len(self.location) != sum(latent.unconstrained for latent in self.latents):
            raise ValueError("location must have one number for each unconstrained number")
        if self.names != names_of(self.latents):
            raise ValueError("names must be those of the latents' numbers, in order")
        return self

    @property
    def caution(self) -> str:
        if self.convergence is None:
            return super().caution
        return f"{super().caution}; {_MEASURED}"

    @property
    def mean(self) -> Floats:
        return np.asarray(self._points.mean(axis=0))

    @property
    def sd(self) -> Floats:
        return np.asarray(self._points.std(axis=0))

    def _quantiles(self, low: float, high: float) -> Floats:
        ends: Floats = np.quantile(self._points, [low, high], axis=0)
        return ends.T

    def sample(self, count: int, generator: np.random.Generator) -> Floats:  # noqa: TID251
        return self._constrained(generator.standard_normal((count, len(self.location))))

    def predict(self, rows: Floats) -> tuple[Floats, Floats]:
        """Refuse: what a record would look like only the model says, which is not in here.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "predictions need the model: draw latents with sample() and hand them to it"
        )

    @cached_property
    def _points(self) -> Floats:
        """Latents at points of a lattice that fills the unit cube, taken to the normal."""
        size = len(self.location)
        root = 2.0
        for _ in range(60):  # of x^(size + 1) = x + 1: Roberts's generalised golden ratio
            root = (1.0 + root) ** (1.0 / (size + 1))
        steps = root ** -np.arange(1.0, size + 1.0)
        places = (0.5 + np.arange(1, _POINTS + 1)[:, None] * steps) % 1.0
        ranks = np.argsort(np.argsort(places, axis=0), axis=0)  # each margin exactly even
        quantiles = [NormalDist().inv_cdf((rank + 0.5) / _POINTS) for rank in range(_POINTS)]
        return self._constrained(np.array(quantiles)[ranks])

    def _constrained(self, standard: Floats) -> Floats:
        values = self.unconstrained_from(standard)
        parts, start = [], 0
        for latent in self.latents:
            end = start + latent.unconstrained
            parts.append(latent.constrain(values[:, start:end]))
            start = end
        return np.column_stack(parts)


class NumpyroTask(VariationalStudy):
    """Any NumPyro model of one record with global latents, installed at both ends.

    `entry_point` is its name in the group "shoal.models", `digest` that of the sources that hold
    it (`shoal model digest` shows it), `unconstrained` how many numbers its latents are in
    unconstrained space. The model gets the columns in the data's units, cut to their bounds, or
    with `normalised` taken to [-1, 1].
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (NumpyroPosterior,)
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


def names_of(latents: Sequence[Latent]) -> tuple[str, ...]:
    """Return the names of the latents' numbers, in order."""
    return tuple(label for latent in latents for label in latent.labels())
