"""Validates an envelope for one round at one node."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from shoal_compute.bulks import AcceptedShare, Bulk
from shoal_protocol.rounds.asked_holders import AskedHolders
from shoal_protocol.sharing import opening_many, summation
from shoal_protocol.sharing.envelope import ANSWER_BYTES, envelope_digest
from shoal_protocol.sharing.received import Envelope, envelope_size, parse
from shoal_protocol.sharing.schemes import Sharing, Wrapping
from shoal_protocol.sharing.session_envelope import (
    HEADER_BYTES,
    TAG_BYTES,
    SessionEnvelope,
    SessionWrapping,
    is_under_session,
    parse_under_session,
    share_digest,
)
from shoal_protocol.sharing.shares import Share, ShareKind
from shoal_protocol.trust.roster import KEY_BYTES, Roster, roster_size
from shoal_protocol.wire.errors import ProtocolError, UnknownHolder, WrongManifest
from shoal_protocol.wire.service_errors import (
    MalformedEnvelope,
    NotInPopulation,
    WrongLength,
    WrongNode,
    WrongResidue,
    WrongRound,
)

_WRAPPINGS: Final = {
    ShareKind.SEED: SessionWrapping.NOTICE,
    ShareKind.VECTOR: SessionWrapping.VECTOR,
}


class SessionKeys(Protocol):
    """The keys of data holders' sessions."""

    def key(self, holder: int, number: int, verify_key: bytes, opened_at: datetime) -> bytes:
        """Return the key of a holder's session for rounds opened then, or raise UnknownSession."""

    def keys(
        self,
        holders: Sequence[int],
        numbers: Sequence[int],
        verify_keys: Sequence[bytes],
        opened_at: datetime,
    ) -> list[bytes | None]:
        """Return the key of each session, None where `key` raises."""


@dataclass(frozen=True)
class Judged:
    """What became of many envelopes, each by its place among them."""

    refused: dict[int, ProtocolError]
    accepted: list[tuple[Sequence[int], Bulk]]  # the places of a bulk's shares, and these

    def moved(self, start: int) -> "Judged":
        """Return the same where the first place is `start`."""
        return Judged(
            {start + place: error for place, error in self.refused.items()},
            [([start + place for place in each], bulk) for each, bulk in self.accepted],
        )


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

    def validate(self, encoded: bytes, in_force: Roster, sessions: SessionKeys) -> AcceptedShare:
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
        share, signature = self._open(envelope, verify_key, sessions)
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
        self, envelope: Envelope | SessionEnvelope, verify_key: bytes, sessions: SessionKeys
    ) -> tuple[Share, bytes]:
        """Return the share, and the holder's signature if there is one."""
        if isinstance(envelope, Envelope):
            envelope.verify(verify_key)
            return envelope.open(self.box_private_key, self.box_key), envelope.signature
        header = envelope.header
        chain = sessions.key(header.holder, header.number, verify_key, self.opened_at)
        return envelope.open(chain, manifest=self.manifest), b""

    def validate_all(
        self, envelopes: Sequence[bytes], in_force: Roster, sessions: SessionKeys
    ) -> Judged:
        """Do for many envelopes what `validate` does for one."""
        accepted = []
        left = set(range(len(envelopes)))
        if self.wrapping == "session":
            for kind in ShareKind:
                some = self._open_many(kind, envelopes, in_force, sessions)
                if some is not None:
                    accepted.append(some)
                    left.difference_update(some[0])
        refused: dict[int, ProtocolError] = {}
        others: dict[ShareKind, dict[int, AcceptedShare]] = {kind: {} for kind in ShareKind}
        for place in sorted(left):
            try:
                share = self.validate(envelopes[place], in_force, sessions)
            except ProtocolError as error:
                refused[place] = error
            else:
                others[share.share.kind][place] = share
        for each in others.values():
            if each:
                accepted.append((list(each), Bulk.of(list(each.values()))))
        return Judged(refused, accepted)

    def _open_many(
        self, kind: ShareKind, envelopes: Sequence[bytes], in_force: Roster, sessions: SessionKeys
    ) -> tuple[Sequence[int], Bulk] | None:
        """Return those envelopes under sessions that have the share of a kind which is due.

        Whatever is unusual about an envelope, it is not among them.
        """
        size = HEADER_BYTES + TAG_BYTES + (8 * self.dimension if kind is ShareKind.VECTOR else 0)
        places = [place for place, each in enumerate(envelopes) if len(each) == size]
        if not places:
            return None
        chosen = [envelopes[place] for place in places]
        holders, numbers, due = opening_many.headers(
            chosen, _WRAPPINGS[kind], node=self.node, round_id=self.round_id
        )
        strange = BitMap(holders) - self.asked_here
        due = due & (self._kinds[holders % self.nodes] == kind) & (holders < in_force.holders)
        if strange:
            due &= ~np.isin(holders, strange.to_array())
        rows = np.flatnonzero(due)
        own, encoded = holders[rows], [chosen[row] for row in rows.tolist()]
        keys = sessions.keys(
            own.tolist(), numbers[rows].tolist(), _keys_of(in_force, own), self.opened_at
        )
        open_ = opening_many.open_notices if kind is ShareKind.SEED else opening_many.open_vectors
        opened = open_(encoded, keys, manifest=self.manifest)
        if kind is ShareKind.VECTOR:
            opened = [each if each and self._has_residues(each) else None for each in opened]
        good = [at for at, each in enumerate(opened) if each]
        if not good:
            return None
        payloads = [each for each in opened if each]
        encoded = [encoded[at] for at in good]
        bulk = Bulk(
            self.round_id,
            kind,
            own[good],
            [each[HEADER_BYTES - ANSWER_BYTES : HEADER_BYTES] for each in encoded],
            opening_many.share_digests(encoded, payloads, kind, round_id=self.round_id),
            [b""] * len(good),
            payloads,
        )
        return [places[row] for row in rows[good].tolist()], bulk

    @cached_property
    def _kinds(self) -> npt.NDArray[np.int8]:
        """Return the kind of share that is due, by the holder's index modulo the nodes."""
        turns = range(self.nodes)
        due = [self.scheme.kind_for(holder=i, node=self.node, nodes=self.nodes) for i in turns]
        return np.array(due, np.int8)

    def _has_residues(self, payload: bytes) -> bool:
        try:
            summation.check_residues(self.scheme, np.frombuffer(payload, "<u8"))
        except WrongResidue:
            return False
        return True


def _keys_of(roster: Roster, holders: npt.NDArray[np.uint32]) -> list[bytes]:
    """Return the verify keys of enrolled data holders; zeros of one that was revoked."""
    before = roster_size(holders=0, ranges=0)
    rows = np.frombuffer(roster.encode(), f"V{KEY_BYTES}", roster.holders, before)
    return list(rows[holders].tolist())


@dataclass(frozen=True, slots=True)
class Upload:
    """One envelope, with the round's `Intake`, and the roster and sessions to check it by."""

    intake: Intake
    in_force: Roster
    sessions: SessionKeys
    encoded: bytes = field(repr=False)


def validate_each(uploads: Sequence[Upload]) -> list[AcceptedShare | ProtocolError]:
    """Check each envelope by itself."""
    return [_validate(upload) for upload in uploads]


def _validate(upload: Upload) -> AcceptedShare | ProtocolError:
    try:
        return upload.intake.validate(upload.encoded, upload.in_force, upload.sessions)
    except ProtocolError as error:
        return error


@dataclass(frozen=True, slots=True)
class ManyUploads:
    """Envelopes that came together, with what to check them by."""

    intake: Intake
    in_force: Roster
    sessions: SessionKeys
    encoded: Sequence[bytes] = field(repr=False)


def validate_many(uploads: Sequence[ManyUploads]) -> list[Judged]:
    """Check all that came together."""
    return [
        each.intake.validate_all(each.encoded, each.in_force, each.sessions) for each in uploads
    ]
