"""Sees to it that erased payloads are gone from the disk too; it erases none itself.

SQLite overwrites what a transaction erases (secure_delete), but its write-ahead log still holds
the pages as they were until it is written back and cut off.
"""

import sqlite3
from typing import Final

from sqlalchemy import Engine

from shoal_protocol.errors import StorageUnavailable

# of payloads in one transaction, so that uploads do not wait long behind it
_BATCH_BYTES: Final = 8 << 20
_LARGEST_BATCH: Final = 500


def batch_size(dimension: int) -> int:
    """Return how many payloads of this length to erase in one transaction."""
    return max(1, min(_LARGEST_BATCH, _BATCH_BYTES // (8 * dimension)))


def truncate_log(engine: Engine) -> None:
    """Write SQLite's log back and cut it off; elsewhere do nothing.

    Raises:
        StorageUnavailable: somebody else is using the database, or it cannot be written.
    """
    if engine.dialect.name != "sqlite":
        return
    try:
        connection = engine.raw_connection()
        try:
            cursor = connection.cursor()
            busy, _, _ = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            cursor.close()
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:  # the driver's own: such as a full disk
        raise StorageUnavailable from error
    if busy:
        raise StorageUnavailable
