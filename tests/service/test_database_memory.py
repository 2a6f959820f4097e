"""A database without its mark: whose loss is accepted, who may join in, and what stays of it."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Column, Connection, Integer, MetaData, Table, text
from structlog.testing import capture_logs

from shoal_holder.state import State
from shoal_kit.marks import LOSSES_ACCEPTED
from shoal_kit.startup import StartupRefused
from shoal_service.storage.database import open_engine, sqlite_url
from shoal_service.storage.database_memory import MARK, StorageThread, memory_table, open_memory
from shoal_service.storage.database_schema import check_schema

METADATA = MetaData()
MEMORY = memory_table(METADATA)
ROWS = Table("rows", METADATA, Column("value", Integer, primary_key=True))
AUTHORITY = "ab" * 32


def add(db: Connection) -> None:
    db.execute(ROWS.insert().values())


def start(url: str, mark: Path, accept: str | None = None) -> StorageThread:
    """Start a process of a service over a database, with its mark in a directory."""
    mark.mkdir(exist_ok=True)
    engine = open_engine(url)
    check_schema(engine, METADATA, 1)
    try:
        memory = open_memory(engine, mark / MARK, MEMORY, accept=accept)
    except StartupRefused:
        engine.dispose()
        raise
    return StorageThread(engine, memory)


def service(home: Path, accept: str | None = None) -> None:
    home.mkdir(exist_ok=True)
    storage = start(sqlite_url(home / "service.sqlite"), home, accept)
    storage.run_here(add)
    storage.let_go()


def data_holder(home: Path, accept: str | None = None) -> None:
    home.mkdir(exist_ok=True)
    state = State(home / "holder.sqlite", authority=AUTHORITY, accept_loss=accept)
    with state.file.transaction():
        state.file.database.execute("CREATE TABLE IF NOT EXISTS touched (x)")
        state.file.database.execute("INSERT INTO touched VALUES (1)")
    state.close()


Run = Callable[..., None]


def refused(run: Run, home: Path, accept: str | None = None) -> str:
    """Run over a database that does not fit its mark; return the token of the loss."""
    with pytest.raises((StartupRefused, ValueError)) as refusal:
        run(home, accept)
    [token] = re.findall("SHOAL_ACCEPT_LOSS=([0-9a-f]{16})", str(refusal.value))
    return str(token)


@pytest.mark.parametrize(
    ("run", "mark"), [(service, MARK), (data_holder, "holder.mark")], ids=["service", "holder"]
)
def test_the_token_of_a_lost_mark_is_of_one_database_only(
    tmp_path: Path, run: Run, mark: str
) -> None:
    homes = tmp_path / "one", tmp_path / "other"
    for home in homes:  # they differ in the names that were drawn for them alone
        run(home)
        (home / mark).unlink()
    one, other = (refused(run, home) for home in homes)
    assert one != other
    assert refused(run, homes[1], accept=one) == other
    run(homes[1], accept=other)
    run(homes[1], accept=other)


def test_a_loss_that_was_accepted_is_told_of_at_each_start(tmp_path: Path) -> None:
    def warnings(accept: str | None = None) -> list[object]:
        with capture_logs() as said:
            service(tmp_path, accept)
        return [each["losses"] for each in said if each["event"] == LOSSES_ACCEPTED]

    assert warnings() == warnings() == []
    for losses in (1, 2):
        (tmp_path / "service.sqlite").unlink()
        assert warnings(refused(service, tmp_path)) == [losses]
        assert warnings() == [losses]


def test_who_has_not_compared_a_database_vouches_for_nobody(
    tmp_path: Path, postgresql_url: str
) -> None:
    running = start(postgresql_url, tmp_path / "running")
    running.run_here(add)
    newcomer = start(postgresql_url, tmp_path / "newcomer")  # for it runs that compared
    newcomer.let_go()
    running.let_go()

    # as after a restore, with two new replicas that start at once: both see each other
    starting = open_engine(postgresql_url)
    check_schema(starting, METADATA, 1)
    with starting.connect() as session:
        assert session.execute(text("SELECT 1")).scalar_one() == 1
        with pytest.raises(StartupRefused, match="there is a database that was written to"):
            start(postgresql_url, tmp_path / "new")
    starting.dispose()

    again = start(postgresql_url, tmp_path / "running")
    with again._engine.connect(), again._engine.connect():  # each of its sessions tells of it
        start(postgresql_url, tmp_path / "new").let_go()
    again.let_go()
