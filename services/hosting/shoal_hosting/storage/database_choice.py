"""Which database holds a service's state.

A service that is started over another database than before would have forgotten, without a word,
what it acknowledged and which budgets were spent.
"""

import sqlite3
from pathlib import Path
from typing import Final

from sqlalchemy import exc, make_url

from shoal_hosting.manifests.manifest_book import refuse_foreign, write_durably
from shoal_hosting.marks import DAMAGED
from shoal_hosting.startup import StartupRefused
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.service_errors import StorageUnavailable

DRIVER: Final = "postgresql+psycopg"
FORM: Final = f"{DRIVER}://user:password@host/database"
MARKER: Final = "database"
_SETTING: Final = "SHOAL_DATABASE_URL"
_CORRUPT: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_postgresql_url(url: str) -> bool:
    """Tell whether `url` names a PostgreSQL database in the form that we can open."""
    try:
        parsed = make_url(url)
    except (exc.ArgumentError, ValueError):
        return False
    return parsed.drivername == DRIVER and bool(parsed.database)


def check_choice(
    data_directory: Path, role: str, database_url: str | None, own: Consortium | None = None
) -> None:
    """Refuse another kind of database than the one that holds the service's state.

    With `own`, state of another consortium in PostgreSQL is refused, too.

    Raises:
        StartupRefused: it says where the state is, or whose, and what to do.
    """
    marker = data_directory / MARKER
    if own is not None and marker.exists():
        refuse_foreign(data_directory, marker.read_text().split()[-1], own)
    file = data_directory / f"{role}.sqlite"
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
        write_durably(marker, f"postgresql {own.manifest.identity}\n".encode())
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
