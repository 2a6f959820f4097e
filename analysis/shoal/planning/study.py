"""A study in public sizes: how many clients, how many columns, which price."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from shoal_holder.crowds.schedule import LAST_MOMENTS
from shoal_protocol.crowds.tasks import Clipping, Variant
from shoal_protocol.privacy.accounting import Cap
from shoal_protocol.queries.models import Family
from shoal_protocol.sharing.schemes import ADDITIVE, Sharing
from shoal_protocol.trust.policy import LARGEST_POPULATION
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import Clients

Positive = Annotated[float, Field(gt=0.0, le=1e6, allow_inf_nan=False)]


class Study(Model):
    """The public sizes and the assumptions from which a study is planned.

    By rounds the study costs a client (epsilon, delta); by Draw and Discard pure epsilon, which its
    contributions share. Each client holds one record. Features are assumed to be spread evenly over
    their bounds and not correlated, with coefficients of one size and alternating signs.

    `instances`, `open_sessions`, `variant`, `clipping` and `step` are those of a crowd job.
    """

    family: Family = Field(description="linear, logistic or poisson")
    clients: int = Field(ge=10, le=10**10, description="how many clients, with one record each")
    features: int = Field(ge=1, le=100, description="features of the regression")
    epsilon: float = Field(gt=0.0, le=100.0, description="what the study may cost one client")
    delta: float = Field(ge=0.0, lt=1.0, description="for rounds; Draw and Discard needs none")

    effect: Annotated[float, Field(gt=0.0, le=100.0)] = Field(
        default=0.3, description="assumed size of a coefficient, on the normalised scale"
    )
    residual_sd: Positive = Field(
        default=0.2, description="assumed scatter of a linear target, in half ranges"
    )
    largest_count: float = Field(
        default=10.0, ge=1.0, le=1000.0, description="a Poisson target's upper bound"
    )

    nodes: int = Field(default=3, ge=2, le=255, description="Compute nodes")
    sharing: Sharing = ADDITIVE
    dropouts: Clients | None = Field(
        default=None, ge=0, description="clients that may be missing; or 1 in 100"
    )
    colluders: Clients | None = Field(
        default=None, ge=0, description="clients that may collude; or 1 in 100"
    )

    instances: int = Field(
        default=20,
        ge=1,
        le=10_000,
        description="instances of a crowd job, k; 20 if not by its load",
    )
    variant: Variant = Field(default="one", description="one, feature or all")
    clipping: Clipping = Field(default="coordinate", description="coordinate or residual")
    step: Positive | None = Field(
        default=None, description="learning rate of a crowd job; or the best one"
    )
    open_sessions: float = Field(
        default=0.0,
        ge=0.0,
        le=1e9,
        description="clients that have drawn and not yet answered: arrivals a second times seconds",
    )
    contributions_per_client: int = Field(
        default=1,
        ge=1,
        le=1_000_000,
        description="contributions of each client, which share epsilon",
    )

    @model_validator(mode="after")
    def _sizes_agree(self) -> Self:
        if self.tolerated[0] + self.tolerated[1] + 1 >= self.clients:
            raise ValueError("there must be more clients than dropouts + colluders + 1")
        if reason := self.sharing.refusal(
            nodes=self.nodes, minimum_threshold=2, minimum_committee=2
        ):
            raise ValueError(reason)
        return self

    @property
    def cap(self) -> Cap:
        """What the study may cost one client."""
        return Cap(epsilon=self.epsilon, delta=self.delta)

    @property
    def coefficients(self) -> int:
        """The number of coefficients, p: the features' and the constant's."""
        return self.features + 1

    @property
    def tolerated(self) -> tuple[int, int]:
        """Dropouts and colluders of a round."""
        few = min(self.clients, LARGEST_POPULATION) // 100
        return (
            few if self.dropouts is None else self.dropouts,
            few if self.colluders is None else self.colluders,
        )

    @property
    def contributions(self) -> int:
        """How many contributions a crowd job takes in."""
        return self.clients * self.contributions_per_client

    @property
    def fits_rounds(self) -> bool:
        """Whether a job can have as many clients."""
        return self.clients <= LARGEST_POPULATION


ANSWER_SECONDS: Final = 0.5
"""From a draw to its answer, assumed: an agent's step and two requests, on a fair line."""

LITTLE: Final = 0.1
"""Open sessions for each instance that cost at most a tenth of the learning: k / (k + m)."""


_FEWEST: Final = 1e-6  # open sessions on average: one second of two weeks


def assumed_open_sessions(study: Study) -> float:
    """Return how many draws may be under way at a time before the plan is off.

    As many as the study says; if it says none, so few that they cost a tenth of the learning.
    """
    return max(study.open_sessions, _FEWEST) if study.open_sessions else LITTLE * study.instances


def sufficient_open_seconds(study: Study) -> float:
    """Return for how many seconds the job must be open for no more open sessions on average.

    Contributions come evenly over all but the last moments, each open for `ANSWER_SECONDS`.
    """
    busy = study.contributions * ANSWER_SECONDS / assumed_open_sessions(study)
    return busy / (1.0 - LAST_MOMENTS)


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
