"""The data holder's SQLite file: its lock, its version and its transactions.

One process at a time. Nothing is acknowledged to anybody before its transaction is on disk.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shoal_holder.state_memory import Counted, StateMemory, check_log, mark_of
from shoal_holder.state_schema import SCHEMA, SCHEMA_VERSION
from shoal_hosting.manifests.manifest_book import foreign
from shoal_hosting.marks import DAMAGED, RESTORE, schema_refusal


class StateFile:
    """An open state file, for one thread at a time; a second process cannot open it."""

    def __init__(
        self,
        path: Path,
        *,
        authority: str,
        accept_loss: str | None = None,
        is_restored: bool = False,
    ) -> None:
        """Open or create the state of a data holder in the consortium of `authority`.

        `accept_loss` is the token of a loss that the owner accepts, as a refusal shows it. A file
        that `is_restored` may be without a mark.

        Raises:
            ValueError: another process has it open, it is of another version or consortium, it is
                not a state file or a damaged one, or what was charged is not in it.
        """
        self._memory: StateMemory | None = None
        self._path = path
        check_log(path)
        self._beside = {each for each in self._files() if each.exists()}
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        path.chmod(0o600)  # SQLite gives its side files the same mode
        self.database = sqlite3.connect(
            path, isolation_level=None, timeout=0.0, check_same_thread=False
        )
        try:
            self._prepare(authority)
            self._memory = StateMemory(
                self.database, path, accept=accept_loss, is_restored=is_restored
            )
        except BaseException as error:
            self.undo()  # or the file stays locked for as long as the error is looked at
            if isinstance(error, sqlite3.OperationalError):
                if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                    raise ValueError(f"{path} is in use by another process") from None
                raise ValueError(f"{path} cannot be used: {error}") from None
            elif isinstance(error, sqlite3.DatabaseError):
                if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_CORRUPT:
                    raise ValueError(f"{path}: {DAMAGED}") from None
                raise ValueError(f"{path} is not a state file; {RESTORE}") from None
            raise

    def undo(self) -> None:
        """Close the file; if it was not there before, leave none: a refused start begins nothing.

        Nothing may have been acknowledged to anybody since it was opened.
        """
        self.close()
        if self._path not in self._beside:
            for each in self._files():
                if each not in self._beside:
                    each.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        logs = [self._path.with_name(self._path.name + ending) for ending in ("-wal", "-shm")]
        return [self._path, *logs, mark_of(self._path)]

    @property
    def directory(self) -> Path:
        """Return where the file is."""
        return self._path.parent

    @property
    def losses(self) -> int:
        """Return how many losses of this file its owner accepted so far."""
        return 0 if self._memory is None else self._memory.losses

    def _prepare(self, authority: str) -> None:
        for pragma in (
            "auto_vacuum = INCREMENTAL",
            "locking_mode = EXCLUSIVE",  # held until the file is closed
            "journal_mode = WAL",
            "synchronous = FULL",
            "foreign_keys = ON",
            "secure_delete = ON",
        ):
            self.database.execute(f"PRAGMA {pragma}")
        self._lay_out()
        with self.transaction():  # from here on the file is locked
            self.database.execute(
                "INSERT INTO owner SELECT ? WHERE NOT EXISTS (SELECT 1 FROM owner)", (authority,)
            )
        [theirs] = self.one("SELECT authority FROM owner")
        if (reason := foreign(self._path, theirs, authority)) is not None:
            raise ValueError(reason)
        self.truncate_log()  # a crash may have come between an erasure and this

    def _lay_out(self) -> None:
        """Lay out a new file in one transaction, or check that an old one has this layout.

        Raises:
            ValueError: the file is of another version.
        """
        tables = {name for (name,) in self.rows("SELECT name FROM sqlite_master")}
        if not tables:
            self.database.executescript(f"BEGIN IMMEDIATE; {SCHEMA}")
            self.database.execute("INSERT INTO schema_version VALUES (?)", (SCHEMA_VERSION,))
            self.database.execute("COMMIT")
            return
        if "schema_version" not in tables:
            raise ValueError(f"{self._path} is not a state file; {RESTORE}")
        [version] = self.one("SELECT max(version) FROM schema_version")
        if (reason := schema_refusal(version, SCHEMA_VERSION)) is not None:
            raise ValueError(f"{self._path} {reason}")

    def close(self) -> None:
        """Close the file. Nothing is written: whatever was done is on disk already."""
        self.database.close()
        if self._memory is not None:
            self._memory.close()

    def rows(self, query: str, *values: Any) -> list[Any]:
        """Return all rows of a query."""
        return self.database.execute(query, values).fetchall()

    def one(self, query: str, *values: Any) -> Any:
        """Return the first row of a query, or None."""
        return self.database.execute(query, values).fetchone()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit what is done inside, durably, or undo all of it."""
        self.database.execute("BEGIN IMMEDIATE")
        counted: Counted | None = None
        try:
            before = self.database.total_changes
            yield
            if self._memory is not None:
                counted = self._memory.ending(self.database, before)
            self.database.execute("COMMIT")
        except BaseException:
            if self.database.in_transaction:  # a full disk may have undone it already
                self.database.execute("ROLLBACK")
            raise
        if self._memory is not None:
            self._memory.ended(counted)

    def give_back(self) -> None:
        """Return the space of erased rows to the system; overwrite them in the log, too."""
        self.database.executescript("PRAGMA incremental_vacuum")  # `execute` ends at the first page
        self.truncate_log()

    def truncate_log(self) -> None:
        """Overwrite rows that were erased in the file in the write-ahead log, too."""
        self.rows("PRAGMA wal_checkpoint(TRUNCATE)")
