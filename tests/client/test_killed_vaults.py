"""A vault starts from whatever a crash left behind, and a lost mark is accepted by a restore."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_bytes
from typing import NamedTuple

import pytest

from shoal_agent.restoring import restore_file
from shoal_holder import journal
from shoal_holder.state import State

AUTHORITY = "ab" * 32
PAGE_BYTES, SECTOR_BYTES = 4096, 512
DATABASE, LOG, MARK = "party.sqlite", "party.sqlite-wal", "party.mark"
BY_HAND = "PRAGMA wal_autocheckpoint=0"
CONTENT = bytes(2 * PAGE_BYTES)  # so that each row has pages of its own


class Running(NamedTuple):
    """A data holder with its state open."""

    add: Callable[[], object]  # commits one more row
    rows: Callable[[], int]
    write_back: Callable[[], object]  # brings the log's pages into the file


@contextmanager
def data_holder(home: Path) -> Iterator[Running]:
    state = State(home / DATABASE, authority=AUTHORITY)
    state.file.rows(BY_HAND)

    def add() -> None:
        with state.file.transaction():
            state.file.rows("CREATE TABLE IF NOT EXISTS rows (content)")
            state.file.rows("INSERT INTO rows VALUES (?)", CONTENT)
            journal.append(state.file, "join", f"{state.file.head().number}")

    try:
        yield Running(
            add,
            lambda: len(state.file.rows("SELECT content FROM rows")),
            lambda: state.file.rows("PRAGMA wal_checkpoint"),
        )
    finally:
        state.close()


def copied(home: Path, to: Path) -> Path:
    """Copy what a party that is killed now leaves behind."""
    to.mkdir()
    for name in (DATABASE, LOG, MARK):
        shutil.copy(home / name, to)
    return to


def refused(home: Path) -> str:
    with pytest.raises(ValueError) as refusal, data_holder(home):
        pass
    return str(refusal.value)


def test_an_older_file_is_whole_while_the_log_has_all_that_came_since(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with data_holder(home) as running:
        running.add()
        running.write_back()
        running.add()
        older = (home / DATABASE).read_bytes()
        running.add()
        running.write_back()
        killed = copied(home, tmp_path / "killed")
    (killed / DATABASE).write_bytes(older)
    with data_holder(killed) as running:
        assert running.rows() == 3


def test_a_crash_at_any_moment_leaves_what_starts(tmp_path: Path) -> None:
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
        with data_holder(home) as running:
            for write_back in (False, True, False, True, True):
                running.add()
                crash(rows := rows + 1)
                if write_back:
                    running.write_back()
                    crash(rows)
    for killed, expected in crashes:
        for _ in range(2):  # as the start after a crash is a start like others
            with data_holder(killed) as running:
                assert running.rows() == expected
                running.add()
                expected += 1


def test_a_write_back_that_was_broken_off_leaves_what_starts(tmp_path: Path) -> None:
    """Any page may be of before or of after, one may be torn, and the file may be short."""
    home = tmp_path / "home"
    home.mkdir()
    with data_holder(home) as running:
        running.add()
        running.write_back()
        running.add()
        killed = copied(home, tmp_path / "killed")
        running.add()
        running.add()
        shutil.copy(home / LOG, killed)
        shutil.copy(home / MARK, killed)
        before = (home / DATABASE).read_bytes()
        running.write_back()
        after = (home / DATABASE).read_bytes()
    ends = range(0, len(after) + 1, SECTOR_BYTES)
    states = [after[:end] + before[end:] for end in ends]
    states += [before[:end] + after[end:] for end in ends]
    assert len(set(states)) > 20
    for number, state in enumerate(dict.fromkeys(states)):
        broken = shutil.copytree(killed, tmp_path / f"broken-{number}")
        (broken / DATABASE).write_bytes(state)
        with data_holder(broken) as running:
            assert running.rows() == 4


def test_R4_a_lost_mark_is_accepted_by_a_restore_alone(tmp_path: Path) -> None:
    with data_holder(tmp_path) as running:
        running.add()
    (tmp_path / MARK).unlink()
    for _ in range(2):  # a start that is refused makes none
        assert "shoal agent restore" in refused(tmp_path)
    restore_file(
        tmp_path / DATABASE, authority=AUTHORITY, random_bytes=token_bytes, now=datetime.now(UTC)
    )
    for _ in range(2):
        with data_holder(tmp_path) as running:
            assert running.rows() == 1


def test_R4_a_restore_takes_a_mark_away_once_it_counts_and_none_where_it_is_refused(
    tmp_path: Path,
) -> None:
    with data_holder(tmp_path) as running:
        running.add()
        older = copied(tmp_path, tmp_path / "older")
        running.add()

    def restore(authority: str) -> None:
        restore_file(
            tmp_path / DATABASE,
            authority=authority,
            random_bytes=token_bytes,
            now=datetime.now(UTC),
        )

    with pytest.raises(ValueError, match="another consortium"):
        restore("f" * 64)
    with data_holder(tmp_path) as running:
        assert running.rows() == 2
    for name in (DATABASE, LOG):
        (tmp_path / name).unlink(missing_ok=True)
        shutil.copy(older / name, tmp_path)
    assert "shoal agent restore" in refused(tmp_path)
    restore(AUTHORITY)
    for _ in range(2):
        with data_holder(tmp_path) as running:
            assert running.rows() == 1
