"""Parties' directories: keys and cards, the first ones and the next that older keys endorse.

A party makes its own keys and hands out its card, which is public. The authority's key is in a
directory of its own.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

import pydantic
from nacl.public import PrivateKey
from nacl.signing import SigningKey

from shoal_agent.client_files import hex_line, new_directory, refuse_filled, write_tls
from shoal_kit.party import (
    CARD,
    Card,
    Endorsement,
    PartyRole,
    generations,
    public_half,
    read_card,
    read_seed,
)
from shoal_kit.private_files import PRIVATE_DIRECTORY, write_new
from shoal_kit.tls_certificates import TlsIdentity, host_of, hosts_of, self_signed
from shoal_protocol.trust.manifest import ComputeParty, ListedParty, ServiceParty
from shoal_protocol.wire.documents import describe
from shoal_protocol.wire.encoding import canonical_json, domain, sha256

RandomBytes = Callable[[int], bytes]
KeyKind = Literal["signing", "box", "tls"]


KINDS: Final[dict[PartyRole, tuple[KeyKind, ...]]] = {
    "compute": ("signing", "box", "tls"),
    "aggregator": ("signing", "tls"),
    "trainer": ("signing", "tls"),
    "analyst": ("signing",),
}
"""The keys that a party of each role has."""
_FILES: Final = (CARD, "signing.key", "box.key", "tls.key", "tls.crt")


@dataclass(frozen=True)
class PartyKeys:
    """A party's card, and the private keys that are new in it by their kinds."""

    card: Card
    seeds: Mapping[str, bytes] = field(repr=False)
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
) -> PartyKeys:
    """Make a party's keys, its certificate if it runs a service, and its card.

    Raises:
        ValueError: a name, URL or host is malformed; a service has no URL, an analyst has one.
    """
    if (role == "analyst") != (url is None):
        raise ValueError("every role but analyst needs a URL, and an analyst has none")
    return _made(
        {"role": role, "name": name, "operator": operator, "url": url},
        KINDS[role],
        extra_hosts,
        now,
        valid_days,
        random_bytes,
    )


def _made(
    fields: dict[str, str | None],
    kinds: Collection[KeyKind],
    hosts: Sequence[str],
    now: datetime,
    valid_days: int,
    random_bytes: RandomBytes,
) -> PartyKeys:
    """Make new keys of these kinds, and the card of these fields that lists them."""
    seeds = {kind: random_bytes(32) for kind in ("signing", "box") if kind in kinds}
    if "signing" in seeds:
        fields["verify_key"] = public_half(SigningKey(seeds["signing"]))
    if "box" in seeds:
        fields["box_key"] = public_half(PrivateKey(seeds["box"]))
    tls = None
    if "tls" in kinds:
        hosts = [host_of(fields["url"] or ""), *hosts]
        tls = self_signed(fields["name"] or "", hosts, now=now, valid_days=valid_days)
        fields["certificate"] = tls.certificate_pem
    card = Card.model_validate(fields)
    entry_of(card)
    return PartyKeys(card, seeds, tls)


def entry_of(card: Card) -> ListedParty:
    """Return what a manifest lists of a card's party.

    Raises:
        pydantic.ValidationError: the card lacks something, or has more than its role has.
    """
    kinds: dict[str, type[ListedParty]] = {
        "compute": ComputeParty,
        "analyst": ListedParty,
    }
    return kinds.get(card.role, ServiceParty).model_validate(
        card.model_dump(exclude={"role", "endorsements"}, exclude_none=True)
    )


def fingerprint(card: Card) -> str:
    """Return the digest by which two people compare a card over the telephone."""
    return sha256("card", _canonical(card))


def _canonical(card: Card) -> bytes:
    return canonical_json(card.model_dump(mode="json", exclude={"endorsements"}, exclude_none=True))


def is_endorsed(card: Card, verify_key: str) -> bool:
    """Tell whether a card was signed by a key, in hex, that its party had before."""
    message = _endorsed(card)
    by_it = (each for each in card.endorsements if each.verify_key == verify_key)
    return any(each.holds(message) for each in by_it)


def _endorsed(card: Card) -> bytes:
    return domain("card_endorsement") + _canonical(card)


def write_party(directory: Path, party: PartyKeys) -> None:
    """Write a new party directory, complete or not at all.

    Raises:
        FileExistsError: the directory is not empty; nothing is overwritten.
    """
    with new_directory(directory) as pending:
        _write(pending, party, "")


def rotate(
    directory: Path,
    kinds: Collection[KeyKind],
    *,
    url: str | None,
    extra_hosts: Sequence[str],
    now: datetime,
    valid_days: int,
    random_bytes: RandomBytes,
) -> tuple[Card, Path]:
    """Put a party's next keys and its next card beside those in force; return card and file.

    Without `kinds`, all are new, or if the party has a new `url` its certificate alone. That is for
    the hosts of the one before, those of `extra_hosts` and of the address. The keys are written
    before the card, so what a crash leaves is of no card. The card is signed by all signing keys
    that the party has.

    Raises:
        ValueError: the party has no such key or no address, or a URL or host is malformed.
        StartupRefused: there is no party, or a private file is open to others.
    """
    card = read_party_card(directory)
    wanted = set[KeyKind](kinds or (KINDS[card.role] if url is None else ("tls",)))
    if url is not None:
        wanted.add("tls")
    if lacking := wanted - set(KINDS[card.role]):
        raise ValueError(f"a party of the role {card.role} has no {min(lacking)} key")
    fields = card.model_dump(exclude={"endorsements"}, exclude_none=True)
    fields |= {"url": url} if url else {}
    hosts = [*(hosts_of(card.certificate) if card.certificate else []), *extra_hosts]
    made = _made(fields, wanted, hosts, now, valid_days, random_bytes)
    endorsements = tuple(
        Endorsement.by(each, _endorsed(made.card))
        for each in map(read_signing_key, generations(directory, "signing.key"))
    )
    signed = made.card.model_copy(update={"endorsements": endorsements})
    paths = [path for name in _FILES for path in generations(directory, name)]
    number = 1 + max(int(path.stem.partition("-")[2] or 1) for path in paths)
    return signed, _write(directory, replace(made, card=signed), f"-{number}")


def _write(directory: Path, made: PartyKeys, suffix: str) -> Path:
    """Write new keys and then the card, whose file is returned."""
    for kind, seed in made.seeds.items():
        write_new(directory / f"{kind}{suffix}.key", hex_line(seed), private=True)
    if made.tls is not None:
        write_tls(directory, made.tls, suffix)
    file = directory / f"card{suffix}.json"
    content = made.card.model_dump_json(indent=2, exclude_none=True).encode() + b"\n"
    write_new(file, content, private=False)
    return file


def read_party_card(path: Path) -> Card:
    """Read a card from its file, or the newest from the party directory that holds it.

    Raises:
        StartupRefused: there is no card.
        ValueError: it is not a party's card.
    """
    *_, file = [path / CARD, *generations(path, CARD)] if path.is_dir() else [path]
    card = read_card(file)
    try:
        entry_of(card)
    except pydantic.ValidationError as error:
        raise ValueError(f"{file} is not a party's card: {describe(error)}") from error
    return card


def read_signing_key(path: Path) -> SigningKey:
    """Read a private signing key from its file, one hex line.

    Raises:
        StartupRefused: not such a file, or open to other users.
    """
    return SigningKey(read_seed(path))


def make_authority_directory(directory: Path, key: SigningKey) -> None:
    """Write the authority's private key into a private directory of its own.

    The directory may be there if it is empty: it may be a disk that is kept apart.

    Raises:
        FileExistsError: it is not empty; nothing is overwritten.
    """
    refuse_filled(directory)
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(PRIVATE_DIRECTORY)
    write_new(directory / "signing.key", hex_line(bytes(key)), private=True)
