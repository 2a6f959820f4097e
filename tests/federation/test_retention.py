"""What a job leaves at the services goes when the policy says so, and what proofs rest on stays."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from shoal_consortium.parties import next_manifest
from shoal_consortium.party_files import read_signing_key
from shoal_hosting.storage import retention
from shoal_protocol.certificates.checks import verify_certificate
from shoal_protocol.trust.succession import following_version
from tests.federation.test_certificates import certificate_of, learned
from tests.federation.test_consortium_changes import publish
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
    shown = (await federation.ask(name, retention.PATH)).json()
    return {each["kind"]: each["documents"] for each in shown["kinds"]}


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
    gone = ("results", "totals that nodes signed", "partial sums", "joins")
    assert all(before["trainer"][each] > 0 and trainer[each] == 0 for each in gone)
    stays = ("job requests", "rounds", "ledger entries", "certificates")  # of these the newest
    assert {each: trainer[each] for each in stays} == {
        each: before["trainer"][each] for each in stays
    }
    assert (before["compute-0"]["job requests"], node.pop("job requests")) == (1, 0)
    assert node.items() < before["compute-0"].items()  # all else is there
    # it knows of rounds only: their job may have gone on as long as the policy allows
    aggregator = await kept(federation, "aggregator")
    assert aggregator["rounds"] == before["aggregator"]["rounds"] > 0
    await go_to(federation, due + longest_job(forgetful) + SECOND)
    aggregator = await kept(federation, "aggregator")
    assert aggregator.pop("log entries") >= before["aggregator"]["log entries"] > 0
    newest = {"partial sums": 3, "results": 1, "rounds": 1}  # the ledgers' heads are in the sums
    assert aggregator == dict.fromkeys(aggregator, 0) | newest
    # what the analyst has still holds
    verify_certificate(encoded, forgetful.consortium.signed_manifest.encode())


async def test_a_shorter_job_of_a_later_policy_does_not_shorten_those_before(
    federation: Federation, forgetful: Trust
) -> None:
    await learned(federation)
    job, _ = await learned(federation)  # whose sums, each node's newest, stay anyway
    first = forgetful.consortium
    key = read_signing_key(forgetful.directory / "authority" / "signing.key")
    policy = first.manifest.policy.model_copy(update={"maximum_job_seconds": 1})
    manifest = next_manifest(first, authority=key, policy=policy)
    version = following_version(first, manifest.encode(), first.roster.encode())
    await publish(federation, version, "aggregator")
    rounds = (await kept(federation, "aggregator"))["rounds"]
    over = await ends_by(federation, job) + timedelta(days=DAYS)
    await go_to(federation, over + timedelta(hours=2))
    assert (await kept(federation, "aggregator"))["rounds"] == rounds > 1
    await go_to(federation, over + longest_job(forgetful))
    assert (await kept(federation, "aggregator"))["rounds"] == 1


async def test_who_asks_for_what_was_deleted_is_told_so(federation: Federation) -> None:
    job, _ = await learned(federation)
    await go_to(federation, await ends_by(federation, job) + timedelta(days=DAYS) + SECOND)
    answer = await federation.ask("trainer", f"/v1/jobs/{job}/result")
    assert answer.status_code == 410
    assert answer.json()["type"] == "urn:shoal:problem:documents-deleted"
    assert (await federation.state(job))["phase"] == "finished"
    [listed] = (await federation.after(federation.analyst.jobs())).jobs
    assert (listed.job, listed.phase.value) == (job, "finished")


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


async def test_services_start_over_what_is_left_and_take_another_job(
    federation: Federation,
) -> None:
    job, _ = await learned(federation)
    await go_to(federation, await ends_by(federation, job) + timedelta(days=DAYS) + SECOND)
    for name in federation.services:
        await federation.crash(name)
    await federation.start_the_dead()
    assert (await kept(federation, "trainer"))["results"] == 0


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
    assert (await kept(federation, "trainer"))["joins"] == before["joins"] > 0


async def test_a_withdrawn_job_goes_too(federation: Federation) -> None:
    job = await federation.submit(join_seconds=600, maximum_population=100)
    await federation.after(federation.analyst.job(job).withdraw())
    assert (await federation.ask("trainer", f"/v1/jobs/{job}/withdrawal")).status_code == 200
    await go_to(federation, await ends_by(federation, job) + timedelta(days=DAYS) + SECOND)
    answer = await federation.ask("trainer", f"/v1/jobs/{job}/withdrawal")
    assert answer.status_code == 410
    await federation.after(federation.analyst.job(job).withdraw())  # it is, and stays so


async def test_of_a_job_all_goes_or_nothing(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, _ = await learned(federation)
    due = await ends_by(federation, job) + timedelta(days=DAYS) + SECOND
    federation.clock.move((due - federation.clock.now).total_seconds())
    trainer = federation.party("trainer")
    before = await kept(federation, "trainer")

    def fails(*_: object) -> None:
        raise OperationalError("the disk is full", None, Exception())

    keepings = trainer.retention._keepings
    broken = replace(keepings, note=fails)
    monkeypatch.setattr(trainer.retention, "_keepings", broken)
    await trainer.retention.step()
    monkeypatch.setattr(trainer.retention, "_keepings", keepings)
    assert await kept(federation, "trainer") == before
    await trainer.retention.step()
    assert (await kept(federation, "trainer"))["results"] == 0


async def test_the_operator_has_what_is_due_deleted_at_once(federation: Federation) -> None:
    job, _ = await learned(federation)
    due = await ends_by(federation, job) + timedelta(days=DAYS) + SECOND
    federation.clock.move((due - federation.clock.now).total_seconds())
    shown = (await federation.ask("trainer", retention.PATH)).json()
    assert shown["is_due"] and shown["retention_days"] == DAYS
    done = (await federation.ask("trainer", retention.PATH, method="POST")).json()
    assert not done["is_due"]
    counts = {each["kind"]: each["documents"] for each in done["kinds"]}
    assert counts["results"] == 0 and counts["ledger entries"] == 1


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
    assert (await kept(federation, "trainer"))["results"] == 0


async def test_by_a_clock_that_leapt_the_operator_deletes_only_by_saying_that_it_is_right(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "STEADY", timedelta(days=1))
    job, _ = await learned(federation)
    before = await kept(federation, "trainer")
    due = await ends_by(federation, job) + timedelta(days=DAYS) + SECOND
    federation.clock.move((due - federation.clock.now).total_seconds())
    for _ in range(2):  # asking again is no proof that it is right
        refused = await federation.ask("trainer", retention.PATH, method="POST")
        assert (refused.status_code, refused.json()["type"]) == (
            409,
            "urn:shoal:problem:unsteady-clock",
        )
        assert "--trust-clock" in refused.json()["detail"]
    assert await kept(federation, "trainer") == before
    sure = f"{retention.PATH}?trust_clock=true"
    done = (await federation.ask("trainer", sure, method="POST")).json()
    assert not done["is_due"]
    assert (await kept(federation, "trainer"))["results"] == 0


async def test_without_days_in_the_policy_everything_stays(trust: Trust, tmp_path: Path) -> None:
    async with Federation(trust, tmp_path) as running:
        job, encoded = await learned(running)
        await go_to(running, await ends_by(running, job) + timedelta(days=36_500))
        assert await certificate_of(running, job) == encoded
        shown = (await running.ask("trainer", retention.PATH)).json()
        assert {each["stays"] for each in shown["kinds"]} == {"for ever"}
