"""Clients' private keys, one for each client, read from their file."""

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


def read_client_keys(path: str | PathLike[str]) -> list[SigningKey]:
    """Read the keys of a file with one Ed25519 seed in hex on each line.

    Raises:
        ValueError: the file is open to other users, or a line is not a key; the line is named,
            never shown.
        OSError: the file cannot be read.
    """
    file = Path(path)
    keys = []
    for number, line in enumerate(read_private(file).splitlines(), start=1):
        try:
            if len(line) != _KEY_DIGITS:
                raise ValueError
            keys.append(SigningKey(bytes.fromhex(line.decode("ascii"))))
        except ValueError:
            raise ValueError(f"{file}: line {number} is not a key of 64 hex digits") from None
    if not keys:
        raise ValueError(f"{file} holds no keys")
    return keys
