"""Proportions from noisy counts: of a value, of values of a column, or of bins.

Other studies that count share the base class.

The posterior consists of draws: of the true counts, which are weighed by their
Dirichlet-multinomial probability times the density of the noise that they leave, and then of the
probabilities.

Under a Dirichlet prior the counts N are Dirichlet-multinomial, P(N) proportional to
prod_j Gamma(N_j + a_j) / N_j! on sum_j N_j = n, and each cell's noise is independent of the
others'. So given the noisy counts, N is a vector of independent integers conditional on their sum:
partial sums have laws that are convolutions, and N is drawn exactly, last cell first. There is no
Markov chain. Proof: docs/mathematics.md, proposition 7.1.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import AfterValidator, Field, model_validator
from scipy.special import gammaln, softmax

from shoal_protocol.queries import Counts, EdgeCut, LevelCut
from shoal_protocol.queries.columns import ColumnBounds, ColumnName
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.sums import in_units
from shoal_protocol.queries.tables import ascending
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.trust.dictionary import Coding
from shoal_protocol.wire.encoding import Real
from shoal_studies.catalogue.measurements import query_of
from shoal_studies.catalogue.one_round import (
    SummedNoise,
    generator_for,
    noise_of,
)
from shoal_studies.catalogue.study import (
    COUNT_BITS,
    Concentration,
    Labels,
    OneRoundStudy,
    and_others,
    called,
    spanning,
)
from shoal_studies.posteriors.base import BasePosterior
from shoal_studies.posteriors.forms import StoredDraws, encoded


class CellStudy(OneRoundStudy):
    """The probability that a record of `column` is in each of some cells."""

    column: ColumnName

    @property
    @abstractmethod
    def prior(self) -> Floats:
        """The parameters of the Dirichlet prior, shape (cells,)."""

    @property
    @abstractmethod
    def cut(self) -> EdgeCut | LevelCut:
        """What cuts the column into the cells."""

    def query(self) -> Counts:
        """Return the query of the only round."""
        return Counts(
            columns=self._query_columns(),
            cut=self.cut,
            grid_bits=COUNT_BITS,
            records_per_client=self.records_per_client,
        )

    def drawn(self, released: ReleasedSum, names: tuple[str, ...]) -> dict[str, Any]:
        """Return the fields of a posterior by draws of the probabilities of the first cells."""
        prior, generator = self.prior, generator_for(released)
        draws = min(_MOST_DRAWS, _MOST_NUMBERS // len(prior))
        noisy = _noisy_counts(released)
        counts = np.rint(draw_counts(noisy, prior, draws, generator))
        # A cell of a tiny parameter may underflow to zero, but never do all of them.
        gammas = generator.standard_gamma(counts + prior)
        shares = gammas / gammas.sum(axis=1, keepdims=True)
        return {
            "columns": (self.column,),
            "names": names,
            "values": encoded(shares[:, : len(names)]),
            "records": max(1, round(float(counts.sum(axis=1).mean()))),
        }


class BernoulliPosterior(StoredDraws):
    """Of the probability that a record of `column` is a success."""

    name: Literal["bernoulli"] = "bernoulli"
    names: tuple[str, ...] = ("probability",)


class BernoulliTask(CellStudy):
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

    @property
    def prior(self) -> Floats:
        return np.array([self.prior_successes, self.prior_failures])

    @property
    def cut(self) -> LevelCut:
        return LevelCut(column=0, levels=(self.success,))

    def posterior_from(self, released: ReleasedSum) -> BernoulliPosterior:
        return BernoulliPosterior(**self.drawn(released, ("probability",)))


class EvenCellStudy(CellStudy):
    """A study of cells with the same prior `concentration` for each."""

    concentration: Concentration = 1.0

    @property
    def prior(self) -> Floats:
        return np.full(self.cut.cells, self.concentration)


class CategoricalPosterior(StoredDraws):
    """Of the probabilities of the levels in order, then of "other"."""

    name: Literal["categorical"] = "categorical"


class CategoricalTask(EvenCellStudy):
    """The probabilities of the public `levels` of `column`, which `labels` may name.

    Values that are no level make up a cell of their own, "other". Prior: Dirichlet, `concentration`
    for each cell.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (CategoricalPosterior,)
    example: ClassVar[str] = """\
[task]
name = "categorical"
column = "stage"
levels = [1, 2, 3, 4]          # of a text: places in the dictionary, from 0, and their `labels`.
                               # Values that are none of them are counted as "other"
"""

    name: Literal["categorical"] = "categorical"
    levels: Annotated[tuple[Real, ...], Field(min_length=2, max_length=255)]
    labels: Labels = ()

    @model_validator(mode="after")
    def _consistent(self) -> "CategoricalTask":
        called(self.levels, self.labels)
        self.query()  # levels that are distinct
        return self

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The one column of a client's records."""
        return (spanning(self.column, self.levels),)

    @property
    def codings(self) -> tuple[Coding, ...]:
        return (Coding(self.column, "levels", self.levels),)

    @property
    def cut(self) -> LevelCut:
        return LevelCut(column=0, levels=self.levels)

    def posterior_from(self, released: ReleasedSum) -> CategoricalPosterior:
        return CategoricalPosterior(
            **self.drawn(released, and_others(called(self.levels, self.labels)))
        )


Edges = Annotated[tuple[Real, ...], Field(min_length=3, max_length=257), AfterValidator(ascending)]
"""Where bins end and the next ones begin, ascending."""


class HistogramPosterior(StoredDraws):
    """Of the probabilities of the bins between `edges`, in order."""

    name: Literal["histogram"] = "histogram"
    edges: Edges

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.names != _names_of(self.edges):
            raise ValueError("names must be those of the bins, in order")
        return self

    def density(self) -> Floats:
        """Return the mean probability of each bin by its width, shape (bins,): bars of that area.

        Mass beyond the outer edges counts in the outer bins.
        """
        return np.asarray(self.mean / np.diff(self.edges))


class HistogramTask(EvenCellStudy):
    """The probabilities of the bins of `column` between the public `edges`.

    A bin holds the values from its lower edge on and below its upper one. The first holds all that
    is below, too, and the last all from the last edge on: each record is in one bin. Prior:
    Dirichlet, `concentration` for each bin.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (HistogramPosterior,)
    example: ClassVar[str] = """\
[task]
name = "histogram"
column = "age"
edges = [18, 30, 45, 60, 75, 100]  # of bins, from general knowledge, never from the data
"""

    name: Literal["histogram"] = "histogram"
    edges: Edges

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The one column of a client's records."""
        return (spanning(self.column, self.edges),)

    @property
    def cut(self) -> EdgeCut:
        return EdgeCut(column=0, edges=self.edges)

    def posterior_from(self, released: ReleasedSum) -> HistogramPosterior:
        return HistogramPosterior(edges=self.edges, **self.drawn(released, _names_of(self.edges)))


def _names_of(edges: tuple[float, ...]) -> tuple[str, ...]:
    return tuple(f"[{lower:.15g}, {upper:.15g})" for lower, upper in pairwise(edges))


_BLOCKS_IN_SD: Final = 24.0  # blocks of counts in one standard deviation of the noise
_SAMPLED: Final = 16  # counts of a block that stand for all, if it has more
_NEGLIGIBLE_MASS: Final = 1e-13


@dataclass(frozen=True, kw_only=True)
class NoisyCounts:
    """Counts, shape (k,), with noise of one law, and `total`, their sum n, with `total_noise`.

    n is at most `most`, and nothing else is known of it.
    """

    values: Floats
    noise: SummedNoise
    total: float
    total_noise: SummedNoise
    most: int


@dataclass(frozen=True)
class _Law:
    """Masses of a count on blocks: block i is [low + i step, low + (i + 1) step)."""

    low: int
    masses: Floats

    @property
    def mean(self) -> float:
        """Mean of the block's index."""
        return float(np.arange(len(self.masses)) @ self.masses)


def draw_counts(
    noisy: NoisyCounts,
    concentrations: Floats,
    draws: int,
    generator: np.random.Generator,
) -> Floats:
    """Return true counts, shape (draws, k), given noisy ones and a Dirichlet prior.

    Each count is marginally stratified over the draws, so means over them vary less than those of
    independent draws. Where the noise is wider than 24 counts, counts come in blocks of a 24th of
    it, and are centred in their block.
    """
    step = max(1, int(noisy.noise.sd / _BLOCKS_IN_SD))
    laws = [
        _cell_law(noisy, cell, float(concentration), step)
        for cell, concentration in enumerate(concentrations)
    ]
    lows = np.array([law.low for law in laws], dtype=np.float64)
    offset = float(lows.sum()) + len(laws) * (step - 1) / 2.0
    laws, tilt = _tilted(laws, (noisy.most - offset) / step)
    prefixes = _prefixes(laws)
    totals = _total_law(prefixes[-1], tilt, concentrations, noisy, offset, step)
    left = _draw(np.broadcast_to(totals.masses, (draws, len(totals.masses))), generator)
    left += totals.low
    counts = np.empty((draws, len(laws)))
    for cell in range(len(laws) - 1, 0, -1):
        chosen = _conditional(laws[cell], prefixes[cell - 1], left, generator)
        counts[:, cell] = chosen
        left = left - chosen
    counts[:, 0] = left
    counts = counts * step + lows + (step - 1) / 2.0
    return np.asarray(np.maximum(counts, 0.0))


def _cell_law(noisy: NoisyCounts, cell: int, concentration: float, step: int) -> _Law:
    """Return the law of one count given its noisy value alone, up to the constraint on the sum."""
    centre = min(max(float(noisy.values[cell]), 0.0), float(noisy.most))
    low = max(0, int(centre - noisy.noise.reach))
    high = min(noisy.most, int(centre + noisy.noise.reach) + 1)
    low -= low % step
    blocks = (high - low) // step + 1
    within = np.unique(np.linspace(0, step - 1, min(step, _SAMPLED)).round())
    counts = low + step * np.arange(blocks, dtype=np.float64)[:, None] + within
    logs = gammaln(counts + concentration) - gammaln(counts + 1.0)
    logs += noisy.noise.log_density(float(noisy.values[cell]) - counts)
    logs[counts > noisy.most] = -np.inf
    masses = np.exp(logs - logs.max()).sum(axis=1)
    return _Law(low, masses / masses.sum())


def _tilted(laws: Sequence[_Law], most: float) -> tuple[list[_Law], float]:
    """Weigh all laws by exp(tilt i), so that their sum's mean is where the sum may lie.

    The law of the counts given their sum is the same for every tilt; without it the masses around
    the sum's true value may be too small for a float.
    """

    def weighed(tilt: float) -> list[_Law]:
        return [
            _Law(law.low, softmax(_logs(law) + tilt * np.arange(len(law.masses)))) for law in laws
        ]

    free = sum(law.mean for law in laws)
    aim = min(free, most)
    reachable = sum(len(law.masses) - 1 for law in laws)
    aim = min(max(aim, 1e-6 * reachable), (1.0 - 1e-6) * reachable)
    lower, upper = -50.0, 50.0  # the mean may be out of reach of both
    for _ in range(60):
        tilt = (lower + upper) / 2.0
        if sum(law.mean for law in weighed(tilt)) < aim:
            lower = tilt
        else:
            upper = tilt
    tilt = (lower + upper) / 2.0
    return weighed(tilt), tilt


def _prefixes(laws: Sequence[_Law]) -> list[_Law]:
    """Return the laws of the sums of the first cells' indices, tails cut where they are nothing."""
    sums = [_trimmed(_Law(0, laws[0].masses))]
    for law in laws[1:]:
        before = sums[-1]
        length = len(before.masses) + len(law.masses) - 1
        size = 1 << (length - 1).bit_length()
        product = np.fft.rfft(before.masses, size) * np.fft.rfft(law.masses, size)
        masses = np.maximum(np.fft.irfft(product, size)[:length], 0.0)
        sums.append(_trimmed(_Law(before.low, masses / masses.sum())))
    return sums


def _trimmed(law: _Law) -> _Law:
    kept = np.flatnonzero(law.masses > _NEGLIGIBLE_MASS * law.masses.max())
    masses = law.masses[kept[0] : kept[-1] + 1]
    return _Law(law.low + int(kept[0]), masses / masses.sum())


def _total_law(
    last: _Law,
    tilt: float,
    concentrations: Floats,
    noisy: NoisyCounts,
    offset: float,
    step: int,
) -> _Law:
    """Return the law of the sum's index, by all that is known of n.

    Given n the Dirichlet-multinomial has the factor n! / Gamma(n + sum a), which does not cancel
    where n is uncertain; every n up to the most is as likely as another beforehand.
    """
    indices = last.low + np.arange(len(last.masses))
    records = offset + step * indices.astype(np.float64)
    weights = _logs(last) - tilt * indices
    weights += gammaln(np.maximum(records, 0.0) + 1.0)
    weights -= gammaln(np.maximum(records, 0.0) + concentrations.sum())
    weights += noisy.total_noise.log_density(noisy.total - records)
    weights[records > noisy.most + (step - 1) / 2.0] = -np.inf
    if not np.any(np.isfinite(weights)):
        weights[int(np.argmin(np.abs(records - noisy.most)))] = 0.0
    return _Law(last.low, softmax(weights))


def _conditional(law: _Law, rest: _Law, left: Floats, generator: np.random.Generator) -> Floats:
    """Return indices, shape (draws,), of a cell given what is left for it and those before it."""
    indices = np.arange(len(law.masses))
    places = left[:, None].astype(np.int64) - rest.low - indices
    inside = (places >= 0) & (places < len(rest.masses))
    before = np.where(inside, rest.masses[np.clip(places, 0, len(rest.masses) - 1)], 0.0)
    masses = law.masses * before
    # Cut tails can leave a far draw without any mass: then it takes the nearest that there is.
    lost = masses.sum(axis=1) <= 0.0
    if np.any(lost):
        gap = np.maximum(-places[lost], places[lost] - len(rest.masses) + 1)
        masses[lost] = np.where(gap == gap.min(axis=1, keepdims=True), 1.0, 0.0)
    return _draw(masses, generator)


def _draw(masses: Floats, generator: np.random.Generator) -> Floats:
    """Return one index for each row of `masses`, with stratified uniform numbers."""
    draws = len(masses)
    uniforms = (generator.permutation(draws) + generator.random(draws)) / draws
    cumulative = np.cumsum(masses, axis=1)
    reached = uniforms * cumulative[:, -1]
    return np.asarray(np.sum(cumulative < reached[:, None], axis=1), dtype=np.float64)


def _logs(law: _Law) -> Floats:
    with np.errstate(divide="ignore"):
        return np.log(law.masses)


_MOST_DRAWS: Final = 2000
_MOST_NUMBERS: Final = 40_000  # in a posterior: a report is at most a mebibyte


def _noisy_counts(released: ReleasedSum) -> NoisyCounts:
    query = query_of(released, Counts)
    counts = in_units(query, released.values)
    return NoisyCounts(
        values=counts[:-1],
        noise=noise_of(released, 0, query.grid),
        total=float(counts[-1]),
        total_noise=noise_of(released, -1, query.grid),
        most=released.cohort_size * query.records_per_client,
    )
