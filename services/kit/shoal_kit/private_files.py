"""Writing files that are complete or absent, some of them private.

Nothing here overwrites by accident: a new file must not exist, and a replacement is a rename.
One of the private files holds a token. Whoever can read it runs the party, and shows the token.
"""

import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from shoal_kit.startup import (
    PRIVATE_FILE,
    StartupRefused,
    sync_directory,
    write_draft,
)

OPERATOR_TOKEN: Final = "operator.token"
"""Name of the file with the token in the data directory of a service."""
_SHORTEST_TOKEN: Final = 32
PRIVATE_DIRECTORY: Final = 0o700


def read_private_file(path: Path) -> bytes:
    """Return the content of a file that only its owner can reach.

    The permissions are read from the opened file, so they are those of the bytes returned.

    Raises:
        StartupRefused: the file is missing, unreadable, not a regular file, or its mode lets
            group or others in.
    """
    try:
        # Without O_NONBLOCK, opening a pipe would wait for its other end for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise StartupRefused(f"{path} does not exist; create it, or correct its path") from None
    except OSError as error:
        raise StartupRefused(f"{path} cannot be opened: {error.strerror}") from None
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise StartupRefused(f"{path} is not a regular file; name the file itself")
        if mode & 0o077:
            raise StartupRefused(
                f"{path} is private but has mode {stat.S_IMODE(mode):04o}; run: chmod 600 {path}"
            )
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def write_new(path: Path, content: bytes, *, private: bool) -> None:
    """Write a file that must not exist yet, complete and on disk when this returns.

    Raises:
        FileExistsError: there is one already; it is left as it is.
    """
    pending = write_draft(path, content, private=private)
    try:
        os.link(pending, path)  # unlike a rename, this fails if the name is taken
    except FileExistsError:
        raise FileExistsError(f"{path} exists already; it was left as it is") from None
    finally:
        pending.unlink()
    sync_directory(path.parent)


def erase(path: Path) -> None:
    """Overwrite a file's bytes and remove it.

    A journal, a snapshot or a flash disk may still have them: nothing above the device can help it.

    Raises:
        OSError: it cannot be written.
    """
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        file.write(bytes(size))
        file.flush()
        os.fsync(file.fileno())
    path.unlink()


def put(file: Path, target: Path, *, mode: int = PRIVATE_FILE) -> None:
    """Put a file in the place of another on the same file system; it outlasts a crash."""
    file.chmod(mode)
    sync_directory(file)
    file.replace(target)
    sync_directory(target.parent)


@contextmanager
def locked(lock: Path, refusal: str) -> Iterator[None]:
    """Hold a lock file, which is made if it is missing; the kernel lets go of it with the process.

    Raises:
        ValueError: another process holds it; the message is `refusal`.
    """
    # private: whoever can read the file could hold it
    with os.fdopen(os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(refusal) from None
        yield


def token_of(path: Path) -> str:
    """Return the token in a private file, which the first call makes.

    Raises:
        StartupRefused: the file is broken, or open to others.
    """
    if not path.exists():
        write_new(path, f"{secrets.token_hex(32)}\n".encode(), private=True)
    token = read_private_file(path).decode("ascii", errors="replace").strip()
    if len(token) < _SHORTEST_TOKEN:
        raise StartupRefused(f"{path} holds no token; delete it, and the next start makes one")
    return token
