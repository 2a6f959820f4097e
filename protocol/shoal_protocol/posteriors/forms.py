"""Forms of posteriors that several studies share.

`DirichletMixture`: probabilities of cells. `TabulatedPosterior`: a single parameter, by a table of
its quantiles at the levels of normal scores from -5 to 5, so a normal posterior is a straight line
between any two of them. `DrawsPosterior`: joint draws, as a sampler made them; on the wire they are
little-endian doubles in base64, chain by chain, draw by draw. `NumbersPosterior`: numbers as far
as noise in counts lets them be known; intervals are of noise alone.
"""

import base64
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from shoal_protocol.posteriors.base import BasePosterior, FloatMatrix, FloatVector
from shoal_protocol.queries import Mechanism
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import Base64, Count, Finite, PositiveSize, Size

_POINTS: Final = 601
_NEGLIGIBLE: Final = 1e-7


class DirichletMixture(BasePosterior):
    """An even mixture of Dirichlet distributions over the cells of `column`.

    Each row of `counts` holds true counts as they may have been, drawn given the noisy ones; a
    component's parameters are these plus `concentration`. `names` are those of the cells.
    """

    variable = "probabilities"
    dimension = "cell"

    column: str
    counts: Annotated[tuple[tuple[Count, ...], ...], Field(min_length=1)]
    concentration: PositiveSize

    @model_validator(mode="after")
    def _shapes_agree(self) -> Self:
        if {len(row) for row in self.counts} != {len(self.names)}:
            raise ValueError("each row of counts must have one number for each cell")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of a record."""
        return (self.column,)

    @property
    def mean(self) -> FloatVector:
        alphas = self._alphas
        return np.asarray(np.mean(alphas / alphas.sum(axis=1, keepdims=True), axis=0))

    @property
    def sd(self) -> FloatVector:
        alphas = self._alphas
        totals = alphas.sum(axis=1, keepdims=True)
        shares = alphas / totals
        within = np.mean(shares * (1.0 - shares) / (totals + 1.0), axis=0)
        return np.asarray(np.sqrt(within + np.var(shares, axis=0)))

    def _quantiles(self, low: float, high: float) -> FloatMatrix:
        alphas = self._alphas
        rest = alphas.sum(axis=1, keepdims=True) - alphas
        pairs = zip(alphas.T, rest.T, strict=True)
        return np.array([_beta_quantiles(*pair, [low, high]) for pair in pairs])

    def sample(self, count: int, generator: np.random.Generator) -> FloatMatrix:  # noqa: TID251
        """Return `count` draws of the probabilities, shape (count, k): no privacy depends on them.

        The mixture's components take turns.
        """
        alphas = self._alphas
        gammas: FloatMatrix = generator.standard_gamma(alphas[np.arange(count) % len(alphas)])
        # A cell of tiny concentration may underflow to zero, but never do all of them.
        draws: FloatMatrix = gammas / gammas.sum(axis=1, keepdims=True)
        return draws

    def predict(self) -> FloatVector:
        """Return the probability of each cell for a new record, shape (k,)."""
        return self.mean

    @property
    def _alphas(self) -> FloatMatrix:
        return np.array(self.counts, dtype=np.float64) + self.concentration


def _beta_quantiles(first: FloatVector, second: FloatVector, levels: list[float]) -> FloatVector:
    """Return quantiles of the even mixture of Beta(first, second), shapes (m,).

    By the trapezoidal rule in the logit, on a grid that is narrowed to where the mass is.
    """
    parameters, counts = np.unique(np.column_stack([first, second]), axis=0, return_counts=True)
    norms = np.log(counts) + [
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) for a, b in parameters.tolist()
    ]
    reach = 12.0 * np.sum(parameters**-0.5 + 1.0 / parameters, axis=1)
    centres = np.log(parameters[:, 0] / parameters[:, 1])
    low = max(float(np.min(centres - reach)), -700.0)
    high = min(float(np.max(centres + reach)), 700.0)
    logits, cumulative = np.zeros(0), np.zeros(0)
    for _ in range(3):
        logits = np.linspace(low, high, _POINTS)
        success, failure = -np.logaddexp(0.0, -logits), -np.logaddexp(0.0, logits)
        logs = norms + np.column_stack([success, failure]) @ parameters.T
        density = np.exp(logs - logs.max()).sum(axis=1)
        steps = (density[1:] + density[:-1]) / 2.0
        cumulative = np.concatenate([[0.0], np.cumsum(steps)]) / steps.sum()
        inside = np.flatnonzero((cumulative > _NEGLIGIBLE) & (cumulative < 1.0 - _NEGLIGIBLE))
        low = float(logits[max(inside[0] - 1, 0)]) if inside.size else low
        high = float(logits[min(inside[-1] + 1, _POINTS - 1)]) if inside.size else high
    rising = np.concatenate([[True], np.diff(cumulative) > 0.0])
    places = np.interp(levels, cumulative[rising], logits[rising])
    return np.asarray(np.exp(-np.logaddexp(0.0, -places)))


_STANDARD: Final = NormalDist()
_SCORES: Final = np.linspace(-5.0, 5.0, 161)

QUANTILE_LEVELS: Final = np.array([_STANDARD.cdf(score) for score in _SCORES.tolist()])
"""The levels that the quantiles of a tabulated posterior are at, shape (161,)."""


def scored_quantiles(quantiles: Sequence[float], high: float) -> FloatVector:
    """Return those at 1 - `high` and `high`, shape (2,), of a table at `QUANTILE_LEVELS`."""
    reach = _STANDARD.inv_cdf(high)
    return np.interp([-reach, reach], _SCORES, quantiles)


class TabulatedPosterior(BasePosterior):
    """Base of the posteriors of a single parameter of `column`'s records.

    `quantiles` are at `QUANTILE_LEVELS`. Records' scatter, the bounds' cut and the privacy noise
    are accounted for.
    """

    column: str
    quantiles: Annotated[tuple[Finite, ...], Field(min_length=161, max_length=161)]
    average: Finite
    deviation: Size

    @model_validator(mode="after")
    def _ordered(self) -> "TabulatedPosterior":
        if np.any(np.diff(self.quantiles) < 0.0):
            raise ValueError("quantiles must not fall")
        if len(self.names) != 1:
            raise ValueError("quantiles are those of a single parameter")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of a record."""
        return (self.column,)

    @property
    def mean(self) -> FloatVector:
        return np.array([self.average])

    @property
    def sd(self) -> FloatVector:
        return np.array([self.deviation])

    def _quantiles(self, low: float, high: float) -> FloatMatrix:
        return scored_quantiles(self.quantiles, high)[None]

    def sample(self, count: int, generator: np.random.Generator) -> FloatMatrix:  # noqa: TID251
        scores = generator.standard_normal(count)
        return np.interp(scores, _SCORES, self.quantiles)[:, None]


# Split R-hat and effective sample size, which tell whether chains of draws mixed.
#
# Vehtari, Gelman, Simpson, Carpenter and Bürkner 2021, "Rank-normalization, folding, and
# localization", doi:10.1214/20-BA1221. Of a parameter, draws have shape (chains, draws).


def split_r_hat(draws: FloatMatrix) -> float:
    """Return the rank-normalised split R-hat, the larger one of centre and spread: 1 when mixed.

    Draws that never move have R-hat 1 if all are equal, and a huge one if chains differ.
    """
    halves = _split(draws)
    folded = np.abs(halves - np.median(halves))
    return max(_r_hat(_normal_scores(halves)), _r_hat(_normal_scores(folded)))


def effective_sample_size(draws: FloatMatrix) -> float:
    """Return how many independent draws tell as much: of the centre or of the 5 % tails, the less.

    Draws that are all equal count in full.
    """
    halves = _split(draws)
    low, high = np.quantile(halves, [0.05, 0.95])
    tails = [(halves <= low).astype(np.float64), (halves <= high).astype(np.float64)]
    return min(_effective_size(each) for each in (_normal_scores(halves), *tails))


def _split(draws: FloatMatrix) -> FloatMatrix:
    """Return each chain as two; of an odd number of draws the middle one is left out."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, draws.shape[1] - half :]])


def _normal_scores(draws: FloatMatrix) -> FloatMatrix:
    """Return normal quantiles of the draws' ranks; equal draws share their mean rank."""
    _, places, counts = np.unique(draws, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2.0
    quantile = NormalDist().inv_cdf
    scores = np.array([quantile((rank - 0.375) / (draws.size + 0.25)) for rank in ranks])
    normal: FloatMatrix = scores[places].reshape(draws.shape)
    return normal


def _r_hat(draws: FloatMatrix) -> float:
    count = draws.shape[1]
    within = float(np.mean(np.var(draws, axis=1, ddof=1)))
    between = float(np.var(np.mean(draws, axis=1), ddof=1))
    if within == 0.0:
        return 1.0 if between == 0.0 else float("inf")
    return float(np.sqrt((count - 1) / count + between / within))


def _effective_size(draws: FloatMatrix) -> float:
    """Geyer's initial monotone sequence over all chains (equations 10 to 13 of the paper)."""
    count = draws.shape[1]
    centred = draws - draws.mean(axis=1, keepdims=True)
    spectrum = np.fft.rfft(centred, 2 * count, axis=1)
    covariances = np.fft.irfft(spectrum * np.conj(spectrum), 2 * count, axis=1)[:, :count] / count
    within = float(np.mean(covariances[:, 0])) * count / (count - 1)
    between = float(np.var(draws.mean(axis=1), ddof=1))
    variance = within * (count - 1) / count + between
    if variance == 0.0:
        return float(draws.size)
    correlations = 1.0 - (within - covariances.mean(axis=0) * count / (count - 1)) / variance
    correlations[0] = 1.0
    total, least = -1.0, float("inf")
    for lag in range(0, count - 1, 2):
        pair = float(correlations[lag] + correlations[lag + 1])
        if pair < 0.0:
            break
        least = min(least, pair)
        total += 2.0 * least
    return draws.size / max(total, 1.0 / math.log10(draws.size))


MOST_VALUES: Final = 1 << 16
"""Numbers in one posterior: half a mebibyte, so that a report passes wherever documents do."""
MOST_CHAINS: Final = 16
_FEWEST_DRAWS: Final = 4  # of a chain: what a split R-hat needs


class DrawsPosterior(BasePosterior):
    """Joint draws of the parameters `names`, from several chains of one sampler.

    A model's posterior adds its own `name`, `columns` and `predict`. `values` are the doubles of an
    array of shape (chains, draws, k). `divergences` is how many transitions of the sampler went
    wrong, of all after its warm-up.
    """

    chains: Annotated[int, Field(ge=2, le=MOST_CHAINS)]
    values: Base64
    divergences: Count

    @model_validator(mode="after")
    def _draws_are_usable(self) -> Self:
        decoded(self.values, self.chains, len(self.names))
        return self

    @classmethod
    def _thinned(cls, draws: FloatMatrix, **fields: Any) -> Self:
        """Return the posterior of `draws`, shape (chains, draws, k), thinned as need be."""
        kept = thinned(draws)
        return cls(chains=len(kept), values=encoded(kept), **fields)

    @property
    def draws(self) -> FloatMatrix:
        """All draws, shape (chains, draws, k), read-only."""
        return decoded(self.values, self.chains, len(self.names))

    @property
    def _flat(self) -> FloatMatrix:
        return self.draws.reshape(-1, len(self.names))

    @property
    def mean(self) -> FloatVector:
        mean: FloatVector = self._flat.mean(axis=0)
        return mean

    @property
    def covariance_matrix(self) -> FloatMatrix:
        """Posterior covariance of the parameters, shape (k, k)."""
        return np.atleast_2d(np.cov(self._flat, rowvar=False))

    @property
    def sd(self) -> FloatVector:
        sd: FloatVector = self._flat.std(axis=0, ddof=1)
        return sd

    def _quantiles(self, low: float, high: float) -> FloatMatrix:
        limits: FloatMatrix = np.quantile(self._flat, [low, high], axis=0).T
        return limits

    def sample(self, count: int, generator: np.random.Generator) -> FloatMatrix:  # noqa: TID251
        """Return `count` of the draws at random, with replacement, shape (count, k)."""
        chosen: FloatMatrix = self._flat[generator.integers(0, len(self._flat), count)]
        return chosen

    @property
    def r_hat(self) -> FloatVector:
        """Rank-normalised split R-hat of each parameter, shape (k,): 1 where the chains agree.

        Computed from the draws, not taken from whoever made them.
        """
        return np.array([split_r_hat(each) for each in np.moveaxis(self.draws, 2, 0)])

    @property
    def effective_sample_size(self) -> FloatVector:
        """How many independent draws tell as much of each parameter, shape (k,): of its centre or
        of its tails, the less. Computed from the draws."""
        return np.array([effective_sample_size(each) for each in np.moveaxis(self.draws, 2, 0)])

    def _chains(self, count: int, generator: np.random.Generator | None) -> FloatMatrix:  # noqa: TID251
        return self.draws

    def _attributes(self) -> Mapping[str, str | int | float]:
        return {**super()._attributes(), "divergences": self.divergences}


def thinned(draws: FloatMatrix) -> FloatMatrix:
    """Return every s-th draw of each chain, s the least with at most `MOST_VALUES` numbers left.

    `draws` has shape (chains, draws, k).
    """
    chains, count, size = draws.shape
    most = max(MOST_VALUES // (chains * size), 1)
    step = -(-count // most)
    return draws[:, step - 1 :: step]


def encoded(draws: NDArray[np.float64]) -> str:
    """Return an array's numbers as little-endian doubles in base64, the last axis fastest."""
    return base64.b64encode(np.ascontiguousarray(draws, dtype="<f8").tobytes()).decode()


def decoded(values: str, chains: int, size: int) -> FloatMatrix:
    """Return the array, shape (chains, draws, size), that `encoded` made a string of.

    Raises:
        ValueError: it is no such array, too large or too small, or not finite.
    """
    numbers = decoded_numbers(values)
    if not numbers.size or numbers.size % (chains * size):
        raise ValueError("values must be doubles of an array of shape (chains, draws, names)")
    draws = numbers.reshape(chains, -1, size)
    if draws.shape[1] < _FEWEST_DRAWS:
        raise ValueError(f"a chain needs {_FEWEST_DRAWS} draws or more")
    return draws


def decoded_numbers(values: str) -> FloatVector:
    """Return the numbers, shape (k,), that `encoded` made a string of.

    Raises:
        ValueError: they are no doubles, too many, or not finite.
    """
    raw = base64.b64decode(values)
    if len(raw) > 8 * MOST_VALUES:
        raise ValueError(f"a posterior holds at most {MOST_VALUES} numbers")
    if len(raw) % 8:
        raise ValueError("values must be doubles")
    numbers: FloatVector = np.frombuffer(raw, "<f8")
    if not np.all(np.isfinite(numbers)):
        raise ValueError("values must be finite")
    return numbers


class NormalDrawsPosterior(DrawsPosterior):
    """Draws of the means of some columns, then of their standard deviations, then of others.

    Records' scatter and the privacy noise are accounted for, the bounds' cut is not. Every draw is
    of a positive definite covariance.
    """

    def predict(self) -> tuple[FloatVector, FloatVector]:
        """Return mean and standard deviation of a new record's columns, not cut, shapes (d,)."""
        size = len(self.columns)
        means, sds = self._flat[:, :size], self._flat[:, size : 2 * size]
        return means.mean(axis=0), np.sqrt(np.mean(sds**2, axis=0) + means.var(axis=0))

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of a record."""


REACHES: Final = np.linspace(-6.0, 6.0, 49)
"""Where a quantile's points are: in standard deviations of how many records are below."""

Tails = Literal["normal", "laplace"]


class Part(Model):
    """A part of a posterior."""


class Known(Part):
    """A number as noise lets it be known."""

    mean: Finite
    sd: Size


class KnownQuantile(Part):
    """The `level` quantile: its ends at `REACHES`, and in the middle where it probably is."""

    level: Annotated[float, Field(gt=0.0, lt=1.0)]
    points: Annotated[tuple[Finite, ...], Field(min_length=49, max_length=49)]

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if np.any(np.diff(self.points) < 0.0):
            raise ValueError("points must not fall")
        return self


@dataclass(frozen=True)
class Number:
    """A number of the card: normal within limits, a root of such a one, or by its points."""

    label: str
    known: Known
    limits: tuple[float, float]
    whole: Known | None = None
    is_root: bool = False
    points: tuple[float, ...] = ()

    @property
    def mean(self) -> float:
        """Where it most probably is, about."""
        if self.points:
            return self.points[len(REACHES) // 2]
        mean = min(max(self.known.mean, self.limits[0]), self.limits[1])
        return math.sqrt(mean) if self.is_root else mean

    @property
    def sd(self) -> float:
        """Half the distance of its ends at one standard deviation."""
        low, high = self.at(np.array([-1.0, 1.0]))
        return float(high - low) / 2.0

    def at(self, reaches: FloatVector) -> FloatVector:
        """Return the number so many standard deviations away, shape (n,)."""
        if self.points:
            return np.asarray(np.interp(reaches, REACHES, self.points))
        values = np.clip(self.known.mean + reaches * self.known.sd, *self.limits)
        return np.sqrt(values) if self.is_root else values


def tails_of(mechanism: Mechanism) -> Tails:
    """Return the tails of sums with the noise of a mechanism."""
    return "normal" if mechanism == "discrete_gaussian" else "laplace"


def reach_of(level: float, tails: Tails) -> float:
    """Return within how many standard deviations a number is with probability `level`.

    A sum of Laplace variables has lighter tails than one alone of that variance, and heavier ones
    than a normal.
    """
    normal = NormalDist().inv_cdf(0.5 + level / 2.0)
    return normal if tails == "normal" else max(normal, -math.log(1.0 - level) / math.sqrt(2.0))


class NumbersPosterior(BasePosterior):
    """A posterior of numbers that are each known by itself: so are draws.

    With Laplace `tails` intervals are as wide as a single Laplace variable's. `total` is how many
    records there are.
    """

    variable = "numbers"
    dimension = "number"

    tails: Tails
    total: Known

    @property
    @abstractmethod
    def numbers(self) -> list[Number]:
        """The numbers, in the order of `names`."""

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.names != tuple(each.label for each in self.numbers):
            raise ValueError("names must be those of the numbers that are shown, in order")
        return self

    @property
    def mean(self) -> FloatVector:
        return np.array([each.mean for each in self.numbers])

    @property
    def sd(self) -> FloatVector:
        return np.array([each.sd for each in self.numbers])

    def _quantiles(self, low: float, high: float) -> FloatMatrix:
        reach = reach_of(high - low, self.tails)
        return np.array([each.at(np.array([-reach, reach])) for each in self.numbers])

    def sample(self, count: int, generator: np.random.Generator) -> FloatMatrix:  # noqa: TID251
        """Return `count` draws of each number by itself, shape (count, k)."""
        reaches = generator.standard_normal((len(self.numbers), count))
        return np.column_stack(
            [each.at(row) for each, row in zip(self.numbers, reaches, strict=True)]
        )


def quantile_points(edges: FloatVector, below: FloatVector, sd: FloatVector) -> tuple[float, ...]:
    """Return where a quantile is at each of `REACHES`, for a `KnownQuantile`.

    `below` and `sd`, shapes (K + 1,), say of each edge how many more records are below it than
    below the quantile. The ends at z standard deviations are outside of all edges that might, by
    that many, be on the quantile's other side; so the quantile is between them as often as a normal
    variable within z, wherever in its bin.
    """
    size = len(edges) - 1
    rising = (np.maximum.accumulate(below) + np.minimum.accumulate(below[::-1])[::-1]) / 2.0
    at = int(np.clip(np.searchsorted(rising, 0.0, side="right") - 1, 0, size - 1))
    step = rising[at + 1] - rising[at]
    part = min(max(-rising[at] / step, 0.0), 1.0) if step > 0.0 else 0.5
    middle = float(edges[at] + part * (edges[at + 1] - edges[at]))
    reach = REACHES[len(REACHES) // 2 + 1 :, None]
    first = np.argmax((below + reach * sd)[:, 1:] >= 0.0, axis=1)  # bins that may hold it
    may_rise = (below + reach * sd)[:, -1] < 0.0
    lows = edges[np.where(may_rise, size - 1, first)]
    is_below = (below - reach * sd)[:, :-1] <= 0.0
    last = size - 1 - np.argmax(is_below[:, ::-1], axis=1)
    highs = edges[np.where(is_below.any(axis=1), last, 0) + 1]
    lows, highs = np.minimum(lows, middle), np.maximum(highs, middle)
    return (*lows[::-1].tolist(), middle, *highs.tolist())
