"""What marking each commit outside its database costs: acknowledged shares per second, and starts.

    python -m bench.marks [--shares 4000] [--bytes 528]

Shares are stored as a Compute node stores those that arrive together, by 1 to 256 who wait for
each other's commits, over SQLite in the working directory: with the mark and without it, in turns,
so that the ratio is of one run. Then the check of a whole file at start, by its size.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sqlalchemy import Column, Connection, Integer, LargeBinary, MetaData, Table

from shoal_hosting.marks import pages_are_whole
from shoal_hosting.storage.database import StorageThread, open_engine, sqlite_url
from shoal_hosting.storage.database_memory import MARK, memory_table, open_memory
from shoal_hosting.storage.database_schema import check_schema
from shoal_hosting.storage.group_commit import Batches

WAITING: Final = (1, 16, 256)
REPEATS: Final = 5

metadata = MetaData()
shares = Table(
    "shares",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("payload", LargeBinary, nullable=False),
)
memory = memory_table(metadata)


async def per_second(
    directory: Path, *, marked: bool, count: int, waiting: int, size: int
) -> float:
    """Store `count` payloads of `size` bytes, `waiting` at once; return how many in a second."""
    engine = open_engine(sqlite_url(directory / f"{marked}.sqlite"))
    check_schema(engine, metadata, 1)
    kept = None
    if marked:
        kept = open_memory(engine, directory / MARK, memory, ledger=None, accept=None)
    thread = StorageThread(engine, kept)

    def store(db: Connection, payloads: Sequence[bytes]) -> None:
        db.execute(shares.insert(), [{"payload": each} for each in payloads])

    async def commit(payloads: list[bytes]) -> list[None]:
        await thread.run(store, payloads)
        return [None] * len(payloads)

    batches = Batches(commit, largest=1000, at_once=2 if marked else 1)

    async def upload(share: int) -> None:
        for _ in range(share):
            await batches.submit(os.urandom(size))

    begun = time.perf_counter()
    await asyncio.gather(*(upload(count // waiting) for _ in range(waiting)))
    seconds = time.perf_counter() - begun
    await thread.close()
    return count // waiting * waiting / seconds


def check_seconds(directory: Path) -> tuple[int, float]:
    """Return the size in bytes of a database and how long it takes to read all of it at start."""
    path = directory / "True.sqlite"
    engine = open_engine(sqlite_url(path))
    connection = engine.raw_connection()
    begun = time.perf_counter()
    pages_are_whole(connection.dbapi_connection, path)
    seconds = time.perf_counter() - begun
    connection.close()
    engine.dispose()
    return path.stat().st_size, seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shares", type=int, default=4000)
    parser.add_argument("--bytes", type=int, default=528)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        for waiting in WAITING:
            count = min(asked.shares, 100 * waiting)
            rates: dict[bool, list[float]] = {False: [], True: []}
            for _ in range(REPEATS):
                for marked, found in rates.items():
                    measured = per_second(
                        *(Path(name),),
                        marked=marked,
                        count=count,
                        waiting=waiting,
                        size=asked.bytes,
                    )
                    found.append(asyncio.run(measured))
            plain, marked_ = (statistics.median(rates[each]) for each in (False, True))
            print(
                f"{waiting:>4} at once: {plain:,.0f}/s without marks, {marked_:,.0f}/s with them, "
                f"ratio {marked_ / plain:.2f}"
            )
        asyncio.run(
            per_second(Path(name), marked=True, count=25_600, waiting=256, size=16 * asked.bytes)
        )
        size, seconds = check_seconds(Path(name))
        print(f"the check at start: {size / 2**20:,.0f} MiB in {seconds:.2f} s")


if __name__ == "__main__":
    main()
