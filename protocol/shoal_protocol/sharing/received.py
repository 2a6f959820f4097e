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
from shoal_protocol.wire.errors import BadSignature, MalformedDocument, UnsupportedVersion
from shoal_protocol.wire.service_errors import (
    MalformedEnvelope,
    TransplantedCiphertext,
    UnopenableCiphertext,
)
from shoal_protocol.wire.versions import WIRE

HEADER_BYTES: Final = 76 + ANSWER_BYTES
CONTEXT_BYTES: Final = 32
RECEIPT_QUERY_BYTES: Final = 4 + 32
_BOX_OVERHEAD: Final = bindings.crypto_box_SEALBYTES
OVERHEAD_BYTES: Final = HEADER_BYTES + _BOX_OVERHEAD + CONTEXT_BYTES + SIGNATURE_BYTES
SMALLEST_ENVELOPE: Final = OVERHEAD_BYTES + 8  # a vector of one coordinate
_SIGNED: Final = domain("share_envelope")
_KINDS: Final = {int(kind): kind for kind in ShareKind}


@dataclass(frozen=True)
class Envelope:
    """An envelope that has the right layout; its signature and its box are not checked."""

    encoded: bytes

    def __repr__(self) -> str:
        return f"Envelope({len(self.encoded)} bytes)"

    @property
    def header(self) -> Header:
        """Return the header; a Compute node reads only the parts that it needs of it."""
        return Header(
            kind=self.kind,
            node=self.node,
            holder=self.holder,
            manifest=self.encoded[12:44].hex(),
            round_id=self.encoded[44:76].hex(),
            answer=self.answer,
        )

    @property
    def kind(self) -> ShareKind:
        """Return the kind of share."""
        return _KINDS[self.encoded[6]]

    @property
    def node(self) -> int:
        """Return the index of the Compute node in the manifest."""
        return self.encoded[7]

    @property
    def holder(self) -> int:
        """Return the index of the data holder."""
        return int.from_bytes(self.encoded[8:12], "little")

    @property
    def bound_to(self) -> bytes:
        """Return the digests of manifest and round spec, one behind the other: 64 bytes."""
        return self.encoded[12:76]

    @property
    def answer(self) -> bytes:
        """Return the answer id."""
        return self.encoded[76:HEADER_BYTES]

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
        return Share(self.kind, content[CONTEXT_BYTES:])


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
    if encoded[6] not in _KINDS:
        raise MalformedEnvelope("unknown kind of share")
    return Envelope(encoded)


def read_receipt_query(body: bytes) -> tuple[int, bytes]:
    """Return the holder's index and the digest of a `receipt_query`.

    Raises:
        MalformedDocument: it has another length.
    """
    if len(body) != RECEIPT_QUERY_BYTES:
        raise MalformedDocument(f"a receipt query has {RECEIPT_QUERY_BYTES} bytes")
    return int.from_bytes(body[:4], "little"), body[4:]


def unframe(body: bytes) -> Iterator[bytes]:
    """Unpack a bulk body.

    Raises:
        MalformedEnvelope: a length points past the end of the body.
    """
    start, size = 0, len(body)
    while start < size:
        first = start + FRAME_BYTES
        end = first + int.from_bytes(body[start:first], "little")
        if max(first, end) > size:
            raise MalformedEnvelope("the bulk body is cut short")
        yield body[first:end]
        start = end
