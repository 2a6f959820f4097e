"""Backs up a service's database while it runs, and puts it back for a service that is stopped.

A backup is a copy of the database, packed by gzip, whose checksum `gzip -t` checks, too. The
service that starts over an older copy learns from the others that something is missing.
"""

import gzip
import shutil
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from shoal_kit.database_file import DATABASE, pages_are_whole
from shoal_kit.private_files import PRIVATE_DIRECTORY, locked, put

_LOCK: Final = "lock"  # that a running service holds
_IN_POSTGRESQL: Final = "database"  # in the data directory, where the state is in PostgreSQL
_URL: Final = '"${SHOAL_DATABASE_URL/+psycopg/}"'
_DUMP: Final = (
    "this service's state is in PostgreSQL, whose own tools back it up: in bash, with the "
    f"service's environment, run `pg_dump --format=custom --file=FILE {_URL}`, and to go back, "
    f"over an empty database, `pg_restore --exit-on-error --dbname={_URL} FILE`"
)


def back_up(data: Path, to: Path) -> None:
    """Copy the state in a service's data directory to the private file `to`, in place of an older.

    The service may run: what it committed until some moment is in the copy, all of it. Whatever
    interrupts this, `to` is the older file or the whole new one.

    Raises:
        ValueError: there is no state, it is damaged, or it is in PostgreSQL; the message says what
            to do. Or another command writes a backup to `to`.
        OSError: a file cannot be read or written.
    """
    if (data / _IN_POSTGRESQL).exists():
        raise ValueError(_DUMP)
    database = data / DATABASE
    if not database.exists() or not database.stat().st_size:
        raise ValueError(f"{data} has no service's state: name the data volume of one that ran")
    refusal = f"another command writes {to}: wait until it has ended"
    with locked(to.with_name(f".{to.name}.lock"), refusal), _beside(to) as scratch:
        copy, packed = scratch / "copy", scratch / "packed"
        _copy(database, copy)
        _check_pages(copy, of=database)
        with copy.open("rb") as content, gzip.open(packed, "wb", compresslevel=1) as file:
            shutil.copyfileobj(content, file)
        put(packed, to)


def restore(backup: Path, data: Path) -> None:
    """Put a backup into the data directory of a service that is stopped and lost its database.

    Raises:
        ValueError: the file is no backup or damaged, or `data` has a database that is not an empty
            file and may know more, or a service runs over it; nothing is changed then.
        OSError: a file cannot be read or written.
    """
    data.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    with locked(data / _LOCK, f"a service runs over {data}: stop it first"):
        if (data / _IN_POSTGRESQL).exists():
            raise ValueError(_DUMP)
        for ending in ("", "-wal"):  # a log without its database would be played into this one
            path = data / f"{DATABASE}{ending}"
            if path.exists() and path.stat().st_size:
                raise ValueError(f"{path} is there, and may know more: move it away first")
        with _beside(data / "restored") as scratch:
            copy = scratch / "copy"
            _unpack(backup, copy)
            _check_pages(copy, of=backup)
            for ending in ("-wal", "-shm"):
                (data / f"{DATABASE}{ending}").unlink(missing_ok=True)
            put(copy, data / DATABASE)  # last: until then nothing was restored


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """Make a private directory on the file system of `path`, and remove it in the end.

    What a killed process left there goes first: it may be a whole database. The caller holds a lock
    by which no other process is at work there.
    """
    scratch = path.with_name(f".{path.name}.shoal")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=PRIVATE_DIRECTORY)
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch)


@contextmanager
def _reading(database: Path) -> Iterator[None]:
    """Say of SQLite's errors what they mean.

    Raises:
        ValueError: the database cannot be read.
        OSError: the disk is full or fails, which says nothing of the database.
    """
    try:
        yield
    except sqlite3.Error as error:
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            raise OSError(f"a disk is full, or fails: {error}. Nothing was changed") from None
        raise ValueError(f"{database} cannot be read: {error}: keep the older backups") from None


def _copy(source: Path, target: Path) -> None:
    """Copy a database as it is at one moment; who writes to it meanwhile waits for nothing.

    Raises:
        ValueError, OSError: as `_reading`.
    """
    with (
        _reading(source),
        closing(sqlite3.connect(f"file:{quote(str(source.absolute()))}?mode=ro", uri=True)) as live,
        closing(sqlite3.connect(target)) as copy,
    ):
        copy.execute("PRAGMA synchronous=OFF")  # it is flushed once, as a whole
        live.backup(copy)


def _check_pages(copy: Path, *, of: Path) -> None:
    """Refuse the copy `of` a database in which SQLite does not find all pages sound.

    Raises:
        ValueError: it is damaged.
        OSError: as `_reading`.
    """
    with _reading(of), closing(sqlite3.connect(copy)) as opened:
        is_whole = pages_are_whole(opened, copy)
    if not is_whole:
        raise ValueError("the database is damaged: keep the older backups")


def _unpack(backup: Path, copy: Path) -> None:
    """Unpack a backup into a new file.

    Raises:
        ValueError: it is none, or damaged.
    """
    try:
        with gzip.open(backup) as packed, copy.open("xb") as content:
            shutil.copyfileobj(packed, content)  # it compares the checksum
            if not content.tell():
                raise EOFError
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise ValueError(f"{backup} is no backup, cut short or changed") from None
