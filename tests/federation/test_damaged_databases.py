"""Whatever is done to a party's files, it starts with all it acknowledged or refuses to start.

A service may start without what it wrote last: the keepers of its journal tell it.
Each party is stopped in the middle of a round, as `kill -9` would: once with what it wrote last in
SQLite's write-ahead log, and once written back. Its files are then damaged in every way below.
"""

import asyncio
import json
import os
import re
import shutil
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shoal_holder.opening import complaint
from shoal_holder.site_files import STATE_FILE
from shoal_kit.database_file import DATABASE
from shoal_kit.startup import StartupRefused
from shoal_service.running import refusing_what_is_on_file
from tests.world.federation import Federation
from tests.world.lives import Life
from tests.world.trust import SITES, Trust

PAGE_BYTES, LOG_HEAD_BYTES, FRAME_BYTES = 4096, 32, 24 + 4096
DATABASES = {
    "compute-0": DATABASE,
    "aggregator": DATABASE,
    "trainer": DATABASE,
    "clinic-a": STATE_FILE,
}
NEIGHBOURS = dict(zip(DATABASES, [*list(DATABASES)[1:], "compute-0"], strict=True))
WHAT_TO_DO = (
    "bring back the database|restore|read-only, a directory or away|another service's|"
    "run the release that made it|cannot be used|is another|of another version|move .* away"
)


@dataclass(frozen=True)
class Files:
    """A party's files, and copies of them of earlier and of another party's."""

    database: Path
    mark: Path
    older: Path  # the database as it was before the job
    foreign: Path

    @property
    def log(self) -> Path:
        return log_of(self.database)


def log_of(database: Path) -> Path:
    return database.with_name(database.name + "-wal")


def shared_of(database: Path) -> Path:
    return database.with_name(database.name + "-shm")


def mark_of(database: Path) -> Path:
    return database.with_suffix(".mark")


def remove(*paths: Path) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def cut(path: Path, size: int) -> None:
    if path.exists():
        os.truncate(path, max(size, 0))


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def overwrite(path: Path, at: int, content: bytes) -> None:
    if at + len(content) <= size(path):
        with path.open("r+b") as file:
            file.seek(at)
            file.write(content)


def flip(path: Path, at: int) -> None:
    if 0 <= at < size(path):
        overwrite(path, at, bytes([path.read_bytes()[at] ^ 0x40]))


def put(source: Path, target: Path) -> None:
    if source.exists():
        shutil.copy(source, target)
    else:
        remove(target)


def middle_page(files: Files) -> int:
    return size(files.database) // PAGE_BYTES // 2 * PAGE_BYTES


def make_directory(files: Files) -> None:
    remove(files.database)
    files.database.mkdir()


def other_version(files: Files) -> None:
    with closing(sqlite3.connect(files.database)) as database:
        database.execute("UPDATE schema_version SET version = 1")
        database.commit()


def both_slots(files: Files) -> None:
    for slot in (0, PAGE_BYTES):
        flip(files.mark, slot + 20)


def newest_slot(files: Files) -> None:
    """As a crash in the middle of the mark's write leaves it."""
    content = files.mark.read_bytes()
    counts = [
        json.loads(content[at : at + PAGE_BYTES].strip().rpartition(b" ")[0])
        for at in (0, PAGE_BYTES)
    ]
    commits = [each[0] if isinstance(each, list) else each["commits"] for each in counts]
    cut_at = PAGE_BYTES * commits.index(max(commits)) + 60
    overwrite(files.mark, cut_at, bytes(200))


def before_the_last_frames(files: Files) -> int:
    return size(files.log) - FRAME_BYTES


DAMAGES: dict[str, Callable[[Files], None]] = {
    "nothing": lambda files: None,
    "database removed": lambda files: remove(files.database),
    "database and log removed": lambda files: remove(
        files.database, files.log, shared_of(files.database)
    ),
    "log removed": lambda files: remove(files.log),
    "shared memory removed": lambda files: remove(shared_of(files.database)),
    "log and shared memory removed": lambda files: remove(files.log, shared_of(files.database)),
    "database emptied": lambda files: cut(files.database, 0),
    "database and log emptied": lambda files: (cut(files.database, 0), cut(files.log, 0))[0],
    "database cut to a page": lambda files: cut(files.database, PAGE_BYTES),
    "database cut in half": lambda files: cut(files.database, middle_page(files)),
    "database cut by a page": lambda files: cut(files.database, size(files.database) - PAGE_BYTES),
    "database cut within a page": lambda files: cut(files.database, size(files.database) - 1000),
    "log emptied": lambda files: cut(files.log, 0),
    "log cut to its head": lambda files: cut(files.log, LOG_HEAD_BYTES),
    "log cut to a frame": lambda files: cut(files.log, LOG_HEAD_BYTES + FRAME_BYTES),
    "log cut in half": lambda files: cut(
        files.log, size(files.log) // 2 // FRAME_BYTES * FRAME_BYTES + LOG_HEAD_BYTES
    ),
    "log cut by a frame": lambda files: cut(files.log, before_the_last_frames(files)),
    "log cut within a frame": lambda files: cut(files.log, size(files.log) - 100),
    "first page zeroed": lambda files: overwrite(files.database, 0, bytes(PAGE_BYTES)),
    "page zeroed": lambda files: overwrite(
        files.database, middle_page(files), bytes(min(PAGE_BYTES, size(files.database)))
    ),
    "last page zeroed": lambda files: overwrite(
        files.database, size(files.database) - PAGE_BYTES, bytes(PAGE_BYTES)
    ),
    "byte of the magic flipped": lambda files: flip(files.database, 3),
    "page size flipped": lambda files: flip(files.database, 16),
    "byte of a page's head flipped": lambda files: flip(files.database, middle_page(files)),
    "byte of the log's head flipped": lambda files: flip(files.log, 9),
    "byte of a frame flipped": lambda files: flip(files.log, size(files.log) // 2),
    "byte of the last frame flipped": lambda files: flip(files.log, size(files.log) - 50),
    "garbage": lambda files: overwrite(
        files.database, 0, struct.pack("<Q", 0x0123456789ABCDEF) * (size(files.database) // 8)
    ),
    "older database, newer log": lambda files: put(files.older, files.database),
    "newer database, older log": lambda files: put(log_of(files.older), files.log),
    "older database, no log": lambda files: (
        put(files.older, files.database),
        remove(files.log, shared_of(files.database)),
    )[1],
    "older database and log": lambda files: (
        put(files.older, files.database),
        put(log_of(files.older), files.log),
        remove(shared_of(files.database)),
    )[2],
    "another party's log": lambda files: put(log_of(files.foreign), files.log),
    "another party's database": lambda files: (
        put(files.foreign, files.database),
        put(log_of(files.foreign), files.log),
        remove(shared_of(files.database)),
    )[2],
    "a directory in its place": make_directory,
    "another version": other_version,
    "mark removed": lambda files: remove(files.mark),
    "mark emptied": lambda files: cut(files.mark, 0),
    "mark damaged": both_slots,
    "mark torn as it was written": newest_slot,
    "another party's mark": lambda files: put(mark_of(files.foreign), files.mark),
    "older mark": lambda files: put(mark_of(files.older), files.mark),
}
# what does no harm at all: SQLite makes it anew, or the mark may lag
HARMLESS = {
    *("nothing", "shared memory removed", "mark torn as it was written", "older mark"),
}
# what loses what was acknowledged last, if that is in the log
LOSING_WITH_LOG = {
    *("log removed", "log and shared memory removed", "log emptied", "log cut to its head"),
    *("log cut to a frame", "log cut in half", "log cut by a frame", "log cut within a frame"),
    *("byte of the log's head flipped", "byte of a frame flipped"),
    *("byte of the last frame flipped", "older database, no log", "older database and log"),
}
# what leaves no database, or an older one: an older log writes older pages back
SETTING_BACK = {
    *("database removed", "database emptied", "database and log removed"),
    *("database and log emptied", "another party's log", "older database, newer log"),
    "newer database, older log",
}
OF_MARKS = {"mark removed", "mark emptied", "mark damaged", "another party's mark"}
LOSING = OF_MARKS | {
    *("database removed", "database and log removed", "database and log emptied"),
    *("another party's database", "a directory in its place", "another version"),
}


@pytest.fixture(scope="module")
def stopped(trust: Trust, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies of all parties' files: `older` before a job, `in-log` and `written-back` within it.

    A log is cut off when a round ends. Between the copies none does: a log that goes on from an
    older database's next page is whole with it.
    """
    copies = tmp_path_factory.mktemp("stopped")
    live = tmp_path_factory.mktemp("live")

    async def run() -> None:
        async with Federation(trust, live) as federation:
            job, _ = await federation.collecting()
            await federation.finish(job)

            async def has_ended() -> bool:
                return not any(
                    federation.party(each).node._rounds.live for each in federation.nodes
                )

            await federation.until(has_ended)
            shutil.copytree(live, copies / "older")
            await federation.collecting(minimum_population=11)

            async def has_something_in_every_log() -> bool:
                return all(size(log_of(live / name / DATABASES[name])) for name in DATABASES)

            await federation.until(has_something_in_every_log, tick=0.5)
            shutil.copytree(live, copies / "in-log")

    asyncio.run(run())
    shutil.copytree(copies / "in-log", copies / "written-back")
    for party, name in DATABASES.items():
        with closing(sqlite3.connect(copies / "written-back" / party / name)) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return copies


def content(database: Path, scratch: Path) -> dict[str, list[Any]]:
    """Return all rows but a vault's count of commits, of a copy: reading may change the files."""
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(database.parent, scratch)
    with closing(sqlite3.connect(scratch / database.name)) as opened:
        tables = opened.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        ).fetchall()
        return {
            name: sorted(opened.execute(f"SELECT * FROM {name}").fetchall(), key=repr)
            for (name,) in tables
            if name != "memory"
        }


def start(trust: Trust, directory: Path, party: str) -> str | None:
    """Start a party and stop it again; return its refusal, None if it started."""
    federation = Federation(trust, directory)
    try:
        if party in SITES:
            running = federation._holder(party, Life(party))
        else:
            with refusing_what_is_on_file(None):
                running = federation._service(party, Life(party))
    except StartupRefused as error:
        return str(error)
    except (ValueError, OSError) as error:  # which the agent refuses with
        return complaint(error)
    asyncio.run(running.release())
    return None


@pytest.mark.parametrize("kept", ["in-log", "written-back"])
@pytest.mark.parametrize(
    ("party", "damage"),
    [
        (party, damage)
        for party in DATABASES
        for damage in DAMAGES
        if party in SITES or "mark" not in damage  # a service has none
    ],
)
def test_a_party_starts_with_all_it_acknowledged_or_says_what_to_do(
    trust: Trust, stopped: Path, tmp_path: Path, party: str, damage: str, kept: str
) -> None:
    shutil.copytree(stopped / kept, tmp_path / "parties")
    database = tmp_path / "parties" / party / DATABASES[party]
    neighbour = NEIGHBOURS[party]
    before = content(database, tmp_path / "before")
    had_log = size(log_of(database)) > 0
    assert had_log == (kept == "in-log")
    DAMAGES[damage](
        Files(
            database=database,
            mark=mark_of(database),
            older=stopped / "older" / party / DATABASES[party],
            foreign=stopped / kept / neighbour / DATABASES[neighbour],
        )
    )
    refusal = start(trust, tmp_path / "parties", party)
    is_told_by_keepers = party not in SITES and damage in SETTING_BACK | LOSING_WITH_LOG
    if refusal is not None:
        assert re.search(WHAT_TO_DO, refusal), refusal
    elif not is_told_by_keepers:
        assert content(database, tmp_path / "after") == before
    if damage in HARMLESS:
        assert refusal is None
    if damage in LOSING or (damage in LOSING_WITH_LOG and had_log):
        assert refusal is not None or is_told_by_keepers
