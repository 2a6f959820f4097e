"""Decides which database a service may start over, and makes its tables in an empty one.

A service that is started over another database than before would have forgotten what it
acknowledged and which budgets were spent. So the choice is noted in its data directory, and a
damaged file and tables of another service, consortium or schema version are refused.
"""

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog
from sqlalchemy import (
    Column,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    exc,
    func,
    inspect,
    make_url,
    select,
)

from shoal_kit.database_file import DAMAGED, DATABASE, pages_are_whole, schema_refusal
from shoal_kit.manifest_book import refuse_foreign
from shoal_kit.startup import StartupRefused, replace
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.service_errors import StorageUnavailable
from shoal_service.storage.database import (
    GONE_AFTER_SECONDS,
    DatabaseHeld,
    sqlstate,
    translating_storage_errors,
)

DRIVER: Final = "postgresql+psycopg"
FORM: Final = f"{DRIVER}://user:password@host/database"
MARKER: Final = "database"
_SETTING: Final = "SHOAL_DATABASE_URL"
_CORRUPT: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
WAIT_FOR_DATABASE_SECONDS: Final = GONE_AFTER_SECONDS + 10
"""How long a starting process waits for a database that another one has: until a server with much
to do has found out that the other's machine is gone."""
_LOCKED: Final = "55P03"  # SQLSTATE: lock not available
_NOT_ALLOWED: Final = "42501"  # SQLSTATE: insufficient privilege
# The key of the lock under which one process at a time makes tables; any number of ours would do.
_MAKING_TABLES: Final = 0x53686F616C
_VERSION_TABLE: Final = "schema_version"

log = structlog.get_logger()


def check_schema(
    engine: Engine,
    metadata: MetaData,
    version: int,
    *,
    own: Consortium | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Make the tables of `metadata` in an empty database, or check that it has `version` of them.

    All of it is one transaction, which one process at a time makes. The database is that of the
    consortium `own`, None in tests.

    While another process has the database, this one waits, for `pause(1.0)` at a time and
    `WAIT_FOR_DATABASE_SECONDS` in all: the other may have ended, and its server not know.

    Raises:
        StartupRefused: the database has another version's tables, or somebody else's, or is another
            consortium's, or another process keeps it to itself; or its user may not make tables, or
            its URL has an option that is none.
        StorageUnavailable: it cannot be reached.
    """
    for attempt in range(WAIT_FOR_DATABASE_SECONDS + 1):
        try:
            _check_schema(engine, metadata, version, own)
            return
        except StorageUnavailable as error:
            cause = error.__cause__
            if not isinstance(cause, DatabaseHeld) and sqlstate(cause) != _LOCKED:
                raise  # no other process has it
        except exc.ProgrammingError as error:
            if sqlstate(error) == _NOT_ALLOWED:
                raise StartupRefused(
                    "the database's user may not make and read tables in its schema: grant it that"
                ) from None
            if error.statement is None:  # it came of connecting
                raise StartupRefused("the database's URL has an option that is not known") from None
            raise
        if attempt == 0:
            log.warning(
                "another process uses the database: waiting for it to end",
                at_most_seconds=WAIT_FOR_DATABASE_SECONDS,
            )
        if attempt < WAIT_FOR_DATABASE_SECONDS:
            pause(1.0)
    raise StartupRefused(
        "another process uses the database, and has not let go of it for "
        f"{WAIT_FOR_DATABASE_SECONDS} s; stop it, or name another database"
    )


def _check_schema(
    engine: Engine,
    metadata: MetaData,
    version: int,
    own: Consortium | None,
) -> None:
    about = MetaData()
    versions = Table(_VERSION_TABLE, about, Column("version", Integer, primary_key=True))
    owner = Table("owner", about, Column("authority", String(64), primary_key=True))
    with translating_storage_errors(), engine.begin() as connection:
        if engine.dialect.name == "postgresql":  # another replica may start at the same time
            connection.execute(select(func.pg_advisory_xact_lock(_MAKING_TABLES)))
        names = set(inspect(connection).get_table_names())
        if _VERSION_TABLE not in names:
            if names & set(metadata.tables):
                raise StartupRefused(
                    "the database holds tables without a schema version: it is not this service's; "
                    "name its own, or restore that"
                )
            about.create_all(connection)
            metadata.create_all(connection)
            if own is not None:
                connection.execute(owner.insert().values(authority=own.manifest.identity))
            connection.execute(versions.insert().values(version=version))
        else:
            found = connection.execute(select(func.max(versions.c.version))).scalar_one()
            if (reason := schema_refusal(found, version)) is not None:
                raise StartupRefused(f"the database {reason}")
            for whose in connection.execute(select(owner.c.authority)).scalars().all():
                if own is not None:
                    refuse_foreign("the database", whose, own)
            missing = set(metadata.tables) - set(inspect(connection).get_table_names())
            if missing:
                raise StartupRefused(f"the database is another service's: it lacks {min(missing)}")


def check_pages(engine: Engine) -> None:
    """Read all of an SQLite file once, so that a page that is broken shows now and not in use.

    Raises:
        StartupRefused: one is.
        StorageUnavailable: it cannot be read.
    """
    if engine.dialect.name != "sqlite":
        return
    with translating_storage_errors():
        connection = engine.raw_connection()
    try:
        is_whole = pages_are_whole(connection.dbapi_connection, Path(engine.url.database or ""))
    except sqlite3.DatabaseError as error:
        raise StorageUnavailable from error
    finally:
        connection.close()
    if not is_whole:
        raise StartupRefused(DAMAGED)


def is_postgresql_url(url: str) -> bool:
    """Tell whether `url` names a PostgreSQL database in the form that we can open."""
    try:
        parsed = make_url(url)
    except (exc.ArgumentError, ValueError):
        return False
    return parsed.drivername == DRIVER and bool(parsed.database)


def check_choice(
    data_directory: Path, database_url: str | None, own: Consortium | None = None
) -> None:
    """Refuse another kind of database than the one that holds the service's state.

    With `own`, state of another consortium in PostgreSQL is refused, too.

    Raises:
        StartupRefused: it says where the state is, or whose, and what to do.
    """
    marker = data_directory / MARKER
    if own is not None and marker.exists():
        refuse_foreign(data_directory, marker.read_text().split()[-1], own)
    file = data_directory / DATABASE
    if database_url and file.exists():
        raise StartupRefused(
            f"{_SETTING} is set, but {file} holds this service's state, and there is no "
            f"migration: start it without {_SETTING}"
        )
    if not database_url and marker.exists():
        raise StartupRefused(
            f"this service's state is in PostgreSQL, as {marker} says, and "
            f"{_SETTING} is not set: set it as before (compose: the same --env-file)"
        )


def note_choice(data_directory: Path, database_url: str | None, own: Consortium) -> None:
    """Note durably that the state is in PostgreSQL, and of which consortium it is.

    It is to be called before anything is acknowledged.

    Raises:
        StartupRefused: it cannot be written.
    """
    marker = data_directory / MARKER
    if not database_url or marker.exists():
        return
    try:
        replace(marker, f"postgresql {own.manifest.identity}\n".encode())
    except OSError as error:
        raise StartupRefused(f"{marker} cannot be written: {error.strerror}") from None


def why_unavailable(database_url: str | None, error: StorageUnavailable) -> str:
    """Return the message for an operator whose database failed while the service started."""
    cause = error.__cause__
    if database_url and isinstance(cause, exc.OperationalError) and cause.statement is None:
        return (
            f"the database server at {_SETTING} cannot be reached, or does not let this user "
            "into that database"
        )
    original = cause.orig if isinstance(cause, exc.DBAPIError) else cause
    if getattr(original, "sqlite_errorcode", 0) & 0xFF in _CORRUPT:
        return DAMAGED
    return "the database cannot be used: is it full, locked, read-only, a directory or away?"
