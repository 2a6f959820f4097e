"""Sessions: a key between a data holder and each Compute node, stepped forward hour by hour.

A node signs prekeys, which live an hour to a day. A data holder signs an opening, which carries 32
fresh random bytes to each node, the chain's first key, in a sealed box to one of its prekeys. From
each key follows the next hour's, and whoever erased a key cannot come back to it. Nothing follows
from long-lived keys alone.
"""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, ClassVar, Final, Literal, Self

from nacl import bindings
from nacl.exceptions import CryptoError
from pydantic import Field, model_validator

from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.wire.documents import Document, Model, Role
from shoal_protocol.wire.encoding import (
    Base64,
    BoxKeyHex,
    Digest,
    HolderIndex,
    Name,
    Timestamp,
    VerifyKeyHex,
    canonical_json,
    decode_base64,
    domain,
)
from shoal_protocol.wire.service_errors import RefusedOpening

KEY_BYTES: Final = 32
STEP_SECONDS: Final = 3600
SHORTEST_PREKEY: Final = timedelta(hours=1)
LONGEST_PREKEY: Final = timedelta(days=1)

SessionNumber = Annotated[int, Field(ge=1, lt=2**32)]
"""Seconds since 1970 at which a session begins: a later session has a higher number, always."""


class Prekey(Document):
    """Compute node -> data holders: a box key that is erased soon."""

    signed_by: ClassVar[Role] = Role.COMPUTE
    signer_field: ClassVar[str | None] = "node"

    kind: Literal["prekey"] = "prekey"
    authority: VerifyKeyHex  # of the consortium; a new manifest version changes no key
    node: Name
    box_key: BoxKeyHex
    valid_from: Timestamp
    valid_until: Timestamp  # the private key is erased then

    @model_validator(mode="after")
    def _lives_shortly(self) -> Self:
        if not SHORTEST_PREKEY <= self.valid_until - self.valid_from <= LONGEST_PREKEY:
            raise ValueError("a prekey lives an hour to a day")
        return self

    def is_valid(self, now: datetime) -> bool:
        """Tell whether an opening may be sealed to it now."""
        return self.valid_from <= now < self.valid_until


class SealedKey(Model):
    """A chain's first key, sealed to a node's prekey."""

    node: Name
    prekey: Digest
    box: Base64


class Opening(Document):
    """Data holder -> Compute nodes: a session with each, in place of all of lower numbers."""

    signed_by: ClassVar[Role] = Role.HOLDER

    kind: Literal["opening"] = "opening"
    authority: VerifyKeyHex
    holder: HolderIndex
    number: SessionNumber
    previous: Digest | None  # the holder's opening before
    keys: tuple[SealedKey, ...] = Field(min_length=1, max_length=255)

    @model_validator(mode="after")
    def _one_key_each(self) -> Self:
        if len({each.node for each in self.keys}) != len(self.keys):
            raise ValueError("an opening has one key for each node")
        return self

    def key_for(self, node: str) -> SealedKey:
        """Return what is sealed to a node.

        Raises:
            RefusedOpening: nothing is.
        """
        for each in self.keys:
            if each.node == node:
                return each
        raise RefusedOpening("the opening has no key for this node")


class SessionRefusal(Document):
    """Compute node -> data holder: an envelope's session is not known here, so it cannot be read.

    It is signed, for the holder then wraps the same share otherwise.
    """

    signed_by: ClassVar[Role] = Role.COMPUTE
    signer_field: ClassVar[str | None] = "node"

    kind: Literal["session_refusal"] = "session_refusal"
    authority: VerifyKeyHex
    node: Name
    holder: HolderIndex
    number: SessionNumber
    envelope: Digest


def open_session(
    prekeys: Sequence[Prekey],
    *,
    holder: int,
    number: int,
    previous: str | None,
    random_bytes: RandomBytes,
) -> tuple[Opening, dict[str, bytes]]:
    """Return an opening to be signed, and the first key of the chain with each node, by its name.

    `random_bytes` is called twice for each prekey: for the key, and for the box's ephemeral one.

    Raises:
        ValueError: there is no prekey, two are of one node, or one is a weak key.
    """
    sealed, keys = [], {}
    for prekey in prekeys:
        key = keys[prekey.node] = random_bytes(KEY_BYTES)
        private = random_bytes(bindings.crypto_box_SECRETKEYBYTES)
        public = bindings.crypto_scalarmult_base(private)
        theirs = bytes.fromhex(prekey.box_key)
        size = bindings.crypto_box_NONCEBYTES
        nonce = hashlib.blake2b(public + theirs, digest_size=size).digest()
        content = _context(prekey, holder, number) + key
        try:
            box = public + bindings.crypto_box(content, nonce, theirs, private)
        except CryptoError as error:
            raise ValueError("a prekey is not a usable X25519 key") from error
        sealed.append(
            {"node": prekey.node, "prekey": prekey.digest, "box": base64.b64encode(box).decode()}
        )
    opening = Opening.model_validate(
        {
            "authority": prekeys[0].authority if prekeys else "",
            "holder": holder,
            "number": number,
            "previous": previous,
            "keys": sealed,
        }
    )
    return opening, keys


def first_key(opening: Opening, prekey: Prekey, private_key: bytes) -> bytes:
    """Return the chain's first key, which an opening has for the node of this prekey.

    Raises:
        RefusedOpening: it has none, or one for another prekey, holder, number or consortium.
    """
    found = opening.key_for(prekey.node)
    if found.prekey != prekey.digest:
        raise RefusedOpening("the opening's key is sealed to another prekey")
    try:
        content = bindings.crypto_box_seal_open(
            decode_base64(found.box), bytes.fromhex(prekey.box_key), private_key
        )
    except (CryptoError, ValueError):
        raise RefusedOpening("the sealed key does not open") from None
    context = _context(prekey, opening.holder, opening.number)
    if len(content) != len(context) + KEY_BYTES or not bindings.sodium_memcmp(
        content[: len(context)], context
    ):
        raise RefusedOpening("the sealed key was made for another opening")
    return content[len(context) :]


def _context(prekey: Prekey, holder: int, number: int) -> bytes:
    """Return the digest that binds a sealed key to its place."""
    place = [prekey.authority, holder, prekey.node, prekey.digest, number]
    return hashlib.sha256(domain("session_key") + canonical_json(place)).digest()


def derive(key: bytes, label: bytes, about: bytes = b"") -> bytes:
    """Return 32 bytes that follow from a uniformly random key: HKDF-Expand (RFC 5869, SHA-256).

    `label` is one of a fixed set of words; `about` has one length for each of them.
    """
    info = domain(f"session_{label.decode()}") + about
    return hmac.digest(key, info + b"\x01", "sha256")


def hour_of(moment: datetime) -> int:
    """Return the number of whole hours since 1970 at a moment."""
    return int(moment.timestamp()) // STEP_SECONDS


def hour_for(number: int, opened_at: datetime) -> int:
    """Return the hour whose key a session has for a round: that in which the later one began."""
    return max(number // STEP_SECONDS, hour_of(opened_at))


def advance(key: bytes, steps: int) -> bytes:
    """Return the chain's key so many hours later; none before it follows from it.

    Raises:
        ValueError: fewer than none.
    """
    if steps < 0:
        raise ValueError("a chain of keys does not go back")
    for _ in range(steps):
        key = derive(key, b"next")
    return key
