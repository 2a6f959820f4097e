"""Opens SQLite or PostgreSQL for durable stores."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import (
    DDL,
    Column,
    Connection,
    Dialect,
    Engine,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    UniqueConstraint,
    create_engine,
    event,
    exc,
    make_url,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import ReturningInsert

from shoal_protocol.wire.service_errors import StorageUnavailable

BUSY_TIMEOUT_MILLISECONDS: Final = 5_000
_PRAGMAS: Final = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",  # a commit is on the disk when it returns
    "PRAGMA foreign_keys=ON",
    f"PRAGMA busy_timeout={BUSY_TIMEOUT_MILLISECONDS}",
    "PRAGMA secure_delete=ON",  # what is erased is overwritten
)
# Seconds of silence before a machine counts as gone: until the first probe, between probes, and
# how many may stay unanswered.
_PROBE_AFTER: Final = 10
_PROBE_EVERY: Final = 5
_PROBES: Final = 3
GONE_AFTER_SECONDS: Final = _PROBE_AFTER + _PROBES * _PROBE_EVERY
# A process whose machine is gone must not hold its locks for long: the server probes a silent
# connection, and gives up one that does not acknowledge what was sent. And a commit is on the disk
# when it returns, whatever the server's default.
_SESSION: Final = f"""SELECT
    set_config('lock_timeout', '{BUSY_TIMEOUT_MILLISECONDS}ms', false),
    set_config('idle_in_transaction_session_timeout', '30s', false),
    set_config('tcp_keepalives_idle', '{_PROBE_AFTER}', false),
    set_config('tcp_keepalives_interval', '{_PROBE_EVERY}', false),
    set_config('tcp_keepalives_count', '{_PROBES}', false),
    set_config('tcp_user_timeout', '{GONE_AFTER_SECONDS}s', false),
    set_config('synchronous_commit', coalesce(
        nullif(current_setting('synchronous_commit'), 'off'), 'on'), false)
"""
# The same from our side: a server whose machine is gone must not hold the one thread that asks it.
_CONNECTING: Final = {
    "connect_timeout": 10,
    "keepalives_idle": _PROBE_AFTER,
    "keepalives_interval": _PROBE_EVERY,
    "keepalives_count": _PROBES,
    "tcp_user_timeout": 1000 * GONE_AFTER_SECONDS,
}
# for the session, which ends with its process or its machine
_HOLD: Final = "SELECT pg_try_advisory_lock(1399353153, hashtext(current_schema()))"

Value = TypeVar("Value")


class Bytes(LargeBinary):
    """Bytes as drivers take and give them: wrapping each value took longer than storing it."""

    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> None:
        """Hand values to the driver as they are."""

    def result_processor(self, dialect: Dialect, coltype: object) -> None:
        """Hand values out as they come."""


def sqlite_url(path: Path) -> str:
    """Return the database URL of an SQLite file."""
    return f"sqlite+pysqlite:///{path}"


class DatabaseHeld(Exception):
    """Another process of this service has the PostgreSQL database to itself."""


def open_engine(url: str, *, alone: bool = False) -> Engine:
    """Open a database; SQLite with full synchronisation and a write-ahead log.

    Every SQLite transaction takes the write lock when it begins: one that read first and asked
    for the lock afterwards could be refused it. On PostgreSQL each statement sees what was
    committed before it, and rows are locked by those who rely on them.

    With `alone`, one process at a time can use a PostgreSQL schema: the only connection holds a
    lock for as long as it lasts. A process that lost the lock cannot write any more, even if it did
    not notice, for every transaction runs on a connection that holds the lock.
    """
    # an error of the database would otherwise quote the values of its statement
    chosen = make_url(url)
    is_postgresql = chosen.get_backend_name() == "postgresql"
    options: dict[str, Any] = {}
    if is_postgresql:
        ours = {name: each for name, each in _CONNECTING.items() if name not in chosen.query}
        options = {"isolation_level": "READ COMMITTED", "connect_args": ours}
        if alone:
            options |= {"pool_size": 1, "max_overflow": 0}
    # a server may have gone since its connection was used last; a file has not
    engine = create_engine(url, pool_pre_ping=is_postgresql, hide_parameters=True, **options)
    if is_postgresql:
        event.listen(engine, "connect", _begin_session)
        if alone:
            event.listen(engine, "connect", _hold_postgresql)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_immediate)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # or the driver would begin transactions of its own
    for pragma in _PRAGMAS:
        connection.execute(pragma)


def _begin_session(connection: Any, _record: object) -> None:
    connection.execute(_SESSION)
    connection.commit()  # or the driver would undo it with the transaction that it began


def _hold_postgresql(connection: Any, _record: object) -> None:
    [held] = connection.execute(_HOLD).fetchone()
    connection.commit()
    if not held:
        connection.close()
        raise DatabaseHeld


def _begin_immediate(connection: Connection) -> None:
    connection.connection.execute("BEGIN IMMEDIATE")


@contextmanager
def translating_storage_errors() -> Iterator[None]:
    """Turn a database that is locked, full, broken or away into `StorageUnavailable`.

    What is a fault of ours, such as a violated constraint, passes through as it is.
    """
    try:
        yield
    except (exc.IntegrityError, exc.ProgrammingError, exc.DataError):
        raise
    except (exc.DBAPIError, exc.TimeoutError, sqlite3.OperationalError, DatabaseHeld) as error:
        raise StorageUnavailable from error


def insert_ignoring(dialect: str) -> type[postgresql.Insert] | type[sqlite.Insert]:
    """Return the dialect's INSERT, which knows ON CONFLICT DO NOTHING."""
    return postgresql.Insert if dialect == "postgresql" else sqlite.Insert


def insert_new(db: Connection, table: Table, **values: object) -> bool:
    """Insert a row unless one with its key is there; tell whether it is new."""
    statement = insert_ignoring(db.dialect.name)(table).values(**values).on_conflict_do_nothing()
    # a row comes back if it is new; the row count of an insertion is not always known
    return db.execute(statement.returning(*table.primary_key)).first() is not None


@cache
def inserting_new(dialect: str, told: Column[Value]) -> ReturningInsert[Value]:
    """Return the statement that inserts rows which are new, and returns `told` of each of them.

    It is built once for each dialect: that takes longer than SQLite takes to carry it out.
    """
    return insert_ignoring(dialect)(told.table).on_conflict_do_nothing().returning(told)


def sqlstate(error: BaseException | None) -> str | None:
    """Return PostgreSQL's code for what was wrong, if it was PostgreSQL that said so."""
    original = error.orig if isinstance(error, exc.DBAPIError) else None
    return getattr(original, "sqlstate", None)


# Triggers refuse changes of tables that only grow. They guard against a fault of ours and a
# careless operator. Whoever owns the database can drop one: against that there are hash chains,
# and what other parties hold of them.
_SQLITE_KEEPS: Final = (
    "CREATE TRIGGER {table}_keeps BEFORE DELETE ON {table} "
    "BEGIN SELECT RAISE(ABORT, '{table} only grows'); END"
)
_SQLITE_STAYS: Final = (
    "CREATE TRIGGER {table}_stays BEFORE UPDATE ON {table} "
    "BEGIN SELECT RAISE(ABORT, '{table} only grows'); END"
)
# REPLACE removes the rows that are in its way without asking the trigger on DELETE
_SQLITE_ADDS: Final = (
    "CREATE TRIGGER {table}_adds BEFORE INSERT ON {table} "
    "WHEN EXISTS (SELECT 1 FROM {table} WHERE {same}) "
    "BEGIN SELECT RAISE(ABORT, '{table} only grows'); END"
)
_POSTGRESQL_FUNCTION: Final = (
    "CREATE FUNCTION {table}_only_grows() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION '{table} only grows' USING ERRCODE = 'restrict_violation'; END $$"
)
_POSTGRESQL_STAYS: Final = (
    "CREATE TRIGGER {table}_stays BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
    "FOR EACH STATEMENT EXECUTE FUNCTION {table}_only_grows()"
)


def only_grows(table: Table) -> None:
    """Add triggers to `table`, wherever it is created, that refuse updates and deletions."""
    _when_made(table, "sqlite", _SQLITE_KEEPS, _SQLITE_STAYS, _SQLITE_ADDS)
    _when_made(table, "postgresql", _POSTGRESQL_FUNCTION, _POSTGRESQL_STAYS)


def only_changes(table: Table) -> None:
    """Add triggers to `table`, wherever it is created, that refuse deletions but no updates."""
    _when_made(table, "sqlite", _SQLITE_KEEPS)
    _when_made(
        table, "postgresql", _POSTGRESQL_FUNCTION, _POSTGRESQL_STAYS.replace("UPDATE OR ", "")
    )


def _when_made(table: Table, dialect: str, *statements: str) -> None:
    for statement in statements:
        ddl = DDL(statement.format(table=table.name, same=_same(table)))  # type: ignore[no-untyped-call]
        event.listen(table, "after_create", ddl.execute_if(dialect=dialect))


def _same(table: Table) -> str:
    """Return the condition, in a trigger, that a row has a key of the new one."""
    keys = [
        " AND ".join(f"{column.name} = NEW.{column.name}" for column in each.columns)
        for each in table.constraints
        if isinstance(each, PrimaryKeyConstraint | UniqueConstraint)
    ]
    return " OR ".join(f"({key})" for key in sorted(keys))
