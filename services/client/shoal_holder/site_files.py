"""Names of the files in a data holder's directory, and the lock on its key."""

import fcntl
import os
from pathlib import Path
from typing import BinaryIO, Final

HOLDER_KEY: Final = "holder.key"
RECORDS: Final = "records.csv"
MAPPING: Final = "records.toml"
RECORDS_BY_ID: Final = "records.npz"  # as the loader writes it
POLICY: Final = "policy.toml"
RECOVERY_KEY: Final = "recovery.pub"  # backups are sealed to it
STATE_FILE: Final = "holder.sqlite"  # in the data directory


def records_in(directory: Path) -> Path:
    """Return the file of records in a data holder's directory: by id where records.toml is."""
    return directory / (RECORDS_BY_ID if (directory / MAPPING).exists() else RECORDS)


def owner_files_of(directory: Path, policy: Path) -> dict[str, Path]:
    """Return the files of a data holder that a backup holds, and by which it is sealed."""
    return {POLICY: policy, **{name: directory / name for name in (MAPPING, RECOVERY_KEY)}}


def lock_key(path: Path) -> BinaryIO:
    """Lock a key file for this process, until the returned lock is closed.

    Two states for the same key would answer one round twice, and spend each budget twice.

    Raises:
        ValueError: another process, or another data holder here, uses the key.
        OSError: the file cannot be opened.
    """
    writable = os.access(path, os.W_OK)  # a network file system locks no file that is only read
    file = path.open("r+b" if writable else "rb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        if isinstance(error, BlockingIOError):
            raise ValueError(
                f"{path} is in use: one data holder or agent at a time, with one data directory"
            ) from None
        raise
    return file
