"""A data holder's files: clients' keys with their enrolment, and the agent's directory."""

import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from nacl.signing import SigningKey

from shoal_agent.enrolment_files import encode_enrolment
from shoal_holder.site_files import CLIENT_KEYS
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
    write_new(path, b"".join(hex_line(bytes(key)) for key in keys), private=True)
    write_new(enrolment, encode_enrolment(keys), private=False)
    return enrolment


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
