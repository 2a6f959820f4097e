"""Party directories and clients' key files on disk; makes no key and talks to nobody."""

import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from nacl.signing import SigningKey

from shoal_client.certificates import TlsIdentity
from shoal_client.enrolment_files import encode_enrolment
from shoal_client.parties import Card, NewParty, read_card, write_card
from shoal_client.private_files import (
    PRIVATE_DIRECTORY,
    make_private_directory,
    read_private,
    replace,
    write_new,
)
from shoal_client.site_files import CLIENT_KEYS

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@contextmanager
def new_directory(directory: Path) -> Iterator[Path]:
    """Give a private directory to fill; afterwards it is `directory`, or after an error nothing.

    Raises:
        FileExistsError: the directory exists; nothing is overwritten.
    """
    if directory.exists():
        raise FileExistsError(f"{directory} exists already; nothing was written")
    directory.parent.mkdir(parents=True, exist_ok=True)
    pending = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    try:
        pending.chmod(PRIVATE_DIRECTORY)
        yield pending
        pending.rename(directory)
    except BaseException:
        shutil.rmtree(pending)
        raise


def write_party(directory: Path, party: NewParty) -> None:
    """Write a new party directory, complete or not at all.

    Raises:
        FileExistsError: the directory exists; nothing is overwritten.
    """
    with new_directory(directory) as pending:
        write_new(pending / "signing.key", _hex_line(bytes(party.signing_key)), private=True)
        if party.box_key is not None:
            write_new(pending / "box.key", _hex_line(bytes(party.box_key)), private=True)
        if party.tls is not None:
            write_tls(pending, party.tls)
        write_new(pending / "card.json", write_card(party.card), private=False)


def write_agent(directory: Path, keys: Sequence[SigningKey], tls: TlsIdentity) -> None:
    """Write a new agent's directory, complete or not at all: clients' keys, enrolment, TLS.

    Raises:
        FileExistsError: the directory exists; nothing is overwritten.
    """
    with new_directory(directory) as pending:
        write_client_keys(pending / CLIENT_KEYS, keys)
        write_tls(pending, tls)


def write_tls(directory: Path, tls: TlsIdentity) -> None:
    """Write `tls.crt` and `tls.key` into a directory that has neither."""
    write_new(directory / "tls.key", tls.private_key_pem, private=True)
    write_new(directory / "tls.crt", tls.certificate_pem.encode(), private=False)


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


def write_pin(directory: Path, digest: str, *, replace_other: bool) -> None:
    """Pin a manifest by its digest in a party's or agent's directory.

    Raises:
        ValueError: not a digest, no such directory, or another digest is pinned already and
            `replace_other` is not set.
    """
    if not _DIGEST.fullmatch(digest):
        raise ValueError("a digest is 64 hexadecimal digits, in lower case")
    if not directory.is_dir():
        raise ValueError(f"{directory} is not a directory")
    pin = directory / "pin"
    if pin.exists() and pin.read_text().strip() != digest and not replace_other:
        raise ValueError(f"{pin} holds another digest; --replace trusts this one instead")
    replace(pin, f"{digest}\n".encode())


def read_signing_key(path: Path) -> SigningKey:
    """Read a private signing key from its file, one hex line.

    Raises:
        ValueError: not such a file, or open to other users.
    """
    if not path.is_file():
        raise ValueError(f"{path}: there is no such key file")
    text = read_private(path).decode("ascii", errors="replace").strip()
    if not _DIGEST.fullmatch(text):
        raise ValueError(f"{path} is not one key of 64 hexadecimal digits")
    return SigningKey(bytes.fromhex(text))


def write_signing_key(path: Path, key: SigningKey) -> None:
    """Write a new private signing key file, one hex line, mode 0600."""
    write_new(path, _hex_line(bytes(key)), private=True)


def write_client_keys(path: Path, keys: Sequence[SigningKey]) -> Path:
    """Write clients' private keys, and beside them the public keys to hand to the authority.

    Returns:
        The enrolment file: the verify keys in the order of the key file, each proven.

    Raises:
        FileExistsError: one of the two files exists; nothing is overwritten.
    """
    enrolment = path.with_name(path.name + ".enrolment")
    if path.exists() or enrolment.exists():
        raise FileExistsError(f"{path} or {enrolment.name} exists already; nothing was written")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_new(path, b"".join(_hex_line(bytes(key)) for key in keys), private=True)
    write_new(enrolment, encode_enrolment(keys), private=False)
    return enrolment


def make_authority_directory(directory: Path, key: SigningKey) -> None:
    """Write the authority's private key into a private directory of its own."""
    make_private_directory(directory)
    write_signing_key(directory / "signing.key", key)


def _hex_line(content: bytes) -> bytes:
    return f"{content.hex()}\n".encode()
