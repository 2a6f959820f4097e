"""A service whose database is locked for a while says so, loses nothing and goes on."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shoal_kit.database_file import DATABASE
from tests.world.audit import audit
from tests.world.federation import Federation
from tests.world.trust import SITES, Trust

CLIENTS = sum(SITES.values())


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the write lock of a database, as a backup that hangs would."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


@pytest.mark.parametrize("name", ["compute-1", "aggregator", "trainer"])
async def test_a_locked_database_delays_a_job_and_changes_nothing_else(
    trust: Trust, tmp_path: Path, name: str
) -> None:
    async with Federation(trust, tmp_path) as federation:
        job = await federation.submit()
        if name != "trainer":  # whose own first request is the join of a client
            await federation.until(lambda: federation.is_collecting(job))
        with locked(tmp_path / name / DATABASE):
            for _ in range(4):
                await federation.step()
                federation.clock.move(1.0)
        state = await federation.finish(job)

        refusals = [
            message
            for message in federation.wire.log
            if message.receiver == name and message.status == 503
        ]
        outcomes_503 = [m for m in federation.wire.log if b'"status":503' in m.answer]
        assert refusals or outcomes_503
        assert all(int(message.answer_headers["retry-after"]) > 0 for message in refusals)
        assert state["phase"] == "finished", state
        (result,) = (await audit(federation)).values()
        assert result is not None
        assert result["cohort_size"] == CLIENTS
