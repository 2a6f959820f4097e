"""A file beside a database that counts the database's commits, to detect a lost or older one.

A database that is gone, restored or swapped looks sound by itself, and its service would sign and
charge again what it signed and charged before. So each commit is marked outside the database, too,
before anybody hears of it. The mark may lag behind the database and never leads it.

SQLite's write-ahead log holds the newest commits, and begins anew once the file has all of them. An
older file beside a newer log would count all commits and lack those of logs before it. So the mark
also has the commits that the file had, durably, when the log last began.
"""

import json
import os
import secrets
import sqlite3
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from shoal_kit.database_file import ACCEPT, RESTORE
from shoal_kit.startup import sync_directory
from shoal_protocol.privacy.ledger import Head, counted

LOSSES_ACCEPTED: Final = (
    "the loss of a database was accepted here: what it held may be signed and charged a second time"
)
_VERSION: Final = 1  # of the mark's own layout
_SALTS: Final = slice(16, 24)
"""Of a log's header: drawn whenever the log begins anew (sqlite.org/fileformat2.html, 4.1)."""
_SLOT_BYTES: Final = 4096  # of one write, which a crash may tear; the other slot stays whole


class MemoryLost(Exception):
    """The database does not know what it acknowledged; the message says what to do."""


class Mark(NamedTuple):
    """A database's progress: `commits` that wrote something, and its ledger's last entry."""

    database: str  # drawn when it began here, 32 hex digits
    commits: int
    ledger: Head
    losses: int = 0  # accepted before it began: lost charges may be spent again
    in_file: int = 0  # commits that the file has without its log, at least


class Stored(NamedTuple):
    """A database's own record of a mark."""

    commits: int | None  # of the database that the mark names; None if it is another
    ledger: Head  # its last entry
    holds: bool  # the entry that the mark names is among its entries
    untouched: bool  # never written to
    marked: tuple[tuple[str, int], ...]  # its names in marks, each with its commits


class MarkFile:
    """The file: two slots that are written in turn, each with its own checksum.

    It keeps its size, so that a full disk does not get in the way.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, if it is there.

        Raises:
            OSError: it cannot be read or written.
            MemoryLost: neither slot is whole.
        """
        self.path = path
        self._descriptor: int | None = None
        self.mark: Mark | None = None
        """What is in the file; None if there is no file."""
        self._newest = 0  # the slot that has it: the other one is written next
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        content = os.pread(self._descriptor, 2 * _SLOT_BYTES, 0)
        slots = [content[:_SLOT_BYTES], content[_SLOT_BYTES:]]
        found = [mark for slot in slots if (mark := _read(slot)) is not None]
        if not found:
            self.close()
            raise MemoryLost(
                f"{path} is damaged: nothing says how far the database got. If it did not suffer "
                f"with it, move {path.name} away, and start again to be told how to go on"
            )
        self.mark = max(found, key=lambda mark: mark.commits)
        self._newest = 0 if _read(slots[0]) == self.mark else 1

    def begin(self, mark: Mark) -> None:
        """Put the file in place, durably, with `mark` in both slots.

        Raises:
            OSError
        """
        self.close()
        draft = self.path.with_name(self.path.name + ".draft")
        self._descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.pwrite(self._descriptor, 2 * _write(mark), 0)
        os.fsync(self._descriptor)
        draft.replace(self.path)
        sync_directory(self.path.parent)
        self.mark = mark

    def write(self, mark: Mark) -> None:
        """Replace the mark; it is on the disk on return. A crash leaves the old one or this one.

        Raises:
            OSError
        """
        if self._descriptor is None:
            raise ValueError("the file was never begun, or was closed")
        slot = 1 - self._newest  # a write that tears must not take the newest mark with it
        os.pwrite(self._descriptor, _write(mark), slot * _SLOT_BYTES)
        os.fdatasync(self._descriptor)
        self.mark, self._newest = mark, slot

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class Marking:
    """Marks the commits of one database, several at once where they come faster than marks do."""

    def __init__(self, file: MarkFile, mark: Mark, log: Path | None, *, known: int) -> None:
        """Go on from the mark that is in the file.

        `log` is the write-ahead log of an SQLite database, and `known` the commits that are in it
        or in its file by now.

        Raises:
            OSError: the log cannot be read.
        """
        self.database = mark.database
        """The name under which the database counts its commits."""
        self._file = file
        self._newest = mark
        self._log = log
        self._seen = _salts(log), known

    def committed(self, commits: int, ledger: Head) -> None:
        """Take note of a commit; `settle` is to be called before anybody hears of it."""
        self._newest = self._newest._replace(
            commits=commits, ledger=ledger, in_file=self._in_file(commits)
        )

    def _in_file(self, commits: int) -> int:
        """Return how many commits the file has by itself, now that there are so many in all.

        A log that began anew did so after it was seen last: SQLite had brought what was committed
        until then into the file, and to the disk. A log that cannot be read was not seen.
        """
        salts, known = self._seen
        try:
            found = _salts(self._log)
        except OSError:
            found = b""
        if found:
            self._seen = found, commits
        return known if found and found != salts else self._newest.in_file

    @property
    def losses(self) -> int:
        """Return how many losses of this database were accepted so far."""
        return self._newest.losses

    @property
    def is_settled(self) -> bool:
        """Tell whether the last commit is marked."""
        return self._file.mark == self._newest

    def settle(self) -> None:
        """Bring the mark up to the last commit, also after an earlier attempt failed.

        It may run while the next commit does.

        Raises:
            OSError: nobody may be told of the commit yet.
        """
        newest = self._newest
        if self._file.mark != newest:
            self._file.write(newest)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def open_marking(
    path: Path,
    stored: Callable[[Mark | None], Stored],
    begin: Callable[[Mark], None],
    *,
    accept: str | None,
    vouched: Callable[[], bool] = lambda: False,
    database: Path | None = None,
) -> Marking:
    """Compare a database with its mark at start, or begin with both.

    `stored` says what the database knows of a mark, and `begin` has it count its commits under a
    mark's name. `accept` is the token of the loss that the operator accepts, if any: it is good
    for that very loss and no later one. `vouched` tells whether somebody runs over the same
    database who compared it: then a directory in which nothing was acknowledged yet may join in.
    It is asked after `stored`, for whoever writes has compared before. `database` is the file of an
    SQLite database, which passed `check_file`.

    Raises:
        MemoryLost: what the database acknowledged is not in it, or nothing says that it is.
        OSError: the mark cannot be read or written.
    """
    file = MarkFile(path)
    try:
        mark = file.mark
        found = stored(mark)
        if mark and found.commits is not None and found.commits >= mark.commits and found.holds:
            mark = mark._replace(commits=found.commits, ledger=found.ledger)
            file.write(mark)
            known = mark.commits
        else:
            nothing_told = mark is None or mark.commits == 0
            no_ledger = mark is None or not mark.ledger.number
            is_first = nothing_told and ((found.untouched and no_ledger) or vouched())
            if not is_first:
                _check_accepted(mark, found, path, accept)
            losses = (0 if mark is None else mark.losses) + (0 if is_first else 1)
            mark = Mark(secrets.token_hex(16), 0 if is_first else 1, found.ledger, losses)
            file.begin(mark)
            begin(mark)  # a crash before it leaves a mark of which nothing is known, or accepted
            known = 0  # what was begun may be in a log that is yet to begin
        return Marking(file, mark, None if database is None else _log_of(database), known=known)
    except BaseException:
        file.close()
        raise


def check_file(database: Path, path: Path) -> None:
    """Refuse an SQLite file that lacks commits which its log no longer has, by the mark in `path`.

    To be called before SQLite opens the file: opened, it takes over what the log has, and on
    closing deletes the log. A crash in the middle of that leaves pages of two moments in the file,
    and torn ones: where the count is not sound, SQLite is left to mend it by the log.

    Raises:
        MemoryLost: it is older than the log.
        OSError: a file cannot be read.
    """
    file = MarkFile(path)  # before the database, which may be in use and get ahead meanwhile
    try:
        mark = file.mark
        if mark is None or not mark.in_file or not _salts(_log_of(database)):
            return
        found = _commits_in_file(database, mark.database)
        if found is None or found >= mark.in_file:
            return
        raise MemoryLost(
            f"{database} is older than the write-ahead log beside it: of {mark.in_file:,} commits "
            f"that came before the log, it knows {found:,}. Stop, and {RESTORE}. If that is lost "
            f"for good, move {_log_of(database).name} away, and start again to be told how to go on"
        )
    finally:
        file.close()


def _commits_in_file(database: Path, name: str) -> int | None:
    """Return what an SQLite file counts under a name, without its log; None if it is not sound."""
    address = f"file:{quote(str(database.absolute()))}?mode=ro&immutable=1"
    query = "SELECT commits FROM memory WHERE database = ?"
    try:
        with closing(sqlite3.connect(address, uri=True)) as opened:
            if opened.execute("PRAGMA integrity_check(memory)").fetchall() != [("ok",)]:
                return None
            row = opened.execute(query, (name,)).fetchone()
    except sqlite3.Error:
        return None
    return 0 if row is None else int(row[0])


def _log_of(database: Path) -> Path:
    return database.with_name(database.name + "-wal")


def _salts(log: Path | None) -> bytes:
    """Return what tells a log from the one before it; empty if there is none."""
    try:
        if log is None:
            return b""
        with log.open("rb", buffering=0) as opened:
            return opened.read(_SALTS.stop)[_SALTS]
    except FileNotFoundError:
        return b""


def _what_is_lost(mark: Mark | None, found: Stored, path: Path) -> str:
    """Say what a database lacks that is not whole by `mark`, which is or would be in `path`."""
    of_found = f"its ledger has {counted(found.ledger.number)}"
    if mark is None:
        return (
            f"there is a database that was written to ({of_found}), but not {path}, which says "
            "how far it got"
        )
    of_mark = f"its ledger had {counted(mark.ledger.number)}"
    if found.commits is not None and found.commits >= mark.commits:
        return (
            f"the ledger in the database does not hold the entry that {path} names: it was "
            f"changed ({of_mark}, and now {of_found})"
        )
    if found.commits is not None:
        return (
            f"the database is older than {path} says: it was set back, or its write-ahead log "
            f"was lost (of {mark.commits:,} commits it knows {found.commits:,}; {of_mark}, "
            f"and now {of_found})"
        )
    if found.untouched:
        return f"the database is gone that {path} is of ({of_mark})"
    return f"this is not the database that {path} is of ({of_mark}; here {of_found})"


def _check_accepted(mark: Mark | None, found: Stored, path: Path, accept: str | None) -> None:
    """Check that the operator accepts this very loss.

    Raises:
        MemoryLost: `accept` is not its token.
    """
    token = sha256(json.dumps([mark, found]).encode()).hexdigest()[:16]
    if accept != token:
        raise MemoryLost(
            f"{_what_is_lost(mark, found, path)}. Stop, and {RESTORE}: what lies here may know "
            "less than was signed and charged. If that is lost for good, read 'Restore' in "
            f"docs/handbook.md, then start once with {ACCEPT}={token}"
        )


def _write(mark: Mark) -> bytes:
    said = json.dumps(
        {
            "version": _VERSION,
            "database": mark.database,
            "commits": mark.commits,
            "ledger": mark.ledger.number,
            "digest": mark.ledger.digest,
            "losses": mark.losses,
            "in_file": mark.in_file,
        }
    ).encode()
    line = said + b" " + sha256(said).hexdigest().encode()
    return line.ljust(_SLOT_BYTES - 1) + b"\n"


def _read(slot: bytes) -> Mark | None:
    said, _, checksum = slot.strip().rpartition(b" ")
    if len(slot) != _SLOT_BYTES or sha256(said).hexdigest().encode() != checksum:
        return None
    read = json.loads(said)
    if read["version"] != _VERSION:
        return None
    return Mark(
        read["database"],
        read["commits"],
        Head(read["ledger"], read["digest"]),
        read["losses"],
        read["in_file"],
    )
