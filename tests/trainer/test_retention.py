"""Documents of jobs go in bounded parts, on either database; a crash or a busy disk loses none."""

from datetime import datetime, timedelta

import pytest
from sqlalchemy import func, select

from shoal_protocol.wire.phases import JobPhase
from shoal_service.storage import retention
from shoal_trainer import releases, schema, store
from shoal_trainer.assembly import DELETED, Service, forget
from tests.trainer.conftest import Assemble
from tests.trainer.test_jobs import JOB, get, running, state
from tests.world.around_trainer import signed_job
from tests.world.clock import HandMovedClock
from tests.world.parties import post

LATER = JOB.ends_by + timedelta(seconds=1)
KINDS = len(DELETED) + 1


def left(trainer: Service) -> dict[str, int]:
    """Return how many documents are left in the tables from which some are deleted."""
    counts = {
        table.name: trainer.resources.storage.run_here(
            lambda db, table: db.execute(select(func.count()).select_from(table)).scalar_one(),
            table,
        )
        for table in DELETED
    }
    entries = schema.journal.entries.c
    reports = select(func.count()).where(entries.kind == releases.REPORT, entries.body.is_not(None))
    counts["reports"] = trainer.resources.storage.run_here(
        lambda db: db.execute(reports).scalar_one()
    )
    return {name: count for name, count in counts.items() if count}


def delete(trainer: Service, before: datetime = LATER) -> bool:
    return trainer.resources.storage.run_here(forget, before)


def test_no_kind_of_documents_of_jobs_in_rounds_is_forgotten() -> None:
    stays = {"rounds"}
    listed = {table.name for table in DELETED} | stays
    of_jobs = {name for name, table in schema.metadata.tables.items() if "job" in table.columns}
    # which stay for ever, but for counts by client
    crowds = {"crowd_instances", "crowd_log", "crowd_contributors"}
    assert of_jobs - crowds <= listed


@pytest.mark.parametrize("most", [1, 3])
async def test_a_crash_after_any_part_leaves_a_state_from_which_deletion_goes_on(
    trainer: Service,
    clock: HandMovedClock,
    assembled: Assemble,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
) -> None:
    monkeypatch.setattr(retention, "MOST_ROWS", most)
    await running(trainer, clock)
    service, before = trainer, left(trainer)
    while delete(service):
        now = left(service)
        assert sum(before.values()) - sum(now.values()) <= most * KINDS
        assert all(count - now.get(kind, 0) <= most for kind, count in before.items())
        before, service = now, assembled()  # it starts: the ledger holds
        assert (await state(service))["phase"] == "finished"
        assert (await get(service, f"/v1/jobs/{JOB.digest}/result"))[0] == "documents-deleted"
        assert not service.resources.storage.run_here(releases.uncertified_jobs)
        assert await post(service, "/v1/jobs", signed_job(JOB)) == 200
        going = (JobPhase.JOINING, JobPhase.RUNNING)
        assert not service.resources.storage.run_here(store.jobs_in, *going)
    assert not before
