"""The contract between a learner and whoever carries its rounds out; pure, no I/O and no clock."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.posteriors import Posterior
from shoal_protocol.queries import SecondMomentMatrix, SecondMoments


@dataclass(frozen=True, kw_only=True)
class ReleasedSum:
    """A round's result: the noisy sum over the cohort, and what is public about its noise.

    `values`, shape (query.dimension,), are lattice units; each of the `cohort_size` clients added
    noise of `noise_scale` times the relative scale of the coordinate's block.
    """

    query: SecondMoments | SecondMomentMatrix
    values: NDArray[np.int64]
    cohort_size: int
    noise_scale: float

    def __post_init__(self) -> None:
        if self.values.shape != (self.query.dimension,):
            raise ValueError("a released sum must have the dimension of its query")
        if self.cohort_size < 1 or not self.noise_scale > 0.0:
            raise ValueError("cohort_size and noise_scale must be positive")


@dataclass(frozen=True, kw_only=True)
class RequestedRound:
    """The query a learner wants next, and the share of the job's mu^2 that it may cost.

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
