"""An older SQLite file beside a newer log is refused; what a crash leaves behind never is."""

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from sqlalchemy import Column, Connection, Integer, LargeBinary, MetaData, Table, event, select

from shoal_holder.state import State
from shoal_kit.marks import MarkFile
from shoal_kit.startup import StartupRefused
from shoal_service.storage.database import open_engine, sqlite_url
from shoal_service.storage.database_memory import (
    StorageThread,
    check_log,
    memory_table,
    open_memory,
)
from shoal_service.storage.database_schema import check_schema

AUTHORITY = "ab" * 32
PAGE_BYTES, SECTOR_BYTES = 4096, 512
DATABASE, LOG, MARK = "party.sqlite", "party.sqlite-wal", "party.mark"
BY_HAND = "PRAGMA wal_autocheckpoint=0"
METADATA = MetaData()
MEMORY = memory_table(METADATA)
ROWS = Table(
    "rows", METADATA, Column("value", Integer, primary_key=True), Column("content", LargeBinary)
)
CONTENT = bytes(2 * PAGE_BYTES)  # so that each row has pages of its own
CHANGED = len(CONTENT) * b"x"


class Running(NamedTuple):
    """A party with its database open."""

    add: Callable[[], object]  # commits one more row
    change: Callable[[int], object]  # one of the rows
    rows: Callable[[], int]
    write_back: Callable[[], object]  # brings the log's pages into the file


Party = Callable[..., AbstractContextManager[Running]]


@contextmanager
def service(home: Path, accept: str | None = None) -> Iterator[Running]:
    path, mark = home / DATABASE, home / MARK
    check_log(sqlite_url(path), mark)
    engine = open_engine(sqlite_url(path))
    event.listen(engine, "connect", lambda database, _: database.execute(BY_HAND))
    check_schema(engine, METADATA, 1)
    memory = open_memory(engine, mark, MEMORY, accept=accept)
    storage = StorageThread(engine, memory)

    def add(db: Connection) -> None:
        db.execute(ROWS.insert().values(content=CONTENT))

    def change(db: Connection, row: int) -> None:
        db.execute(ROWS.update().where(ROWS.c.value == row).values(content=CHANGED))

    def rows(db: Connection) -> int:
        return len(db.execute(select(ROWS.c.content)).all())

    def write_back() -> None:
        with closing(engine.raw_connection()) as connection:
            connection.cursor().execute("PRAGMA wal_checkpoint").fetchall()

    try:
        yield Running(
            lambda: storage.run_here(add),
            lambda row: storage.run_here(change, row),
            lambda: storage.run_here(rows),
            write_back,
        )
    finally:
        storage.let_go()


@contextmanager
def data_holder(home: Path, accept: str | None = None) -> Iterator[Running]:
    state = State(home / DATABASE, authority=AUTHORITY, accept_loss=accept)
    state.file.rows(BY_HAND)

    def add() -> None:
        with state.file.transaction():
            state.file.rows("CREATE TABLE IF NOT EXISTS rows (content)")
            state.file.rows("INSERT INTO rows VALUES (?)", CONTENT)

    def change(row: int) -> None:
        with state.file.transaction():
            state.file.rows("UPDATE rows SET content = ? WHERE rowid = ?", CHANGED, row)

    try:
        yield Running(
            add,
            change,
            lambda: len(state.file.rows("SELECT content FROM rows")),
            lambda: state.file.rows("PRAGMA wal_checkpoint"),
        )
    finally:
        state.close()


parties = pytest.mark.parametrize("party", [service, data_holder])


def copied(home: Path, to: Path) -> Path:
    """Copy what a party that is killed now leaves behind."""
    to.mkdir()
    for name in (DATABASE, LOG, MARK):
        shutil.copy(home / name, to)
    return to


def refused(party: Party, home: Path, accept: str | None = None) -> str:
    with pytest.raises((StartupRefused, ValueError)) as refusal, party(home, accept):
        pass
    return str(refusal.value)


@parties
def test_a_file_from_before_the_log_was_cut_off_is_refused_beside_the_newer_log(
    tmp_path: Path, party: Party
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with party(home) as running:
        running.add()
        running.add()
        running.write_back()
        older = (home / DATABASE).read_bytes()
        running.change(1)  # pages that nothing else refers to: all of them look sound
        running.write_back()
        running.change(2)  # the log begins anew: what was changed before is in the file alone
        killed = copied(home, tmp_path / "killed")
    with party(shutil.copytree(killed, tmp_path / "whole")) as running:
        assert running.rows() == 2
    (killed / DATABASE).write_bytes(older)
    left = (killed / LOG).read_bytes()
    for _ in range(2):  # whoever finds the right file goes on with it
        assert "is older than the write-ahead log beside it" in refused(party, killed)
        assert (killed / LOG).read_bytes() == left
    (killed / LOG).unlink()  # what is left is older as a whole
    [token] = re.findall("SHOAL_ACCEPT_LOSS=([0-9a-f]{16})", refused(party, killed))
    with party(killed, token) as running:
        running.add()
    with party(killed) as running:
        assert running.rows() == 3


@parties
def test_an_older_file_is_whole_while_the_log_has_all_that_came_since(
    tmp_path: Path, party: Party
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with party(home) as running:
        running.add()
        running.write_back()
        running.add()
        older = (home / DATABASE).read_bytes()
        running.add()
        running.write_back()
        killed = copied(home, tmp_path / "killed")
    (killed / DATABASE).write_bytes(older)
    with party(killed) as running:
        assert running.rows() == 3


@parties
def test_a_crash_at_any_moment_leaves_what_starts(tmp_path: Path, party: Party) -> None:
    """Killed after each commit and each write-back, before or after its mark was written."""
    home = tmp_path / "home"
    home.mkdir()
    crashes: list[tuple[Path, int]] = []

    def crash(rows: int) -> None:
        killed = copied(home, tmp_path / f"killed-{len(crashes)}")
        if crashes:
            late = shutil.copytree(killed, tmp_path / f"late-{len(crashes)}")
            shutil.copy(crashes[-1][0] / MARK, late)  # as it was before the last commit
            crashes.append((late, rows))
        crashes.append((killed, rows))

    rows = 0
    for _ in range(3):  # each time a start, at which the log begins anew
        with party(home) as running:
            for write_back in (False, True, False, True, True):
                running.add()
                crash(rows := rows + 1)
                if write_back:
                    running.write_back()
                    crash(rows)
    for killed, expected in crashes:
        for _ in range(2):  # as the start after a crash is a start like others
            with party(killed) as running:
                assert running.rows() == expected
                running.add()
                expected += 1


@parties
def test_a_write_back_that_was_broken_off_leaves_what_starts(tmp_path: Path, party: Party) -> None:
    """Any page may be of before or of after, one may be torn, and the file may be short."""
    home = tmp_path / "home"
    home.mkdir()
    with party(home) as running:
        running.add()
        running.write_back()
        running.add()  # from here on the mark says what the file has
        killed = copied(home, tmp_path / "killed")
        running.add()
        running.add()
        shutil.copy(home / LOG, killed)
        shutil.copy(home / MARK, killed)
        before = (home / DATABASE).read_bytes()
        running.write_back()
        after = (home / DATABASE).read_bytes()
    file = MarkFile(killed / MARK)
    assert file.mark is not None and file.mark.in_file > 0
    file.close()
    ends = range(0, len(after) + 1, SECTOR_BYTES)
    states = [after[:end] + before[end:] for end in ends]
    states += [before[:end] + after[end:] for end in ends]
    assert len(set(states)) > 20
    for number, state in enumerate(dict.fromkeys(states)):
        broken = shutil.copytree(killed, tmp_path / f"broken-{number}")
        (broken / DATABASE).write_bytes(state)
        with party(broken) as running:
            assert running.rows() == 4
