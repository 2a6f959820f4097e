"""Envelopes as a Compute node receives them: sizes, layout, signatures, boxes."""

from collections.abc import Iterator
from dataclasses import dataclass
from hmac import compare_digest
from typing import Final

from nacl import bindings
from nacl.exceptions import BadSignatureError, CryptoError

from shoal_protocol.sharing.envelope import (
    ANSWER_BYTES,
    FRAME_BYTES,
    MAGIC,
    SIGNATURE_BYTES,
    Header,
    context_of,
    envelope_digest,
)
from shoal_protocol.sharing.shares import SEED_BYTES, Share, ShareKind
from shoal_protocol.wire.encoding import domain
from shoal_protocol.wire.errors import BadSignature, UnsupportedVersion
from shoal_protocol.wire.service_errors import (
    MalformedEnvelope,
    TransplantedCiphertext,
    UnopenableCiphertext,
)
from shoal_protocol.wire.versions import WIRE

HEADER_BYTES: Final = 76 + ANSWER_BYTES
CONTEXT_BYTES: Final = 32
_BOX_OVERHEAD: Final = bindings.crypto_box_SEALBYTES
OVERHEAD_BYTES: Final = HEADER_BYTES + _BOX_OVERHEAD + CONTEXT_BYTES + SIGNATURE_BYTES
SMALLEST_ENVELOPE: Final = OVERHEAD_BYTES + 8  # a vector of one coordinate
_SIGNED: Final = domain("share_envelope")
_KINDS: Final = {int(kind): kind for kind in ShareKind}


@dataclass(frozen=True)
class Envelope:
    """An envelope that has the right layout; its signature and its box are not checked."""

    header: Header
    encoded: bytes

    def __repr__(self) -> str:
        return f"Envelope({len(self.encoded)} bytes)"

    @property
    def digest(self) -> bytes:
        """Return the `envelope_digest`."""
        return envelope_digest(self.encoded)

    @property
    def signature(self) -> bytes:
        """Return the data holder's signature, 64 bytes."""
        return self.encoded[-SIGNATURE_BYTES:]

    def verify(self, verify_key: bytes) -> None:
        """Check the data holder's signature.

        Raises:
            BadSignature: it is not the holder's over these bytes.
        """
        message = self.signature + _SIGNED + self.encoded[:-SIGNATURE_BYTES]
        try:
            bindings.crypto_sign_open(message, verify_key)
        except BadSignatureError as error:
            raise BadSignature from error

    def open(self, box_private_key: bytes, box_key: bytes) -> Share:
        """Open the sealed box with the Compute node's key pair (X25519, 32 bytes each).

        Raises:
            UnopenableCiphertext: sealed to another key, or damaged.
            TransplantedCiphertext: made for another header.
        """
        box = self.encoded[HEADER_BYTES:-SIGNATURE_BYTES]
        try:
            content = bindings.crypto_box_seal_open(box, box_key, box_private_key)
        except CryptoError as error:
            raise UnopenableCiphertext from error
        context = context_of(self.encoded[:HEADER_BYTES])
        if not compare_digest(content[:CONTEXT_BYTES], context):
            raise TransplantedCiphertext
        return Share(self.header.kind, content[CONTEXT_BYTES:])


def envelope_size(kind: ShareKind, dimension: int) -> int:
    """Return the size in bytes of an envelope with a share of `kind`."""
    payload = SEED_BYTES if kind is ShareKind.SEED else 8 * dimension
    return OVERHEAD_BYTES + payload


def parse(encoded: bytes) -> Envelope:
    """Read an envelope's layout.

    Raises:
        MalformedEnvelope: too short, or of another format.
        UnsupportedVersion: of another version of the protocol.
    """
    if encoded[: len(MAGIC)] != MAGIC:
        raise MalformedEnvelope("the bytes do not begin like a share envelope")
    if len(encoded) > len(MAGIC) and encoded[len(MAGIC)] != WIRE:
        raise UnsupportedVersion
    if len(encoded) < SMALLEST_ENVELOPE:
        raise MalformedEnvelope("the envelope is cut short")
    header = Header(
        kind=share_kind(encoded[6]),
        node=encoded[7],
        holder=int.from_bytes(encoded[8:12], "little"),
        manifest=encoded[12:44].hex(),
        round_id=encoded[44:76].hex(),
        answer=encoded[76:HEADER_BYTES],
    )
    return Envelope(header, encoded)


def unframe(body: bytes) -> Iterator[bytes]:
    """Unpack a bulk body.

    Raises:
        MalformedEnvelope: a length points past the end of the body.
    """
    start = 0
    while start < len(body):
        end = start + FRAME_BYTES
        length = int.from_bytes(body[start:end], "little")
        if end > len(body) or end + length > len(body):
            raise MalformedEnvelope("the bulk body is cut short")
        yield body[end : end + length]
        start = end + length


def share_kind(code: int) -> ShareKind:
    """Return the kind of share that a wire code stands for.

    Raises:
        MalformedEnvelope: there is none of that code.
    """
    try:
        return _KINDS[code]
    except KeyError:
        raise MalformedEnvelope("unknown kind of share") from None
