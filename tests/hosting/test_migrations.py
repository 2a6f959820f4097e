"""A service's database goes to the next version of its schema, and programs back over it."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import (
    Column,
    Engine,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    event,
    inspect,
    select,
)

from shoal_hosting.startup import StartupRefused
from shoal_hosting.storage.database import open_engine
from shoal_hosting.storage.database_schema import Migrations, check_schema

FIRST = MetaData()
OLD_ROWS = Table("rows", FIRST, Column("value", Integer, primary_key=True))

SECOND = MetaData()
ROWS = Table(
    "rows",
    SECOND,
    Column("value", Integer, primary_key=True),
    Column("unit", String(8), nullable=False, server_default="mg"),
    Column("note", String(8)),
)
NOTES = Table("notes", SECOND, Column("value", Integer, ForeignKey("rows.value")))
MIGRATIONS: Migrations = {2: [ROWS.c.unit, ROWS.c.note, NOTES]}

# As a power cut in the middle of the migration, after the columns and before the table.
_DIES = """
import os, sys
from tests.hosting.test_migrations import *
event.listen(NOTES, "before_create", lambda *_, **__: os._exit(9))
check_schema(open_engine(sys.argv[1]), SECOND, 2, MIGRATIONS)
"""


@pytest.fixture
def engine(database_url: str) -> Engine:
    """A database of version 1 with a row."""
    engine = open_engine(database_url)
    check_schema(engine, FIRST, 1)
    insert(engine, 1)
    return engine


def insert(engine: Engine, value: int) -> None:
    """Do what the program of version 1 does."""
    with engine.begin() as db:
        db.execute(OLD_ROWS.insert().values(value=value))


def layout(engine: Engine) -> dict[str, set[str]]:
    seen = inspect(engine)
    return {
        table: {column["name"] for column in seen.get_columns(table)}
        for table in seen.get_table_names()
    }


def versions(engine: Engine) -> list[int]:
    with engine.begin() as db:
        found = db.exec_driver_sql("SELECT version FROM schema_version ORDER BY version")
        return list(found.scalars())


def test_a_migrated_database_keeps_its_rows_and_both_versions_use_it(engine: Engine) -> None:
    check_schema(engine, SECOND, 2, MIGRATIONS)
    insert(engine, 2)  # a replica that still runs
    check_schema(engine, FIRST, 1)  # back
    insert(engine, 3)
    check_schema(engine, SECOND, 2, MIGRATIONS)  # and forward again
    with engine.begin() as db:
        db.execute(ROWS.insert().values(value=4, unit="g", note="new"))
        db.execute(NOTES.insert().values(value=4))
        rows = db.execute(select(ROWS).order_by(ROWS.c.value)).all()
    assert rows == [(1, "mg", None), (2, "mg", None), (3, "mg", None), (4, "g", "new")]
    assert versions(engine) == [1, 2]
    engine.dispose()


def test_a_new_database_is_as_a_migrated_one(engine: Engine, database_url: str) -> None:
    check_schema(engine, SECOND, 2, MIGRATIONS)
    migrated = layout(engine)
    with engine.begin() as db:
        SECOND.drop_all(db)
        db.exec_driver_sql("DROP TABLE schema_version")
    check_schema(engine, SECOND, 2, MIGRATIONS)
    assert layout(engine) == migrated
    check_schema(engine, FIRST, 1)
    insert(engine, 1)
    engine.dispose()


def test_a_crash_in_the_middle_leaves_the_version_before(engine: Engine, database_url: str) -> None:
    before = layout(engine)
    command = [sys.executable, "-c", _DIES, database_url]
    assert subprocess.run(command, check=False, timeout=60).returncode == 9
    assert (layout(engine), versions(engine)) == (before, [1])
    check_schema(engine, SECOND, 2, MIGRATIONS)
    assert versions(engine) == [1, 2]
    engine.dispose()


def test_what_the_version_before_could_not_leave_out_is_no_migration(engine: Engine) -> None:
    before = layout(engine)
    with pytest.raises(ValueError, match="needs a default"):
        check_schema(
            engine, SECOND, 2, {2: [ROWS.c.note, Column("unit", String(8), nullable=False)]}
        )
    assert (layout(engine), versions(engine)) == (before, [1])
    engine.dispose()


def test_a_version_that_no_migration_leads_to_or_from_is_refused(engine: Engine) -> None:
    with pytest.raises(StartupRefused, match="version 1, this program needs 3; run the release"):
        check_schema(engine, SECOND, 3, {3: [NOTES]})
    with engine.begin() as db:
        db.exec_driver_sql("DELETE FROM schema_version")
        db.exec_driver_sql("INSERT INTO schema_version VALUES (7)")
    with pytest.raises(StartupRefused, match="version 7, this program needs 2; run the release"):
        check_schema(engine, SECOND, 2, MIGRATIONS)
    engine.dispose()


def test_replicas_that_start_at_once_migrate_once(postgresql_url: str) -> None:
    first = open_engine(postgresql_url)
    check_schema(first, FIRST, 1)
    first.dispose()
    engines, together = [open_engine(postgresql_url) for _ in range(4)], threading.Barrier(4)
    migrations = list[str]()

    def start(engine: Engine) -> None:
        together.wait()
        check_schema(engine, SECOND, 2, MIGRATIONS)

    event.listen(NOTES, "after_create", lambda *_, **__: migrations.append("notes"))
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(start, engines))
    assert migrations == ["notes"]
    assert versions(engines[0]) == [1, 2]
    for engine in engines:
        engine.dispose()
