"""A study in public sizes: how many clients, how many columns, which price; it knows no record."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from shoal_protocol.accounting import Cap
from shoal_protocol.documents import Model
from shoal_protocol.draw_and_discard.tasks import Clipping, Family, Variant
from shoal_protocol.rounds import LARGEST_POPULATION
from shoal_protocol.schemes import ADDITIVE, Sharing

Positive = Annotated[float, Field(gt=0.0, le=1e6, allow_inf_nan=False)]


class Study(Model):
    """What a plan is made of. All of it is public, or assumed and to be said so.

    `epsilon` and `delta` are what the whole study may cost one client: by rounds (epsilon, delta);
    by Draw and Discard pure epsilon, which its `contributions_per_client` share. Each client holds
    one record.

    Assumed of the records: features are spread evenly over their bounds and are not correlated,
    all coefficients are of size `effect` on the normalised scale with alternating signs, and a
    linear model's target scatters by `residual_sd` of half its range around its mean. Counts go
    up to `largest_count`.

    `rounds`, `batch`, `clip` and `learning_rate` are those of a variational job; `instances`,
    `variant`, `clipping` and `step` of a crowd job, where `step` is its learning rate, and None
    chooses the one with the least expected error. `open_sessions` is how many clients have drawn
    and not yet answered, on average: arrivals a second times the seconds between.
    """

    family: Family
    clients: int = Field(ge=10, le=10**10)
    features: int = Field(ge=1, le=100)
    epsilon: float = Field(gt=0.0, le=100.0)
    delta: float = Field(ge=0.0, lt=1.0)

    effect: Positive = 0.3
    residual_sd: Positive = 0.2
    largest_count: Annotated[float, Field(ge=1.0, le=1000.0)] = 10.0

    nodes: int = Field(default=3, ge=2, le=255)
    sharing: Sharing = ADDITIVE
    dropouts: int | None = Field(default=None, ge=0)  # None: one client in a hundred
    colluders: int | None = Field(default=None, ge=0)
    rounds: int = Field(default=100, ge=1, le=100_000)
    batch: int | None = Field(default=None, ge=10)
    clip: Positive | None = None
    learning_rate: Annotated[float, Field(gt=0.0, le=10.0)] | None = None

    instances: int = Field(default=20, ge=1, le=10_000)
    variant: Variant = "one"
    clipping: Clipping = "coordinate"
    step: Positive | None = None
    open_sessions: float = Field(default=0.0, ge=0.0, le=1e9)
    contributions_per_client: int = Field(default=1, ge=1, le=1_000_000)

    @model_validator(mode="after")
    def _sizes_agree(self) -> Self:
        if self.batch is not None and self.batch > self.clients:
            raise ValueError("batch may be at most the number of clients")
        if self.tolerated[0] + self.tolerated[1] + 1 >= self.asked:
            raise ValueError("a round must ask more clients than dropouts + colluders + 1")
        if reason := self.sharing.refusal(nodes=self.nodes, minimum_threshold=2):
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
    def asked(self) -> int:
        """How many clients a round asks."""
        return self.batch or self.clients

    @property
    def tolerated(self) -> tuple[int, int]:
        """Dropouts and colluders of a round."""
        few = min(self.asked, LARGEST_POPULATION) // 100
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
