"""The contract between a learner and whoever carries its rounds out; pure, no I/O and no clock."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.posteriors import Posterior
from shoal_protocol.queries import Mechanism, SecondMomentMatrix, SecondMoments


@dataclass(frozen=True, kw_only=True)
class ReleasedSum:
    """A round's result: the noisy sum over the cohort, and what is public about its noise.

    `values` and `noise_sd`, both shape (query.dimension,), are in lattice units; `noise_sd` is the
    standard deviation of the noise that the whole cohort really added to each coordinate, by
    `mechanism`.
    """

    query: SecondMoments | SecondMomentMatrix
    values: NDArray[np.int64]
    cohort_size: int
    noise_sd: NDArray[np.float64]
    mechanism: Mechanism

    def __post_init__(self) -> None:
        shape = (self.query.dimension,)
        if self.values.shape != shape or self.noise_sd.shape != shape:
            raise ValueError("a released sum and its noise must have the dimension of the query")
        if self.cohort_size < 1 or not np.all(self.noise_sd > 0.0):
            raise ValueError("cohort_size and noise_sd must be positive")


@dataclass(frozen=True, kw_only=True)
class RequestedRound:
    """The query a learner wants next, and the share of the job's budget that it may cost:
    of mu^2 with Gaussian noise, of epsilon with Laplace noise.

    The shares of a job's rounds sum to 1.
    """

    query: SecondMoments | SecondMomentMatrix
    share: float


class Learner(Protocol):
    """A learner says what it wants next, given all sums so far, until it has a posterior."""

    def next(self, population: int, sums: Sequence[ReleasedSum]) -> RequestedRound | Posterior:
        """Return the next round, or the posterior when `sums` suffice.

        Pure and replayable: the same arguments give the same answer after a restart. `population`
        is N, the public number of clients that joined.

        Raises:
            ValueError: `sums` are not the results of the rounds that this learner asked for.
        """
        ...
