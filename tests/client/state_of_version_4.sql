-- a data holder's state as version 4 wrote it: two crowd jobs, three contributions (.dump)
PRAGMA user_version = 4;
BEGIN TRANSACTION;
CREATE TABLE charged (
    entry INTEGER PRIMARY KEY AUTOINCREMENT,
    charge INTEGER NOT NULL REFERENCES ledger,
    job TEXT NOT NULL,
    number INTEGER NOT NULL,         -- of the round in its job
    client INTEGER NOT NULL,
    UNIQUE (job, client, number)
);
INSERT INTO "charged" VALUES(1,1,'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',0,0);
INSERT INTO "charged" VALUES(2,2,'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',0,1);
INSERT INTO "charged" VALUES(3,3,'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb',0,0);
CREATE TABLE contributions (
    contribution TEXT PRIMARY KEY,   -- digest of record and submission: the ledger's "round"
    job TEXT NOT NULL REFERENCES crowds,
    client INTEGER NOT NULL,
    number INTEGER NOT NULL,         -- of the client's contributions to the job
    record INTEGER NOT NULL,         -- its place among the client's
    submission TEXT NOT NULL,        -- digest of the document
    draw BLOB,                       -- evidence, until the closing bears it out
    document BLOB,                   -- until it is settled
    outcome TEXT NOT NULL,           -- pending, acknowledged, or the code of a refusal
    receipt BLOB,                    -- evidence too
    UNIQUE (job, client, number)
);
INSERT INTO "contributions" VALUES('e3d03b896641cd37ff95d0890a7e4dbaac44693df4f7378013684129d736b756','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',0,0,0,'0000000000000000000000000000000000000000000000000000000000000000',X'7b2264726177223a317d',NULL,'acknowledged',X'7b2272656365697074223a317d');
INSERT INTO "contributions" VALUES('f781e7ccf119402ada34fc13d3b01bcb96a8f70531241561920b8ebf07a89be5','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',1,0,2,'0000000000000000000000000000000000000000000000000000000000000001',X'7b2264726177223a317d',X'5345435245542031','pending',NULL);
INSERT INTO "contributions" VALUES('007e0b6c9dc068660098a07f7253d427c1f981c1afe0fc89ebf74ce557e8343a','bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb',0,0,1,'0000000000000000000000000000000000000000000000000000000000000002',X'7b2264726177223a317d',X'5345435245542032','pending',NULL);
CREATE TABLE crowds (                -- crowd jobs that are contributed to
    job TEXT PRIMARY KEY,
    request BLOB NOT NULL,
    opening BLOB NOT NULL,
    ended TEXT,                      -- why nothing more is contributed; NULL while something may be
    closing BLOB,
    verdict TEXT                     -- what the closing says of our draws and receipts
);
INSERT INTO "crowds" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',X'72657175657374',X'6F70656E696E67',NULL,NULL,NULL);
INSERT INTO "crowds" VALUES('bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb',X'72657175657374',X'6F70656E696E67',NULL,NULL,NULL);
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
INSERT INTO "ledger" VALUES(1,'0000000000000000000000000000000000000000000000000000000000000000','charge','e3d03b896641cd37ff95d0890a7e4dbaac44693df4f7378013684129d736b756','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',1.23203538535722167956e+00,1.0,'2026-03-01T12:00:00.000Z','c3a7cd1a7dc2721a65a63e70228840a568a3a1f6b6c8ae4da94d6d14b8ea7f1a');
INSERT INTO "ledger" VALUES(2,'c3a7cd1a7dc2721a65a63e70228840a568a3a1f6b6c8ae4da94d6d14b8ea7f1a','charge','f781e7ccf119402ada34fc13d3b01bcb96a8f70531241561920b8ebf07a89be5','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',1.23203538535722167956e+00,1.0,'2026-03-01T12:00:00.000Z','848ab9615e272060c65cc0ded062fe24314a51a195df70050e51f8b6a02ffe60');
INSERT INTO "ledger" VALUES(3,'848ab9615e272060c65cc0ded062fe24314a51a195df70050e51f8b6a02ffe60','charge','007e0b6c9dc068660098a07f7253d427c1f981c1afe0fc89ebf74ce557e8343a','bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb',1.23203538535722167956e+00,1.0,'2026-03-01T12:00:00.000Z','8ce06afc273cdbf9557be145edb5f92b8d8e62bec701a7a9bd8e8529d937e6de');
CREATE TABLE ledger_head (           -- the ledger's last entry
    one INTEGER PRIMARY KEY CHECK (one = 1),
    number INTEGER NOT NULL,
    digest TEXT NOT NULL
);
INSERT INTO "ledger_head" VALUES(1,3,'8ce06afc273cdbf9557be145edb5f92b8d8e62bec701a7a9bd8e8529d937e6de');
CREATE TABLE outbox (
    round TEXT NOT NULL REFERENCES rounds,
    node INTEGER NOT NULL,
    client INTEGER NOT NULL,
    digest BLOB NOT NULL,            -- of the envelope; stays when the envelope is erased
    envelope BLOB,                   -- until the round has ended here, or a node refused it
    outcome TEXT NOT NULL,           -- pending, acknowledged, or the code of a refusal
    PRIMARY KEY (round, node, client)
);
CREATE TABLE owner (authority TEXT NOT NULL);
INSERT INTO "owner" VALUES('eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee');
CREATE TABLE rounds (
    round TEXT PRIMARY KEY,
    job TEXT NOT NULL REFERENCES jobs,
    number INTEGER NOT NULL,
    spec BLOB NOT NULL,
    ended TEXT,                      -- why nothing more is sent; NULL while something may be
    repaired INTEGER NOT NULL DEFAULT 0,  -- envelopes sent again because a node had lost them
    UNIQUE (job, number)
);
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
CREATE INDEX charged_together ON charged (charge, entry);
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
CREATE INDEX outbox_pending ON outbox (round, node, client) WHERE outcome = 'pending';
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('charged',3);
COMMIT;
