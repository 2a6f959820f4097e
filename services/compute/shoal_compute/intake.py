"""Validates an envelope for one round at one node."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from shoal_compute.shares import AcceptedShare
from shoal_protocol.rounds.asked_holders import AskedHolders
from shoal_protocol.sharing import summation
from shoal_protocol.sharing.received import Envelope, envelope_size, parse
from shoal_protocol.sharing.schemes import Sharing
from shoal_protocol.sharing.shares import ShareKind
from shoal_protocol.trust.roster import Roster
from shoal_protocol.wire.errors import ProtocolError, UnknownHolder, WrongManifest
from shoal_protocol.wire.service_errors import NotInPopulation, WrongLength, WrongNode, WrongRound


@dataclass(frozen=True, kw_only=True)
class Intake:
    """Checks a round's envelopes at one node."""

    round_id: str
    manifest: str
    node: int  # this node's index among `nodes`
    nodes: int
    dimension: int
    asked: AskedHolders
    scheme: Sharing
    box_key: bytes
    box_private_key: bytes = field(repr=False)

    @property
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

    def validate(self, encoded: bytes, in_force: Roster) -> AcceptedShare:
        """Check an envelope in full and open it; `in_force` is the current manifest's roster.

        Raises:
            MalformedEnvelope, UnsupportedVersion, WrongRound, WrongNode, WrongManifest: as `parse`.
            UnknownHolder, NotInPopulation, RevokedHolder: the holder may not take part.
            BadSignature, UnopenableCiphertext, TransplantedCiphertext: forged or damaged.
            WrongShareKind, WrongLength, WrongResidue: not the share that this node is due.
        """
        envelope = self.parse(encoded)
        if len(encoded) > self.largest_envelope:
            raise WrongLength
        holder = envelope.header.holder
        if holder >= in_force.holders:
            raise UnknownHolder
        if holder not in self.asked.holders:
            raise NotInPopulation
        envelope.verify(in_force.key_of(holder))  # not revoked or replaced since the round began
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
            share=share,
        )


@dataclass(frozen=True, slots=True)
class Upload:
    """One envelope, with the round's `Intake` and the roster to check it by."""

    intake: Intake
    in_force: Roster
    encoded: bytes = field(repr=False)


def validate_all(uploads: Sequence[Upload]) -> list[AcceptedShare | ProtocolError]:
    """Check each envelope by itself."""
    return [_validate(upload) for upload in uploads]


def _validate(upload: Upload) -> AcceptedShare | ProtocolError:
    try:
        return upload.intake.validate(upload.encoded, upload.in_force)
    except ProtocolError as error:
        return error
