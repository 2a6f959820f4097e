"""Backs up a service's database while it runs, and puts it back for a service that is stopped.

A backup is a ZIP archive with the database and the manifests that its rounds are bound to: `unzip
-t` checks it, too. It has no mark. By the mark in the data directory, or its absence, the service
that starts over an older copy learns that something is missing, and refuses.
"""

import re
import shutil
import sqlite3
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from shoal_kit.database_file import pages_are_whole
from shoal_kit.manifest_book import HISTORY, MANIFEST, ROSTER
from shoal_kit.private_files import PRIVATE_DIRECTORY, locked, put

ROLES: Final = ("compute", "aggregator", "trainer")
_DATABASE: Final = re.compile(rf"({'|'.join(ROLES)})\.sqlite")
_MANIFEST: Final = re.compile(rf"{HISTORY}/\d{{6}}-({re.escape(MANIFEST)}|{re.escape(ROSTER)})")
_ENCRYPTED: Final = 0x1  # flag of a ZIP archive's member
_LOCK: Final = "lock"  # that a running service holds
_IN_POSTGRESQL: Final = "database"  # in the data directory, where the state is in PostgreSQL
_URL: Final = '"${SHOAL_DATABASE_URL/+psycopg/}"'
_DUMP: Final = (
    "this service's state is in PostgreSQL, whose own tools back it up: in bash, with the "
    f"service's environment, run `pg_dump --format=custom --file=FILE {_URL}`, and to go back, "
    f"over an empty database, `pg_restore --exit-on-error --dbname={_URL} FILE`"
)


def back_up(data: Path, to: Path) -> str:
    """Copy the state in a service's data directory to the private file `to`, in place of an older.

    The service, whose role is returned, may run: what it committed until some moment is in the
    copy, all of it. Whatever interrupts this, `to` is the older file or the whole new one.

    Raises:
        ValueError: there is no state, it is damaged, or it is in PostgreSQL; the message says what
            to do. Or another command writes a backup to `to`.
        OSError: a file cannot be read or written.
    """
    if (data / _IN_POSTGRESQL).exists():
        raise ValueError(_DUMP)
    there = {path.stem for path in data.glob("*.sqlite") if path.stat().st_size}
    role = next((each for each in ROLES if each in there), None)
    if role is None:
        raise ValueError(f"{data} has no service's state: name the data volume of one that ran")
    refusal = f"another command writes {to}: wait until it has ended"
    with locked(to.with_name(f".{to.name}.lock"), refusal), _beside(to) as scratch:
        copy, archive = scratch / f"{role}.sqlite", scratch / "archive"
        _copy(data / copy.name, copy)
        _check_pages(copy, of=data / copy.name)
        # read after the database: each version that it names is on file before
        manifests = [f"{HISTORY}/{each.name}" for each in sorted((data / HISTORY).glob("*-*"))]
        with zipfile.ZipFile(archive, "x") as packed:
            packed.write(copy, copy.name)
            for each in filter(_MANIFEST.fullmatch, manifests):
                packed.write(data / each, each)
        put(archive, to)
    return role


def restore(backup: Path, data: Path) -> str:
    """Put a backup into the data directory of a service that is stopped and lost its database.

    The service's role is returned. No mark is written or removed.

    Raises:
        ValueError: the file is no backup or damaged, or `data` has a database that is not an empty
            file and may know more, or a service runs over it; nothing is changed then.
        OSError: a file cannot be read or written.
    """
    data.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    with locked(data / _LOCK, f"a service runs over {data}: stop it first"):
        if (data / _IN_POSTGRESQL).exists():
            raise ValueError(_DUMP)
        for role in ROLES:
            for ending in ("", "-wal"):  # a log without its database would be played into this one
                path = data / f"{role}.sqlite{ending}"
                if path.exists() and path.stat().st_size:
                    raise ValueError(f"{path} is there, and may know more: move it away first")
        with _beside(data / "restored") as scratch:
            role, manifests = _unpack(backup, scratch)
            _check_pages(scratch / f"{role}.sqlite", of=backup)
            for each in manifests:
                if not (target := data / each).exists():
                    target.parent.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
                    put(scratch / each, target)
            for ending in ("-wal", "-shm"):
                (data / f"{role}.sqlite{ending}").unlink(missing_ok=True)
            # last: until then nothing was restored
            put(scratch / f"{role}.sqlite", data / f"{role}.sqlite")
    return role


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


def _unpack(backup: Path, scratch: Path) -> tuple[str, list[str]]:
    """Unpack a backup; return the role of its database and the names of its manifests.

    Raises:
        ValueError: it is none, or damaged.
    """
    try:
        with zipfile.ZipFile(backup) as packed:
            names = packed.namelist()
            roles = [found[1] for name in names if (found := _DATABASE.fullmatch(name))]
            manifests = [name for name in names if _MANIFEST.fullmatch(name)]
            written = all(
                each.compress_type == zipfile.ZIP_STORED and not each.flag_bits & _ENCRYPTED
                for each in packed.infolist()
            )
            if not written or len(roles) != 1 or len(set(names)) != 1 + len(manifests):
                raise ValueError(f"{backup} is not a backup of a service")
            packed.extractall(scratch)  # it compares each file's checksum
    except (zipfile.BadZipFile, EOFError) as error:
        raise ValueError(f"{backup} is no backup, cut short or changed: {error}") from None
    return roles[0], manifests
