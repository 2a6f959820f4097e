"""What every durable store needs of SQLite or PostgreSQL; knows no service's tables."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    Table,
    create_engine,
    event,
    exc,
    func,
    inspect,
    make_url,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite

from shoal_hosting.security import StartupRefused
from shoal_protocol.errors import StorageUnavailable

BUSY_TIMEOUT_MILLISECONDS: Final = 5_000
_ATTEMPTS: Final = 5  # at a transaction that others were in the way of
_IN_THE_WAY: Final = ("40001", "40P01")  # SQLSTATE: serialisation failure, deadlock
_NOT_ALLOWED: Final = "42501"  # SQLSTATE: insufficient privilege
# Of those who use one database, one at a time makes its tables. Any number of ours does.
_MAKING_TABLES: Final = 0x53686F616C
_VERSION_TABLE: Final = "schema_version"
_PRAGMAS: Final = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",  # a commit is on the disk when it returns
    "PRAGMA foreign_keys=ON",
    f"PRAGMA busy_timeout={BUSY_TIMEOUT_MILLISECONDS}",
    "PRAGMA secure_delete=ON",  # what is erased is overwritten
)
# A process whose machine is gone must not hold its locks for long, and a commit is on the disk
# when it returns, whatever the server's default.
_SESSION: Final = f"""SELECT
    set_config('lock_timeout', '{BUSY_TIMEOUT_MILLISECONDS}ms', false),
    set_config('idle_in_transaction_session_timeout', '30s', false),
    set_config('tcp_keepalives_idle', '10', false),
    set_config('tcp_keepalives_interval', '5', false),
    set_config('tcp_keepalives_count', '3', false),
    set_config('synchronous_commit', coalesce(
        nullif(current_setting('synchronous_commit'), 'off'), 'on'), false)
"""
# for the session, which ends with its process or its machine
_HOLD: Final = "SELECT pg_try_advisory_lock(1399353153, hashtext(current_schema()))"

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


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
    lock for as long as it lasts. Whoever has lost it, unnoticed perhaps, cannot write any more,
    for every transaction runs on a connection that holds the lock.
    """
    # an error of the database would otherwise quote the values of its statement
    is_postgresql = make_url(url).get_backend_name() == "postgresql"
    options: dict[str, Any] = {"isolation_level": "READ COMMITTED"} if is_postgresql else {}
    if is_postgresql and alone:
        options |= {"pool_size": 1, "max_overflow": 0}
    engine = create_engine(url, pool_pre_ping=True, hide_parameters=True, **options)
    if is_postgresql:
        event.listen(engine, "connect", _prepare_postgresql)
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


def _prepare_postgresql(connection: Any, _record: object) -> None:
    connection.execute(_SESSION)
    connection.commit()  # or the driver would undo it with the transaction that it began


def _hold_postgresql(connection: Any, _record: object) -> None:
    [held] = connection.execute(_HOLD).fetchone()
    connection.commit()
    if not held:
        connection.close()
        raise DatabaseHeld


def _begin_immediate(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


@contextmanager
def translating_storage_errors() -> Iterator[None]:
    """Turn a database that is locked, full, broken or away into `StorageUnavailable`.

    What is a fault of ours, such as a violated constraint, passes through as it is.
    """
    try:
        yield
    except (exc.IntegrityError, exc.ProgrammingError, exc.DataError):
        raise
    except (exc.DBAPIError, exc.TimeoutError, DatabaseHeld) as error:
        raise StorageUnavailable from error


def check_schema(
    engine: Engine, metadata: MetaData, version: int, *, grown_from: int | None = None
) -> None:
    """Make the tables of `metadata` in an empty database; refuse one of another version.

    A database of the version `grown_from`, whose tables are all in this one unchanged, is given
    those that are new; an older program then refuses it.

    Raises:
        StartupRefused: the database has another version's tables, or somebody else's, or another
            process has it to itself; or its user may not make tables, or its URL has an option
            that is none.
        StorageUnavailable: it cannot be reached.
    """
    try:
        _check_schema(engine, metadata, version, grown_from)
    except StorageUnavailable as error:
        if isinstance(error.__cause__, DatabaseHeld):
            raise StartupRefused(
                "another process uses the database; stop it, or name another database"
            ) from None
        raise
    except exc.ProgrammingError as error:
        if getattr(error.orig, "sqlstate", None) == _NOT_ALLOWED:
            raise StartupRefused(
                "the database's user may not make and read tables in its schema: grant it that"
            ) from None
        if error.statement is None:  # it came of connecting
            raise StartupRefused("the database's URL has an option that is not known") from None
        raise


def _check_schema(engine: Engine, metadata: MetaData, version: int, grown_from: int | None) -> None:
    own = MetaData()
    versions = Table(_VERSION_TABLE, own, Column("version", Integer, primary_key=True))
    with translating_storage_errors(), engine.begin() as connection:
        if engine.dialect.name == "postgresql":  # another replica may start at the same time
            connection.execute(select(func.pg_advisory_xact_lock(_MAKING_TABLES)))
        names = set(inspect(connection).get_table_names())
        if _VERSION_TABLE not in names:
            if names & set(metadata.tables):
                raise StartupRefused("the database holds tables without a schema version")
            own.create_all(connection)
            metadata.create_all(connection)
            connection.execute(versions.insert().values(version=version))
            return
        found = connection.execute(select(versions.c.version)).scalars().all()
        if list(found) == [grown_from]:
            metadata.create_all(connection)  # those that are not there
            connection.execute(versions.update().values(version=version))
            return
        if list(found) != [version]:
            raise StartupRefused(
                f"the database has schema version {', '.join(map(str, found)) or 'none'}, "
                f"this program needs {version}; run the release that made it"
            )
        missing = set(metadata.tables) - names
        if missing:
            raise StartupRefused(f"the database is another service's: it lacks {min(missing)}")


def insert_ignoring(db: Connection) -> type[postgresql.Insert] | type[sqlite.Insert]:
    """Return the dialect's INSERT, which knows ON CONFLICT DO NOTHING."""
    return postgresql.Insert if db.dialect.name == "postgresql" else sqlite.Insert


def _others_were_in_the_way(error: StorageUnavailable) -> bool:
    cause = error.__cause__
    original = cause.orig if isinstance(cause, exc.DBAPIError) else None
    return getattr(original, "sqlstate", None) in _IN_THE_WAY


class StorageThread:
    """The one thread in which a service's SQL runs, so that the event loop never waits for a disk.

    One writer also means that SQLite never has two of this process's transactions in each
    other's way.
    """

    def __init__(self, engine: Engine) -> None:
        """Run transactions on `engine`."""
        self._engine = engine
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="storage")

    async def run(
        self,
        transaction: Callable[Concatenate[Connection, Arguments], Answer],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Answer:
        """Run `transaction(connection, ...)`; what it wrote is durable on return.

        It commits as a whole or not at all, also if the caller stops waiting for it. One that
        PostgreSQL broke off in favour of another process's is begun again from its start.

        Raises:
            StorageUnavailable: nothing was stored.
        """
        call = partial(self.run_here, transaction, *arguments, **named)
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    def run_here(
        self,
        transaction: Callable[Concatenate[Connection, Arguments], Answer],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Answer:
        """Do what `run` does, in the calling thread: for start-up, before requests arrive."""
        attempt = 1
        while True:
            try:
                with translating_storage_errors(), self._engine.begin() as connection:
                    return transaction(connection, *arguments, **named)
            except StorageUnavailable as error:
                if attempt == _ATTEMPTS or not _others_were_in_the_way(error):
                    raise
                attempt += 1

    def let_go(self) -> None:
        """Let go of the database, before `run` was called: the service cannot start."""
        self._engine.dispose()

    async def close(self) -> None:
        """Finish what was begun and let go of the database."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._executor.shutdown)
        self._engine.dispose()
