"""Shared code of the learners of all families: their one round and the law of its noise."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Generic, TypeVar

import numpy as np
from numpy.random import PCG64, Generator

from shoal_learning.contract import RequestedRound
from shoal_learning.families.noise import SummedNoise
from shoal_learning.families.special import Floats, log_sum_exp
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.studies.measurements import noisy_count
from shoal_protocol.studies.study import OneRoundStudy

TaskT = TypeVar("TaskT", bound=OneRoundStudy)
PosteriorT = TypeVar("PosteriorT")

_NODES: Final = 15


@dataclass(frozen=True)
class OneRound(ABC, Generic[TaskT, PosteriorT]):
    """Base of the learners of studies of one round, whose sum alone gives the posterior."""

    task: TaskT

    def next(self, population: int, sums: Sequence[ReleasedSum]) -> RequestedRound | PosteriorT:
        """Return the round, or the posterior when `sums` hold it.

        Raises:
            ValueError: `population` is not positive, or `sums` do not answer this task's round.
        """
        if population < 1:
            raise ValueError("the population must be positive")
        query = self.task.query()
        match sums:
            case []:
                return RequestedRound(query=query, share=1.0)
            case [released] if released.query == query:
                return self.posterior(released)
        raise ValueError("the sums are not those of this task's round")

    @abstractmethod
    def posterior(self, released: ReleasedSum) -> PosteriorT:
        """Return the posterior from the sum of the task's round."""


def noise_of(released: ReleasedSum, coordinate: int, unit: float) -> SummedNoise:
    """Return the law of the noise on a coordinate, in units of `unit` lattice steps."""
    return SummedNoise(
        mechanism=released.mechanism,
        sd=float(released.noise_sd[coordinate]) / unit,
        shape=released.surplus,
    )


def generator_for(released: ReleasedSum) -> Generator:
    """Return a generator that the sum alone determines: the same sum gives the same posterior."""
    digest = sha256(released.values.tobytes()).digest()
    return Generator(PCG64(int.from_bytes(digest[:16], "little")))


def record_counts(
    released: ReleasedSum, nodes: int = _NODES, *, log_uniform: bool = False
) -> tuple[Floats, Floats]:
    """Return how many records there may be, and log probabilities, both shape (m,), m <= `nodes`.

    Their number is seen through noise, and each from none to the most allowed is as likely
    beforehand, or as 1 / (n + 1) with `log_uniform`. A number stands for those around it, up to
    half way to the next.
    """
    seen, sd = noisy_count(released)
    noise = SummedNoise(mechanism=released.mechanism, sd=sd, shape=released.surplus)
    most = released.cohort_size * released.query.records_per_client
    centre = min(max(seen, 0.0), float(most))
    low, high = max(centre - 5.0 * sd, 0.0), min(centre + 5.0 * sd, float(most))
    numbers = np.unique(np.rint(np.linspace(low, high, nodes)))
    ends = np.concatenate(
        [numbers[:1] - 0.5, (numbers[1:] + numbers[:-1]) / 2.0, numbers[-1:] + 0.5]
    )
    widths = np.diff(np.log(ends + 1.0) if log_uniform else ends)
    logs = noise.log_density(seen - numbers) + np.log(widths)
    return numbers, logs - log_sum_exp(logs, 0)
