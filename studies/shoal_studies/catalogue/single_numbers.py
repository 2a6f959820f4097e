"""A rate, a mean, or plain sums and means of columns, from one noisy sum of records cut to bounds.

The law of one cut record is known for each rate or mean, so the cut is part of the model.
"""

import math
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import Field, model_validator
from scipy.special import gammaln, logsumexp

from shoal_protocol.queries import FirstMoments, Mechanism, VectorSum
from shoal_protocol.queries.columns import ColumnBounds, ColumnName
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.moments import LONGEST_VECTOR
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.trust.dictionary import Coding
from shoal_protocol.wire.encoding import Base64, Positive, PositiveSize, Radius, Real
from shoal_studies.catalogue.measurements import query_of, record_count, record_law
from shoal_studies.catalogue.one_round import (
    LogDensity,
    bulk,
    noise_of,
    record_counts,
    summarise,
)
from shoal_studies.catalogue.study import (
    SUM_BITS,
    OneRoundStudy,
    Pseudocount,
    require_near,
)
from shoal_studies.posteriors.base import LEVEL, BasePosterior
from shoal_studies.posteriors.forms import (
    StoredDraws,
    decoded_numbers,
    encoded,
    reach_of,
)
from shoal_studies.regression.families import FAMILIES, Residuals


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


class PoissonPosterior(StoredDraws):
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

    def posterior_from(self, released: ReleasedSum) -> PoissonPosterior:
        shape, rate = self.prior_shape, self.prior_rate
        rate = 2.0 * shape / self.upper if rate is None else rate
        # The prior's own bulk, in log rates: nothing that was seen can widen it.
        low = max(math.log(shape / rate) - 45.0 / min(shape, 1.0), _LOWEST_LOG_RATE)
        summary = _summary(
            released,
            lambda logs: shape * logs - rate * np.exp(logs),
            _cut_poisson(query_of(released, FirstMoments)),
            (low, math.log((60.0 + 4.0 * shape) / rate)),
            np.exp,
            normalised=False,
        )
        return PoissonPosterior(
            columns=(self.column,),
            records=record_count(released),
            **summary,
        )


class NormalMeanPosterior(StoredDraws):
    """Of the mean of normal records of known standard deviation."""

    name: Literal["normal_mean"] = "normal_mean"
    names: tuple[str, ...] = ("mean",)
    known_sd: Positive

    def predict(self) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of a new record, not cut, shapes (1,)."""
        return self.mean, np.hypot(self.known_sd, self.sd)


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

    def posterior_from(self, released: ReleasedSum) -> NormalMeanPosterior:
        bounds = self.column
        centre, unit = bounds.centre, bounds.half_range
        mean = 0.0 if self.prior_mean is None else (self.prior_mean - centre) / unit
        sd = 1.0 if self.prior_sd is None else self.prior_sd / unit
        summary = _summary(
            released,
            lambda means: -0.5 * ((means - mean) / sd) ** 2,
            lambda means: _cut_normal(means, self.sd / unit),
            (mean - 9.0 * sd, mean + 9.0 * sd),
            lambda means: centre + unit * means,
            normalised=True,
        )
        return NormalMeanPosterior(
            columns=(bounds.name,),
            known_sd=self.sd,
            records=record_count(released),
            **summary,
        )


class VectorSumPosterior(BasePosterior):
    """Of means of the cohort's own records, cut to bounds and ball; noise alone makes it wide.

    `total` has the sums. `sums` are the columns' doubles in half ranges about the bounds' middles,
    each with noise of standard deviation `noise_sd` by this `mechanism`. `record_count` is how
    many records the noisy count says, give or take `record_count_sd`.
    """

    name: Literal["vector_sum"] = "vector_sum"
    bounds: Annotated[tuple[ColumnBounds, ...], Field(min_length=1, max_length=512)]
    sums: Base64
    noise_sd: PositiveSize
    mechanism: Mechanism
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
        reach = reach_of(level, self.mechanism) * self.total_sd
        return np.column_stack([self.total - reach, self.total + reach])

    def _quantiles(self, low: float, high: float) -> Floats:
        reach = reach_of(high - low, self.mechanism) * self.sd
        return np.column_stack([self.mean - reach, self.mean + reach])

    def sample(self, count: int, generator: np.random.Generator) -> Floats:
        return self.mean + self.sd * generator.standard_normal((count, len(self.names)))

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

    def posterior_from(self, released: ReleasedSum) -> VectorSumPosterior:
        query = self.query()
        records, sd = record_law(released)
        return VectorSumPosterior(
            names=query.column_names,
            records=max(1, round(records)),
            bounds=self.columns,
            sums=encoded(released.values[:-1] / query.grid**2),
            noise_sd=float(released.noise_sd[0]) / query.grid**2,
            mechanism=released.mechanism,
            record_count=max(1.0, records),
            record_count_sd=sd,
        )


# One parameter given the noisy sum of a bounded statistic of n records.
#
# The sum is taken for normal with its exact mean and variance, which is right up to its skewness.
# The noise hides most of that: it is about as wide as one record at its bound, or wider. The noise
# is exact: a mixture of normals for the Laplace mechanism. The laws are those of records after
# cutting to the bounds, so the cut is part of the model.


_LOWEST_LOG_RATE: Final = -700.0


_Law = Callable[[Floats], tuple[Floats, Floats]]
"""Returns mean and variance of one record's statistic at t parameters, each shape (t,)."""


def _cut_poisson(query: FirstMoments) -> _Law:
    """Return the law of a count by its rate's logarithm; all above the bound is the bound."""
    [column] = query.columns
    counts = np.arange(round(2.0 * column.scale) + 1, dtype=np.float64)
    single = query.model_copy(update={"records_per_client": len(counts)})
    # What the grid makes of each count: rounding to it moves large sums by more than nothing.
    values = column.centre + column.scale * single.rows(counts[:, None])[:, 0] / query.grid
    log_factorials = gammaln(counts + 1.0)

    def moments(parameters: Floats) -> tuple[Floats, Floats]:
        logs = np.outer(parameters, counts) - log_factorials
        masses = np.exp(logs - np.exp(parameters)[:, None])
        masses[:, -1] = np.maximum(1.0 - masses[:, :-1].sum(axis=1), 0.0)
        mean = masses @ values
        return mean, (masses * (values - mean[:, None]) ** 2).sum(axis=1)

    return moments


def _cut_normal(means: Floats, sd: float) -> tuple[Floats, Floats]:
    """Return mean and variance of a normal record, by its mean, that is cut to [-1, 1]."""
    about = Residuals(np.zeros_like(means), np.ones_like(means), cut=1.0, low=-1.0, high=1.0)
    mean, square, _ = FAMILIES["normal"].cut(means, about, sd)
    return mean, np.maximum(square - mean**2, 0.0)


def _summary(
    released: ReleasedSum,
    log_prior: LogDensity,
    law: _Law,
    edges: tuple[float, float],
    parameter: Callable[[Floats], Floats],
    *,
    normalised: bool,
) -> dict[str, Any]:
    """Return the posterior of a parameter with mass between `edges`, by the sum of a column.

    `law` is that of the column's values in normalised units, or in its own.
    """
    query = query_of(released, FirstMoments)
    [column] = query.columns
    centre, unit = (0.0, 1.0) if normalised else (column.centre, column.scale)
    records, log_weights = record_counts(released)
    sums = unit * float(released.values[0]) / query.grid**2 + centre * records
    weights, variances = noise_of(released, 0, query.grid**2 / unit).normal_mixture()

    def log_density(points: Floats) -> Floats:
        means, spreads = law(points)
        total = np.full(len(points), -np.inf)
        for value, count, log_weight in zip(sums, records, log_weights, strict=True):
            variance = count * spreads[:, None] + variances
            gaps = (value - count * means)[:, None]
            logs = np.log(weights) - 0.5 * (gaps**2 / variance + np.log(2.0 * math.pi * variance))
            total = np.logaddexp(total, logsumexp(logs, axis=1) + log_weight)
        return np.asarray(log_prior(points) + total)

    return summarise(log_density, *bulk(log_density, *edges), parameter)
