"""The share envelope: a data holder's share for one Compute node, sealed and signed, in bytes.

    offset  bytes
    0       5      b"SHOAL"
    5       1      version
    6       1      kind of share: 0 seed, 1 vector
    7       1      index of the Compute node in the manifest
    8       4      index of the data holder, little-endian
    12      32     manifest digest
    44      32     round id (digest of the round spec)
    76      12     digest that tells the answer from others, the same in all of its envelopes
    88      4      epoch of the data holder's machine, little-endian; with the above, the answer id
    92      n      NaCl sealed box of: SHA-256 of the domain prefix and bytes 0 to 91; the share
    92 + n  64     Ed25519 signature by the data holder over the domain prefix and all bytes before

A sealed box names no sender and binds no context, so the digest inside it does: a box that is
moved to another holder, node, round, manifest or answer no longer fits its header. Shares of one
holder that come from two answers do not belong together; the answer id is there to tell.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from nacl import bindings
from nacl.exceptions import CryptoError
from nacl.signing import SigningKey

from shoal_protocol.sharing.shares import RandomBytes, Share, ShareKind
from shoal_protocol.wire.encoding import domain
from shoal_protocol.wire.versions import WIRE

MAGIC: Final = b"SHOAL"
ANSWER_BYTES: Final = 16
EPOCH_BYTES: Final = 4  # at the end of an answer id
SIGNATURE_BYTES: Final = 64
FRAME_BYTES: Final = 4
_CONTEXT: Final = domain("share_context")
_SIGNED: Final = domain("share_envelope")
_STORED: Final = domain("stored_share_envelope")


@dataclass(frozen=True)
class Header:
    """The header of an envelope, in the clear, to which box and signature are bound."""

    kind: ShareKind
    node: int
    holder: int
    manifest: str
    round_id: str
    answer: bytes  # ANSWER_BYTES of them

    def encode(self) -> bytes:
        """Return the 92 bytes of the header.

        Raises:
            ValueError: the answer id has another length.
        """
        if len(self.answer) != ANSWER_BYTES:
            raise ValueError(f"an answer id has {ANSWER_BYTES} bytes")
        return b"".join(
            (
                MAGIC,
                bytes([WIRE, self.kind, self.node]),
                self.holder.to_bytes(4, "little"),
                bytes.fromhex(self.manifest),
                bytes.fromhex(self.round_id),
                self.answer,
            )
        )


def epoch_of(answer: bytes) -> int:
    """Return the epoch of the machine that made the answer with this id."""
    return int.from_bytes(answer[-EPOCH_BYTES:], "little")


def context_of(header: bytes) -> bytes:
    """Return the digest that binds a box to the header of its envelope."""
    return hashlib.sha256(_CONTEXT + header).digest()


def seal(
    share: Share, header: Header, *, box_key: bytes, key: SigningKey, random_bytes: RandomBytes
) -> bytes:
    """Seal `share` to a Compute node's X25519 key and sign it as the data holder.

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
        sealed = bindings.crypto_box(context_of(head) + share.payload, nonce, box_key, private)
    except CryptoError as error:
        raise ValueError("the node's box key is not a usable X25519 key") from error
    return sign_envelope(head + public + sealed, key)


def sign_envelope(unsigned: bytes, key: SigningKey) -> bytes:
    """Return an envelope of the data holder that has `key`, from all of it but the signature."""
    return unsigned + key.sign(_SIGNED + unsigned).signature


def envelope_digest(encoded: bytes) -> bytes:
    """Return the digest, 32 bytes, by which a stored envelope is named: of all but the signature.

    So an envelope that its holder signs again, with another key, is the same.
    """
    return hashlib.sha256(_STORED + encoded[:-SIGNATURE_BYTES]).digest()


def receipt_query(holder: int, digest: bytes) -> bytes:
    """Return the query whether a Compute node has the envelope of a data holder with this digest.

    It is the holder's index, 4 bytes little-endian, and the digest. An envelope ends in a sealed
    box, so only those who have seen it know its digest. To others the answer says nothing.
    """
    return holder.to_bytes(4, "little") + digest


def frame(envelopes: Iterable[bytes]) -> bytes:
    """Pack envelopes into one bulk body: each behind its length, 4 bytes little-endian."""
    return b"".join(len(each).to_bytes(FRAME_BYTES, "little") + each for each in envelopes)
