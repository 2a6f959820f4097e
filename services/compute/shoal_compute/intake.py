"""Checks the envelopes of one round at one Compute node, and opens their sealed boxes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from pyroaring import BitMap

from shoal_compute.bulks import AcceptedShare
from shoal_protocol.rounds.round_spec import AskedHolders
from shoal_protocol.sharing import summation
from shoal_protocol.sharing.received import Envelope, envelope_size, parse
from shoal_protocol.sharing.schemes import Sharing
from shoal_protocol.sharing.shares import ShareKind
from shoal_protocol.trust.roster import Roster
from shoal_protocol.wire.errors import ProtocolError, UnknownHolder, WrongManifest
from shoal_protocol.wire.service_errors import (
    NotInPopulation,
    WrongLength,
    WrongNode,
    WrongRound,
)


@dataclass(frozen=True, kw_only=True)
class Intake:
    """What a node checks a round's envelopes by."""

    round_id: str
    manifest: str
    node: int  # this node's index among `nodes`
    nodes: int
    dimension: int
    asked: AskedHolders
    asked_here: BitMap  # the asked data holders that share with this node
    scheme: Sharing
    box_key: bytes
    box_private_key: bytes = field(repr=False)

    @cached_property
    def largest_envelope(self) -> int:
        """Return the size in bytes beyond which no envelope of this round can be valid."""
        return max(envelope_size(kind, self.dimension) for kind in ShareKind)

    def parse(self, encoded: bytes) -> Envelope:
        """Read an envelope that claims to be of this round, for this node.

        Raises:
            MalformedEnvelope, UnsupportedVersion, WrongRound, WrongNode, WrongManifest
        """
        envelope = parse(encoded)
        header = envelope.header
        if header.round_id != self.round_id:
            raise WrongRound
        if header.node != self.node:
            raise WrongNode
        if header.manifest != self.manifest:
            raise WrongManifest
        return envelope

    def validate(self, encoded: bytes, roster: Roster) -> AcceptedShare:
        """Check an envelope in full and open it; `roster` is that of the manifest in force.

        Raises:
            MalformedEnvelope, UnsupportedVersion, WrongRound, WrongNode, WrongManifest: as `parse`.
            UnknownHolder, NotInPopulation, RevokedHolder: the holder may not take part, or here.
            BadSignature, UnopenableCiphertext, TransplantedCiphertext: forged or damaged.
            WrongShareKind, WrongLength, WrongResidue: not the share that this node is due.
        """
        envelope = self.parse(encoded)
        if len(encoded) > self.largest_envelope:
            raise WrongLength
        holder = envelope.header.holder
        if holder >= roster.holders:
            raise UnknownHolder
        if holder not in self.asked_here:
            raise NotInPopulation
        envelope.verify(roster.key_of(holder))  # not revoked or replaced since the round began
        share = envelope.open(self.box_private_key, self.box_key)
        summation.check(
            self.scheme,
            share,
            holder=holder,
            node=self.node,
            nodes=self.nodes,
            dimension=self.dimension,
        )
        return AcceptedShare(
            round_id=self.round_id,
            holder=holder,
            answer=envelope.header.answer,
            digest=envelope.digest,
            signature=envelope.signature,
            kind=share.kind,
            payload=share.payload,
        )


class Upload(NamedTuple):
    """One envelope, with what to check it by."""

    intake: Intake
    roster: Roster
    encoded: bytes


def validate_all(uploads: Sequence[Upload]) -> list[AcceptedShare | ProtocolError]:
    """Return each envelope's share, or why it is refused."""
    return [_validate(*upload) for upload in uploads]


def _validate(intake: Intake, roster: Roster, encoded: bytes) -> AcceptedShare | ProtocolError:
    try:
        return intake.validate(encoded, roster)
    except ProtocolError as error:
        return error
