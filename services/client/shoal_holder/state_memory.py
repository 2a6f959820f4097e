"""Counts the data holder's commits in its state file, and marks them beside it."""

import sqlite3
from pathlib import Path
from typing import NamedTuple

from shoal_hosting.marks import (
    DAMAGED,
    Mark,
    MemoryLost,
    Stored,
    check_file,
    open_marking,
    pages_are_whole,
)
from shoal_protocol.privacy.ledger import EMPTY, Head


class Counted(NamedTuple):
    """A commit: how many there are with it, and the ledger's last entry."""

    commits: int
    ledger: Head


def check_log(path: Path) -> None:
    """Do what `check_file` says of a state file that is about to be opened.

    Raises:
        ValueError: it is older than its log.
        OSError: it or its mark cannot be read.
    """
    try:
        check_file(path, mark_of(path))
    except MemoryLost as error:
        raise ValueError(str(error)) from None


class StateMemory:
    """Counts commits and marks them before anybody hears of them; a read is not counted."""

    def __init__(
        self,
        database: sqlite3.Connection,
        path: Path,
        *,
        accept: str | None,
        is_restored: bool = False,
    ) -> None:
        """Hold the state file at `path`, which is open and locked, against its mark.

        One that `is_restored` begins with a new mark.

        Raises:
            ValueError: it lacks charges that were made with it, or is damaged.
            OSError: the mark cannot be read or written.
        """
        if not pages_are_whole(database, path):
            raise ValueError(f"{path}: {DAMAGED}")
        self._unsure = False  # whether a commit that failed reached the disk

        def stored(mark: Mark | None) -> Stored:
            return _stored(database, mark)

        def begin(mark: Mark) -> None:
            database.execute(
                "INSERT OR REPLACE INTO memory VALUES (1, ?, ?)", (mark.database, mark.commits)
            )

        try:
            self._marking = open_marking(
                mark_of(path),
                stored,
                begin,
                accept=accept,
                vouched=lambda: is_restored,
                database=path,
            )
        except MemoryLost as error:
            raise ValueError(str(error)) from None

    @property
    def losses(self) -> int:
        """Return how many losses of the state file were accepted so far."""
        return self._marking.losses

    def ending(self, database: sqlite3.Connection, changes_before: int) -> Counted | None:
        """Count a transaction that is about to commit, if it wrote something."""
        if database.total_changes == changes_before and not self._unsure:
            return None
        [(commits,)] = database.execute(
            "UPDATE memory SET commits = commits + 1 RETURNING commits"
        ).fetchall()
        self._unsure = True
        return Counted(commits, _head(database))

    def ended(self, counted: Counted | None) -> None:
        """Mark all commits, including those that an earlier call failed to mark.

        Raises:
            sqlite3.OperationalError: it is committed and not marked: nothing may leave yet.
        """
        if counted is not None:
            self._unsure = False
            self._marking.committed(*counted)
        try:
            self._marking.settle()
        except OSError as error:
            raise sqlite3.OperationalError("what was committed cannot be marked") from error

    def close(self) -> None:
        """Let go of the mark."""
        self._marking.close()


def mark_of(path: Path) -> Path:
    return path.with_suffix(".mark")


def _stored(database: sqlite3.Connection, mark: Mark | None) -> Stored:
    commits, holds = None, True
    found = database.execute("SELECT database, commits FROM memory").fetchone()
    head = _head(database)
    if mark is not None:
        commits = found[1] if found is not None and found[0] == mark.database else None
        entry = "SELECT 1 FROM ledger WHERE (number, digest) = (?, ?)"
        holds = mark.ledger == EMPTY or bool(database.execute(entry, mark.ledger).fetchone())
    is_new = found is None or found[1] == 0
    marked = () if found is None else ((found[0], found[1]),)
    return Stored(commits, head, holds, untouched=is_new and head == EMPTY, marked=marked)


def _head(database: sqlite3.Connection) -> Head:
    row = database.execute("SELECT number, digest FROM ledger_head").fetchone()
    if row is None:
        raise ValueError(
            "the ledger's head is gone; restore the file from where its ledger is whole"
        )
    return Head(*row)
