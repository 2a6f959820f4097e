"""Parties' keys and cards: the first ones, and the next ones that older keys endorse.

A party makes its own keys and hands out its card, which is public.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

import pydantic
from nacl.public import PrivateKey
from nacl.signing import SigningKey, VerifyKey
from pydantic import Field, StringConstraints, TypeAdapter

from shoal_hosting.tls_certificates import TlsIdentity, host_of, hosts_of, self_signed
from shoal_protocol.trust.manifest import Analyst, ComputeParty, ServiceParty
from shoal_protocol.wire.documents import Model, check_signature, describe
from shoal_protocol.wire.encoding import VerifyKeyHex, canonical_json, domain, sha256
from shoal_protocol.wire.errors import BadSignature

RandomBytes = Callable[[int], bytes]


class PartyRole(StrEnum):
    """A party's role in a manifest."""

    COMPUTE = "compute"
    AGGREGATOR = "aggregator"
    TRAINER = "trainer"
    ANALYST = "analyst"


class KeyKind(StrEnum):
    """What a party can change."""

    SIGNING = "signing"
    BOX = "box"
    TLS = "tls"


class Endorsement(Model):
    """A signature over a party's new card, by a key that the party had before."""

    verify_key: VerifyKeyHex
    signature: Annotated[str, StringConstraints(pattern="^[0-9a-f]{128}$")]


class _Endorsed(Model):
    endorsements: tuple[Endorsement, ...] = Field(default=(), exclude_if=lambda value: not value)


class ComputeCard(_Endorsed, ComputeParty):
    """The public half of a Compute node's party directory."""

    role: Literal["compute"] = "compute"


class AggregatorCard(_Endorsed, ServiceParty):
    """The public half of an aggregator's party directory."""

    role: Literal["aggregator"] = "aggregator"


class TrainerCard(_Endorsed, ServiceParty):
    """The public half of a trainer's party directory."""

    role: Literal["trainer"] = "trainer"


class AnalystCard(_Endorsed, Analyst):
    """The public half of an analyst's party directory."""

    role: Literal["analyst"] = "analyst"


Card = Annotated[
    ComputeCard | AggregatorCard | TrainerCard | AnalystCard, Field(discriminator="role")
]
_CARD: TypeAdapter[Card] = TypeAdapter(Card)


@dataclass(frozen=True)
class NewParty:
    """All that a party directory holds."""

    card: Card
    signing_key: SigningKey = field(repr=False)
    box_key: PrivateKey | None = field(repr=False)
    tls: TlsIdentity | None


def new_party(
    role: PartyRole,
    *,
    name: str,
    operator: str,
    url: str | None,
    extra_hosts: Sequence[str],
    now: datetime,
    valid_days: int,
    random_bytes: RandomBytes,
) -> NewParty:
    """Make a party's keys, its certificate if it runs a service, and its card.

    Raises:
        ValueError: a name, URL or host is malformed; a service has no URL, an analyst has one.
    """
    if (role is PartyRole.ANALYST) != (url is None):
        raise ValueError("every role but analyst needs a URL, and an analyst has none")
    key = SigningKey(random_bytes(32))
    box_key = PrivateKey(random_bytes(32)) if role is PartyRole.COMPUTE else None
    tls = None
    fields = {
        "role": role.value,
        "name": name,
        "operator": operator,
        "verify_key": bytes(key.verify_key).hex(),
    }
    if url is not None:
        hosts = [host_of(url), *extra_hosts]
        tls = self_signed(name, hosts, now=now, valid_days=valid_days)
        fields |= {"url": url, "certificate": tls.certificate_pem}
    if box_key is not None:
        fields |= {"box_key": bytes(box_key.public_key).hex()}
    return NewParty(_card(fields), key, box_key, tls)


def read_card(encoded: bytes) -> Card:
    """Read a card file.

    Raises:
        ValueError: it is not a party's card.
    """
    try:
        return _CARD.validate_json(encoded)
    except pydantic.ValidationError as error:
        raise ValueError(f"not a party's card: {describe(error)}") from error


def write_card(card: Card) -> bytes:
    """Return a card file's bytes."""
    return card.model_dump_json(indent=2).encode() + b"\n"


def fingerprint(card: Card) -> str:
    """Return the digest by which two people compare a card over the telephone."""
    return sha256("card", _canonical(card))


def _canonical(card: Card) -> bytes:
    return canonical_json(card.model_dump(mode="json", exclude={"endorsements"}))


def is_endorsed(card: Card, verify_key: str) -> bool:
    """Tell whether a card was signed by a key, in hex, that its party had before."""
    for each in card.endorsements:
        if each.verify_key == verify_key:
            with suppress(BadSignature):
                check_signature(
                    VerifyKey(bytes.fromhex(verify_key)), _endorsed(card), each.signature
                )
                return True
    return False


def _endorsed(card: Card) -> bytes:
    return domain("card_endorsement") + _canonical(card)


@dataclass(frozen=True)
class Generation:
    """What a party changes: its next card, and the private halves of what is new in it."""

    card: Card
    signing_key: SigningKey | None = field(repr=False)
    box_key: PrivateKey | None = field(repr=False)
    tls: TlsIdentity | None


def next_generation(
    card: Card,
    kinds: Collection[KeyKind],
    *,
    endorsers: Iterable[SigningKey],
    url: str | None,
    extra_hosts: Sequence[str],
    now: datetime,
    valid_days: int,
    random_bytes: RandomBytes,
) -> Generation:
    """Make a party's next keys and its card, which the keys that it has `endorsers` sign.

    A new certificate is for the hosts of the one before, `extra_hosts`, and that of `url`, which is
    the party's new address if it has one.

    Raises:
        ValueError: the party has no such key, or a URL or host is malformed.
    """
    key = SigningKey(random_bytes(32)) if KeyKind.SIGNING in kinds else None
    fields = card.model_dump(exclude={"endorsements"})
    if key is not None:
        fields["verify_key"] = bytes(key.verify_key).hex()
    box_key = tls = None
    if KeyKind.BOX in kinds:
        if not isinstance(card, ComputeCard):
            raise ValueError("only a Compute node has a box key")
        box_key = PrivateKey(random_bytes(32))
        fields["box_key"] = bytes(box_key.public_key).hex()
    if KeyKind.TLS in kinds or url is not None:
        if isinstance(card, AnalystCard):
            raise ValueError("an analyst has no address and no certificate")
        fields["url"] = url or card.url
        hosts = [host_of(fields["url"]), *hosts_of(card.certificate), *extra_hosts]
        tls = self_signed(card.name, hosts, now=now, valid_days=valid_days)
        fields["certificate"] = tls.certificate_pem
    following = _card(fields)
    endorsements = tuple(
        Endorsement(
            verify_key=bytes(each.verify_key).hex(),
            signature=each.sign(_endorsed(following)).signature.hex(),
        )
        for each in endorsers
    )
    signed = following.model_copy(update={"endorsements": endorsements})
    return Generation(signed, key, box_key, tls)


def _card(fields: dict[str, str]) -> Card:
    try:
        return _CARD.validate_python(fields)
    except pydantic.ValidationError as error:
        raise ValueError(describe(error)) from error
