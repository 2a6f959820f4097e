"""Starts a program, or prints in one line why it cannot start; reads and writes its files."""

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

CONFIGURATION_ERROR: Final = 78  # EX_CONFIG of sysexits.h; supervisors do not restart on it
PRIVATE_FILE: Final = 0o600
PUBLIC_FILE: Final = 0o644


class StartupRefused(Exception):
    """The process must not start; the message says why and what to do, and holds no secret."""


@contextmanager
def startup_of(program: str) -> Iterator[None]:
    """Turn a `StartupRefused` into one line on standard error and exit status 78.

    A traceback here would hide the one sentence an operator needs, and could show values.
    Whatever files the program makes, nobody but its owner can reach.
    """
    umask = os.umask(0o077)
    try:
        yield
    except StartupRefused as refusal:
        print(f"{program}: will not start: {' '.join(str(refusal).split())}", file=sys.stderr)
        raise SystemExit(CONFIGURATION_ERROR) from None
    finally:
        os.umask(umask)


def read_pin(directory: Path) -> str:
    """Return the digest of the manifest that the party pinned.

    Raises:
        StartupRefused: there is none.
    """
    path = directory / "pin"
    try:
        return path.read_text().strip()
    except OSError as error:
        raise StartupRefused(
            f"{path} is missing: compare the manifest's digest with the other parties, "
            "then write it with `shoal party pin`"
        ) from error


def write_draft(path: Path, content: bytes, *, private: bool) -> Path:
    """Write a file under a name of its own beside `path`, to take that name when all is there."""
    pending = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(
        pending, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE if private else PUBLIC_FILE
    )
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        pending.unlink()
        raise
    return pending


def sync_directory(directory: Path) -> None:
    """Have a file, or what was renamed in a directory, outlast a crash."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write a file in place of the one that may be there: readers see the old or the new.

    So does who looks after a crash. The directory is made if it is missing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_draft(path, content, private=private).replace(path)
    sync_directory(path.parent)
