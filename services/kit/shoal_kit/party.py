"""A party's own directory: its keys, certificate, card and pin.

`shoal party rotate` puts a next generation of files, such as `signing-2.key`, beside those in force
and overwrites none. A version of the manifest says which key is whose turn: what is bound to it is
signed, and opened, by the key that it lists.

Every private file must exist, be readable by its owner alone, and belong to what the manifest
says of the party; a service does not start otherwise, and says which file is at fault.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

import pydantic
from nacl.exceptions import CryptoError
from nacl.public import PrivateKey
from nacl.signing import SigningKey, VerifyKey
from pydantic import StringConstraints

from shoal_kit.private_files import read_private_file
from shoal_kit.startup import StartupRefused
from shoal_protocol.trust.manifest import (
    ComputeParty,
    Consortium,
    Parties,
    ServiceParty,
)
from shoal_protocol.wire.documents import Model, check_signature
from shoal_protocol.wire.encoding import BoxKeyHex, Name, VerifyKeyHex
from shoal_protocol.wire.errors import BadSignature, UnknownSigner
from shoal_protocol.wire.service_errors import StorageUnavailable

CARD = "card.json"
SIGNING_KEY, BOX_KEY = "signing.key", "box.key"
TLS_CERTIFICATE, TLS_KEY = "tls.crt", "tls.key"

_NOT_LISTED = "{}, or a later generation of it, is not the one in the manifest"

KeyT = TypeVar("KeyT", SigningKey, PrivateKey)

PartyRole = Literal["compute", "aggregator", "trainer", "analyst"]


class Endorsement(Model):
    """A signature over a party's new card, or over a data holder's enrolment, and the key."""

    verify_key: VerifyKeyHex
    signature: Annotated[str, StringConstraints(pattern="^[0-9a-f]{128}$")]

    @classmethod
    def by(cls, key: SigningKey, message: bytes) -> Self:
        """Return a key's signature."""
        return cls(verify_key=public_half(key), signature=key.sign(message).signature.hex())

    def holds(self, message: bytes) -> bool:
        """Tell whether it is one of the key over this message."""
        try:
            check_signature(VerifyKey(bytes.fromhex(self.verify_key)), message, self.signature)
        except BadSignature:
            return False
        return True


class Card(Model):
    """A party's public card for the consortium's authority; it holds no secret."""

    role: PartyRole
    name: Name
    operator: str
    verify_key: VerifyKeyHex
    url: str | None = None
    certificate: str | None = None
    box_key: BoxKeyHex | None = None
    endorsements: tuple[Endorsement, ...] = ()  # for the authority, which checks them


class KeyNotHere(StorageUnavailable):
    """The party's directory lacks the key that a version of the manifest lists for it."""

    remedy = "Put the party's newest keys into its directory."


@dataclass(frozen=True)
class Party:
    """A party's identity: its newest generation, and earlier ones by what the manifest lists.

    Secrets are left out of its `repr`.
    """

    directory: Path
    card: Card
    signing_key: SigningKey = field(repr=False)
    box_private_key: PrivateKey | None = field(repr=False)

    @property
    def name(self) -> str:
        """Return the party's name in the manifest."""
        return self.card.name

    def signing_key_in(self, version: Parties) -> SigningKey:
        """Return the key by which the party signs what is bound to a version.

        Raises:
            UnknownSigner: the version does not list the party.
            KeyNotHere: no file has the key.
        """
        return self._key(
            SigningKey, SIGNING_KEY, self.signing_key, version.party(self.name).verify_key
        )

    def box_key_in(self, version: Parties) -> PrivateKey:
        """Return the key that opens what is sealed to a Compute node under a version.

        Raises:
            UnknownSigner, KeyNotHere: as `signing_key_in`.
        """
        return self._key(
            PrivateKey,
            BOX_KEY,
            self.box_private_key,
            getattr(version.party(self.name), "box_key", None),
        )

    def _key(self, kind: type[KeyT], name: str, newest: KeyT | None, wanted: str | None) -> KeyT:
        if newest is not None and public_half(newest) == wanted:
            return newest
        key = _key_among(generations(self.directory, name), kind, wanted)
        if key is None:
            raise KeyNotHere(_NOT_LISTED.format(name))
        return key

    def tls_in(self, version: Parties) -> tuple[Path, Path]:
        """Return the files of the certificate that a version lists, and of its private key.

        Raises:
            UnknownSigner: the version does not list the party.
            KeyNotHere: no file has the certificate.
        """
        wanted = getattr(version.party(self.name), "certificate", None)
        files = _newest_first(self.directory, TLS_CERTIFICATE)
        for path in files:
            if path.is_file() and path.read_text() == wanted:
                return path, path.with_suffix(".key")
        if wanted == self.card.certificate:
            return files[-1], files[-1].with_suffix(".key")  # whoever serves it reads it
        raise KeyNotHere(_NOT_LISTED.format(TLS_CERTIFICATE))

    def check_keys_in(self, version: Parties) -> None:
        """Check that the directory has all keys that a version lists for the party.

        Raises:
            UnknownSigner: the version does not list the party.
            KeyNotHere: it lacks one.
        """
        listed = version.party(self.name)
        self.signing_key_in(version)
        if isinstance(listed, ComputeParty):
            self.box_key_in(version)
        if isinstance(listed, ServiceParty):
            self.tls_in(version)


def generations(directory: Path, name: str) -> Iterator[Path]:
    """Yield the files of a kind, such as `box.key`, `box-2.key`, oldest first."""
    stem, _, ending = name.partition(".")
    numbered = re.compile(rf"{stem}(?:-(\d+))?\.{ending}")
    found = {
        int(match[1] or 1): path
        for path in sorted(directory.glob(f"{stem}*.{ending}"))  # `box.key` after `box-1.key`
        if (match := numbered.fullmatch(path.name))
    }
    yield from (found[number] for number in sorted(found))


def load_party(directory: Path) -> Party:
    """Read a party's directory: the newest card, and the keys that it names.

    Raises:
        StartupRefused: a file is missing, open to others, broken, or does not match the card.
    """
    *_, card_file = [directory / CARD, *generations(directory, CARD)]
    card = read_card(card_file)
    signing_key = _key_among(_newest_first(directory, SIGNING_KEY), SigningKey, card.verify_key)
    box_key = None
    if card.role == "compute":
        box_key = _key_among(_newest_first(directory, BOX_KEY), PrivateKey, card.box_key)
        if box_key is None:
            raise StartupRefused(f"{directory / BOX_KEY} does not match the card beside it")
    if signing_key is None:
        raise StartupRefused(f"{directory / SIGNING_KEY} does not match the card beside it")
    return Party(directory, card, signing_key, box_key)


def public_half(key: SigningKey | PrivateKey) -> str:
    """Return a key's public half in hex."""
    return bytes(key.verify_key if isinstance(key, SigningKey) else key.public_key).hex()


def _key_among(paths: Iterable[Path], kind: type[KeyT], public: str | None) -> KeyT | None:
    """Return the key in one of the files that has this public half, or None."""
    keys = (kind(read_seed(path)) for path in paths)
    return next((key for key in keys if public_half(key) == public), None)


def _newest_first(directory: Path, name: str) -> list[Path]:
    return list(generations(directory, name))[::-1] or [directory / name]


def read_card(path: Path) -> Card:
    """Read a card.

    Raises:
        StartupRefused: it is missing or broken.
    """
    try:
        return Card.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise StartupRefused(f"{path} is missing: make it with `shoal party new`") from None
    except (OSError, pydantic.ValidationError) as error:
        raise StartupRefused(f"{path} is not a party's card") from error


def check_party(party: Party, version: Consortium) -> None:
    """Refuse to run without the place and the keys which the manifest lists for the party.

    Raises:
        StartupRefused: it names the file.
    """
    try:
        listed = version.party(party.name)
    except UnknownSigner:
        raise StartupRefused(f"the manifest lists no party called {party.name}") from None
    role = party.card.role
    if role in ("aggregator", "trainer") and listed != getattr(version.manifest, role):
        raise StartupRefused(f"the manifest does not list {party.name} as its {role}")
    try:
        party.check_keys_in(version)
    except KeyNotHere as error:
        raise StartupRefused(f"{party.directory}: {error}") from None


def read_seed(path: Path) -> bytes:
    """Read a private key's file.

    Raises:
        StartupRefused: it is missing, open to others, or holds no key.
    """
    try:
        seed = bytes.fromhex(read_private_file(path).decode().strip())
    except (UnicodeDecodeError, ValueError, CryptoError) as error:
        raise StartupRefused(f"{path} does not hold a key in hex") from error
    if len(seed) != 32:
        raise StartupRefused(f"{path} does not hold a key of 32 bytes")
    return seed
