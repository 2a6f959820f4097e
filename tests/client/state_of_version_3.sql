-- a data holder's state as version 3 wrote it: two jobs, three ledger entries (.dump)
PRAGMA user_version = 3;
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
INSERT INTO "charged" VALUES(2,1,'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',0,1);
INSERT INTO "charged" VALUES(3,2,'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',0,2);
INSERT INTO "charged" VALUES(4,3,'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb',0,0);
CREATE TABLE jobs (
    job TEXT PRIMARY KEY,
    request BLOB NOT NULL,
    mu REAL NOT NULL,                -- what it may cost each client
    epsilon REAL,                    -- NULL is infinite
    declined INTEGER NOT NULL,       -- clients of ours that did not join
    ended TEXT                       -- why we have no more part in it; NULL while we have
);
INSERT INTO "jobs" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',X'72657175657374',0.5,NULL,1,NULL);
INSERT INTO "jobs" VALUES('bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb',X'72657175657374',0.5,NULL,1,NULL);
CREATE TABLE joins (
    job TEXT NOT NULL REFERENCES jobs,
    client INTEGER NOT NULL,
    document BLOB NOT NULL,
    outcome TEXT NOT NULL,           -- pending, acknowledged, or the code of a refusal
    PRIMARY KEY (job, client)
) WITHOUT ROWID;
INSERT INTO "joins" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',0,X'6A6F696E','pending');
INSERT INTO "joins" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',1,X'6A6F696E','pending');
INSERT INTO "joins" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',2,X'6A6F696E','pending');
INSERT INTO "joins" VALUES('bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb',0,X'6A6F696E','pending');
INSERT INTO "joins" VALUES('bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb',1,X'6A6F696E','pending');
INSERT INTO "joins" VALUES('bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb',2,X'6A6F696E','pending');
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
INSERT INTO "ledger" VALUES(1,'0000000000000000000000000000000000000000000000000000000000000000','charge','cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',0.3,NULL,'2026-03-01T12:00:00.000Z','e4bb9c960d48290c2d41c41567f56b5178384dd48dcc716992fd827c50fe4e33');
INSERT INTO "ledger" VALUES(2,'e4bb9c960d48290c2d41c41567f56b5178384dd48dcc716992fd827c50fe4e33','charge','cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',0.3,NULL,'2026-03-01T12:00:00.000Z','2ab938b5dc97a1cdd62a446a76458d8fffb0efd3ee2908e9188ecc58aff134f3');
INSERT INTO "ledger" VALUES(3,'2ab938b5dc97a1cdd62a446a76458d8fffb0efd3ee2908e9188ecc58aff134f3','charge','dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd','bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb',3.12979499484759560168e-01,0.25,'2026-03-01T12:00:00.000Z','024e6130241b494d8968291f639a1e41df71d514a158ab0760d601beb9b1739a');
CREATE TABLE ledger_head (           -- the ledger's last entry
    one INTEGER PRIMARY KEY CHECK (one = 1),
    number INTEGER NOT NULL,
    digest TEXT NOT NULL
);
INSERT INTO "ledger_head" VALUES(1,3,'024e6130241b494d8968291f639a1e41df71d514a158ab0760d601beb9b1739a');
CREATE TABLE outbox (
    round TEXT NOT NULL REFERENCES rounds,
    node INTEGER NOT NULL,
    client INTEGER NOT NULL,
    digest BLOB NOT NULL,            -- of the envelope; stays when the envelope is erased
    envelope BLOB,                   -- until the round has ended here, or a node refused it
    outcome TEXT NOT NULL,           -- pending, acknowledged, or the code of a refusal
    PRIMARY KEY (round, node, client)
);
INSERT INTO "outbox" VALUES('cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc',0,0,X'A0A877BF43301A9350E88953DDEDBF5CDE6757E824A5872E1CC79F91654F7DAE',NULL,'unsent');
INSERT INTO "outbox" VALUES('cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc',0,1,X'8D45EDC5AC8F2A89C2C354C884013D142A59E8E9F36C058080D92B162E601D4E',NULL,'unsent');
INSERT INTO "outbox" VALUES('cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc',0,2,X'95E8DD13C2E59C0321C21B0CA81788E31558C7C31DBBE41F6F640FE657761C0C',NULL,'unsent');
INSERT INTO "outbox" VALUES('dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd',0,0,X'A5398EC610C5648B46EDC9A866B6F08A17F4210806B6821EA966FA43F8BB604F',X'6630','pending');
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
INSERT INTO "rounds" VALUES('cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',0,X'73706563','over',0);
INSERT INTO "rounds" VALUES('dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd','bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb',0,X'73706563',NULL,0);
CREATE INDEX charged_together ON charged (charge, entry);
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
CREATE INDEX outbox_pending ON outbox (round, node, client) WHERE outcome = 'pending';
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('charged',4);
COMMIT;
