"""A node takes one round of each number of a job, and says in the end which it charged."""

import asyncio

import pytest
from sqlalchemy import Connection, exc

from shoal_compute import jobs
from shoal_compute.jobs import end_job
from shoal_compute.schema import VERSION, journal, metadata
from shoal_protocol.jobs.totals import JobEnd, JobTotal
from shoal_protocol.journal import EMPTY, Chain, Link, Shown
from shoal_protocol.wire.documents import Signed, decode, sign
from shoal_protocol.wire.errors import WrongSigner
from shoal_service.storage.database import open_engine
from shoal_service.storage.database_schema import check_schema
from shoal_service.storage.journal import JournalWriter
from tests.compute.test_announcing import CAP, announce
from tests.compute.test_replicas import Replicas, replicas  # noqa: F401 -- a fixture
from tests.world.around_node import Federation
from tests.world.examples import signing_key
from tests.world.parties import problem_code

TAKEN, KNOWN, REFUSED = (201, ""), (200, ""), (409, "conflicting-document")
OTHER_JOB = "ab" * 32
REPORT, OTHER_REPORT = "cd" * 32, "ef" * 32


def end_of(federation: Federation, report: str = REPORT) -> Signed[JobEnd]:
    body = JobEnd(manifest=federation.consortium.digest, job=federation.job, report=report)
    return sign(body, "trainer", signing_key("trainer"))


async def total_of(federation: Federation, end: Signed[JobEnd], node: int = 0) -> Signed[JobTotal]:
    reply = await federation.request(node, "POST", "/v1/totals", end.encode())
    assert reply.status_code == 200, reply.text
    signed = decode(reply.content, JobTotal)
    federation.consortium.verify(signed)
    return signed


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_second_round_of_one_number_is_refused(
    federation: Federation, restarted: bool
) -> None:
    first, second = (federation.spec(mu=mu) for mu in (CAP / 4, CAP / 3))
    assert first.digest != second.digest
    assert await announce(federation, first) == TAKEN
    if restarted:
        federation.crash(0)
    assert await announce(federation, second) == REFUSED
    assert await announce(federation, first) == KNOWN
    assert await announce(federation, federation.spec(mu=CAP / 3, job=OTHER_JOB)) == TAKEN
    ledger = await total_of(federation, end_of(federation))
    assert ledger.body.rounds == (first.digest,)


async def test_a_trainer_ends_no_job_of_which_another_asks_the_rounds(
    federation: Federation,
) -> None:
    assert await announce(federation, federation.spec(mu=CAP / 4)) == TAKEN

    def attest(charged: tuple[str, ...], entry: Link) -> Signed[JobTotal]:
        raise AssertionError(charged, entry)

    def end(db: Connection) -> None:
        with pytest.raises(WrongSigner):
            end_job(JournalWriter(journal, db, EMPTY), federation.job, attest, signer="retired")

    federation.services[0].resources.storage.run_here(end)
    signed = await total_of(federation, end_of(federation))
    assert signed.body.report == REPORT


async def test_a_round_that_a_node_missed_is_not_missed_by_the_job(federation: Federation) -> None:
    zeroth, first, second = (federation.spec(number=number, mu=CAP / 4) for number in range(3))
    assert await announce(federation, zeroth) == TAKEN
    assert await announce(federation, second) == TAKEN
    assert await announce(federation, first) == REFUSED  # its turn is over
    signed = await total_of(federation, end_of(federation))
    assert signed.body.rounds == (zeroth.digest, second.digest)


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_node_that_has_signed_its_total_takes_no_further_round_of_the_job(
    federation: Federation, restarted: bool
) -> None:
    zeroth, first = (federation.spec(number=number, mu=CAP / 4) for number in range(2))
    assert await announce(federation, zeroth) == TAKEN
    signed = await total_of(federation, end_of(federation))
    if restarted:
        federation.crash(0)
    assert await announce(federation, first) == REFUSED
    assert await announce(federation, zeroth) == KNOWN
    assert await announce(federation, federation.spec(mu=CAP / 4, job=OTHER_JOB)) == TAKEN
    for report in (REPORT, OTHER_REPORT):  # a second report gets the total of the first
        assert await total_of(federation, end_of(federation, report)) == signed
    assert signed.body == JobTotal(
        manifest=federation.consortium.digest,
        job=federation.job,
        node="compute-0",
        entry=signed.body.entry,
        rounds=(zeroth.digest,),
        report=REPORT,
    )
    assert signed.body.entry.number == 2, "it follows the charge of a round"


async def test_a_round_that_was_given_back_is_in_the_total(federation: Federation) -> None:
    spec = federation.spec()
    await federation.announce(spec)
    for _ in range(25):
        await federation.step()
        federation.clock.move(4)
    assert (await federation.state(0, spec))["phase"] == "abandoned"
    assert (await total_of(federation, end_of(federation))).body.rounds == (spec.digest,)


def total(job: str, entry: Link, *charged: str) -> Signed[JobTotal]:
    body = JobTotal(
        manifest="0" * 64,
        entry=entry,
        job=job,
        node="compute-0",
        rounds=charged,
        report=REPORT,
    )
    return sign(body, "compute-0", signing_key("compute-0"))


def test_R9_a_total_is_signed_once_and_stays(database_url: str) -> None:
    engine = open_engine(database_url)
    check_schema(engine, metadata, VERSION)
    calls = []

    def attest(charged: tuple[str, ...], entry: Link) -> Signed[JobTotal]:
        calls.append(charged)
        return total(OTHER_JOB, entry, *charged)

    answers = []
    for _ in range(2):
        with engine.begin() as db:
            answers.append(
                end_job(JournalWriter(journal, db, EMPTY), OTHER_JOB, attest, signer="trainer")
            )
    assert answers[0] == answers[1]
    assert calls == [()]
    for change in (journal.entries.delete(), journal.entries.update().values(body=b"")):
        with pytest.raises(exc.DBAPIError, match="only grows"), engine.begin() as db:
            db.execute(change)
    engine.dispose()


async def test_totals_of_jobs_without_a_round_here_are_bounded(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "MOST_EMPTY_TOTALS", 2)

    async def ask(job: str) -> str:
        body = end_of(federation).body.model_copy(update={"job": job})
        end = sign(body, "trainer", signing_key("trainer"))
        reply = await federation.request(0, "POST", "/v1/totals", end.encode())
        return "" if reply.status_code == 200 else problem_code(reply)

    made_up = [f"{number:064x}" for number in range(3)]
    assert [await ask(job) for job in made_up] == ["", "", "refused-job"]
    assert await ask(made_up[0]) == ""  # it is on file
    assert await announce(federation, federation.spec(mu=CAP / 4)) == TAKEN
    assert await ask(federation.job) == ""


async def test_R6_everybody_may_read_a_nodes_journal(federation: Federation) -> None:
    await announce(federation, federation.spec())
    signed = await total_of(federation, end_of(federation))
    federation.crash(0)
    reply = await federation.request(0, "GET", "/v1/journal?after=0&count=9")
    chain, entries = Chain(JobTotal), reply.json()["entries"]
    charge, total = [chain.follow(Shown.model_validate(each)) for each in entries]
    assert (charge, total) == (None, signed), "the charge is hashed, and not shown"
    last = await federation.request(0, "GET", f"/v1/journal?after={reply.json()['next']}")
    assert last.json() == {"entries": [], "next": None}


async def test_R10_two_replicas_sign_one_total(replicas: Replicas) -> None:  # noqa: F811
    end = end_of(replicas).encode()
    first, second = await asyncio.gather(
        *(replicas.at(place, "POST", "/v1/totals", end) for place in range(2))
    )
    assert (first.status_code, second.content) == (200, first.content)
    assert replicas.sql("SELECT kind FROM journal") == [("job_total",)]


async def test_of_two_rounds_of_one_number_at_two_replicas_one_is_taken(
    replicas: Replicas,  # noqa: F811
) -> None:
    specs = [replicas.spec(mu=CAP * share) for share in (0.3, 0.31, 0.32, 0.33)]
    statuses = await asyncio.gather(
        *(replicas.announce_at(place % 2, spec) for place, spec in enumerate(specs))
    )
    assert sorted(statuses) == [201, 409, 409, 409]
    assert replicas.sql("SELECT COUNT(*) FROM journal WHERE kind = 'charge'") == [(1,)]
