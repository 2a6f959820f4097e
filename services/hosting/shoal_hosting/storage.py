"""What every durable store needs of SQLite or PostgreSQL; knows no service's tables."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

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
    inspect,
    select,
)

from shoal_hosting.security import StartupRefused
from shoal_protocol.errors import StorageUnavailable

BUSY_TIMEOUT_MILLISECONDS: Final = 5_000
_VERSION_TABLE: Final = "schema_version"
_PRAGMAS: Final = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",  # a commit is on the disk when it returns
    "PRAGMA foreign_keys=ON",
    f"PRAGMA busy_timeout={BUSY_TIMEOUT_MILLISECONDS}",
    "PRAGMA secure_delete=ON",  # what is erased is overwritten
)

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


def sqlite_url(path: Path) -> str:
    """Return the database URL of an SQLite file."""
    return f"sqlite+pysqlite:///{path}"


def open_engine(url: str) -> Engine:
    """Open a database; SQLite with full synchronisation and a write-ahead log.

    Every SQLite transaction takes the write lock when it begins: one that read first and asked
    for the lock afterwards could be refused it.
    """
    # an error of the database would otherwise quote the values of its statement
    engine = create_engine(url, pool_pre_ping=True, hide_parameters=True)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_immediate)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # or the driver would begin transactions of its own
    for pragma in _PRAGMAS:
        connection.execute(pragma)


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
    except (exc.DBAPIError, exc.TimeoutError) as error:
        raise StorageUnavailable from error


def check_schema(engine: Engine, metadata: MetaData, version: int) -> None:
    """Make the tables of `metadata` in an empty database; refuse one of another version.

    Raises:
        StartupRefused: the database has another version's tables, or somebody else's.
        StorageUnavailable: it cannot be reached.
    """
    own = MetaData()
    versions = Table(_VERSION_TABLE, own, Column("version", Integer, primary_key=True))
    with translating_storage_errors(), engine.begin() as connection:
        names = set(inspect(connection).get_table_names())
        if _VERSION_TABLE not in names:
            if names & set(metadata.tables):
                raise StartupRefused("the database holds tables without a schema version")
            own.create_all(connection)
            metadata.create_all(connection)
            connection.execute(versions.insert().values(version=version))
            return
        found = connection.execute(select(versions.c.version)).scalars().all()
        if list(found) != [version]:
            raise StartupRefused(
                f"the database has schema version {', '.join(map(str, found)) or 'none'}, "
                f"this program needs {version}; run the release that made it"
            )
        missing = set(metadata.tables) - names
        if missing:
            raise StartupRefused(f"the database is another service's: it lacks {min(missing)}")


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

        It commits as a whole or not at all, also if the caller stops waiting for it.

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
        with translating_storage_errors(), self._engine.begin() as connection:
            return transaction(connection, *arguments, **named)

    async def close(self) -> None:
        """Finish what was begun and let go of the database."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._executor.shutdown)
        self._engine.dispose()
