"""The interface between a learner and the trainer or simulation that runs its rounds; pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from shoal_protocol.queries import Query
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.posteriors.base import BasePosterior


@dataclass(frozen=True, kw_only=True)
class RequestedRound:
    """The query a learner wants next, and the share of the job's budget that it may cost:
    of mu^2 with Gaussian noise, of epsilon with Laplace noise.

    `batch` is how many clients are asked, None all who joined. The shares of the rounds that one
    client may be asked in sum to at most 1.
    """

    query: Query
    share: float
    batch: int | None = None


class Learner(Protocol):
    """Given all sums so far, a learner returns the next round that it needs, or its posterior."""

    def next(self, population: int, sums: Sequence[ReleasedSum]) -> RequestedRound | BasePosterior:
        """Return the next round, or the posterior when `sums` suffice.

        Pure and replayable: the same arguments give the same answer after a restart. `population`
        is N, the public number of clients that joined.

        Raises:
            ValueError: `sums` are not the results of the rounds that this learner asked for.
        """
        ...


class NoReliablePosterior(ValueError):
    """The sums are right, but no posterior that can be relied on follows from them."""
