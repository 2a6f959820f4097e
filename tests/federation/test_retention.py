"""What a job leaves at the services goes when the policy says so, and what proofs rest on stays."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import OperationalError

from shoal_protocol.certificates.checks import verify_certificate
from shoal_service.storage import retention
from tests.federation.test_certificates import certificate_of, learned
from tests.world.federation import Federation
from tests.world.trust import Trust, make_trust

DAYS = 30
SECOND = timedelta(seconds=1)


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return make_trust(tmp_path_factory.mktemp("trust"), retention_days=DAYS)


@pytest.fixture
async def federation(forgetful: Trust, tmp_path: Path) -> AsyncIterator[Federation]:
    async with Federation(forgetful, tmp_path) as running:
        yield running


@pytest.fixture(autouse=True)
def trusted_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "STEADY", timedelta())


async def kept(federation: Federation, name: str) -> dict[str, int]:
    """Return how many rows each table of a service has; of a journal, those not forgotten."""

    def count(db: Connection) -> dict[str, int]:
        tables = inspect(db).get_table_names()
        return {
            each: db.execute(
                text(f"SELECT COUNT({'body' if each == 'journal' else '*'}) FROM {each}")
            ).scalar_one()
            for each in tables
            if each not in {"lease"}
        }

    return await federation.party(name).resources.storage.run(count)


async def ends_by(federation: Federation, job: str) -> datetime:
    return datetime.fromisoformat((await federation.state(job))["ends_by"])


def longest_job(trust: Trust) -> timedelta:
    return timedelta(seconds=trust.consortium.manifest.policy.maximum_job_seconds)


async def go_to(federation: Federation, moment: datetime) -> None:
    """Move the clock, and give each service a step in which it looks at what is due."""
    federation.clock.move((moment - federation.clock.now).total_seconds())
    for _ in range(3):
        await federation.step(federation.services)


async def test_a_jobs_documents_go_when_the_days_are_over_and_not_before(
    federation: Federation, forgetful: Trust
) -> None:
    job, encoded = await learned(federation)
    due = await ends_by(federation, job) + timedelta(days=DAYS)
    before = {name: await kept(federation, name) for name in federation.services}
    await go_to(federation, due - SECOND)
    assert await kept(federation, "trainer") == before["trainer"]
    assert await kept(federation, "compute-0") == before["compute-0"]
    assert await certificate_of(federation, job) == encoded

    await go_to(federation, due + retention.BETWEEN_LOOKS + SECOND)
    trainer, node = await kept(federation, "trainer"), await kept(federation, "compute-0")
    gone = ("certificates", "totals", "partial_sums", "memberships")
    assert all(before["trainer"][each] > 0 and trainer[each] == 0 for each in gone)
    stays = ("jobs", "rounds")
    assert trainer["journal"] == before["trainer"]["journal"] - 1  # bodies; the report's is gone
    assert {each: trainer[each] for each in stays} == {
        each: before["trainer"][each] for each in stays
    }
    assert (before["compute-0"]["jobs"], node.pop("jobs")) == (1, 0)
    assert node.items() < before["compute-0"].items()  # all else is there
    # it knows of rounds only: their job may have gone on as long as the policy allows
    aggregator = await kept(federation, "aggregator")
    assert aggregator["rounds"] == before["aggregator"]["rounds"] > 0
    await go_to(federation, due + longest_job(forgetful) + SECOND)
    aggregator = await kept(federation, "aggregator")
    newest = {"received": 3, "journal": 1, "rounds": 1}  # the ledgers' heads are in the sums
    assert {each: aggregator[each] for each in newest} == newest
    # what the analyst has still holds
    verify_certificate(encoded, forgetful.consortium.signed_manifest.encode())


async def test_a_deleted_job_cannot_be_run_again(federation: Federation, forgetful: Trust) -> None:
    request = federation.request()
    job = await federation.hand_in(request)
    await federation.finish(job)
    spec = (await federation.ask("trainer", f"/v1/jobs/{job}/rounds/0")).content
    await learned(federation)  # the newest sums are of another job: these may go
    due = await ends_by(federation, job) + timedelta(days=DAYS)
    await go_to(federation, due + longest_job(forgetful) + SECOND)
    again = await federation.ask("trainer", "/v1/jobs", method="POST", content=request.encode())
    assert (again.status_code, again.json()) == (200, {"job": job})  # known, and over
    for name in ("aggregator", "compute-0"):
        before = await kept(federation, name)
        answer = await federation.ask(name, "/v1/rounds", method="POST", content=spec)
        assert answer.status_code == (422 if name == "aggregator" else 200), answer.text
        assert await kept(federation, name) == before  # nothing is decided or charged anew


async def test_an_open_job_and_one_without_its_certificate_are_kept(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await federation.submit()
    monkeypatch.setattr(federation, "absent", {"compute-2"})
    await federation.until(lambda: federation.is_collecting(job))
    before = await kept(federation, "trainer")
    due = await ends_by(federation, job) + timedelta(days=DAYS) + SECOND
    # its trainer was away all the time, and has not ended it yet
    federation.clock.move((due - federation.clock.now).total_seconds())
    trainer = federation.party("trainer")
    await trainer.retention.step()
    assert (await kept(federation, "trainer"))["memberships"] == before["memberships"] > 0


async def test_of_a_job_all_goes_or_nothing(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, _ = await learned(federation)
    due = await ends_by(federation, job) + timedelta(days=DAYS) + SECOND
    federation.clock.move((due - federation.clock.now).total_seconds())
    trainer = federation.party("trainer")
    before = await kept(federation, "trainer")

    forget = trainer.retention._forget

    def fails(db: Connection, before: datetime) -> bool:
        assert forget(db, before)
        raise OperationalError("the disk is full", None, Exception())

    monkeypatch.setattr(trainer.retention, "_forget", fails)
    await trainer.retention.step()
    monkeypatch.setattr(trainer.retention, "_forget", forget)
    assert await kept(federation, "trainer") == before
    await trainer.retention.step()
    assert (await kept(federation, "trainer"))["journal"] == before["journal"] - 1  # the report


async def test_a_clock_that_leapt_has_nothing_deleted_for_a_day(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "STEADY", timedelta(days=1))
    job, _ = await learned(federation)
    due = await ends_by(federation, job) + timedelta(days=DAYS) + SECOND
    before = await kept(federation, "trainer")
    own = federation.party("trainer").retention
    federation.clock.move((due - federation.clock.now).total_seconds())
    for hour in range(24):
        await own.step()
        assert await kept(federation, "trainer") == before, hour
        federation.clock.move(3600)
    federation.clock.move(3600 * 24 * 365)  # once more, the other way, and on
    await own.step()
    federation.clock.move(-3600 * 24 * 365)
    for hour in range(24):
        await own.step()
        assert await kept(federation, "trainer") == before, hour
        federation.clock.move(3600)
    await own.step()
    assert (await kept(federation, "trainer"))["journal"] == before["journal"] - 1  # the report
