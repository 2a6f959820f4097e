"""A study in public sizes: how many clients, how many columns, which price."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from shoal_protocol.crowds.tasks import Clipping, Variant
from shoal_protocol.privacy.accounting import Cap
from shoal_protocol.queries.models.regressions import Family
from shoal_protocol.sharing.schemes import ADDITIVE, Sharing
from shoal_protocol.trust.limits import LARGEST_POPULATION
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.numbers import Clients

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
