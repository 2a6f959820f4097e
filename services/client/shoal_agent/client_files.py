"""A data holder's files: its key with its enrolment, and the agent's directory."""

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from nacl.signing import SigningKey

from shoal_agent.enrolment_files import encode_enrolment, read_enrolment
from shoal_holder.keys import next_key_of, read_holder_key
from shoal_holder.site_files import HOLDER_KEY
from shoal_hosting.private_files import PRIVATE_DIRECTORY, replace, write_new
from shoal_hosting.tls_certificates import TlsIdentity

DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@contextmanager
def new_directory(directory: Path) -> Iterator[Path]:
    """Give a private directory to fill; it becomes `directory`, or is removed after an error.

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


def write_agent(directory: Path, key: SigningKey, *, slots: int, tls: TlsIdentity) -> None:
    """Write a new agent's directory, complete or not at all: key, enrolment, TLS.

    Raises:
        FileExistsError: the directory exists; nothing is overwritten.
    """
    with new_directory(directory) as pending:
        write_holder_key(pending / HOLDER_KEY, key, slots=slots)
        write_tls(pending, tls)


def write_tls(directory: Path, tls: TlsIdentity) -> None:
    """Write `tls.crt` and `tls.key` into a directory that has neither."""
    write_new(directory / "tls.key", tls.private_key_pem, private=True)
    write_new(directory / "tls.crt", tls.certificate_pem.encode(), private=False)


def write_holder_key(path: Path, key: SigningKey, *, slots: int) -> Path:
    """Write a data holder's private key, and beside it what the authority enrols it by.

    Returns:
        The enrolment file: the verify key, proven, and how many slots it asks for.

    Raises:
        FileExistsError: one of the two files exists; nothing is overwritten.
        ValueError: the number of slots is not positive.
    """
    enrolment, encoded = enrolment_of(path), encode_enrolment(key, slots=slots)
    if path.exists() or enrolment.exists():
        raise FileExistsError(f"{path} or {enrolment.name} exists already; nothing was written")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_new(path, hex_line(bytes(key)), private=True)
    write_new(enrolment, encoded, private=False)
    return enrolment


def grow(path: Path, *, slots: int) -> Path:
    """Have the enrolment file beside a private key ask for so many slots in all; return it.

    Raises:
        ValueError: the number is not positive, or the file holds no key or is open to others.
        OSError: a file cannot be read or written.
    """
    enrolment, key, following = enrolment_of(path), read_holder_key(path), next_key_of(path)
    if following.exists():
        encoded = encode_enrolment(read_holder_key(following), slots=slots, replaces=key)
    else:
        encoded = encode_enrolment(key, slots=slots)
    replace(enrolment, encoded)
    return enrolment


def rotate(path: Path, key: SigningKey) -> Path:
    """Put a new private key beside one that signs it, and have the enrolment file say so.

    The old key stays in use until a manifest has the new one. A rotation that is under way is gone
    on with: `key` is then not used.

    Returns:
        The enrolment file, which asks for as many slots as before.

    Raises:
        ValueError: a file holds no key or is open to others, or the enrolment file is not one.
        OSError: a file cannot be read or written.
    """
    slots = read_enrolment(enrolment_of(path)).slots
    read_holder_key(path)
    if not next_key_of(path).exists():
        write_new(next_key_of(path), hex_line(bytes(key)), private=True)
    return grow(path, slots=slots)


def enrolment_of(path: Path) -> Path:
    """Return the enrolment file that belongs to a file of a private key."""
    return path.with_name(path.name + ".enrolment")


def write_pin(directory: Path, digest: str, *, replace_other: bool) -> None:
    """Pin a manifest by its digest in a party's or agent's directory.

    Raises:
        ValueError: not a digest, no such directory, or another digest is pinned already and
            `replace_other` is not set.
    """
    if not DIGEST.fullmatch(digest):
        raise ValueError("a digest is 64 hexadecimal digits, in lower case")
    if not directory.is_dir():
        raise ValueError(f"{directory} is not a directory")
    pin = directory / "pin"
    if pin.exists() and pin.read_text().strip() != digest and not replace_other:
        raise ValueError(f"{pin} holds another digest; --replace trusts this one instead")
    replace(pin, f"{digest}\n".encode())


def hex_line(content: bytes) -> bytes:
    """Return a key's or digest's line in a file."""
    return f"{content.hex()}\n".encode()
