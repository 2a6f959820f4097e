"""A data holder's private key, and who else may touch the files beside it."""

from os import PathLike
from pathlib import Path

from nacl.signing import SigningKey

_KEY_DIGITS = 64


def read_private(path: Path) -> bytes:
    """Read a file that only its owner may read.

    Raises:
        ValueError: others may read or write it.
    """
    if path.stat().st_mode & 0o077:
        raise ValueError(f"{path} is open to other users; run: chmod 600 {path}")
    return path.read_bytes()


def check_not_writable(path: Path) -> None:
    """Refuse records that any user of the machine may change.

    Raises:
        ValueError: they are such.
        OSError: there is no such file.
    """
    if path.stat().st_mode & 0o002:
        raise ValueError(f"{path} can be changed by every user; run: chmod o-w {path}")


def read_holder_key(path: str | PathLike[str]) -> SigningKey:
    """Read the file of a data holder's Ed25519 seed, in hex on one line.

    Raises:
        ValueError: the file is open to other users, or holds no key; it is never shown.
        OSError: the file cannot be read.
    """
    file = Path(path)
    content = read_private(file).strip()
    try:
        if len(content) != _KEY_DIGITS:
            raise ValueError
        return SigningKey(bytes.fromhex(content.decode("ascii")))
    except ValueError:
        raise ValueError(f"{file} is not a key of 64 hex digits") from None
