"""The envelope under a session: a share for one Compute node, encrypted and authenticated.

    offset  bytes
    0       5      b"SHOAL"
    5       1      version
    6       1      wrapping: 2 vector, 3 notice, 4 explicit seed
    7       1      index of the Compute node in the manifest
    8       4      index of the data holder, little-endian
    12      4      number of the session, little-endian
    16      32     round id (digest of the round spec)
    48      16     answer id, the same in all envelopes of one answer
    64      n + 16 ChaCha20-Poly1305 (RFC 8439) of the share; associated data: header and manifest

A notice has only a tag, 16 bytes: tag and seed follow from the session, both from one block of
ChaCha20, a pseudo-random function of the answer id under a key that is bound to the rest. An
explicit seed is one that does not follow, such as the same share's under a later session. The nonce
is zero, for the key follows from the header, and one header has one payload.
"""

import hashlib
import hmac
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from shoal_protocol.sharing.envelope import ANSWER_BYTES, MAGIC
from shoal_protocol.sharing.sessions import derive
from shoal_protocol.sharing.shares import SEED_BYTES, Share, ShareKind
from shoal_protocol.wire.encoding import domain, sha256
from shoal_protocol.wire.errors import UnsupportedVersion
from shoal_protocol.wire.service_errors import MalformedEnvelope, UnopenableCiphertext
from shoal_protocol.wire.versions import WIRE

HEADER_BYTES: Final = 48 + ANSWER_BYTES
TAG_BYTES: Final = 16
_NONCE: Final = bytes(12)


class SessionWrapping(IntEnum):
    """What the ciphertext of an envelope holds; codes follow those of `ShareKind`."""

    VECTOR = 2
    NOTICE = 3
    SEED = 4


_WRAPPINGS: Final = frozenset(map(int, SessionWrapping))
_KINDS: Final = dict.fromkeys(SessionWrapping, ShareKind.SEED) | {
    SessionWrapping.VECTOR: ShareKind.VECTOR
}


@dataclass(frozen=True)
class SessionHeader:
    """The header of an envelope under a session."""

    wrapping: SessionWrapping
    node: int
    holder: int
    number: int
    round_id: str
    answer: bytes  # ANSWER_BYTES of them

    def encode(self) -> bytes:
        """Return the 64 bytes of the header.

        Raises:
            ValueError: the answer id has another length.
        """
        if len(self.answer) != ANSWER_BYTES:
            raise ValueError(f"an answer id has {ANSWER_BYTES} bytes")
        return b"".join(
            (
                MAGIC,
                bytes([WIRE, self.wrapping, self.node]),
                self.holder.to_bytes(4, "little"),
                self.number.to_bytes(4, "little"),
                bytes.fromhex(self.round_id),
                self.answer,
            )
        )


@dataclass(frozen=True)
class SessionEnvelope:
    """An envelope under a session, of the right layout; nothing of it is authenticated yet."""

    header: SessionHeader
    encoded: bytes

    def __repr__(self) -> str:
        return f"SessionEnvelope({len(self.encoded)} bytes)"

    @property
    def digest(self) -> str:
        """Return the digest, in hex, by which a signed refusal names the envelope."""
        return sha256("session_envelope", self.encoded)

    def open(self, key: bytes, *, manifest: str) -> Share:
        """Authenticate and decrypt the share by the chain's key of the round's hour (`hour_for`).

        Raises:
            UnopenableCiphertext: made with another key, for another header or manifest, or damaged.
        """
        head, box = self.encoded[:HEADER_BYTES], self.encoded[HEADER_BYTES:]
        if self.header.wrapping is SessionWrapping.NOTICE:
            seed, tag = _notice(key, head, manifest)
            if not hmac.compare_digest(tag, box):
                raise UnopenableCiphertext
            return Share(ShareKind.SEED, seed)
        bound_to = head + bytes.fromhex(manifest)
        try:
            payload = ChaCha20Poly1305(_seal_key(key, head)).decrypt(_NONCE, box, bound_to)
        except InvalidTag as error:
            raise UnopenableCiphertext from error
        return Share(_KINDS[self.header.wrapping], payload)


def seed_for(header: SessionHeader, key: bytes, *, manifest: str) -> bytes:
    """Return the seed, 32 bytes, for which a notice with this header stands."""
    return seed_and_notice(header, key, manifest=manifest)[0]


def seed_and_notice(header: SessionHeader, key: bytes, *, manifest: str) -> tuple[bytes, bytes]:
    """Return the seed, 32 bytes, and the envelope that stands for it, as `wrap` makes it."""
    head = header.encode()
    seed, tag = _notice(key, head, manifest)
    return seed, head + tag


def wrap(share: Share, header: SessionHeader, *, key: bytes, manifest: str) -> bytes:
    """Encrypt and authenticate a share by the chain's key of the hour; the same bytes each time.

    Raises:
        ValueError: the header speaks of another kind of share, or a notice of another seed.
    """
    head = header.encode()
    if share.kind is not _KINDS[header.wrapping]:
        raise ValueError("the header names another kind of share")
    if header.wrapping is SessionWrapping.NOTICE:
        seed, tag = _notice(key, head, manifest)
        if share.payload != seed:
            raise ValueError("a notice stands for the seed that follows from its session")
        return head + tag
    data = head + bytes.fromhex(manifest)
    return head + ChaCha20Poly1305(_seal_key(key, head)).encrypt(_NONCE, share.payload, data)


def _seal_key(key: bytes, head: bytes) -> bytes:
    """Return a key that is bound to the header: to node, wrapping, round, session and answer."""
    return derive(key, b"seal", hashlib.sha256(head).digest())


def _notice(key: bytes, head: bytes, manifest: str) -> tuple[bytes, bytes]:
    """Return a notice's seed, 32 bytes, and its tag, 16."""
    bound = derive(key, b"notice", head[:-ANSWER_BYTES] + bytes.fromhex(manifest))
    block = Cipher(algorithms.ChaCha20(bound, head[-ANSWER_BYTES:]), mode=None).encryptor()
    seed_and_tag = block.update(bytes(SEED_BYTES + TAG_BYTES))
    return seed_and_tag[:SEED_BYTES], seed_and_tag[SEED_BYTES:]


def is_under_session(encoded: bytes) -> bool:
    """Tell whether bytes claim to be an envelope under a session."""
    return encoded[: len(MAGIC)] == MAGIC and len(encoded) > 6 and encoded[6] in _WRAPPINGS


def parse_under_session(encoded: bytes) -> SessionEnvelope:
    """Read the layout of an envelope for which `is_under_session` is true.

    Raises:
        MalformedEnvelope: it is cut short.
        UnsupportedVersion: of another version of the protocol.
    """
    if encoded[5] != WIRE:
        raise UnsupportedVersion
    if len(encoded) < HEADER_BYTES + TAG_BYTES:
        raise MalformedEnvelope("the envelope is cut short")
    header = SessionHeader(
        wrapping=SessionWrapping(encoded[6]),
        node=encoded[7],
        holder=int.from_bytes(encoded[8:12], "little"),
        number=int.from_bytes(encoded[12:16], "little"),
        round_id=encoded[16:48].hex(),
        answer=encoded[48:HEADER_BYTES],
    )
    return SessionEnvelope(header, encoded)


def share_digest(round_id: str, answer: bytes, share: Share) -> bytes:
    """Return what names an answer's share, 32 bytes, whatever envelope it comes in.

    Shares are as good as random, so only those who know one know its digest.
    """
    content = bytes.fromhex(round_id) + answer + bytes([share.kind]) + share.payload
    return hashlib.sha256(domain("stored_share") + content).digest()
