"""Validates an envelope for one round at one node."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from pyroaring import BitMap

from shoal_compute.shares import AcceptedShare
from shoal_protocol.rounds.asked_holders import AskedHolders
from shoal_protocol.sharing import summation
from shoal_protocol.sharing.envelope import envelope_digest
from shoal_protocol.sharing.received import Envelope, envelope_size, parse
from shoal_protocol.sharing.schemes import Sharing, Wrapping
from shoal_protocol.sharing.session_envelope import (
    SessionEnvelope,
    is_under_session,
    parse_under_session,
    share_digest,
)
from shoal_protocol.sharing.sessions import round_key
from shoal_protocol.sharing.shares import Share, ShareKind
from shoal_protocol.trust.roster import Roster
from shoal_protocol.wire.errors import ProtocolError, UnknownHolder, WrongManifest
from shoal_protocol.wire.service_errors import (
    MalformedEnvelope,
    NotInPopulation,
    WrongLength,
    WrongNode,
    WrongRound,
)

ChainKey = Callable[[int, int, bytes, datetime], bytes]
"""Returns the key of a holder's session: by index, number, verify key and the round's opening."""


@dataclass(frozen=True, kw_only=True)
class Intake:
    """Checks a round's envelopes at one node."""

    round_id: str
    manifest: str
    node: int  # this node's index among `nodes`
    nodes: int
    dimension: int
    asked: AskedHolders
    asked_here: BitMap  # those of them who share with this node
    scheme: Sharing
    wrapping: Wrapping
    opened_at: datetime
    box_key: bytes
    box_private_key: bytes = field(repr=False)

    @cached_property
    def largest_envelope(self) -> int:
        """Return the size in bytes beyond which no envelope of this round can be valid."""
        return max(envelope_size(kind, self.dimension) for kind in ShareKind)

    def parse(self, encoded: bytes) -> Envelope | SessionEnvelope:
        """Read an envelope that claims to be of this round, for this node.

        Raises:
            MalformedEnvelope, UnsupportedVersion, WrongRound, WrongNode, WrongManifest
        """
        envelope: Envelope | SessionEnvelope
        if not is_under_session(encoded):
            envelope = parse(encoded)
        elif self.wrapping == "session":
            envelope = parse_under_session(encoded)
        else:
            raise MalformedEnvelope("the round's job does not ask for sessions")
        header = envelope.header
        if header.round_id != self.round_id:
            raise WrongRound
        if header.node != self.node:
            raise WrongNode
        if isinstance(envelope, Envelope) and envelope.header.manifest != self.manifest:
            raise WrongManifest
        return envelope

    def validate(self, encoded: bytes, in_force: Roster, chain_key: ChainKey) -> AcceptedShare:
        """Check an envelope in full and open it; `in_force` is the current manifest's roster.

        Raises:
            MalformedEnvelope, UnsupportedVersion, WrongRound, WrongNode, WrongManifest: as `parse`.
            UnknownHolder, NotInPopulation, RevokedHolder: the holder may not take part, or here.
            UnknownSession: there is no such session with it.
            BadSignature, UnopenableCiphertext, TransplantedCiphertext: forged or damaged.
            WrongShareKind, WrongLength, WrongResidue: not the share that this node is due.
        """
        envelope = self.parse(encoded)
        if len(encoded) > self.largest_envelope:
            raise WrongLength
        holder, answer = envelope.header.holder, envelope.header.answer
        if holder >= in_force.holders:
            raise UnknownHolder
        if holder not in self.asked_here:
            raise NotInPopulation
        verify_key = in_force.key_of(holder)  # not revoked or replaced since the round began
        share, signature = self._open(envelope, verify_key, chain_key)
        summation.check(
            self.scheme,
            share,
            holder=holder,
            node=self.node,
            nodes=self.nodes,
            dimension=self.dimension,
        )
        if self.wrapping == "session":  # the same share may come wrapped otherwise
            digest = share_digest(self.round_id, answer, share)
        else:
            digest = envelope_digest(encoded)
        return AcceptedShare(
            round_id=self.round_id,
            holder=holder,
            answer=answer,
            digest=digest,
            signature=signature,
            share=share,
        )

    def _open(
        self, envelope: Envelope | SessionEnvelope, verify_key: bytes, chain_key: ChainKey
    ) -> tuple[Share, bytes]:
        """Return the share, and the holder's signature if there is one."""
        if isinstance(envelope, Envelope):
            envelope.verify(verify_key)
            return envelope.open(self.box_private_key, self.box_key), envelope.signature
        header = envelope.header
        chain = chain_key(header.holder, header.number, verify_key, self.opened_at)
        return envelope.open(round_key(chain, self.round_id), manifest=self.manifest), b""


@dataclass(frozen=True, slots=True)
class Upload:
    """One envelope, with the round's `Intake`, and the roster and sessions to check it by."""

    intake: Intake
    in_force: Roster
    chain_key: ChainKey
    encoded: bytes = field(repr=False)


def validate_all(uploads: Sequence[Upload]) -> list[AcceptedShare | ProtocolError]:
    """Check each envelope by itself."""
    return [_validate(upload) for upload in uploads]


def _validate(upload: Upload) -> AcceptedShare | ProtocolError:
    try:
        return upload.intake.validate(upload.encoded, upload.in_force, upload.chain_key)
    except ProtocolError as error:
        return error
