"""A data holder's state goes from one version to the next, and programs back over it."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from shoal_holder import state_file
from shoal_holder.state_file import StateFile
from shoal_holder.state_schema import SCHEMA_VERSION

AUTHORITY = "e" * 64
NEXT = SCHEMA_VERSION + 1
NOTES = ("CREATE TABLE notes (job TEXT PRIMARY KEY)", "CREATE TABLE more (job TEXT PRIMARY KEY)")

# As a power cut in the middle of the migration, between its two tables.
_DIES = """
import os, sys
from pathlib import Path
from shoal_holder import state_file
from tests.holder.test_state_migrations import AUTHORITY, NEXT, NOTES
def notes():
    yield NOTES[0]
    os._exit(9)
state_file.SCHEMA_VERSION, state_file.MIGRATIONS = NEXT, {NEXT: notes()}
state_file.StateFile(Path(sys.argv[1]), authority=AUTHORITY)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A state of this version."""
    path = tmp_path / "holder.sqlite"
    StateFile(path, authority=AUTHORITY).close()
    return path


def versions(path: Path) -> tuple[list[int], bool]:
    """Return whose programs can use a state, and whether it has the new tables."""
    with closing(sqlite3.connect(path)) as database:
        found = database.execute("SELECT version FROM schema_version ORDER BY version")
        names = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        return [version for (version,) in found], {"notes", "more"} <= names


def open_by_the_next(path: Path, *statements: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_file, "SCHEMA_VERSION", NEXT)
        patch.setattr(state_file, "MIGRATIONS", {NEXT: statements})
        StateFile(path, authority=AUTHORITY).close()


def test_a_migrated_state_is_used_by_both_versions(path: Path) -> None:
    open_by_the_next(path, *NOTES)
    StateFile(path, authority=AUTHORITY).close()
    open_by_the_next(path, *NOTES)
    assert versions(path) == ([SCHEMA_VERSION, NEXT], True)


def test_a_new_state_of_the_next_version_is_used_by_this_one(tmp_path: Path) -> None:
    path = tmp_path / "new.sqlite"
    open_by_the_next(path, *NOTES)
    assert versions(path) == ([SCHEMA_VERSION, NEXT], True)
    StateFile(path, authority=AUTHORITY).close()


def test_a_crash_in_the_middle_leaves_the_version_before(path: Path) -> None:
    command = [sys.executable, "-c", _DIES, str(path)]
    assert subprocess.run(command, check=False, timeout=60).returncode == 9
    assert versions(path) == ([SCHEMA_VERSION], False)
    open_by_the_next(path, *NOTES)


def test_a_migration_only_adds_tables(path: Path) -> None:
    for statement in ("ALTER TABLE jobs ADD COLUMN note TEXT", "DROP TABLE jobs"):
        with pytest.raises(ValueError, match="adds tables and nothing else"):
            open_by_the_next(path, NOTES[0], statement)
        assert versions(path) == ([SCHEMA_VERSION], False)


def test_a_state_that_no_migration_leads_from_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE schema_version SET version = ?", (NEXT,))
    with pytest.raises(ValueError, match=rf"{NEXT}, this program needs {SCHEMA_VERSION}; run the"):
        StateFile(path, authority=AUTHORITY)
