"""Backups of services: whole at any moment, never half a file, never in a newer's place."""

import fcntl
import gzip
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine

from shoal_compute import schema
from shoal_consortium.backups import back_up
from shoal_service.running import LOCK
from shoal_service.service import open_storage
from shoal_service.storage.database import sqlite_url
from shoal_service.storage.database_schema import note_choice
from shoal_service.storage.thread import StorageThread
from tests.command.running import refused, shoal
from tests.world.trust import make_trust

STAGES = {
    "the database is copied": "sqlite3.connect",
    "it is packed": "shutil.copyfileobj",
    "it takes its name": "pathlib.Path.replace",
}
# kills itself instead of what is patched
DYING = """
import os, pathlib, shutil, signal, sqlite3, sys
from shoal_consortium.backups import back_up
def die(*given, **more):
    os.kill(os.getpid(), signal.SIGKILL)
{patched} = die
back_up(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
"""


@contextmanager
def node(data: Path, url: str | None = None) -> Iterator[StorageThread]:
    """Open a node's database, as the node does."""
    data.mkdir(mode=0o700, exist_ok=True)
    url = url or sqlite_url(data / "service.sqlite")
    storage = open_storage(schema, url, alone=False)
    try:
        yield storage
    finally:
        storage.let_go()


def write(db: Connection, number: int, size: int = 1) -> None:
    """Write some rows, all of them in one commit."""
    rows = [{"service": f"{number}-{row}"} for row in range(size)]
    db.execute(schema.kept.insert().values(rows))


def count(database: Path) -> int:
    """Return how many rows a database has."""
    with closing(sqlite3.connect(database)) as opened:
        [rows] = opened.execute("SELECT count(*) FROM kept_heads").fetchone()
    return int(rows)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data directory of a node that wrote something and is stopped."""
    with node(tmp_path / "data") as storage:
        storage.run_here(write, 0)
    return tmp_path / "data"


def test_a_backup_among_writes_is_the_state_of_one_moment(data: Path, tmp_path: Path) -> None:
    done, rows_each = threading.Event(), 40

    def keep_writing() -> None:
        with node(data) as storage:
            number = 1
            while not done.is_set():
                storage.run_here(write, number, rows_each)
                number += 1

    writer = threading.Thread(target=keep_writing)
    writer.start()
    found = []
    try:
        while len(set(found)) < 5:  # a state each
            shoal("party", "backup", "--data", data, "--to", tmp_path / "backup")
            (tmp_path / "copy").write_bytes(gzip.decompress((tmp_path / "backup").read_bytes()))
            rows = count(tmp_path / "copy")
            assert rows % rows_each == 1
            found.append(rows)
    finally:
        done.set()
        writer.join()
    assert found == sorted(found)


def test_a_backup_is_private_and_has_no_secret(data: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    before = os.umask(0o022)
    try:
        said = shoal("party", "backup", "--data", data, "--to", backup).stdout
    finally:
        os.umask(before)
    assert backup.stat().st_mode & 0o777 == 0o600
    assert "It has no keys" in said
    assert sorted(each.name for each in tmp_path.iterdir()) == [".backup.lock", "backup", "data"]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("has_older", [False, True], ids=["first", "next"])
def test_a_backup_that_is_killed_leaves_the_older_file_or_none(
    data: Path, tmp_path: Path, stage: str, has_older: bool
) -> None:
    backup = tmp_path / "backup"
    if has_older:
        back_up(data, backup)
    older = backup.read_bytes() if has_older else None
    program = DYING.format(patched=STAGES[stage])
    done = subprocess.run([sys.executable, "-c", program, data, backup], capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (backup.read_bytes() if backup.exists() else None) == older
    back_up(data, backup)
    assert gzip.decompress(backup.read_bytes()).startswith(b"SQLite format 3")
    assert sorted(each.name for each in tmp_path.iterdir()) == [".backup.lock", "backup", "data"]


def test_what_is_restored_is_what_was_there_and_starts(data: Path, tmp_path: Path) -> None:
    back_up(data, tmp_path / "backup")
    before = count(data / "service.sqlite")
    (data / "service.sqlite").unlink()
    said = shoal("party", "restore", tmp_path / "backup", "--data", data).stdout
    assert "The state of the service is in" in said
    assert count(data / "service.sqlite") == before
    assert (data / "service.sqlite").stat().st_mode & 0o777 == 0o600
    with node(data):
        pass


def test_a_restore_puts_nothing_in_the_place_of_what_may_know_more(
    data: Path, tmp_path: Path
) -> None:
    back_up(data, tmp_path / "backup")
    restore = ("party", "restore", tmp_path / "backup", "--data", data)
    assert "may know more" in refused(*restore)
    (data / "service.sqlite").rename(data / "service.sqlite-wal")
    assert "service.sqlite-wal is there" in refused(*restore)
    (data / "service.sqlite-wal").unlink()
    (data / "service.sqlite").touch()  # an empty file knows nothing
    shoal(*restore)
    assert count(data / "service.sqlite") == 1


def test_a_restore_is_refused_while_the_service_runs(data: Path, tmp_path: Path) -> None:
    back_up(data, tmp_path / "backup")
    (data / "service.sqlite").unlink()
    restore = ("party", "restore", tmp_path / "backup", "--data", data)
    with (data / LOCK).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "a service runs over" in refused(*restore)
    shoal(*restore)
    with (data / LOCK).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)  # and it lets go of it


DAMAGES = {
    "cut off": lambda content: content[:-200],
    "one bit changed": lambda content: (
        content[: len(content) // 2]
        + bytes([content[len(content) // 2] ^ 1])
        + content[len(content) // 2 + 1 :]
    ),
    "emptied": lambda content: b"",
    "a database": lambda content: b"SQLite format 3\0" + bytes(len(content)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_backup_is_refused(data: Path, tmp_path: Path, damage: str) -> None:
    backup = tmp_path / "backup"
    back_up(data, backup)
    shutil.rmtree(data)
    backup.write_bytes(DAMAGES[damage](backup.read_bytes()))
    line = refused("party", "restore", backup, "--data", data)
    assert "is no backup, cut short or changed" in line
    assert [each.name for each in data.iterdir()] == ["lock"]


def test_a_backup_of_a_database_with_a_damaged_page_is_refused(data: Path, tmp_path: Path) -> None:
    whole = (data / "service.sqlite").read_bytes()
    half = whole[: len(whole) // 2] + bytes(len(whole) // 2)
    (tmp_path / "backup").write_bytes(gzip.compress(half))
    shutil.rmtree(data)
    line = refused("party", "restore", tmp_path / "backup", "--data", data)
    assert "damaged" in line or "cannot be read" in line
    assert [each.name for each in data.iterdir()] == ["lock"]


def test_a_damaged_database_does_not_take_the_place_of_an_older_backup(
    data: Path, tmp_path: Path
) -> None:
    back_up(data, tmp_path / "backup")
    older = (tmp_path / "backup").read_bytes()
    content = bytearray((data / "service.sqlite").read_bytes())
    content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
    (data / "service.sqlite").write_bytes(content)
    line = refused("party", "backup", "--data", data, "--to", tmp_path / "backup")
    assert "damaged" in line or "cannot be read" in line
    assert (tmp_path / "backup").read_bytes() == older


def test_a_state_in_postgresql_is_backed_up_by_its_own_tools_as_is_said(
    postgresql: str, tmp_path: Path
) -> None:
    if shutil.which("pg_dump") is None:
        pytest.skip("there is no pg_dump here: install Debian's package postgresql-client")
    server = f"postgresql+psycopg://shoal@/{{}}?host={postgresql}"
    admin = create_engine(server.format("postgres"), isolation_level="AUTOCOMMIT")
    urls = [server.format(each) for each in ("lost", "anew")]
    data, dump = tmp_path / "data", tmp_path / "dump"
    data.mkdir()
    note_choice(data, urls[0], make_trust(tmp_path / "trust").consortium)
    with admin.connect() as db:
        for each in ("lost", "anew"):
            db.exec_driver_sql(f"CREATE DATABASE {each}")
        with node(data, url=urls[0]) as storage:
            storage.run_here(write, 0)
            said = refused("party", "backup", "--data", data, "--to", dump)
            _, back_up_by, _, restore_by, _ = said.split("`")
            in_bash(back_up_by.replace("FILE", str(dump)), urls[0])
            storage.run_here(write, 1)
        in_bash(restore_by.replace("FILE", str(dump)), urls[1])
        with node(data, url=urls[1]) as storage:
            rows = storage.run_here(lambda db: db.execute(schema.kept.select()).all())
        assert len(rows) == 1
        for each in ("lost", "anew"):
            db.exec_driver_sql(f"DROP DATABASE {each} WITH (FORCE)")
    admin.dispose()


def in_bash(command: str, url: str) -> None:
    environment = os.environ | {"SHOAL_DATABASE_URL": url}
    done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
