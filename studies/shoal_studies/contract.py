"""The interface between a learner and the trainer or simulation that runs its rounds; pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from shoal_protocol.queries import Query
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue import Posterior, Task


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


def require_due(task: Task, population: int, sums: Sequence[ReleasedSum]) -> None:
    """Check that `sums` answer the first of a task's rounds, in order.

    Raises:
        ValueError: `population` is not positive, or `sums` do not answer them.
    """
    if population < 1:
        raise ValueError("the population must be positive")
    names, rounds = [each.name for each in task.columns], task.asked()
    if len(sums) > len(rounds) or any(
        released.query.name != name
        or released.query.records_per_client != task.records_per_client
        or [each.name for each in released.query.columns] != names
        for released, name in zip(sums, rounds, strict=False)
    ):
        raise ValueError("the sums are not those of this task's rounds, in order")


class Learner(Protocol):
    """Given all sums so far, a learner returns the next round that it needs, or its posterior."""

    def next(self, population: int, sums: Sequence[ReleasedSum]) -> RequestedRound | Posterior:
        """Return the next round, or the posterior when `sums` suffice.

        Pure and replayable: the same arguments give the same answer after a restart. `population`
        is N, the public number of clients that joined.

        Raises:
            ValueError: `sums` are not the results of the rounds that this learner asked for.
        """
        ...


class NoReliablePosterior(ValueError):
    """The sums are right, but no posterior that can be relied on follows from them."""
