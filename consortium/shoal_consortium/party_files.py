"""Party directories and the authority's key on disk."""

from pathlib import Path

from nacl.signing import SigningKey

from shoal_agent.client_files import DIGEST, hex_line, new_directory, write_tls
from shoal_consortium.parties import Card, NewParty, read_card, write_card
from shoal_holder.keys import read_private
from shoal_hosting.private_files import make_private_directory, write_new


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


def read_party_card(path: Path) -> Card:
    """Read a card from its file, or from the party directory that holds it.

    Raises:
        ValueError: there is no card.
    """
    file = path / "card.json" if path.is_dir() else path
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
