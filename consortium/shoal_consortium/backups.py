"""Backs up a service's database while it runs, and puts it back for a service that is stopped.

A backup is a ZIP archive with the database and the manifests that its rounds are bound to: `unzip
-t` checks it, too. It has no mark. By the mark in the data directory, or its absence, the service
that starts over an older copy learns that something is missing, and refuses.
"""

import fcntl
import glob
import os
import re
import shutil
import sqlite3
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from shoal_hosting.manifests.manifest_book import HISTORY, MANIFEST, ROSTER
from shoal_hosting.marks import (
    Mark,
    MarkFile,
    MemoryLost,
    Stored,
    is_whole,
    pages_are_whole,
    what_is_lost,
)
from shoal_hosting.private_files import PRIVATE_DIRECTORY
from shoal_hosting.startup import PRIVATE_FILE, sync_directory
from shoal_protocol.privacy.ledger import EMPTY, Head

ROLES: Final = ("compute", "aggregator", "trainer")
_DATABASE: Final = re.compile(rf"({'|'.join(ROLES)})\.sqlite")
_MANIFEST: Final = re.compile(rf"{HISTORY}/\d{{6}}-({re.escape(MANIFEST)}|{re.escape(ROSTER)})")
_MARK: Final = "memory"  # beside an SQLite file
_ENCRYPTED: Final = 0x1  # flag of a ZIP archive's member
_LOCK: Final = "lock"  # that a running service holds
_URL: Final = '"${SHOAL_DATABASE_URL/+psycopg/}"'
_DUMP: Final = (
    "A state in PostgreSQL is backed up by its own tools: in bash, with the "
    f"service's environment, run `pg_dump --format=custom --file=FILE {_URL}`, and to go back, "
    f"over an empty database, `pg_restore --exit-on-error --dbname={_URL} FILE`"
)


class Backup(NamedTuple):
    """What a backup holds."""

    role: str
    ledger: Head | None  # its last entry; None: the service charges nobody
    manifests: int  # that followed the pinned one


class Restored(NamedTuple):
    """What was put back, and what the service that starts over it would lack."""

    backup: Backup
    lacks: str | None  # None: the database is as it was last, and the service starts


def back_up(data: Path, to: Path) -> Backup:
    """Copy the state in a service's data directory to the private file `to`, in place of an older.

    The service may run: what it committed until some moment is in the copy, all of it. Whatever
    interrupts this, `to` is the older file or the whole new one.

    Raises:
        ValueError: there is no state, nothing was written to it yet, it is damaged, or it is in
            PostgreSQL; the message says what to do.
        OSError: a file cannot be read or written.
    """
    role = _role_in(data)
    if role is None:
        raise ValueError(
            f"{data} has no service's SQLite file: name the data volume of one that ran. {_DUMP}"
        )
    with _beside(to) as scratch:
        copy = scratch / f"{role}.sqlite"
        _copy(data / copy.name, copy)
        with _opened(copy) as database:
            found = _found(database, None)
        if found.untouched:
            raise ValueError(f"nothing was written to {data / copy.name} yet: back it up later")
        # read after the database: each version that it names is on file before
        manifests = sorted((data / HISTORY).glob("*-*"))
        kept = [each for each in manifests if _MANIFEST.fullmatch(f"{HISTORY}/{each.name}")]
        archive = scratch / "archive"
        with zipfile.ZipFile(archive, "x") as packed:
            packed.write(copy, copy.name)
            for each in kept:
                packed.write(each, f"{HISTORY}/{each.name}")
        _settle(archive)
        archive.replace(to)
        sync_directory(to.parent)
    return _described(role, found, len(kept) // 2)


def restore(backup: Path, data: Path) -> Restored:
    """Put a backup into the data directory of a service that is stopped and lost its database.

    No mark is written or removed.

    Raises:
        ValueError: the file is no backup or damaged, or `data` has a database, which may know more,
            or a mark that is damaged, or a service runs over it; nothing is changed then.
        OSError: a file cannot be read or written.
    """
    with _held(data):
        for role in ROLES:
            for ending in ("", "-wal"):  # a log without its database would be played into this one
                path = data / f"{role}.sqlite{ending}"
                if path.exists() and (path.stat().st_size or not ending) and not _is_new(path):
                    raise ValueError(f"{path} is there, and may know more: move it away first")
        with _beside(data / "restored") as scratch:
            role, manifests = _unpack(backup, scratch)
            copy = scratch / f"{role}.sqlite"
            mark = _mark_in(data)
            with _opened(copy) as database:
                found = _found(database, mark)
            _settle(copy)
            for each in manifests:
                if not (target := data / each).exists():
                    target.parent.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
                    _settle(scratch / each)
                    (scratch / each).replace(target)
                    sync_directory(target.parent)
            for each in ROLES:  # a database to which nothing was written
                for ending in ("", "-wal", "-shm"):
                    (data / f"{each}.sqlite{ending}").unlink(missing_ok=True)
            copy.replace(data / copy.name)  # last: until then nothing was restored
            sync_directory(data)
    lacks = None
    if mark is None or not is_whole(mark, found):
        lacks = what_is_lost(mark, found, data / _MARK)
    return Restored(_described(role, found, len(manifests) // 2), lacks)


def _is_new(path: Path) -> bool:
    """Tell whether a database was begun, and nothing was written to it."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True)) as database:
            return _found(database, None).untouched
    except (sqlite3.Error, ValueError):
        return False


def _described(role: str, found: Stored, manifests: int) -> Backup:
    return Backup(role, None if role == "aggregator" else found.ledger, manifests)


def _role_in(data: Path) -> str | None:
    return next((each for each in ROLES if (data / f"{each}.sqlite").exists()), None)


def _mark_in(data: Path) -> Mark | None:
    try:
        with closing(MarkFile(data / _MARK)) as file:
            return file.mark
    except MemoryLost as error:
        raise ValueError(str(error)) from None


@contextmanager
def _held(data: Path) -> Iterator[None]:
    """Keep services from a data directory, which is made if there is none."""
    data.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    descriptor = os.open(data / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"a service runs over {data}: stop it first") from None
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """Make a private directory on the file system of `path`, and remove it in the end.

    Those of killed processes go first: each may have a whole database.
    """
    prefix = f".{path.name}.shoal-"
    for left in path.parent.glob(f"{glob.escape(prefix)}*"):
        with suppress(BlockingIOError), _locked(left):  # one that is at work goes on
            shutil.rmtree(left)
    scratch = Path(tempfile.mkdtemp(prefix=prefix, dir=path.parent))
    with _locked(scratch):
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold a directory, which a killed process lets go.

    Raises:
        BlockingIOError: another process holds it.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _copy(source: Path, target: Path) -> None:
    """Copy a database as it is at one moment; who writes to it meanwhile waits for nothing.

    Raises:
        ValueError: it cannot be read.
    """
    address = f"file:{quote(str(source.absolute()))}?mode=ro"
    with (
        closing(sqlite3.connect(address, uri=True)) as live,
        closing(sqlite3.connect(target)) as copy,
    ):
        copy.execute("PRAGMA synchronous=OFF")  # it is flushed once, as a whole
        try:
            live.backup(copy)
        except sqlite3.Error as error:
            raise _disk_fault(error) or ValueError(f"{source} cannot be read: {error}") from None


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a copy of a database, all of whose pages are sound.

    Raises:
        ValueError: they are not, or it is not a service's.
    """
    try:
        with closing(sqlite3.connect(path)) as database:
            if not pages_are_whole(database, path):
                raise ValueError("the database is damaged: keep the older backups")
            yield database
    except sqlite3.Error as error:
        damaged = f"the database is damaged or not a service's: {error}"
        raise _disk_fault(error) or ValueError(damaged) from None


def _disk_fault(error: sqlite3.Error) -> OSError | None:
    """Return that the disk is at fault, which says nothing of the database; None if it is not."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code not in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return None
    return OSError(f"a disk is full, or fails: {error}. Nothing was changed")


def _found(database: sqlite3.Connection, mark: Mark | None) -> Stored:
    """Return what a database knows of a mark, as the service that starts over it will find it."""
    query = "SELECT database, commits FROM memory ORDER BY database"
    marked = [(str(name), int(commits)) for name, commits in database.execute(query)]
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
    head, holds = EMPTY, True
    if "ledger_head" in tables:
        rows = database.execute("SELECT number, digest FROM ledger_head").fetchall()
        if len(rows) != 1:
            raise ValueError("the ledger's head is gone: keep the older backups")
        head = Head(int(rows[0][0]), str(rows[0][1]))
    if mark is not None and mark.ledger != EMPTY:
        query = "SELECT 1 FROM ledger WHERE number = ? AND digest = ?"
        holds = "ledger" in tables and database.execute(query, mark.ledger).fetchone() is not None
    commits = None if mark is None else dict(marked).get(mark.database)
    untouched = not head.number and not any(many for _, many in marked)
    return Stored(commits, head, holds, untouched, tuple(marked))


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


def _settle(path: Path) -> None:
    """Make a file its owner's alone, and have it outlast a crash."""
    path.chmod(PRIVATE_FILE)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
