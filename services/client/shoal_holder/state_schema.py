"""The layout of the data holder's SQLite file."""

from typing import Final

SCHEMA_VERSION: Final = 17

_VERSIONS: Final = """
CREATE TABLE schema_version (        -- one row: SCHEMA_VERSION
    version INTEGER PRIMARY KEY
);
"""

_MEMORY: Final = """
CREATE TABLE memory (                -- what is marked beside the file
    one INTEGER PRIMARY KEY CHECK (one = 1),
    database TEXT NOT NULL,          -- as the mark names it
    commits INTEGER NOT NULL         -- that wrote something
);
CREATE TRIGGER memory_keeps BEFORE DELETE ON memory
BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
"""

_MACHINE: Final = """
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
"""

_BACKUP: Final = """
CREATE TABLE backup (                -- the last one
    one INTEGER PRIMARY KEY CHECK (one = 1),
    made_at TEXT,                    -- NULL before the first
    records INTEGER,                 -- when the file of records changed by which slots are given
    has_records INTEGER              -- the same as the last backup has it
);
INSERT INTO backup (one) VALUES (1);
"""

_JOBS: Final = """
CREATE TABLE owner (authority TEXT NOT NULL);
CREATE TABLE jobs (
    job TEXT PRIMARY KEY,
    request BLOB NOT NULL,
    mu REAL NOT NULL,                -- what it may cost each client
    epsilon REAL,                    -- NULL is infinite
    ended TEXT                       -- why we have no more part in it; NULL while we have
);
CREATE TABLE joins (
    job TEXT PRIMARY KEY REFERENCES jobs,
    slots TEXT NOT NULL,             -- whose records the job may use: a bitmap in base64
    document BLOB NOT NULL,
    outcome TEXT NOT NULL            -- pending, acknowledged, or the code of a refusal
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
"""

_LEAVING: Final = """
CREATE TABLE leaves (                -- of jobs that were left
    job TEXT PRIMARY KEY REFERENCES jobs,
    document BLOB NOT NULL,
    outcome TEXT NOT NULL            -- as of a join
) WITHOUT ROWID;
CREATE TABLE withdrawals (           -- as analysts signed them
    job TEXT PRIMARY KEY REFERENCES jobs,
    document BLOB NOT NULL
) WITHOUT ROWID;
"""

_APPROVALS: Final = """
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
    record INTEGER NOT NULL,         -- the place in the job's choice; empty or not, none can tell
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

_ADOPTED: Final = """
CREATE TABLE adopted (               -- rounds of a ledger that was lost, as Compute nodes have them
    round TEXT PRIMARY KEY,
    job TEXT NOT NULL,
    number INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TRIGGER adopted_keep BEFORE DELETE ON adopted
BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
CREATE TRIGGER adopted_stay BEFORE UPDATE ON adopted
BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
"""

_LEDGER: Final = """
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
"""

_LEDGER_HEAD: Final = """
CREATE TABLE ledger_head (           -- the ledger's last entry
    one INTEGER PRIMARY KEY CHECK (one = 1),
    number INTEGER NOT NULL,
    digest TEXT NOT NULL
);
INSERT INTO ledger_head VALUES (1, 0, lower(hex(zeroblob(32))));
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
AND NOT EXISTS (SELECT 1 FROM adopted WHERE (round, job) = (NEW.round, NEW.job))
BEGIN SELECT RAISE(ABORT, 'the ledger charges what is on file'); END;
"""

_NODE_HEADS: Final = """
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
"""

_OUTBOX: Final = """
CREATE TABLE outbox (                -- of each round's one answer
    round TEXT NOT NULL REFERENCES rounds,
    node INTEGER NOT NULL,
    digest BLOB NOT NULL,            -- of the envelope; stays when that is erased
    envelope BLOB,                   -- until the round has ended, or a node refused it
    outcome TEXT NOT NULL,           -- pending, acknowledged, or the code of a refusal
    PRIMARY KEY (round, node)
) WITHOUT ROWID;
"""

_SLOTS: Final = """
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
CREATE TABLE choice (                -- where records have none, and several of a client
    one INTEGER PRIMARY KEY CHECK (one = 1),
    seed BLOB NOT NULL               -- of the order of each client's rows; it never changes
);
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

SCHEMA: Final = (
    _VERSIONS
    + _MEMORY
    + _MACHINE
    + _BACKUP
    + _JOBS
    + _LEAVING
    + _APPROVALS
    + _CROWD_JOBS
    + _CONTRIBUTIONS
    + _CROWD_NONCES
    + _ADOPTED
    + _LEDGER
    + _LEDGER_HEAD
    + _LEDGER_RULES
    + _NODE_HEADS
    + _OUTBOX
    + _SLOTS
)
