"""Tells whether a database is of this program's schema and undamaged, and what to do if not."""

from pathlib import Path
from typing import Any, Final

from shoal_protocol.wire.versions import RELEASE

DATABASE: Final = "service.sqlite"
"""Name of the file in a service's data directory."""
ACCEPT: Final = "SHOAL_ACCEPT_LOSS"
RESTORE: Final = "bring back the database as it was last, with its -wal file if it has one"
DAMAGED: Final = f"the database is damaged. Stop, and {RESTORE}"


def schema_refusal(version: int | None, needed: int) -> str | None:
    """Return why a program that needs one schema version refuses a store of another, or None.

    A store that names no version has None.
    """
    if version == needed:
        return None
    return (
        f"has schema version {'none' if version is None else version}, and release {RELEASE} uses "
        f"{needed} alone; run the release that made it (docs/handbook.md#upgrade)"
    )


def pages_are_whole(database: Any, path: Path) -> bool:
    """Tell whether SQLite finds all pages of a file sound; it reads all of them.

    Bytes within a row are not its to judge. `database` is the driver's connection.
    """
    database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()  # it may hold what is cut off
    [page_bytes] = database.execute("PRAGMA page_size").fetchone()
    if path.stat().st_size % page_bytes:  # SQLite would take zeros for the rest of the last one
        return False
    return bool(database.execute("PRAGMA integrity_check(1)").fetchall() == [("ok",)])
