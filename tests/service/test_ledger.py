"""A service's ledger in its database: it only grows, and what was tampered with is found."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import pytest
from sqlalchemy import Connection, Engine, MetaData, exc, text

from shoal_protocol.privacy.ledger import GENESIS, LedgerEntry
from shoal_protocol.privacy.ledger_checks import verify_chain
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.errors import LedgerBroken
from shoal_service.storage.database import open_engine
from shoal_service.storage.database_schema import check_schema
from shoal_service.storage.ledger import LedgerFollower, LedgerTables
from tests.world import examples
from tests.world.examples import OPENED_AT

SPECS = [examples.spec(number=number) for number in range(4)]
NAME = "compute-0"
METADATA = MetaData()
LEDGER = LedgerTables(METADATA)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """A database with four charges, of which the second was given back."""
    engine = open_engine(database_url)
    check_schema(engine, METADATA, 1)
    with engine.begin() as db:
        for number, spec in enumerate(SPECS):
            charge(db, spec, at=OPENED_AT + timedelta(milliseconds=number))
        LEDGER.give_back(db, SPECS[1].digest, at=OPENED_AT)
    yield engine
    engine.dispose()


def charge(db: Connection, spec: RoundSpec, *, at: datetime = OPENED_AT) -> None:
    follower = LedgerFollower(LEDGER, NAME)
    for _ in follower.follow(db):
        pass
    follower.charge(db, spec, at=at)


def follow(engine: Engine, follower: LedgerFollower | None = None) -> LedgerFollower:
    follower = follower or LedgerFollower(LEDGER, NAME)
    with engine.begin() as db:
        for _ in follower.follow(db):
            pass
    return follower


EMPTIED = f"UPDATE ledger_head SET number = 0, digest = '{GENESIS}'"


def tamper(engine: Engine, *statements: str) -> None:
    """Do what whoever owns the database can do: drop the triggers first."""
    with engine.begin() as db:
        _drop_triggers(db)
        for statement in statements:
            db.execute(text(statement))


def _drop_triggers(db: Connection) -> None:
    if db.dialect.name == "sqlite":
        for name in ("ledger_keeps", "ledger_stays", "ledger_adds", "ledger_head_keeps"):
            db.execute(text(f"DROP TRIGGER IF EXISTS {name}"))
    else:
        db.execute(text("DROP TRIGGER IF EXISTS ledger_stays ON ledger"))
        db.execute(text("DROP TRIGGER IF EXISTS ledger_head_stays ON ledger_head"))


def test_an_honest_ledger_is_followed_to_its_end(engine: Engine) -> None:
    follower = follow(engine)
    with engine.begin() as db:
        entries = [charged.entry for charged in LEDGER.after(db, 0)]
        assert verify_chain(entries).head == follower.head == LEDGER.hold(db)
    spent = follower.balances.largest(examples.POPULATION)
    assert spent.mu == pytest.approx(3**0.5 * SPECS[0].mu)


CHANGED = (
    "number, ledger, previous, kind, round, job, job_rounds, population, mu / 10, epsilon, at, "
    "digest"
)
FORBIDDEN = {
    "sqlite": [
        f"REPLACE INTO ledger SELECT {CHANGED} FROM ledger WHERE number = 5",
        f"REPLACE INTO ledger SELECT 9{CHANGED[6:]} FROM ledger WHERE number = 1",  # its round
        "UPDATE OR REPLACE ledger SET number = 5 WHERE number = 1",
    ],
    "postgresql": ["TRUNCATE ledger", "TRUNCATE ledger_head", "TRUNCATE ledger, ledger_head"],
}


def test_the_database_itself_refuses_to_change_the_ledger(engine: Engine) -> None:
    always = ["DELETE FROM ledger", "UPDATE ledger SET mu = 0", "DELETE FROM ledger_head"]
    for statement in always + FORBIDDEN[engine.dialect.name]:
        with pytest.raises((exc.IntegrityError, exc.InternalError), match="only grows"):
            with engine.begin() as db:
                db.execute(text(statement))
    assert follow(engine).head.number == 5


CHANGES = {
    "number": "UPDATE ledger SET number = 70 + number WHERE number = {}",
    "ledger": "UPDATE ledger SET ledger = 'compute-1' WHERE number = {}",
    "previous": "UPDATE ledger SET previous = digest WHERE number = {}",
    "kind": "UPDATE ledger SET kind = 'other' WHERE number = {}",
    "round": "UPDATE ledger SET round = previous WHERE number = {}",
    "job": "UPDATE ledger SET job = previous WHERE number = {}",
    "job_rounds": "UPDATE ledger SET job_rounds = job_rounds + 1 WHERE number = {}",
    "mu": "UPDATE ledger SET mu = mu * 1.000000000000001 WHERE number = {}",
    "epsilon": "UPDATE ledger SET epsilon = 0.5 WHERE number = {}",
    "at": "UPDATE ledger SET at = '2026-03-01T12:00:00.999Z' WHERE number = {}",
    "at, unreadable": "UPDATE ledger SET at = 'x' WHERE number = {}",
    "digest": "UPDATE ledger SET digest = previous WHERE number = {}",
    "the row is gone": "DELETE FROM ledger WHERE number = {}",
}


@pytest.mark.parametrize("number", [1, 3, 5])
@pytest.mark.parametrize("name", CHANGES)
def test_any_change_of_any_row_is_found_when_the_ledger_is_read(
    engine: Engine, name: str, number: int
) -> None:
    tamper(engine, CHANGES[name].format(number))
    with pytest.raises(LedgerBroken):
        follow(engine)


def test_a_ledger_without_its_head_is_found(engine: Engine) -> None:
    tamper(engine, "DELETE FROM ledger_head")
    with pytest.raises(LedgerBroken, match="head is gone"):
        follow(engine)


def test_a_database_set_back_under_a_running_process_is_found(engine: Engine) -> None:
    follower = follow(engine)
    tamper(
        engine,
        "DELETE FROM ledger WHERE number = 5",
        "UPDATE ledger_head SET number = 4, digest = (SELECT digest FROM ledger WHERE number = 4)",
    )
    with pytest.raises(LedgerBroken, match="entries were removed"):
        follow(engine, follower)
    follow(engine)  # whoever was not there cannot tell: a release's anchors can


def test_rivals_add_their_entries_one_after_another(engine: Engine, database_url: str) -> None:
    more = [examples.spec(number=number) for number in range(4, 16)]

    def rival(mine: int) -> None:
        own = open_engine(database_url)
        for spec in more[mine::4]:
            with own.begin() as db:
                charge(db, spec)
        own.dispose()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(rival, range(4)))
    assert follow(engine).head.number == 17


def rewrite(engine: Engine, tables: LedgerTables, *entries: LedgerEntry) -> None:
    """Put another chain in a ledger's place, as whoever owns the database can."""
    with engine.begin() as db:
        known = {each.entry.round: each.population.serialize() for each in tables.after(db, 0)}
    tamper(engine, "DELETE FROM ledger", EMPTIED)
    with engine.begin() as db:
        for entry in entries:
            tables._append(db, entry, known[entry.round])
