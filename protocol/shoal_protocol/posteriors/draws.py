"""Posteriors that consist of joint draws, as a sampler made them.

On the wire draws are little-endian doubles in base64, chain by chain, draw by draw.
"""

import base64
import math
from abc import abstractmethod
from collections.abc import Mapping
from statistics import NormalDist
from typing import Annotated, Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from shoal_protocol.posteriors.base import BasePosterior, FloatMatrix, FloatVector
from shoal_protocol.wire.encoding import Base64
from shoal_protocol.wire.numbers import Count

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
