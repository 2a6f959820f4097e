"""The data holder's SQLite file: its layout, its lock and its transactions; knows no operation.

One process at a time. Nothing is acknowledged to anybody before its transaction is on disk.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

SCHEMA_VERSION: Final = 3

PENDING: Final = "pending"
"""The outcome, so far, of what nobody has answered."""

_SCHEMA: Final = """
CREATE TABLE owner (authority TEXT NOT NULL);
CREATE TABLE jobs (
    job TEXT PRIMARY KEY,
    request BLOB NOT NULL,
    mu REAL NOT NULL,                -- what it may cost each client
    epsilon REAL,                    -- NULL is infinite
    declined INTEGER NOT NULL,       -- clients of ours that did not join
    ended TEXT                       -- why we have no more part in it; NULL while we have
);
CREATE TABLE joins (
    job TEXT NOT NULL REFERENCES jobs,
    client INTEGER NOT NULL,
    document BLOB NOT NULL,
    outcome TEXT NOT NULL,           -- pending, acknowledged, or the code of a refusal
    PRIMARY KEY (job, client)
) WITHOUT ROWID;
CREATE TABLE rounds (
    round TEXT PRIMARY KEY,
    job TEXT NOT NULL REFERENCES jobs,
    number INTEGER NOT NULL,
    spec BLOB NOT NULL,
    ended TEXT,                      -- why nothing more is sent; NULL while something may be
    repaired INTEGER NOT NULL DEFAULT 0,  -- envelopes sent again because a node had lost them
    UNIQUE (job, number)
);
CREATE TABLE ledger (                -- hash-chained
    number INTEGER PRIMARY KEY,      -- without gaps
    previous TEXT NOT NULL,
    kind TEXT NOT NULL,
    round TEXT NOT NULL REFERENCES rounds,
    job TEXT NOT NULL REFERENCES jobs,
    mu REAL NOT NULL,
    epsilon REAL,                    -- NULL is infinite
    at TEXT NOT NULL,
    digest TEXT NOT NULL             -- of all of the above and of who is charged
);
CREATE TABLE charged (
    entry INTEGER PRIMARY KEY AUTOINCREMENT,
    charge INTEGER NOT NULL REFERENCES ledger,
    job TEXT NOT NULL,
    number INTEGER NOT NULL,         -- of the round in its job
    client INTEGER NOT NULL,
    UNIQUE (job, client, number)
);
CREATE INDEX charged_together ON charged (charge, entry);
CREATE TABLE ledger_head (           -- the ledger's last entry
    one INTEGER PRIMARY KEY CHECK (one = 1),
    number INTEGER NOT NULL,
    digest TEXT NOT NULL
);
INSERT INTO ledger_head VALUES (1, 0, lower(hex(zeroblob(32))));
CREATE VIEW spending AS
    SELECT entry, ledger.job, charged.number, round, client, mu, epsilon, at
    FROM charged JOIN ledger ON charge = ledger.number;
CREATE TRIGGER ledger_keeps BEFORE DELETE ON ledger
BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
CREATE TRIGGER ledger_stays BEFORE UPDATE ON ledger
BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
CREATE TRIGGER charged_keeps BEFORE DELETE ON charged
BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
CREATE TRIGGER charged_stays BEFORE UPDATE ON charged
BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
-- REPLACE removes the rows that are in its way without asking the triggers on DELETE
CREATE TRIGGER ledger_adds BEFORE INSERT ON ledger
WHEN EXISTS (SELECT 1 FROM ledger WHERE number = NEW.number)
BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
CREATE TRIGGER charged_adds BEFORE INSERT ON charged
WHEN EXISTS (
    SELECT 1 FROM charged WHERE entry = NEW.entry
    OR (job, client, number) = (NEW.job, NEW.client, NEW.number)
)
BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
CREATE TRIGGER ledger_head_keeps BEFORE DELETE ON ledger_head
BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
CREATE TABLE outbox (
    round TEXT NOT NULL REFERENCES rounds,
    node INTEGER NOT NULL,
    client INTEGER NOT NULL,
    digest BLOB NOT NULL,            -- of the envelope; stays when the envelope is erased
    envelope BLOB,                   -- until the round has ended here, or a node refused it
    outcome TEXT NOT NULL,           -- pending, acknowledged, or the code of a refusal
    PRIMARY KEY (round, node, client)
);
CREATE INDEX outbox_pending ON outbox (round, node, client) WHERE outcome = 'pending';
"""


class StateFile:
    """An open state file, for one thread at a time; a second process cannot open it."""

    def __init__(self, path: Path, *, authority: str) -> None:
        """Open or create the state of a data holder in the consortium of `authority`.

        Raises:
            ValueError: another process has it open, it is of another version or consortium, or it
                is not a state file.
        """
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        path.chmod(0o600)  # SQLite gives its side files the same mode
        self._path = path
        self.database = sqlite3.connect(
            path, isolation_level=None, timeout=0.0, check_same_thread=False
        )
        try:
            self._prepare(authority)
        except BaseException as error:
            self.database.close()  # or the file stays locked for as long as the error is looked at
            if isinstance(error, sqlite3.OperationalError):
                if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                    raise ValueError(f"{path} is in use by another process") from None
            elif isinstance(error, sqlite3.DatabaseError):
                raise ValueError(f"{path} is not a state file") from None
            raise

    def _prepare(self, authority: str) -> None:
        for pragma in (
            "locking_mode = EXCLUSIVE",  # held until the file is closed
            "journal_mode = WAL",
            "synchronous = FULL",
            "foreign_keys = ON",
            "secure_delete = ON",
        ):
            self.database.execute(f"PRAGMA {pragma}")
        (version,) = self.one("PRAGMA user_version")
        if version == 0:
            self.database.executescript(
                f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT"
            )
        elif version != SCHEMA_VERSION:
            raise ValueError(f"{self._path} is of another version than {SCHEMA_VERSION}")
        with self.transaction():  # from here on the file is locked
            self.database.execute(
                "INSERT INTO owner SELECT ? WHERE NOT EXISTS (SELECT 1 FROM owner)", (authority,)
            )
        if self.one("SELECT authority FROM owner") != (authority,):
            raise ValueError(f"{self._path} belongs to another consortium")
        self.truncate_log()  # a crash may have come between an erasure and this

    def close(self) -> None:
        """Close the file. Nothing is written: whatever was done is on disk already."""
        self.database.close()

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
        try:
            yield
            self.database.execute("COMMIT")
        except BaseException:
            if self.database.in_transaction:  # a full disk may have undone it already
                self.database.execute("ROLLBACK")
            raise

    def truncate_log(self) -> None:
        """Overwrite in the write-ahead log, too, what was erased in the file."""
        self.rows("PRAGMA wal_checkpoint(TRUNCATE)")
