"""A data holder's private key, the next one beside it, and who else may touch their files."""

from collections.abc import Callable
from contextlib import suppress
from os import PathLike
from pathlib import Path

from nacl.signing import SigningKey

from shoal_holder.site_files import lock_key
from shoal_protocol.trust.roster import Roster

KeyInForce = Callable[[Roster], SigningKey]
"""Returns the data holder's key by a roster."""


class KeyFile:
    """The file of a data holder's key, locked, beside which there may be a next one."""

    def __init__(self, path: Path) -> None:
        """Lock and read the file.

        Raises:
            ValueError: as `lock_key` and `read_holder_key`.
            OSError: the file cannot be read.
        """
        self._path = path
        self._locks = [lock_key(path)]
        try:
            self._key = read_holder_key(path)
        except BaseException:
            self.close()
            raise

    def in_force(self, roster: Roster) -> SigningKey:
        """Return the key, or the next one if the roster has that; its file then takes the place.

        Raises:
            ValueError, OSError: as the constructor, of the next key's file.
        """
        following = next_key_of(self._path)
        if following.exists():
            key = read_holder_key(following)
            if key != self._key and roster.holder_with(key.verify_key) is not None:
                self._locks.append(lock_key(following))
                with suppress(OSError):  # where the directory is read-only, both files stay
                    following.replace(self._path)
                self._key = key
        return self._key

    def close(self) -> None:
        """Release the locks."""
        for lock in self._locks:
            lock.close()


def next_key_of(path: Path) -> Path:
    """Return the file of the key that is to take the place of the one in a file."""
    return path.with_name(f"{path.name}.next")


def read_private(path: Path) -> bytes:
    """Read a file that only its owner may read.

    Raises:
        ValueError: others may read or write it.
    """
    if path.stat().st_mode & 0o077:
        raise ValueError(f"{path} is open to other users; run: chmod 600 {path}")
    return path.read_bytes()


def check_not_writable(path: Path) -> None:
    """Refuse a file, such as of records or rules, that any user of the machine may change.

    Raises:
        ValueError: it is such.
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
        return SigningKey(bytes.fromhex(content.decode("ascii")))
    except ValueError:
        raise ValueError(f"{file} is not a key of 64 hex digits") from None
