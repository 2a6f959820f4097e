"""A proportion, a rate, a mean, or plain sums and means of columns, from one noisy sum."""

import math
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.queries import Counts, FirstMoments, VectorSum
from shoal_protocol.queries.columns import ColumnBounds, ColumnName
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.moments import LONGEST_VECTOR
from shoal_protocol.trust.dictionary import Coding
from shoal_protocol.wire.encoding import Base64, Finite, Positive, PositiveSize, Radius, Real
from shoal_studies.catalogue.study import (
    COUNT_BITS,
    SUM_BITS,
    Concentration,
    OneRoundStudy,
    Pseudocount,
    require_near,
    spanning,
)
from shoal_studies.posteriors.base import LEVEL, BasePosterior, require_level
from shoal_studies.posteriors.forms import TabulatedPosterior, decoded_numbers, scored_quantiles


class BernoulliPosterior(TabulatedPosterior):
    """Of the probability that a record of `column` is a success."""

    name: Literal["bernoulli"] = "bernoulli"
    names: tuple[str, ...] = ("probability",)


class BernoulliTask(OneRoundStudy):
    """The probability that `column` is `success`; whatever is anything else is a failure.

    Prior: Beta(prior_successes, prior_failures). `failure` is what the column is otherwise, for
    those who read the task.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (BernoulliPosterior,)
    example: ClassVar[str] = """\
[task]
name = "bernoulli"
column = "smoker"
success = 1                    # whatever else the column holds is a failure
failure = 0
"""

    name: Literal["bernoulli"] = "bernoulli"
    column: ColumnName
    success: Real = 1.0
    failure: Real = 0.0
    prior_successes: Concentration = 1.0
    prior_failures: Concentration = 1.0

    @model_validator(mode="after")
    def _consistent(self) -> "BernoulliTask":
        if self.success == self.failure:
            raise ValueError("success and failure must be two values")
        self.columns[0].column()
        return self

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The one column of a client's records."""
        return (spanning(self.column, (self.failure, self.success)),)

    @property
    def codings(self) -> tuple[Coding, ...]:
        return (Coding(self.column, "outcome", (self.failure, self.success)),)

    def query(self) -> Counts:
        """Return the query of the only round."""
        return Counts(
            columns=self._query_columns(),
            levels=(self.success,),
            other=True,
            grid_bits=COUNT_BITS,
            records_per_client=self.records_per_client,
        )


class _SumStudy(OneRoundStudy):
    """A study of the sum of one column."""

    def query(self) -> FirstMoments:
        """Return the query of the only round."""
        return FirstMoments(
            columns=self._query_columns(),
            intercept=0.0,
            radius=None,
            grid_bits=SUM_BITS,
            records_per_client=self.records_per_client,
        )


class PoissonPosterior(TabulatedPosterior):
    """Of the rate of a Poisson distribution."""

    name: Literal["poisson"] = "poisson"
    names: tuple[str, ...] = ("rate",)


class PoissonTask(_SumStudy):
    """The rate of counts that are cut to `upper`, which the posterior knows.

    Prior: gamma with shape `prior_shape` and rate `prior_rate`, its mean their quotient; None
    makes that mean half the bound. Noise grows with the bound, and beyond it nothing is told
    apart: about the largest count that is likely is a good choice.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (PoissonPosterior,)
    example: ClassVar[str] = """\
[task]
name = "poisson"
column = "visits"
upper = 20                     # counts are cut to it, and noise grows with it
"""

    name: Literal["poisson"] = "poisson"
    column: ColumnName
    upper: Annotated[int, Field(ge=1, le=10_000, strict=True)]
    prior_shape: Pseudocount = 1.0
    prior_rate: Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)] | None = None

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The one column of a client's records."""
        return (ColumnBounds(name=self.column, lower=0.0, upper=float(self.upper)),)

    @property
    def codings(self) -> tuple[Coding, ...]:
        return (Coding(self.column, "count"),)


class NormalMeanPosterior(TabulatedPosterior):
    """Of the mean of normal records of known standard deviation."""

    name: Literal["normal_mean"] = "normal_mean"
    names: tuple[str, ...] = ("mean",)
    known_sd: Positive

    def predict(self) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of a new record, not cut, shapes (1,)."""
        return self.mean, np.array([math.hypot(self.known_sd, self.deviation)])


class NormalMeanTask(_SumStudy):
    """The mean of normal records of known standard deviation `sd`, cut to the column's bounds.

    Prior: normal; None makes its mean the middle of the bounds, its standard deviation half their
    range. The posterior knows of the cut.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (NormalMeanPosterior,)
    example: ClassVar[str] = """\
[task]
name = "normal_mean"
sd = 15                        # known, from general knowledge

[column]                       # public bounds, from general knowledge, never from the data
systolic_pressure = [60, 220]
"""

    name: Literal["normal_mean"] = "normal_mean"
    column: ColumnBounds
    sd: Positive
    prior_mean: Real | None = None
    prior_sd: Positive | None = None

    @model_validator(mode="after")
    def _consistent(self) -> "NormalMeanTask":
        require_near([self.column] * 2, [self.prior_mean] * 2, [self.sd, self.prior_sd])
        return self

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The one column of a client's records."""
        return (self.column,)


class VectorSumPosterior(BasePosterior):
    """Of means of the cohort's own records, cut to bounds and ball; noise alone makes it wide.

    `total` has the sums. `sums` are the columns' doubles in half ranges about the bounds' middles,
    each with noise of standard deviation `noise_sd`, whose `quantiles` are in units of that, at
    `QUANTILE_LEVELS`. `record_count` is how many records the noisy count says, give or take
    `record_count_sd`.
    """

    variable = "means"
    dimension = "column"

    name: Literal["vector_sum"] = "vector_sum"
    bounds: Annotated[tuple[ColumnBounds, ...], Field(min_length=1, max_length=512)]
    sums: Base64
    noise_sd: PositiveSize
    quantiles: Annotated[tuple[Finite, ...], Field(min_length=161, max_length=161)]
    record_count: PositiveSize
    record_count_sd: PositiveSize

    @model_validator(mode="after")
    def _shapes_agree(self) -> Self:
        if len(self._sums) != len(self.names) or len(self.bounds) not in (1, len(self.names)):
            raise ValueError("there must be a sum for each name, and bounds for each or for all")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, as the task has them: one of a vector."""
        return tuple(each.name for each in self.bounds)

    @property
    def mean(self) -> Floats:
        return self._middles + self._half_ranges * self._sums / self.record_count

    @property
    def sd(self) -> Floats:
        share = self._sums / self.record_count * self.record_count_sd
        return np.asarray(self._half_ranges * np.hypot(self.noise_sd, share) / self.record_count)

    @property
    def total(self) -> Floats:
        """The sums of the records' columns, shape (k,)."""
        return self.record_count * self._middles + self._half_ranges * self._sums

    @property
    def total_sd(self) -> Floats:
        """Posterior standard deviations of `total`, shape (k,)."""
        counted = self._middles * self.record_count_sd
        return np.asarray(np.hypot(self._half_ranges * self.noise_sd, counted))

    def total_interval(self, level: float = LEVEL) -> Floats:
        """Return central intervals that hold `level` of each of `total`, shape (k, 2).

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        require_level(level)
        return self.total[:, None] + self.total_sd[:, None] * scored_quantiles(
            self.quantiles, 0.5 + level / 2.0
        )

    def _quantiles(self, low: float, high: float) -> Floats:
        return self.mean[:, None] + self.sd[:, None] * scored_quantiles(self.quantiles, high)

    def sample(self, count: int, generator: np.random.Generator) -> Floats:
        levels = np.linspace(-5.0, 5.0, len(self.quantiles))
        scores = generator.standard_normal((count, len(self.names)))
        return self.mean + self.sd * np.interp(scores, levels, self.quantiles)

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """What else a summary says, each with its name."""
        return (("Sums", "`total`, with `total_sd` and `total_interval`"),)

    @property
    def caution(self) -> str | None:
        """A warning to read before the posterior is used; None if there is none."""
        if self.record_count_sd > self.record_count / 10.0:
            return "noise hides how many records there are, so means' intervals may not hold"
        return None

    @property
    def _sums(self) -> Floats:
        return decoded_numbers(self.sums)

    @property
    def _middles(self) -> Floats:
        return np.resize([each.centre for each in self.bounds], len(self.names))

    @property
    def _half_ranges(self) -> Floats:
        return np.resize([each.half_range for each in self.bounds], len(self.names))


class VectorSumTask(OneRoundStudy):
    """The sums and means of `columns`; with `entries`, of a vector's, which all have one's bounds.

    A vector x of n `entries` is the columns x_0, ..., x_(n-1) of records. `radius` is what a
    record's norm is cut to, in half ranges about the bounds' middles: the smaller, the less noise;
    None: bounds alone count.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (VectorSumPosterior,)
    example: ClassVar[str] = """\
[task]
name = "vector_sum"
radius = 1.2                   # largest norm of a record, in half ranges about the bounds' middles
# entries = 300                # of one vector: then [columns] has x alone, for x_0 to x_299

[columns]                      # public bounds, from general knowledge
age = [18, 90]
body_mass_index = [15, 50]
systolic_pressure = [80, 200]
"""

    name: Literal["vector_sum"] = "vector_sum"
    columns: Annotated[tuple[ColumnBounds, ...], Field(min_length=1, max_length=512)]
    entries: Annotated[int, Field(ge=1, le=LONGEST_VECTOR, strict=True)] | None = None
    radius: Radius | None = None

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the variables of a client's records that the round reads, in order."""
        return self.query().column_names

    def query(self) -> FirstMoments:
        """Return the query of the only round."""
        fields: dict[str, Any] = {
            "columns": self._query_columns(),
            "intercept": 0.0,
            "radius": self.radius,
            "grid_bits": SUM_BITS,
            "records_per_client": self.records_per_client,
        }
        if self.entries is None:
            return FirstMoments(**fields)
        return VectorSum(**fields, entries=self.entries)
