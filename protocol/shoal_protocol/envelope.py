"""The share envelope: one client's share for one Compute node, sealed and signed, in bytes.

    offset  bytes
    0       5      b"SHOAL"
    5       1      version
    6       1      kind of share: 0 seed, 1 vector
    7       1      index of the Compute node in the manifest
    8       4      client index, little-endian
    12      32     manifest digest
    44      32     round id (digest of the round spec)
    76      8      answer id: random, the same in all envelopes of one answer
    84      n      NaCl sealed box of: SHA-256 of the domain prefix and bytes 0 to 83; the share
    84 + n  64     Ed25519 signature by the client over the domain prefix and all bytes before

A sealed box names no sender and binds no context, so the digest inside it does: a box that is
moved to another client, node, round, manifest or answer no longer fits its header. Shares of one
client that come from two answers do not belong together; the answer id is there to tell.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from nacl import bindings
from nacl.exceptions import BadSignatureError, CryptoError
from nacl.signing import SigningKey

from shoal_protocol.encoding import VERSION, domain
from shoal_protocol.errors import (
    BadSignature,
    MalformedEnvelope,
    TransplantedCiphertext,
    UnopenableCiphertext,
    UnsupportedVersion,
)
from shoal_protocol.sharing import SEED_BYTES, RandomBytes, Share, ShareKind, share_kind

_MAGIC: Final = b"SHOAL"
ANSWER_BYTES: Final = 8
_HEADER_BYTES: Final = 76 + ANSWER_BYTES
_CONTEXT_BYTES: Final = 32
_SIGNATURE_BYTES: Final = 64
_BOX_OVERHEAD: Final = bindings.crypto_box_SEALBYTES
OVERHEAD_BYTES: Final = _HEADER_BYTES + _BOX_OVERHEAD + _CONTEXT_BYTES + _SIGNATURE_BYTES
SMALLEST_ENVELOPE: Final = OVERHEAD_BYTES + 8  # a vector of one coordinate
_FRAME_BYTES: Final = 4


@dataclass(frozen=True)
class Header:
    """What an envelope says in the clear, and is bound to."""

    kind: ShareKind
    node: int
    client: int
    manifest: str
    round_id: str
    answer: bytes  # ANSWER_BYTES of them

    def encode(self) -> bytes:
        """Return the 84 bytes of the header.

        Raises:
            ValueError: the answer id has another length.
        """
        if len(self.answer) != ANSWER_BYTES:
            raise ValueError(f"an answer id has {ANSWER_BYTES} bytes")
        return b"".join(
            (
                _MAGIC,
                bytes([VERSION, self.kind, self.node]),
                self.client.to_bytes(4, "little"),
                bytes.fromhex(self.manifest),
                bytes.fromhex(self.round_id),
                self.answer,
            )
        )


@dataclass(frozen=True)
class Envelope:
    """An envelope that has the right layout; its signature and its box are not checked."""

    header: Header
    encoded: bytes

    def __repr__(self) -> str:
        return f"Envelope({len(self.encoded)} bytes)"

    @property
    def digest(self) -> bytes:
        """Return `envelope_digest` of the whole envelope."""
        return envelope_digest(self.encoded)

    @property
    def signature(self) -> bytes:
        """Return the client's signature, 64 bytes."""
        return self.encoded[-_SIGNATURE_BYTES:]

    def verify(self, verify_key: bytes) -> None:
        """Check the client's signature.

        Raises:
            BadSignature: it is not the client's over these bytes.
        """
        message = domain("share_envelope") + self.encoded[:-_SIGNATURE_BYTES]
        try:
            bindings.crypto_sign_open(self.signature + message, verify_key)
        except BadSignatureError as error:
            raise BadSignature from error

    def open(self, box_private_key: bytes, box_key: bytes) -> Share:
        """Open the sealed box with the Compute node's key pair (X25519, 32 bytes each).

        Raises:
            UnopenableCiphertext: sealed to another key, or damaged.
            TransplantedCiphertext: made for another header.
        """
        box = self.encoded[_HEADER_BYTES:-_SIGNATURE_BYTES]
        try:
            content = bindings.crypto_box_seal_open(box, box_key, box_private_key)
        except CryptoError as error:
            raise UnopenableCiphertext from error
        context = _context(self.encoded[:_HEADER_BYTES])
        if not bindings.sodium_memcmp(content[:_CONTEXT_BYTES], context):
            raise TransplantedCiphertext
        return Share(self.header.kind, content[_CONTEXT_BYTES:])


def _context(header: bytes) -> bytes:
    return hashlib.sha256(domain("share_context") + header).digest()


def envelope_size(kind: ShareKind, dimension: int) -> int:
    """Return the size in bytes of an envelope with a share of `kind`."""
    payload = SEED_BYTES if kind is ShareKind.SEED else 8 * dimension
    return OVERHEAD_BYTES + payload


def seal(
    share: Share, header: Header, *, box_key: bytes, key: SigningKey, random_bytes: RandomBytes
) -> bytes:
    """Seal `share` to a Compute node's X25519 key and sign it as the client.

    `random_bytes` is called once, for the ephemeral private key (libsodium's sealed box:
    X25519, XSalsa20-Poly1305, nonce BLAKE2b-24 of both public keys).

    Raises:
        ValueError: the header speaks of another kind of share, or the box key is a weak one.
    """
    if header.kind is not share.kind:
        raise ValueError("the header names another kind of share")
    head = header.encode()
    private = random_bytes(bindings.crypto_box_SECRETKEYBYTES)
    public = bindings.crypto_scalarmult_base(private)
    nonce = hashlib.blake2b(public + box_key, digest_size=bindings.crypto_box_NONCEBYTES).digest()
    try:
        sealed = bindings.crypto_box(_context(head) + share.payload, nonce, box_key, private)
    except CryptoError as error:
        raise ValueError("the node's box key is not a usable X25519 key") from error
    box = public + sealed
    signature = key.sign(domain("share_envelope") + head + box).signature
    return head + box + signature


def parse(encoded: bytes) -> Envelope:
    """Read an envelope's layout.

    Raises:
        MalformedEnvelope: too short, or of another format.
        UnsupportedVersion: of another version of the protocol.
    """
    if encoded[: len(_MAGIC)] != _MAGIC:
        raise MalformedEnvelope("the bytes do not begin like a share envelope")
    if len(encoded) > len(_MAGIC) and encoded[len(_MAGIC)] != VERSION:
        raise UnsupportedVersion
    if len(encoded) < SMALLEST_ENVELOPE:
        raise MalformedEnvelope("the envelope is cut short")
    header = Header(
        kind=share_kind(encoded[6]),
        node=encoded[7],
        client=int.from_bytes(encoded[8:12], "little"),
        manifest=encoded[12:44].hex(),
        round_id=encoded[44:76].hex(),
        answer=encoded[76:_HEADER_BYTES],
    )
    return Envelope(header, encoded)


def envelope_digest(encoded: bytes) -> bytes:
    """Return the digest, 32 bytes, by which a stored envelope is named."""
    return hashlib.sha256(domain("stored_share_envelope") + encoded).digest()


def frame(envelopes: Iterable[bytes]) -> bytes:
    """Pack envelopes into one bulk body: each behind its length, 4 bytes little-endian."""
    return b"".join(len(each).to_bytes(_FRAME_BYTES, "little") + each for each in envelopes)


def unframe(body: bytes) -> Iterator[bytes]:
    """Unpack a bulk body.

    Raises:
        MalformedEnvelope: a length points past the end of the body.
    """
    start = 0
    while start < len(body):
        end = start + _FRAME_BYTES
        length = int.from_bytes(body[start:end], "little")
        if end > len(body) or end + length > len(body):
            raise MalformedEnvelope("the bulk body is cut short")
        yield body[end : end + length]
        start = end + length
