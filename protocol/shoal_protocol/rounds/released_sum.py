"""A round's released sum, as learners and round rules use it."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.queries import Mechanism, Query
from shoal_protocol.rounds.attestations import Result
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.ring import from_ring
from shoal_protocol.wire.vectors import decode_uint64


@dataclass(frozen=True, kw_only=True)
class ReleasedSum:
    """A round's result: the noisy sum over the cohort, and what is public about its noise.

    `values` and `noise_sd`, both shape (query.dimension,), are in lattice units; `noise_sd` is the
    standard deviation of the noise that the whole cohort really added to each coordinate, by
    `mechanism`. `surplus` is how many times as many clients as the noise was calibrated for (N - D
    - C - 1) there are in the cohort: the shape of the sum of their Laplace shares.
    """

    query: Query
    values: NDArray[np.int64]
    cohort_size: int
    noise_sd: NDArray[np.float64]
    mechanism: Mechanism
    surplus: float = 1.0

    def __post_init__(self) -> None:
        shape = (self.query.dimension,)
        if self.values.shape != shape or self.noise_sd.shape != shape:
            raise ValueError("a released sum and its noise must have the dimension of the query")
        if self.cohort_size < 1 or not np.all(self.noise_sd > 0.0) or not self.surplus > 0.0:
            raise ValueError("cohort_size, noise_sd and surplus must be positive")

    @classmethod
    def of(cls, spec: RoundSpec, result: Result) -> Self:
        """Return what a round released, from its verified result."""
        coordinates, parts = zip(*spec.noise_blocks(), strict=True)
        variances = [part.variance(clients=result.cohort_size) for part in parts]
        return cls(
            query=spec.query,
            values=from_ring(decode_uint64(result.values)),
            cohort_size=result.cohort_size,
            noise_sd=np.repeat(np.sqrt(variances), coordinates),
            mechanism=spec.noise.mechanism,
            surplus=result.cohort_size / spec.parties,
        )
