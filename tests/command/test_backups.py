"""Backups of services: whole at any moment, never half a file, never in a newer's place."""

import fcntl
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import zipfile
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
    "the archive is written": "zipfile.ZipFile.close",
    "it takes its name": "pathlib.Path.replace",
}
# kills itself instead of what is patched
DYING = """
import os, pathlib, signal, sqlite3, sys, zipfile
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
    url = url or sqlite_url(data / "compute.sqlite")
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
            with zipfile.ZipFile(tmp_path / "backup") as packed:
                packed.extract("compute.sqlite", tmp_path)
            rows = count(tmp_path / "compute.sqlite")
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
    assert zipfile.ZipFile(backup).namelist() == ["compute.sqlite"]
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
    assert zipfile.ZipFile(backup).testzip() is None
    assert sorted(each.name for each in tmp_path.iterdir()) == [".backup.lock", "backup", "data"]


def test_what_is_restored_is_what_was_there_and_starts(data: Path, tmp_path: Path) -> None:
    back_up(data, tmp_path / "backup")
    before = count(data / "compute.sqlite")
    (data / "compute.sqlite").unlink()
    said = shoal("party", "restore", tmp_path / "backup", "--data", data).stdout
    assert "The state of the Compute node is in" in said
    assert count(data / "compute.sqlite") == before
    assert (data / "compute.sqlite").stat().st_mode & 0o777 == 0o600
    with node(data):
        pass


def test_a_restore_puts_nothing_in_the_place_of_what_may_know_more(
    data: Path, tmp_path: Path
) -> None:
    back_up(data, tmp_path / "backup")
    restore = ("party", "restore", tmp_path / "backup", "--data", data)
    assert "may know more" in refused(*restore)
    (data / "compute.sqlite").rename(data / "trainer.sqlite")
    assert "trainer.sqlite is there" in refused(*restore)
    (data / "trainer.sqlite").replace(data / "compute.sqlite-wal")
    assert "compute.sqlite-wal is there" in refused(*restore)
    (data / "compute.sqlite-wal").unlink()
    (data / "compute.sqlite").touch()  # an empty file knows nothing
    shoal(*restore)
    assert count(data / "compute.sqlite") == 1


def test_a_restore_is_refused_while_the_service_runs(data: Path, tmp_path: Path) -> None:
    back_up(data, tmp_path / "backup")
    (data / "compute.sqlite").unlink()
    restore = ("party", "restore", tmp_path / "backup", "--data", data)
    with (data / LOCK).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "a service runs over" in refused(*restore)
    shoal(*restore)
    with (data / LOCK).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)  # and it lets go of it


DAMAGES = {
    "cut off": lambda content: content[:-200],
    "one byte changed": lambda content: content[:9000] + b"x" + content[9001:],
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
    with zipfile.ZipFile(tmp_path / "backup", "x") as packed:
        whole = (data / "compute.sqlite").read_bytes()
        packed.writestr("compute.sqlite", whole[: len(whole) // 2] + bytes(len(whole) // 2))
    shutil.rmtree(data)
    line = refused("party", "restore", tmp_path / "backup", "--data", data)
    assert "damaged" in line or "cannot be read" in line
    assert [each.name for each in data.iterdir()] == ["lock"]


def test_an_archive_that_was_packed_otherwise_is_no_backup(data: Path, tmp_path: Path) -> None:
    """Some say so only while they are unpacked: what is damaged, encrypted, or terabytes."""
    packed_otherwise = tmp_path / "archive"
    with zipfile.ZipFile(packed_otherwise, "x", zipfile.ZIP_DEFLATED) as packed:
        packed.write(data / "compute.sqlite", "compute.sqlite")
    content = bytearray(packed_otherwise.read_bytes())
    content[60:300] = bytes(240)
    packed_otherwise.write_bytes(content)
    back_up(data, tmp_path / "backup")
    encrypted = bytearray((tmp_path / "backup").read_bytes())
    encrypted[encrypted.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "encrypted").write_bytes(encrypted)
    for each in (packed_otherwise, tmp_path / "encrypted"):
        line = refused("party", "restore", each, "--data", tmp_path / "new")
        assert "is not a backup of a service" in line
        assert [left.name for left in (tmp_path / "new").iterdir()] == ["lock"]


def test_a_damaged_database_does_not_take_the_place_of_an_older_backup(
    data: Path, tmp_path: Path
) -> None:
    back_up(data, tmp_path / "backup")
    older = (tmp_path / "backup").read_bytes()
    content = bytearray((data / "compute.sqlite").read_bytes())
    content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
    (data / "compute.sqlite").write_bytes(content)
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
