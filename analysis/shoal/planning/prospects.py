"""The result of a plan: one protocol's costs, and the expected error of the coefficients."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Protocol = Literal["distributed_compute", "draw_and_discard"]


@dataclass(frozen=True, kw_only=True)
class ErrorParts:
    """Root mean square errors of the p coefficients on the normalised scale, by cause.

    `bias` is what would stay with ever more clients: clipping and priors. `unfinished` is what the
    start is still to blame for. `sampling` is there without privacy, `noise` is its price.
    """

    noise: float
    sampling: float
    bias: float
    unfinished: float

    @property
    def total(self) -> float:
        """The expected error: the root of the sum of squares."""
        return math.hypot(self.noise, self.sampling, self.bias, self.unfinished)

    @classmethod
    def of(
        cls,
        *,
        noise: NDArray[np.float64],
        sampling: NDArray[np.float64],
        bias: NDArray[np.float64],
        unfinished: NDArray[np.float64],
    ) -> "ErrorParts":
        """Return the parts, given each coefficient's, shapes (p,)."""

        def rms(each: NDArray[np.float64]) -> float:
            return float(np.sqrt(np.mean(each**2)))

        return cls(
            noise=rms(noise), sampling=rms(sampling), bias=rms(bias), unfinished=rms(unfinished)
        )


@dataclass(frozen=True, kw_only=True)
class Prospect:
    """One protocol's costs and error. Bytes are of documents and envelopes, without HTTP and TLS.

    `rounds` is how often all wait for each other; `answers` how often one client takes part;
    `settings` what the error was computed for. `excluded` says why the study cannot be made this
    way at all, and is None if it can.
    """

    protocol: Protocol
    rounds: int
    answers: int
    sent_bytes: int  # by one client, in all
    received_bytes: int
    taken_in_bytes: int  # by all services together, of all clients
    error: ErrorParts
    settings: Mapping[str, float | int | str]
    excluded: str | None = None
