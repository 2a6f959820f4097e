"""Party directories and clients' key files on disk; makes no key and talks to nobody."""

import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from nacl.signing import SigningKey, VerifyKey

from shoal_client.certificates import TlsIdentity
from shoal_client.parties import Card, NewParty, read_card, write_card
from shoal_client.private_files import (
    PRIVATE_DIRECTORY,
    make_private_directory,
    read_private,
    replace,
    write_new,
)

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


def write_party(directory: Path, party: NewParty) -> None:
    """Write a new party directory, complete or not at all.

    Raises:
        FileExistsError: the directory exists; nothing is overwritten.
    """
    if directory.exists():
        raise FileExistsError(f"{directory} exists already; nothing was written")
    directory.parent.mkdir(parents=True, exist_ok=True)
    pending = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    try:
        pending.chmod(PRIVATE_DIRECTORY)
        write_new(pending / "signing.key", _hex_line(bytes(party.signing_key)), private=True)
        if party.box_key is not None:
            write_new(pending / "box.key", _hex_line(bytes(party.box_key)), private=True)
        if party.tls is not None:
            write_tls(pending, party.tls)
        write_new(pending / "card.json", write_card(party.card), private=False)
        pending.rename(directory)
    except BaseException:
        shutil.rmtree(pending)
        raise


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
    return SigningKey(_keys_in(read_private(path), path, exactly_one=True)[0])


def write_signing_key(path: Path, key: SigningKey) -> None:
    """Write a new private signing key file, one hex line, mode 0600."""
    write_new(path, _hex_line(bytes(key)), private=True)


def write_client_keys(path: Path, keys: Sequence[SigningKey]) -> Path:
    """Write clients' private keys, and beside them the public keys to hand to the authority.

    Returns:
        The enrolment file: one verify key per line, in the order of the key file.

    Raises:
        FileExistsError: one of the two files exists; nothing is overwritten.
    """
    enrolment = path.with_name(path.name + ".enrolment")
    if path.exists() or enrolment.exists():
        raise FileExistsError(f"{path} or {enrolment.name} exists already; nothing was written")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_new(path, b"".join(_hex_line(bytes(key)) for key in keys), private=True)
    public = b"".join(_hex_line(bytes(key.verify_key)) for key in keys)
    write_new(enrolment, public, private=False)
    return enrolment


def read_enrolments(paths: Iterable[Path]) -> list[VerifyKey]:
    """Read the public keys of enrolment files, in order.

    Raises:
        ValueError: a file is missing, empty or malformed.
    """
    keys: list[VerifyKey] = []
    for path in paths:
        if not path.is_file():
            raise ValueError(f"{path}: there is no such enrolment file")
        found = _keys_in(path.read_bytes(), path, exactly_one=False)
        keys += [VerifyKey(key) for key in found]
    return keys


def make_authority_directory(directory: Path, key: SigningKey) -> None:
    """Write the authority's private key into a private directory of its own."""
    make_private_directory(directory)
    write_signing_key(directory / "signing.key", key)


def _hex_line(content: bytes) -> bytes:
    return f"{content.hex()}\n".encode()


def _keys_in(content: bytes, path: Path, *, exactly_one: bool) -> list[bytes]:
    lines = content.decode("ascii", errors="replace").split()
    if not lines or (exactly_one and len(lines) > 1):
        raise ValueError(f"{path}: expected {'one key' if exactly_one else 'a key on each line'}")
    for number, line in enumerate(lines, start=1):
        if not _DIGEST.fullmatch(line):
            raise ValueError(f"{path}: line {number} is not a key of 64 hexadecimal digits")
    return [bytes.fromhex(line) for line in lines]
