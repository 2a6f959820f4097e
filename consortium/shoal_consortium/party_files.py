"""Party directories and the authority's key on disk."""

from collections.abc import Collection, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from nacl.signing import SigningKey

from shoal_agent.client_files import DIGEST, hex_line, new_directory, write_tls
from shoal_consortium.cards import (
    Card,
    KeyKind,
    NewParty,
    RandomBytes,
    next_generation,
    read_card,
    write_card,
)
from shoal_holder.keys import read_private
from shoal_hosting.party import CARD, generations
from shoal_hosting.private_files import make_private_directory, write_new

_KINDS: Final = (CARD, "signing.key", "box.key", "tls.key", "tls.crt")


def write_party(directory: Path, party: NewParty) -> None:
    """Write a new party directory, complete or not at all.

    Raises:
        FileExistsError: the directory exists; nothing is overwritten.
    """
    with new_directory(directory) as pending:
        write_new(pending / "signing.key", hex_line(bytes(party.signing_key)), private=True)
        if party.box_key is not None:
            write_new(pending / "box.key", hex_line(bytes(party.box_key)), private=True)
        if party.tls is not None:
            write_tls(pending, party.tls)
        write_new(pending / "card.json", write_card(party.card), private=False)


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

    The keys are written before the card, so what a crash leaves is of no card. The card is signed
    by all signing keys that the party has.

    Raises:
        ValueError: there is no party, or as `next_generation`.
        StartupRefused: a private file is open to others.
    """
    card = read_party_card(directory)
    made = next_generation(
        card,
        kinds,
        endorsers=[read_signing_key(path) for path in generations(directory, "signing.key")],
        url=url,
        extra_hosts=extra_hosts,
        now=now,
        valid_days=valid_days,
        random_bytes=random_bytes,
    )
    taken = [_number(path) for name in _KINDS for path in generations(directory, name)]
    number = max(taken) + 1
    if made.signing_key is not None:
        key = hex_line(bytes(made.signing_key))
        write_new(directory / f"signing-{number}.key", key, private=True)
    if made.box_key is not None:
        write_new(directory / f"box-{number}.key", hex_line(bytes(made.box_key)), private=True)
    if made.tls is not None:
        pem = made.tls.certificate_pem.encode()
        write_new(directory / f"tls-{number}.key", made.tls.private_key_pem, private=True)
        write_new(directory / f"tls-{number}.crt", pem, private=False)
    file = directory / f"card-{number}.json"
    write_new(file, write_card(made.card), private=False)
    return made.card, file


def _number(path: Path) -> int:
    return int(path.stem.partition("-")[2] or 1)


def read_party_card(path: Path) -> Card:
    """Read a card from its file, or the newest from the party directory that holds it.

    Raises:
        ValueError: there is no card.
    """
    *_, file = [path / CARD, *generations(path, CARD)] if path.is_dir() else [path]
    if not file.is_file():
        raise ValueError(f"{path}: there is no party's card here")
    try:
        return read_card(file.read_bytes())
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def read_signing_key(path: Path) -> SigningKey:
    """Read a private signing key from its file, one hex line.

    Raises:
        ValueError: not such a file, or open to other users.
    """
    if not path.is_file():
        raise ValueError(f"{path}: there is no such key file")
    text = read_private(path).decode("ascii", errors="replace").strip()
    if not DIGEST.fullmatch(text):
        raise ValueError(f"{path} is not one key of 64 hexadecimal digits")
    return SigningKey(bytes.fromhex(text))


def make_authority_directory(directory: Path, key: SigningKey) -> None:
    """Write the authority's private key into a private directory of its own."""
    make_private_directory(directory)
    write_new(directory / "signing.key", hex_line(bytes(key)), private=True)
