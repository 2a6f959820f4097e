"""The write-ahead log is cut off after an erasure, or the node is told that it is not."""

import sqlite3
from pathlib import Path

import pytest

from shoal_protocol.wire.service_errors import StorageUnavailable
from shoal_service.storage.database import open_engine, sqlite_url
from shoal_service.storage.thread import StorageThread


def test_what_was_erased_is_in_the_log_no_more(tmp_path: Path) -> None:
    path = tmp_path / "service.sqlite"
    engine = open_engine(sqlite_url(path))
    with engine.begin() as db:
        db.exec_driver_sql("CREATE TABLE payloads (payload BLOB)")
    assert (tmp_path / "service.sqlite-wal").stat().st_size > 0
    StorageThread(engine).truncate_log()
    assert (tmp_path / "service.sqlite-wal").stat().st_size == 0
    engine.dispose()


def test_a_log_that_is_in_use_is_left_for_later(tmp_path: Path) -> None:
    path = tmp_path / "service.sqlite"
    engine = open_engine(sqlite_url(path))
    with engine.begin() as db:
        db.exec_driver_sql("CREATE TABLE payloads (payload BLOB)")
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM payloads").fetchall()
    with engine.begin() as db:
        db.exec_driver_sql("INSERT INTO payloads VALUES (zeroblob(10))")
    with pytest.raises(StorageUnavailable):
        StorageThread(engine).truncate_log()
    reader.close()
    StorageThread(engine).truncate_log()
    engine.dispose()
