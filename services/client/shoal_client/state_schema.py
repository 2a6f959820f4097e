"""The layout of the data holder's SQLite file, and how an older file gets it; it opens no file.

The parts are separate where a file of an older version is given one of them.
"""

from typing import Final

SCHEMA_VERSION: Final = 7

_MEMORY: Final = """
CREATE TABLE memory (                -- what is marked beside the file
    one INTEGER PRIMARY KEY CHECK (one = 1),
    database TEXT NOT NULL,          -- as the mark names it
    commits INTEGER NOT NULL         -- that wrote something
);
CREATE TRIGGER memory_keeps BEFORE DELETE ON memory
BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
"""

_JOBS: Final = """
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
"""

_LEAVING: Final = """
CREATE TABLE leaves (                -- of jobs that were left
    job TEXT NOT NULL REFERENCES jobs,
    client INTEGER NOT NULL,
    document BLOB NOT NULL,
    outcome TEXT NOT NULL,           -- as of a join
    PRIMARY KEY (job, client)
) WITHOUT ROWID;
CREATE TABLE withdrawals (           -- as analysts signed them
    job TEXT PRIMARY KEY REFERENCES jobs,
    document BLOB NOT NULL
) WITHOUT ROWID;
"""

_CROWD_JOBS: Final = """
CREATE TABLE crowds (                -- crowd jobs that are contributed to
    job TEXT PRIMARY KEY,
    request BLOB NOT NULL,
    opening BLOB NOT NULL,
    ended TEXT,                      -- why nothing more is contributed; NULL while something may be
    closing BLOB,
    verdict TEXT                     -- what the closing says of our draws and receipts
);
"""

_CONTRIBUTIONS: Final = """
CREATE TABLE contributions (
    contribution TEXT PRIMARY KEY,   -- digest of record and submission: the ledger's "round"
    job TEXT NOT NULL REFERENCES crowds,
    client INTEGER NOT NULL,
    number INTEGER NOT NULL,         -- of the client's contributions to the job
    record INTEGER NOT NULL,         -- its place among the client's
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
    draw BLOB NOT NULL,              -- packed; as it is, where an older version stored it
    receipt BLOB
) WITHOUT ROWID;
CREATE INDEX contributions_of ON contributions (client, record);
CREATE INDEX contributions_pending ON contributions (job) WHERE outcome = 'pending';
CREATE TRIGGER contributions_keep BEFORE DELETE ON contributions
BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
CREATE TRIGGER contributions_stay
BEFORE UPDATE OF contribution, job, client, number, record, submission ON contributions
BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
CREATE TRIGGER contributions_add BEFORE INSERT ON contributions
WHEN EXISTS (
    SELECT 1 FROM contributions WHERE contribution = NEW.contribution
    OR (job, client, number) = (NEW.job, NEW.client, NEW.number)
)
BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
"""

_CROWD_NONCES: Final = """
CREATE TABLE crowd_nonces (          -- of draws that were asked for and are not on file
    job TEXT NOT NULL REFERENCES crowds,
    client INTEGER NOT NULL,
    nonce TEXT NOT NULL,
    PRIMARY KEY (job, client)
) WITHOUT ROWID;
"""

_LEDGER: Final = """
CREATE TABLE ledger (                -- hash-chained
    number INTEGER PRIMARY KEY,      -- without gaps
    previous TEXT NOT NULL,
    kind TEXT NOT NULL,
    round TEXT NOT NULL,             -- a round, or a contribution to a crowd
    job TEXT NOT NULL,
    mu REAL NOT NULL,
    epsilon REAL,                    -- NULL is infinite
    at TEXT NOT NULL,
    digest TEXT NOT NULL             -- of all of the above and of who is charged
);
"""

_CHARGED: Final = """
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
CREATE TRIGGER charged_keeps BEFORE DELETE ON charged
BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
CREATE TRIGGER charged_stays BEFORE UPDATE ON charged
BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
CREATE TRIGGER charged_adds BEFORE INSERT ON charged
WHEN EXISTS (
    SELECT 1 FROM charged WHERE entry = NEW.entry
    OR (job, client, number) = (NEW.job, NEW.client, NEW.number)
)
BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
CREATE TRIGGER ledger_head_keeps BEFORE DELETE ON ledger_head
BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
"""

# REPLACE removes the rows that are in its way without asking the triggers on DELETE
_LEDGER_RULES: Final = """
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
BEGIN SELECT RAISE(ABORT, 'the ledger charges what is on file'); END;
CREATE VIEW spending AS
    SELECT entry, ledger.job, charged.number, round, client, mu, epsilon, at
    FROM charged JOIN ledger ON charge = ledger.number;
"""

_OUTBOX: Final = """
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

SCHEMA: Final = (
    _MEMORY
    + _JOBS
    + _LEAVING
    + _CROWD_JOBS
    + _CONTRIBUTIONS
    + _CROWD_NONCES
    + _LEDGER
    + _CHARGED
    + _LEDGER_RULES
    + _OUTBOX
)

_CONTRIBUTIONS_OF_4: Final = """
CREATE TABLE contributions (
    contribution TEXT PRIMARY KEY, job TEXT, client INTEGER, number INTEGER, record INTEGER,
    submission TEXT, draw BLOB, document BLOB, outcome TEXT, receipt BLOB
);
"""

UPGRADES: Final = {
    # the ledger may charge contributions to crowds, too: it names no table any more
    3: "\n".join(
        (
            "DROP VIEW spending;",
            "ALTER TABLE ledger RENAME TO ledger_of_rounds;",
            _CROWD_JOBS,
            _CONTRIBUTIONS_OF_4,
            _LEDGER,
            "INSERT INTO ledger SELECT * FROM ledger_of_rounds ORDER BY number;",
            "DROP TABLE ledger_of_rounds;",
            _LEDGER_RULES,
        )
    ),
    # what is erased when it has served stands apart, so that its pages are free then
    4: "\n".join(
        (
            "ALTER TABLE contributions RENAME TO contributions_of_4;",
            *(
                f"DROP {kind} IF EXISTS contributions_{name};"
                for kind, name in (
                    *(("INDEX", "of"), ("INDEX", "pending")),
                    *(("TRIGGER", "keep"), ("TRIGGER", "stay"), ("TRIGGER", "add")),
                )
            ),
            _CONTRIBUTIONS,
            "INSERT INTO contributions SELECT contribution, job, client, number, record,"
            " submission, outcome FROM contributions_of_4 ORDER BY rowid;",
            "INSERT INTO crowd_outbox SELECT contribution, document FROM contributions_of_4"
            " WHERE document IS NOT NULL;",
            "INSERT INTO crowd_evidence SELECT contribution, draw, receipt FROM contributions_of_4"
            " WHERE draw IS NOT NULL;",
            "DROP TABLE contributions_of_4;",
            _CROWD_NONCES,
        )
    ),
    5: _LEAVING,
    6: _MEMORY,
}
"""By version: statements that make a file of it one of the next.

To be run with foreign keys off and `legacy_alter_table` on, or references follow what is renamed.
"""
