"""Hidden participation as a round's spec states it: whose coin, how many rounds, and who paid.

It knows no query and no noise; what all rounds cost together is `amplification`'s.
"""

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from shoal_protocol.accounting import NOTHING, Cost
from shoal_protocol.amplification import LARGEST_ROUNDS, hidden_mu
from shoal_protocol.documents import Model
from shoal_protocol.encoding import Digest
from shoal_protocol.sharing import RandomBytes

HIDEABLE_QUERIES: Final = ("gradient_sum",)
"""Those whose contributions lie within half their sensitivity of the zeros that absence sends."""

_COIN_BYTES: Final = 4
_COINS: Final = 1 << 8 * _COIN_BYTES


def _exact(rate: float) -> float:
    return min(round(rate * _COINS), _COINS - 1) / _COINS


Rate = Annotated[float, Field(ge=1 / _COINS, lt=1.0, allow_inf_nan=False), AfterValidator(_exact)]
"""A probability that a coin of 32 fair bits has exactly: the nearest multiple of 2^-32."""


class HiddenParticipation(Model):
    """In each of a job's `rounds`, each client's own coin says whether its records count.

    With probability `rate` they do, else it sends zeros; its noise it adds either way. The first
    round, where `prepaid_by` is null, is charged for all of them; the others name it.
    """

    rate: Rate
    rounds: int = Field(ge=1, le=LARGEST_ROUNDS)
    prepaid_by: Digest | None

    def toss(self, random_bytes: RandomBytes) -> int:
        """Return 1 with probability `rate`, exactly, else 0; `random_bytes` is cryptographic."""
        return int(int.from_bytes(random_bytes(_COIN_BYTES), "little") < self.rate * _COINS)

    def charged(self, known: Cost) -> Cost:
        """Return what a round is charged that would cost `known` whoever surely takes part.

        Raises:
            ValueError: so many rounds with so little noise have no price.
        """
        return self.whole(known) if self.prepaid_by is None else NOTHING

    def whole(self, known: Cost) -> Cost:
        """Return what all rounds cost together, if each would cost `known` or less.

        Raises:
            ValueError: as `charged`.
        """
        return Cost.gaussian(hidden_mu(rate=self.rate, mu=known.mu, rounds=self.rounds))

    def paid_by(self, first: str) -> "HiddenParticipation":
        """Return the same for a later round, which the round `first` paid for."""
        return self.model_copy(update={"prepaid_by": first})
