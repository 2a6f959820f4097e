"""The data holder's SQLite file: its tables, its lock, its transactions, and the mark beside it.

The mark counts the commits. One process at a time. Nothing is acknowledged to anybody before its
transaction is on disk.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from shoal_kit.database_file import DAMAGED, RESTORE, pages_are_whole, schema_refusal
from shoal_kit.manifest_book import foreign
from shoal_kit.marks import Mark, Marking, MemoryLost, Stored, check_file, open_marking
from shoal_protocol.privacy.ledger import EMPTY, Head
from shoal_protocol.wire.errors import LedgerBroken

SCHEMA_VERSION: Final = 21

SCHEMA: Final = """
CREATE TABLE schema_version (        -- one row: SCHEMA_VERSION
    version INTEGER PRIMARY KEY
);

CREATE TABLE memory (                -- what is marked beside the file
    one INTEGER PRIMARY KEY CHECK (one = 1),
    database TEXT NOT NULL,          -- as the mark names it
    commits INTEGER NOT NULL         -- that wrote something
);
CREATE TRIGGER memory_keeps BEFORE DELETE ON memory
BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;

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
CREATE TABLE jobs (
    job TEXT PRIMARY KEY,
    request BLOB NOT NULL,
    mu REAL NOT NULL,                -- what it may cost each client
    epsilon REAL,                    -- NULL is infinite
    slots TEXT NOT NULL,             -- whose records it may use: a bitmap in base64
    ended TEXT                       -- why we have no more part in it; NULL while we have
);
CREATE TABLE outbox (                -- what was signed about jobs, and the envelopes of answers
    kind TEXT NOT NULL,              -- join, leave, envelope
    about TEXT NOT NULL,             -- the job; of an envelope the round
    node INTEGER NOT NULL,           -- whom an envelope is for; 0: the trainer
    digest BLOB,                     -- of an envelope; stays when that is erased
    document BLOB,                   -- until it was refused, or the round has ended
    outcome TEXT NOT NULL,           -- pending, acknowledged, or the code of a refusal
    PRIMARY KEY (kind, about, node)
) WITHOUT ROWID;
CREATE TABLE rounds (
    round TEXT PRIMARY KEY,
    job TEXT NOT NULL REFERENCES jobs,
    number INTEGER NOT NULL,
    spec BLOB NOT NULL,
    ended TEXT,                      -- why nothing more is sent; NULL while something may be
    reuploaded INTEGER NOT NULL DEFAULT 0,  -- envelopes sent again because a node had lost them
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
CREATE TABLE approvals (             -- the last decision of each owner, as it was signed
    job TEXT NOT NULL REFERENCES asked,
    owner TEXT NOT NULL,             -- by the name that the policy lists
    document BLOB NOT NULL,
    PRIMARY KEY (job, owner)
) WITHOUT ROWID;
CREATE TRIGGER approvals_keep BEFORE DELETE ON approvals
BEGIN SELECT RAISE(ABORT, 'a decision stays'); END;

CREATE TABLE crowds (                -- crowd jobs that are contributed to
    job TEXT PRIMARY KEY,
    request BLOB NOT NULL,
    opening BLOB NOT NULL,
    ended TEXT,                      -- why nothing more is contributed; NULL while something may be
    closing BLOB,
    verdict TEXT                     -- what the closing says of our draws and receipts
);

CREATE TABLE contributions (
    contribution TEXT PRIMARY KEY,   -- a digest of the submission's: the ledger's "round"
    job TEXT NOT NULL REFERENCES crowds,
    client INTEGER NOT NULL,
    number INTEGER NOT NULL,         -- of the client's contributions to the job
    submission TEXT NOT NULL,        -- digest of the document
    outcome TEXT NOT NULL,           -- pending, acknowledged, or the code of a refusal
    UNIQUE (job, client, number)
);
CREATE TABLE crowd_outbox (          -- what nobody has answered
    contribution TEXT PRIMARY KEY REFERENCES contributions,
    document BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE crowd_evidence (        -- what the trainer signed, until the closing bears it out
    contribution TEXT PRIMARY KEY REFERENCES contributions,
    draw BLOB NOT NULL,              -- packed
    receipt BLOB
) WITHOUT ROWID;
CREATE INDEX contributions_of ON contributions (client);
CREATE INDEX contributions_pending ON contributions (job) WHERE outcome = 'pending';
CREATE TRIGGER contributions_keep BEFORE DELETE ON contributions
BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
CREATE TRIGGER contributions_stay
BEFORE UPDATE OF contribution, job, client, number, submission ON contributions
BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
CREATE TRIGGER contributions_add BEFORE INSERT ON contributions
WHEN EXISTS (
    SELECT 1 FROM contributions WHERE contribution = NEW.contribution
    OR (job, client, number) = (NEW.job, NEW.client, NEW.number)
)
BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;

CREATE TABLE crowd_nonces (          -- of draws that were asked for and are not on file
    job TEXT NOT NULL REFERENCES crowds,
    client INTEGER NOT NULL,
    nonce TEXT NOT NULL,
    PRIMARY KEY (job, client)
) WITHOUT ROWID;

CREATE TABLE adopted (               -- rounds of a ledger that was lost, as Compute nodes have them
    round TEXT PRIMARY KEY,
    job TEXT NOT NULL,
    number INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TRIGGER adopted_keep BEFORE DELETE ON adopted
BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
CREATE TRIGGER adopted_stay BEFORE UPDATE ON adopted
BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;

CREATE TABLE ledger (                -- hash-chained
    number INTEGER PRIMARY KEY,      -- without gaps
    previous TEXT NOT NULL,
    kind TEXT NOT NULL,
    round TEXT NOT NULL,             -- a round, or a contribution to a crowd
    job TEXT NOT NULL,
    place INTEGER,                   -- of a round in its job
    population TEXT NOT NULL,        -- who is charged: a bitmap in base64
    clients INTEGER NOT NULL,        -- how many these are
    mu REAL NOT NULL,
    epsilon REAL,                    -- NULL is infinite
    at TEXT NOT NULL,
    digest TEXT NOT NULL             -- of all of the above but the place
);
CREATE INDEX ledger_rounds ON ledger (round);
CREATE INDEX ledger_places ON ledger (job, place);

CREATE TABLE ledger_head (           -- the ledger's last entry
    one INTEGER PRIMARY KEY CHECK (one = 1),
    number INTEGER NOT NULL,
    digest TEXT NOT NULL
);
INSERT INTO ledger_head VALUES (1, 0, lower(hex(zeroblob(32))));
CREATE TRIGGER ledger_head_keeps BEFORE DELETE ON ledger_head
BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;

-- REPLACE removes the rows that are in its way without asking the triggers on DELETE
CREATE TRIGGER ledger_keeps BEFORE DELETE ON ledger
BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
CREATE TRIGGER ledger_stays BEFORE UPDATE ON ledger
BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
CREATE TRIGGER ledger_adds BEFORE INSERT ON ledger
WHEN EXISTS (SELECT 1 FROM ledger WHERE number = NEW.number)
BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
CREATE TRIGGER ledger_knows BEFORE INSERT ON ledger
WHEN NOT EXISTS (SELECT 1 FROM rounds WHERE (round, job) = (NEW.round, NEW.job))
AND NOT EXISTS (SELECT 1 FROM contributions WHERE (contribution, job) = (NEW.round, NEW.job))
AND NOT EXISTS (SELECT 1 FROM adopted WHERE (round, job) = (NEW.round, NEW.job))
BEGIN SELECT RAISE(ABORT, 'the ledger charges what is on file'); END;

CREATE TABLE node_heads (            -- the last entries that Compute nodes signed, of their ledgers
    node TEXT PRIMARY KEY,           -- its name
    number INTEGER NOT NULL,
    digest TEXT NOT NULL
) WITHOUT ROWID;
CREATE TRIGGER node_heads_keep BEFORE DELETE ON node_heads
BEGIN SELECT RAISE(ABORT, 'ledgers only grow'); END;
CREATE TRIGGER node_heads_grow BEFORE UPDATE ON node_heads
WHEN NEW.number <= OLD.number OR NEW.node <> OLD.node
BEGIN SELECT RAISE(ABORT, 'ledgers only grow'); END;

CREATE TABLE identity (              -- where records have ids
    one INTEGER PRIMARY KEY CHECK (one = 1),
    key BLOB NOT NULL,               -- of the digests of ids; it never changes
    id_column TEXT NOT NULL
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


def mark_of(path: Path) -> Path:
    """Return the file of the mark beside a state file."""
    return path.with_suffix(".mark")


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
        self._marking: Marking | None = None
        self._unsure = False  # whether a commit that failed reached the disk
        self.path = path
        try:
            check_file(path, mark_of(path))
        except MemoryLost as error:
            raise ValueError(str(error)) from None
        self._beside = {each for each in self._files() if each.exists()}
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        path.chmod(0o600)  # SQLite gives its side files the same mode
        self.database = sqlite3.connect(
            path, isolation_level=None, timeout=0.0, check_same_thread=False
        )
        try:
            self._prepare(authority)
            if not pages_are_whole(self.database, path):
                raise ValueError(f"{path}: {DAMAGED}")
            self._marking = open_marking(
                mark_of(path),
                self._stored,
                lambda mark: self.write(
                    "INSERT OR REPLACE INTO memory VALUES (1, ?, ?)", mark.database, mark.commits
                ),
                accept=accept_loss,
                vouched=lambda: is_restored,
                database=path,
            )
        except BaseException as error:
            self.undo()  # or the file stays locked for as long as the error is looked at
            if isinstance(error, MemoryLost | LedgerBroken):
                raise ValueError(str(error)) from None
            elif isinstance(error, sqlite3.OperationalError):
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
        return [self.path, *logs, mark_of(self.path)]

    @property
    def losses(self) -> int:
        """Return how many losses of this file its owner accepted so far."""
        return 0 if self._marking is None else self._marking.losses

    def _stored(self, mark: Mark | None) -> Stored:
        """Return what the file knows of a mark."""
        commits, holds, head = None, True, self.head()
        found = self.one("SELECT database, commits FROM memory")
        if mark is not None:
            commits = found[1] if found is not None and found[0] == mark.database else None
            entry = "SELECT 1 FROM ledger WHERE (number, digest) = (?, ?)"
            holds = mark.ledger == EMPTY or self.one(entry, *mark.ledger) is not None
        is_new = found is None or found[1] == 0
        marked = () if found is None else ((found[0], found[1]),)
        return Stored(commits, head, holds, untouched=is_new and head == EMPTY, marked=marked)

    def head(self) -> Head:
        """Return the ledger's last entry.

        Raises:
            LedgerBroken: it is gone.
        """
        row = self.one("SELECT number, digest FROM ledger_head")
        if row is None:
            raise LedgerBroken("the ledger's head is gone: restore the file from where it is whole")
        return Head(*row)

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
        if (reason := foreign(self.path, theirs, authority)) is not None:
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
            raise ValueError(f"{self.path} is not a state file; {RESTORE}")
        [version] = self.one("SELECT max(version) FROM schema_version")
        if (reason := schema_refusal(version, SCHEMA_VERSION)) is not None:
            raise ValueError(f"{self.path} {reason}")

    def close(self) -> None:
        """Close the file. Nothing is written: whatever was done is on disk already."""
        self.database.close()
        if self._marking is not None:
            self._marking.close()

    def rows(self, query: str, *values: Any) -> list[Any]:
        """Return all rows of a query."""
        return self.database.execute(query, values).fetchall()

    def one(self, query: str, *values: Any) -> Any:
        """Return the first row of a query, or None."""
        return self.database.execute(query, values).fetchone()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit what is done inside, durably, or undo all of it.

        All commits are marked before anybody hears of them, those too that an earlier call failed
        to mark; what only reads is not counted.

        Raises:
            sqlite3.OperationalError: it is committed and not marked: nothing may leave yet.
        """
        self.database.execute("BEGIN IMMEDIATE")
        counted: tuple[int, Head] | None = None
        try:
            before = self.database.total_changes
            yield
            has_written = self.database.total_changes != before or self._unsure
            if self._marking is not None and has_written:
                count = "UPDATE memory SET commits = commits + 1 RETURNING commits"
                [(commits,)] = self.rows(count)
                self._unsure, counted = True, (commits, self.head())
            self.database.execute("COMMIT")
        except BaseException:
            if self.database.in_transaction:  # a full disk may have undone it already
                self.database.execute("ROLLBACK")
            raise
        if self._marking is not None and counted is not None:
            self._unsure = False
            self._marking.committed(*counted)
        self.settle()

    def settle(self) -> None:
        """Mark all commits: an earlier call may have failed to, and nothing may leave before.

        Raises:
            sqlite3.OperationalError: they cannot be marked.
        """
        if self._marking is None:
            return
        try:
            self._marking.settle()
        except OSError as error:
            raise sqlite3.OperationalError("what was committed cannot be marked") from error

    def give_back(self) -> None:
        """Return the space of erased rows to the system; overwrite them in the log, too."""
        self.database.executescript("PRAGMA incremental_vacuum")  # `execute` ends at the first page
        self.truncate_log()

    def takes_part(self, job: str) -> bool:
        """Tell whether a job of either kind was ever joined, here or by nodes' charges."""
        known = self.one(
            "SELECT 1 FROM jobs WHERE job = ?1 UNION ALL SELECT 1 FROM adopted WHERE job = ?1"
            " UNION ALL SELECT 1 FROM crowds WHERE job = ?1",
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
