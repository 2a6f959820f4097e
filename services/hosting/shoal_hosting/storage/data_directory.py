"""Keeps a data directory for one process."""

import fcntl
import os
from pathlib import Path
from typing import Final

from shoal_hosting.startup import StartupRefused

LOCK: Final = "lock"


def hold_data_directory(path: Path) -> None:
    """Make `path` if it is missing, and hold it until this process ends, however it ends.

    Two processes over the same files would each judge by what it remembers, and together spend
    a privacy budget twice. The kernel lets go of the lock with the process, so that nothing is
    left to clear after a crash.

    Raises:
        StartupRefused: another process holds it, or it cannot be written or locked.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        # never closed: closing it would give the directory up
        descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StartupRefused(
            f"the data directory {path} cannot be written: {error.strerror}"
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise StartupRefused(
            f"another process uses the data directory {path}; stop it, or name another directory"
            if isinstance(error, BlockingIOError)
            else f"the data directory {path} cannot be locked: {error.strerror}"
        ) from None
