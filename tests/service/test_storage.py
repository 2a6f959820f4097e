"""The SQL plumbing of all services, on both databases."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import structlog
from sqlalchemy import Column, Connection, Engine, Integer, MetaData, Table, select

from shoal_kit.startup import StartupRefused
from shoal_protocol.wire.service_errors import StorageUnavailable
from shoal_service.storage.database import (
    open_engine,
    sqlite_url,
    translating_storage_errors,
)
from shoal_service.storage.database_schema import WAIT_FOR_DATABASE_SECONDS, check_schema
from shoal_service.storage.thread import StorageThread

METADATA = MetaData()
ROWS = Table("rows", METADATA, Column("value", Integer, primary_key=True))
OTHER = MetaData()
Table("other", OTHER, Column("value", Integer, primary_key=True))


def add(connection: Connection, value: int) -> None:
    connection.execute(ROWS.insert().values(value=value))


def values(connection: Connection) -> list[int]:
    return list(connection.execute(select(ROWS.c.value).order_by(ROWS.c.value)).scalars())


@pytest.fixture
def engine(database_url: str) -> Engine:
    engine = open_engine(database_url)
    check_schema(engine, METADATA, 1)
    return engine


def test_a_schema_of_another_version_is_refused(engine: Engine) -> None:
    with pytest.raises(StartupRefused, match="schema version 1, and"):
        check_schema(engine, METADATA, 2)
    engine.dispose()


def test_a_database_that_is_away_is_unavailable(tmp_path: Path) -> None:
    missing = open_engine(sqlite_url(tmp_path / "no such directory" / "file.sqlite"))
    nobody = open_engine(f"postgresql+psycopg://shoal@/postgres?host={tmp_path}")
    for engine in (missing, nobody):
        with pytest.raises(StorageUnavailable):
            check_schema(engine, METADATA, 1)
        engine.dispose()


@pytest.fixture
def sqlite(tmp_path: Path) -> Engine:
    engine = open_engine(sqlite_url(tmp_path / "file.sqlite"))
    check_schema(engine, METADATA, 1)
    return engine


async def test_a_full_disk_refuses_and_goes_on_when_there_is_room_again(sqlite: Engine) -> None:
    thread = StorageThread(sqlite)
    blobs = "CREATE TABLE blobs (content BLOB)"
    await thread.run(lambda db: db.exec_driver_sql(blobs))
    insertion = "INSERT INTO blobs VALUES (zeroblob(1000000))"
    await thread.run(lambda db: db.exec_driver_sql("PRAGMA max_page_count=20"))
    with pytest.raises(StorageUnavailable):
        await thread.run(lambda db: db.exec_driver_sql(insertion))
    await thread.run(lambda db: db.exec_driver_sql("PRAGMA max_page_count=100000"))
    await thread.run(lambda db: db.exec_driver_sql(insertion))
    counted = await thread.run(
        lambda db: db.exec_driver_sql("SELECT count(*) FROM blobs").scalar_one()
    )
    assert counted == 1
    await thread.close()


def test_a_locked_database_refuses_after_a_while(sqlite: Engine, tmp_path: Path) -> None:
    other = open_engine(sqlite_url(tmp_path / "file.sqlite"))
    with sqlite.begin() as holder:
        add(holder, 1)
        with pytest.raises(StorageUnavailable), translating_storage_errors():
            _try_to_add(other)
    sqlite.dispose()
    other.dispose()


def _try_to_add(engine: Engine) -> None:
    with engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert raw is not None
        raw.execute("PRAGMA busy_timeout=1")
        add(connection, 2)


def test_sqlite_is_set_to_lose_nothing_and_to_overwrite_what_is_erased(sqlite: Engine) -> None:
    with sqlite.connect() as connection:
        found = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys", "secure_delete")
        }
    assert found == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "secure_delete": 1}
    sqlite.dispose()


def test_of_transactions_that_wait_for_each_other_one_is_done_and_one_is_to_be_sent_again(
    postgresql_url: str,
) -> None:
    engine = open_engine(postgresql_url)
    check_schema(engine, METADATA, 1)
    with engine.begin() as connection:
        add(connection, 10)
        add(connection, 20)
    both_hold_one = threading.Barrier(2)

    def move(connection: Connection, first: int, second: int) -> None:
        connection.execute(ROWS.update().where(ROWS.c.value == first).values(value=first))
        both_hold_one.wait()
        connection.execute(ROWS.update().where(ROWS.c.value == second).values(value=second))

    with ThreadPoolExecutor(2) as threads:
        moves = [
            threads.submit(StorageThread(engine).run_here, move, *order)
            for order in ((10, 20), (20, 10))
        ]
        outcomes = [each.exception() for each in moves]
    assert sorted(map(type, outcomes), key=str) == [type(None), StorageUnavailable]
    engine.dispose()


def test_postgresql_is_set_to_lose_nothing_and_to_wait_for_nobody_for_long(
    postgresql_url: str,
) -> None:
    careless = open_engine(f"{postgresql_url}%20-csynchronous_commit%3Doff")
    with careless.connect() as connection:
        found = {
            name: connection.exec_driver_sql(f"SHOW {name}").scalar_one()
            for name in ("synchronous_commit", "lock_timeout", "transaction_isolation")
        }
    assert found == {
        "synchronous_commit": "on",
        "lock_timeout": "5s",
        "transaction_isolation": "read committed",
    }
    careless.dispose()


async def test_a_database_that_one_process_has_to_itself_is_refused_to_a_second(
    postgresql_url: str,
) -> None:
    first, second = (open_engine(postgresql_url, alone=True) for _ in range(2))
    check_schema(first, METADATA, 1)
    thread = StorageThread(first)
    await thread.run(add, 1)
    pauses: list[float] = []
    with (
        structlog.testing.capture_logs() as lines,
        pytest.raises(StartupRefused, match="has not let go of it for 35 s; stop it, or name"),
    ):
        check_schema(second, METADATA, 1, pause=pauses.append)
    assert [(each["event"], each["at_most_seconds"]) for each in lines] == [
        ("another process uses the database: waiting for it to end", WAIT_FOR_DATABASE_SECONDS)
    ]
    assert sum(pauses) == WAIT_FOR_DATABASE_SECONDS
    await thread.close()
    check_schema(second, METADATA, 1, pause=pauses.append)  # the first one has ended
    assert sum(pauses) == WAIT_FOR_DATABASE_SECONDS
    second.dispose()


async def test_a_process_that_lost_its_database_to_another_cannot_write_to_it(
    postgresql_url: str,
) -> None:
    engine, rival = (open_engine(postgresql_url, alone=True) for _ in range(2))
    check_schema(engine, METADATA, 1)
    thread = StorageThread(engine)
    await thread.run(add, 1)
    end_all_other_sessions(postgresql_url)
    check_schema(rival, METADATA, 1)
    with pytest.raises(StorageUnavailable):
        await thread.run(add, 2)
    rival.dispose()
    await thread.run(add, 3)
    assert await thread.run(values) == [1, 3]
    await thread.close()


def end_all_other_sessions(url: str) -> None:
    """Do what a server that starts again does to its connections, to those of one test."""
    schema = url.rpartition("%3D")[2]
    engine = open_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' "
            f"AND objid = hashtext('{schema}')::bigint & 4294967295 AND pid <> pg_backend_pid()"
        )
    engine.dispose()
