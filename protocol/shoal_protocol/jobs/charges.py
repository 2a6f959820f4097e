"""A data holder's query what a Compute node charged its slots, and the answer to that holder alone.

A data holder cannot see that its whole state was lost or restored from a backup. The nodes keep for
good whose shares they took in which rounds, and what each round cost.

The query also says which machine asks. A node keeps the one of the highest epoch, and charges and
answers to no other: of two machines with one key it shows the later one what the first had signed.
"""

import math
from collections.abc import Collection
from typing import Final, Literal, Self

from pydantic import Field, model_validator
from pyroaring import BitMap

from shoal_protocol.privacy.accounting import Cap, Cost
from shoal_protocol.trust.manifest import Parties
from shoal_protocol.wire.documents import (
    HolderDocument,
    Model,
    NodeDocument,
    Signed,
)
from shoal_protocol.wire.encoding import (
    Base64,
    Count,
    Digest,
    HolderIndex,
    Loss,
    Name,
    NonceHex,
    Place,
    Timestamp,
    decode_clients,
)
from shoal_protocol.wire.errors import MalformedDocument

_ROUNDING: Final = 1.0 + 1e-9  # of a stated price


class ChargesQuery(HolderDocument):
    """Holder -> Compute: a query of its slots' charges, valid for minutes and once per page.

    A node answers with its charges, or with the query of the machine that it has on file instead.
    """

    kind: Literal["charges_query"] = "charges_query"
    node: Name  # whom it asks
    epoch: int = Field(ge=0, lt=2**32)  # raised whenever the holder's state is restored
    instance: NonceHex  # drawn when the state began or was restored; restarts keep it
    nonce: NonceHex  # fresh
    at: Timestamp

    @property
    def machine(self) -> tuple[int, str]:
        """Return epoch and instance, which together name the machine that asks."""
        return self.epoch, self.instance


class RoundCharged(Model):
    """A round in which the node holds, or held, a share of some of the holder's slots."""

    entry: Place  # of the node's journal
    round: Digest
    job: Digest
    number: Count  # of the round in its job
    mu: Loss  # what it cost each of them
    epsilon: Loss | None  # None is infinite
    clients: Base64  # canonical Roaring bitmap: of which slots

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if (self.mu == 0.0) != (self.epsilon == 0.0):
            raise ValueError("what costs nothing costs nothing in either currency")
        return self

    @property
    def cost(self) -> Cost:
        """Return what the round cost each of the slots."""
        return Cost.stated(self.mu, self.epsilon)


class Charges(NodeDocument):
    """Compute -> holder: the rounds of a stretch of this node's journal in which it took shares."""

    kind: Literal["charges"] = "charges"
    nonce: NonceHex  # of the query
    holder: HolderIndex
    after: Count  # the stretch begins behind this entry of the journal,
    through: Count  # and ends with this one
    head: Count  # the journal's last entry
    rounds: tuple[RoundCharged, ...]

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.through != self.head and not self.after < self.through < self.head:
            raise ValueError("a stretch ends behind its beginning, or where the journal ends")
        entries = [each.entry for each in self.rounds]
        if entries != sorted(set(entries)):
            raise ValueError("rounds are in the order of the journal")
        if entries and not self.after < entries[0] <= entries[-1] <= self.through:
            raise ValueError("a round lies outside the stretch")
        return self


def check_charges(
    signed: Signed[Charges],
    parties: Parties,
    *,
    node: str,
    nonce: str,
    after: int,
    holder: int,
    slots: BitMap,
    caps: Collection[Cap],
) -> list[tuple[RoundCharged, BitMap]]:
    """Check what `node` answers to the query with `nonce` of a holder that has these slots.

    Return each round with the slots that it was charged to. `caps` are those of all policies that
    the reader knows: every party refuses a round that costs more, so no round ever did.

    Raises:
        WrongManifest, UnknownSigner, WrongSigner, BadSignature: it is not that node's word.
        MalformedDocument: it answers another query, or speaks of others' slots, or of a cost that
            no round has.
    """
    parties.verify(signed)
    answer = signed.body
    asked = (answer.node, answer.nonce, answer.after, answer.holder)
    if asked != (node, nonce, after, holder):
        raise MalformedDocument("it answers another query")
    charged = [(each, decode_clients(each.clients)) for each in answer.rounds]
    if not all(clients and clients.issubset(slots) for _, clients in charged):
        raise MalformedDocument("it speaks of others' slots")
    if not all(_is_of_a_round(each.cost, caps) for each in answer.rounds):
        raise MalformedDocument("no round costs so much under a version of the manifest known here")
    return charged


def _is_of_a_round(cost: Cost, caps: Collection[Cap]) -> bool:
    """Tell whether a round can cost this: by its noise it has one currency, the other follows."""
    of_pure = Cost.pure(cost.epsilon) if math.isfinite(cost.epsilon) else cost
    return cost.mu <= of_pure.mu * _ROUNDING and any(cap.allows(cost) for cap in caps)
