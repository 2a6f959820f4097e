"""A party's own directory: its keys, certificate, card and pin.

Every private file must exist, be readable by its owner alone, and belong to what the manifest
says of the party; a service does not start otherwise, and says which file is at fault.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pydantic
from nacl.exceptions import CryptoError
from nacl.public import PrivateKey
from nacl.signing import SigningKey

from shoal_hosting.programs import read_private_file
from shoal_hosting.startup import StartupRefused
from shoal_protocol.trust.manifest import ComputeParty, Consortium, ServiceParty
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import BoxKeyHex, Name, VerifyKeyHex
from shoal_protocol.wire.errors import UnknownSigner

CARD, PIN = "card.json", "pin"
SIGNING_KEY, BOX_KEY = "signing.key", "box.key"
TLS_CERTIFICATE, TLS_KEY = "tls.crt", "tls.key"


class Card(Model):
    """A party's public card for the consortium's authority; it holds no secret."""

    role: Literal["compute", "aggregator", "trainer", "analyst"]
    name: Name
    operator: str
    verify_key: VerifyKeyHex
    url: str | None = None
    certificate: str | None = None
    box_key: BoxKeyHex | None = None


@dataclass(frozen=True)
class Party:
    """A party's identity. Secrets are left out of its `repr`."""

    directory: Path
    card: Card
    signing_key: SigningKey = field(repr=False)
    box_private_key: PrivateKey | None = field(repr=False)

    @property
    def name(self) -> str:
        """Return the party's name in the manifest."""
        return self.card.name

    @property
    def tls_certificate(self) -> Path:
        """Return the path of the certificate that the party's service shows."""
        return self.directory / TLS_CERTIFICATE

    @property
    def tls_key(self) -> Path:
        """Return the path of that certificate's private key."""
        return self.directory / TLS_KEY


def load_party(directory: Path) -> Party:
    """Read a party's directory.

    Raises:
        StartupRefused: a file is missing, open to others, broken, or does not match the card.
    """
    card = read_card(directory / CARD)
    signing_key = SigningKey(_secret(directory / SIGNING_KEY))
    if bytes(signing_key.verify_key).hex() != card.verify_key:
        raise StartupRefused(f"{directory / SIGNING_KEY} does not match the card beside it")
    box_private_key = None
    if card.role == "compute":
        box_private_key = PrivateKey(_secret(directory / BOX_KEY))
        if bytes(box_private_key.public_key).hex() != card.box_key:
            raise StartupRefused(f"{directory / BOX_KEY} does not match the card beside it")
    return Party(directory, card, signing_key, box_private_key)


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


def read_pin(directory: Path) -> str:
    """Return the digest of the manifest that the party pinned.

    Raises:
        StartupRefused: there is none.
    """
    path = directory / PIN
    try:
        return path.read_text().strip()
    except OSError as error:
        raise StartupRefused(
            f"{path} is missing: compare the manifest's digest with the other parties, "
            "then write it with `shoal party pin`"
        ) from error


def check_party(party: Party, consortium: Consortium) -> None:
    """Refuse to run with keys that are not those which the manifest lists for the party.

    Raises:
        StartupRefused: it names the file.
    """
    try:
        listed = consortium.party(party.name)
    except UnknownSigner:
        raise StartupRefused(f"the manifest lists no party called {party.name}") from None
    if listed.verify_key != party.card.verify_key:
        raise StartupRefused(f"{party.directory / SIGNING_KEY} is not the key in the manifest")
    if isinstance(listed, ComputeParty) and listed.box_key != party.card.box_key:
        raise StartupRefused(f"{party.directory / BOX_KEY} is not the key in the manifest")
    if isinstance(listed, ServiceParty) and listed.certificate != party.card.certificate:
        raise StartupRefused(f"{party.directory / TLS_CERTIFICATE} is not that in the manifest")


def check_role(
    party: Party, consortium: Consortium, role: Literal["aggregator", "trainer"]
) -> None:
    """Do what `check_party` does, and refuse to run as another than the manifest's `role`."""
    check_party(party, consortium)
    if party.name != getattr(consortium.manifest, role).name:
        raise StartupRefused(f"the manifest does not list {party.name} as its {role}")


def _secret(path: Path) -> bytes:
    try:
        seed = bytes.fromhex(read_private_file(path).decode().strip())
    except (UnicodeDecodeError, ValueError, CryptoError) as error:
        raise StartupRefused(f"{path} does not hold a key in hex") from error
    if len(seed) != 32:
        raise StartupRefused(f"{path} does not hold a key of 32 bytes")
    return seed
