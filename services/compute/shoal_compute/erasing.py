"""Sees to it that erased payloads are gone from the disk too; it erases none itself.

SQLite overwrites what a transaction erases (secure_delete), but its write-ahead log still holds
the pages as they were until it is written back and cut off.
"""

from typing import Final

from sqlalchemy import Engine

from shoal_hosting.storage import translating_storage_errors
from shoal_protocol.errors import StorageUnavailable

BATCH_SHARES: Final = 500  # in one transaction, so that uploads do not wait long


def truncate_log(engine: Engine) -> None:
    """Write SQLite's log back and cut it off; elsewhere do nothing.

    Raises:
        StorageUnavailable: somebody else is using the database.
    """
    if engine.dialect.name != "sqlite":
        return
    with translating_storage_errors():
        connection = engine.raw_connection()
        try:
            cursor = connection.cursor()
            busy, _, _ = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            cursor.close()
        finally:
            connection.close()
    if busy:
        raise StorageUnavailable
