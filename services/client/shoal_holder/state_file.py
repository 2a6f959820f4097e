"""The data holder's SQLite file: its tables, its lock, its transactions, and the mark beside it.

One process at a time. Nothing is acknowledged to anybody before its transaction is on disk.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import nacl.utils

from shoal_holder.mark import Mark
from shoal_kit.database_file import DAMAGED, RESTORE, pages_are_whole, schema_refusal
from shoal_kit.manifest_book import foreign
from shoal_protocol.journal import EMPTY, Head
from shoal_protocol.sharing.shares import RandomBytes

INSTANCE_BYTES: Final = 16
SCHEMA_VERSION: Final = 24

SCHEMA: Final = """
CREATE TABLE schema_version (        -- one row: SCHEMA_VERSION
    version INTEGER PRIMARY KEY
);

CREATE TABLE machine (               -- of those that ever held this key
    one INTEGER PRIMARY KEY CHECK (one = 1),
    epoch INTEGER NOT NULL,          -- raised whenever a state is restored
    instance TEXT NOT NULL,
    restored_at TEXT,                -- when its epoch began; NULL where nothing was lost
    is_restoring INTEGER NOT NULL DEFAULT 0,  -- until the nodes' charges were taken over
    is_superseded INTEGER NOT NULL DEFAULT 0,
    known TEXT,                      -- slots of those whom the state knew that was restored
    least_mu REAL,                   -- what all other slots start at; NULL where nothing was lost
    least_epsilon REAL,              -- NULL is infinite
    crowds_epsilon REAL NOT NULL DEFAULT 0  -- the most that crowd jobs were ever allowed of a slot
);
CREATE TRIGGER machine_keeps BEFORE DELETE ON machine
BEGIN SELECT RAISE(ABORT, 'the epoch only grows'); END;
CREATE TRIGGER machine_grows BEFORE UPDATE ON machine
WHEN NEW.epoch < OLD.epoch OR NEW.crowds_epsilon < OLD.crowds_epsilon
OR (NEW.epoch = OLD.epoch AND NEW.is_superseded < OLD.is_superseded)
BEGIN SELECT RAISE(ABORT, 'epoch and allowance only grow'); END;

CREATE TABLE backup (                -- the last one
    one INTEGER PRIMARY KEY CHECK (one = 1),
    made_at TEXT,                    -- NULL before the first
    records INTEGER,                 -- when the file of records changed by which slots are given
    has_records INTEGER              -- the same as the last backup has it
);
INSERT INTO backup (one) VALUES (1);

CREATE TABLE owner (authority TEXT NOT NULL);
CREATE TABLE jobs (                  -- of either kind, that were joined or are contributed to
    job TEXT PRIMARY KEY,
    request BLOB NOT NULL,
    ended TEXT,                      -- why we have no more part in it; NULL while we have
    opening BLOB,                    -- of a crowd job; NULL of a job in rounds
    closing BLOB,                    -- of a crowd job, as it was shown first
    verdict TEXT                     -- what the closing says of our draws and receipts
);
CREATE TABLE outbox (                -- what was signed about jobs, and what was made of records
    kind TEXT NOT NULL,              -- join, leave, envelope, contribution
    about TEXT NOT NULL,             -- the job, the round of an envelope, or the submission
    node INTEGER NOT NULL,           -- whom an envelope is for; 0: the trainer
    digest BLOB,                     -- of an envelope; stays when that is erased
    document BLOB,                   -- until it was answered, or the job or round has ended
    outcome TEXT NOT NULL,           -- pending, acknowledged, or the code of a refusal
    PRIMARY KEY (kind, about, node)
) WITHOUT ROWID;
CREATE INDEX outbox_pending ON outbox (kind) WHERE outcome = 'pending';
CREATE TABLE rounds (
    round TEXT PRIMARY KEY,
    job TEXT NOT NULL REFERENCES jobs,
    number INTEGER NOT NULL,
    spec BLOB NOT NULL,
    ended TEXT,                      -- why nothing more is sent; NULL while something may be
    UNIQUE (job, number)
);

CREATE TABLE asked (                 -- jobs of either kind that owners decide about
    job TEXT PRIMARY KEY,
    analyst TEXT NOT NULL,
    manifest TEXT NOT NULL,          -- that the request is bound to
    request BLOB NOT NULL,
    asked_at TEXT NOT NULL,
    until TEXT NOT NULL,             -- when it takes nobody any more
    told TEXT NOT NULL               -- to the trainer: nothing, or a notice's state
) WITHOUT ROWID;

CREATE TABLE crowd_evidence (        -- what the trainer signed, until the closing bears it out
    contribution TEXT PRIMARY KEY,   -- the submission's digest: the journal's subject
    draw BLOB NOT NULL,              -- packed
    receipt BLOB
) WITHOUT ROWID;

CREATE TABLE journal (               -- hash-chained; see `journal`
    number INTEGER PRIMARY KEY,      -- without gaps
    epoch TEXT NOT NULL,             -- of the machine: its counter and its instance
    salt TEXT NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    body TEXT NOT NULL,              -- canonical JSON
    hash TEXT NOT NULL,              -- of all of the above, and of the entry before it
    job TEXT GENERATED ALWAYS AS (json_extract(body, '$.job')),
    client INTEGER GENERATED ALWAYS AS (json_extract(body, '$.client')),  -- of a contribution
    UNIQUE (kind, subject)
);
CREATE INDEX journal_jobs ON journal (job);
CREATE INDEX journal_clients ON journal (client) WHERE client IS NOT NULL;
CREATE TRIGGER journal_keeps BEFORE DELETE ON journal
BEGIN SELECT RAISE(ABORT, 'the journal only grows'); END;
CREATE TRIGGER journal_stays BEFORE UPDATE ON journal
BEGIN SELECT RAISE(ABORT, 'the journal only grows'); END;
-- REPLACE removes the rows that are in its way without asking the triggers on DELETE
CREATE TRIGGER journal_adds BEFORE INSERT ON journal
WHEN EXISTS (
    SELECT 1 FROM journal WHERE number = NEW.number OR (kind, subject) = (NEW.kind, NEW.subject)
)
BEGIN SELECT RAISE(ABORT, 'the journal only grows'); END;

CREATE TABLE identity (              -- how ids become slots
    one INTEGER PRIMARY KEY CHECK (one = 1),
    key BLOB NOT NULL,               -- of the digests of ids; it never changes
    id_column TEXT NOT NULL          -- empty: a record alone, without an id
);
CREATE TABLE slots (
    individual BLOB PRIMARY KEY,     -- digest of the id
    slot INTEGER NOT NULL UNIQUE,
    is_sure INTEGER NOT NULL DEFAULT 0  -- all nodes were asked since: the state was the newest
) WITHOUT ROWID;
CREATE TRIGGER identity_keeps BEFORE DELETE ON identity
BEGIN SELECT RAISE(ABORT, 'slots are given for ever'); END;
CREATE TRIGGER identity_stays BEFORE UPDATE ON identity
BEGIN SELECT RAISE(ABORT, 'slots are given for ever'); END;
CREATE TRIGGER slots_keep BEFORE DELETE ON slots
BEGIN SELECT RAISE(ABORT, 'slots are given for ever'); END;
CREATE TRIGGER slots_stay BEFORE UPDATE OF individual, slot ON slots
BEGIN SELECT RAISE(ABORT, 'slots are given for ever'); END;
CREATE TRIGGER slots_add BEFORE INSERT ON slots
WHEN EXISTS (SELECT 1 FROM slots WHERE individual = NEW.individual OR slot = NEW.slot)
BEGIN SELECT RAISE(ABORT, 'slots are given for ever'); END;
"""


_HEAD: Final = "SELECT number, hash FROM journal"


class StateFile:
    """An open state file, for one thread at a time; a second process cannot open it."""

    def __init__(
        self,
        path: Path,
        *,
        authority: str,
        is_restored: bool = False,
        random_bytes: RandomBytes = nacl.utils.random,
    ) -> None:
        """Open or create the state of a data holder in the consortium of `authority`.

        One that `is_restored` may lack what was charged: its owner knows, and the nodes tell what.

        Raises:
            ValueError: another process has it open, it is of another version or consortium, it is
                not a state file or a damaged one, or what was charged is not in it.
        """
        self.path = path
        self._beside = {each for each in self._files() if each.exists()}
        # the one that is there may be of the state that is lost: it stays until the first commit
        self._mark = Mark(path.with_suffix(".mark"), is_void=is_restored)
        self.is_restored = is_restored
        """Whether it lacks something: nothing is marked until `restoring` has dealt with it."""
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        path.chmod(0o600)  # SQLite gives its side files the same mode
        self.database = sqlite3.connect(
            path, isolation_level=None, timeout=0.0, check_same_thread=False
        )
        try:
            self._prepare(authority, random_bytes)
            self._compare()
            self.settle()
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
        if self.path not in self._beside:
            for each in self._files():
                if each not in self._beside:
                    each.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        logs = [self.path.with_name(self.path.name + ending) for ending in ("-wal", "-shm")]
        return [self.path, *logs, self.path.with_suffix(".mark")]

    def head(self) -> Head:
        """Return the journal's last entry."""
        return Head(*(self.one(f"{_HEAD} ORDER BY number DESC LIMIT 1") or EMPTY))

    def _compare(self) -> None:
        """Refuse a file that the mark is ahead of, unless it is being restored.

        Raises:
            ValueError: what was charged is not in it; the message says what to do.
        """
        marked, head = self._mark.head, self.head()
        if marked is None:
            is_ahead = head != EMPTY
        else:
            is_ahead = marked not in (EMPTY, self.one(f"{_HEAD} WHERE number = ?", marked.number))
        if is_ahead and not self.is_restored:
            of_mark = "is gone" if marked is None else f"has entry {marked.number:,}"
            raise ValueError(
                f"{self.path} lacks what was charged, or nothing says that it does not: its "
                f"journal ends with entry {head.number:,}, and {self._mark.path.name} {of_mark}. "
                f"It was set back, or its write-ahead log was lost. Stop, and {RESTORE}. If that "
                "is lost for good, run `shoal agent restore`, which takes what was forgotten for "
                "spent"
            )

    def _prepare(self, authority: str, random_bytes: RandomBytes) -> None:
        for pragma in (
            "auto_vacuum = INCREMENTAL",
            "locking_mode = EXCLUSIVE",  # held until the file is closed
            "journal_mode = WAL",
            "synchronous = FULL",
            "foreign_keys = ON",
            "secure_delete = ON",
        ):
            self.database.execute(f"PRAGMA {pragma}")
        self._lay_out(authority, random_bytes)
        self.database.executescript("BEGIN IMMEDIATE; COMMIT")  # from here on the file is locked
        [theirs] = self.one("SELECT authority FROM owner")
        if (reason := foreign(self.path, theirs, authority)) is not None:
            raise ValueError(reason)
        self.truncate_log()  # a crash may have come between an erasure and this
        if not pages_are_whole(
            self.database, self.path
        ):  # bytes within a row are the journal's to judge
            raise ValueError(f"{self.path}: {DAMAGED}")

    def _lay_out(self, authority: str, random_bytes: RandomBytes) -> None:
        """Lay out a new file, or check that an old one has this layout.

        Raises:
            ValueError: the file is of another version.
        """
        tables = {name for (name,) in self.rows("SELECT name FROM sqlite_master")}
        if not tables:
            self.database.executescript(f"BEGIN IMMEDIATE; {SCHEMA}")
            self.database.execute("INSERT INTO schema_version VALUES (?)", (SCHEMA_VERSION,))
            self.database.execute("INSERT INTO owner VALUES (?)", (authority,))
            self.database.execute(
                "INSERT INTO machine (one, epoch, instance) VALUES (1, 0, ?)",
                (random_bytes(INSTANCE_BYTES).hex(),),
            )
            self.database.execute("COMMIT")
            return
        if "schema_version" not in tables:
            raise ValueError(f"{self.path} is not a state file; {RESTORE}")
        [version] = self.one("SELECT max(version) FROM schema_version")
        if (reason := schema_refusal(version, SCHEMA_VERSION)) is not None:
            raise ValueError(f"{self.path} {reason}")

    def close(self) -> None:
        """Close the file. Nothing is written: whatever was done is on disk already."""
        self.database.close()
        self._mark.close()

    def rows(self, query: str, *values: Any) -> list[Any]:
        """Return all rows of a query."""
        return self.database.execute(query, values).fetchall()

    def one(self, query: str, *values: Any) -> Any:
        """Return the first row of a query, or None."""
        return self.database.execute(query, values).fetchone()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit what is done inside, durably, or undo all of it; then mark it.

        Raises:
            sqlite3.OperationalError: it is committed and not marked: nothing may leave yet.
        """
        self.database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.database.execute("COMMIT")
        except BaseException:
            if self.database.in_transaction:  # a full disk may have undone it already
                self.database.execute("ROLLBACK")
            raise
        self.settle()

    def settle(self) -> None:
        """Mark the journal's last entry: an earlier call may have failed to.

        Raises:
            sqlite3.OperationalError: it cannot be marked: nothing may leave yet.
        """
        if self.is_restored:
            return
        try:
            self._mark.write(self.head())
        except OSError as error:
            raise sqlite3.OperationalError("what was committed cannot be marked") from error

    def give_back(self) -> None:
        """Return the space of erased rows to the system; overwrite them in the log, too."""
        self.database.executescript("PRAGMA incremental_vacuum")  # `execute` ends at the first page
        self.truncate_log()

    def takes_part(self, job: str) -> bool:
        """Tell whether a job of either kind was ever joined, here or by nodes' charges."""
        known = self.one(
            "SELECT 1 FROM jobs WHERE job = ?1"
            " UNION ALL SELECT 1 FROM journal WHERE (kind, job) = ('charge', ?1)",
            job,
        )
        return known is not None

    def write(self, query: str, *values: Any) -> None:
        """Commit one statement, durably."""
        with self.transaction():
            self.database.execute(query, values)

    def truncate_log(self) -> None:
        """Overwrite rows that were erased in the file in the write-ahead log, too."""
        self.rows("PRAGMA wal_checkpoint(TRUNCATE)")
