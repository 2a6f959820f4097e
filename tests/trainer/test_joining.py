"""Who may submit, who may join, and what budgets allow, over HTTP."""

import asyncio
import threading
from typing import Any

import pytest
from pyroaring import BitMap

from shoal_protocol.jobs.job_request import PrivacyDemand
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.trust.roster_changes import with_revoked
from shoal_protocol.wire.service_errors import StorageUnavailable
from shoal_studies.study_request import StudyRequest
from shoal_trainer import joining, memberships
from shoal_trainer.assembly import Service
from shoal_trainer.jobs import check_request
from tests.trainer.conftest import Assemble
from tests.trainer.test_jobs import JOB, joined, ledger, running, state
from tests.trainer.test_listing import ask, query
from tests.world import examples
from tests.world.around_trainer import (
    CONSORTIUM,
    Federation,
    job,
    join,
    signed_job,
    successor,
)
from tests.world.clock import HandMovedClock
from tests.world.parties import client_of, post, problem_code

MEMBERSHIPS = f"/v1/jobs/{JOB.digest}/memberships"


async def join_all(service: Service, *documents: bytes, request: StudyRequest = JOB) -> list[Any]:
    """Return the outcome of each: its status, or its problem's code."""
    path = f"/v1/jobs/{request.digest}/memberships"
    return [await post(service, path, each) for each in documents]


def demand(**changes: Any) -> dict[str, Any]:
    return examples.JOB.privacy.model_dump() | changes


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "for another manifest": ({"manifest": "0" * 64}, "wrong-manifest"),
    "when it is too late to join": ({"join_deadline": examples.OPENED_AT}, "refused-job"),
    "for more privacy than the policy allows": ({"privacy": demand(epsilon=4.1)}, "refused-job"),
    "at a larger delta than the policy's": (
        {"privacy": demand(epsilon=4, delta=1e-5)},
        "refused-job",
    ),
    "with too small a cohort": (
        {"minimum_population": 10, "privacy": demand(dropouts=3)},
        "refused-job",
    ),
    "with rounds that last too long": ({"round_seconds": 3571}, "refused-job"),
    "for more clients than there are": (
        {"minimum_population": 20, "maximum_population": 20},
        "refused-job",
    ),
}


@pytest.mark.parametrize(("changes", "code"), REFUSED.values(), ids=REFUSED.keys())
async def test_a_job_is_refused(
    trainer: Service, clock: HandMovedClock, changes: dict[str, Any], code: str
) -> None:
    assert await post(trainer, "/v1/jobs", signed_job(job(**changes))) == code
    listed = await ask(trainer, query(clock))
    assert listed.json()["jobs"] == []


async def test_a_job_that_is_sent_again_while_it_is_judged_is_judged_and_stored_once(
    trainer: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[str] = []
    begun, sent = threading.Event(), threading.Event()

    def slow(request: StudyRequest, *arguments: Any, **named: Any) -> None:
        begun.set()
        sent.wait(5)
        check_request(request, *arguments, **named)
        judged.append(request.digest)

    monkeypatch.setattr(joining, "check_request", slow)
    first = asyncio.create_task(post(trainer, "/v1/jobs", signed_job(JOB)))
    await asyncio.to_thread(begun.wait, 5)
    again = [asyncio.create_task(post(trainer, "/v1/jobs", signed_job(JOB))) for _ in range(3)]
    await asyncio.sleep(0.1)
    sent.set()
    assert [await each for each in (first, *again)] == [201, 200, 200, 200]
    assert judged == [JOB.digest]


async def test_a_job_whose_deadline_passes_while_it_is_judged_is_refused_and_not_stored(
    trainer: Service, clock: HandMovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(request: StudyRequest, *_: Any, **__: Any) -> None:
        clock.move((request.join_deadline - clock()).total_seconds())

    monkeypatch.setattr(joining, "check_request", slow)
    assert await post(trainer, "/v1/jobs", signed_job(JOB)) == "refused-job"
    listed = await ask(trainer, query(clock))
    assert listed.json()["jobs"] == []


@pytest.mark.parametrize(
    ("signer", "code"),
    [("nobody", "unknown-signer"), ("trainer", "wrong-signer"), ("compute-0", "wrong-signer")],
)
async def test_only_an_analyst_of_the_manifest_may_submit(
    trainer: Service, signer: str, code: str
) -> None:
    assert await post(trainer, "/v1/jobs", signed_job(job(analyst=signer), signer)) == code


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"documents":[]}',
        signed_job(JOB)[:-1],
        signed_job(JOB).replace(b'"signature"', b'"Signature"'),
        join("0" * 64, 1),
    ],
)
async def test_bytes_that_are_no_signed_request_are_refused_and_not_repeated(
    trainer: Service, body: bytes
) -> None:
    async with client_of(trainer.app) as http:
        response = await http.post("/v1/jobs", content=body)
    assert problem_code(response) == "malformed-document"
    assert not body or body not in response.content


async def test_each_join_is_validated(trainer: Service) -> None:
    await post(trainer, "/v1/jobs", signed_job(JOB))
    forged = join(JOB.digest, 5).replace(b'"holder":5', b'"holder":6')
    outcomes = await join_all(
        trainer,
        join(JOB.digest, 0),
        join("0" * 64, 1),
        join(JOB.digest, 2, manifest="0" * 64),
        forged,
        join(JOB.digest, examples.REVOKED),
        join(JOB.digest, examples.CLIENTS),
        b'{"body":{},"signature":"","signer":"holder"}',
        b"7",
        signed_job(JOB),
        join(JOB.digest, 0),
        join(JOB.digest, 4),
    )
    assert outcomes == [
        201,
        "malformed-document",
        "wrong-manifest",
        "bad-signature",
        "revoked-holder",
        "unknown-holder",
        "malformed-document",
        "malformed-document",
        "malformed-document",
        200,
        201,
    ]
    assert (await state(trainer))["joined"] == 2


async def test_nobody_joins_after_the_deadline_but_those_who_did_are_told_so(
    trainer: Service, clock: HandMovedClock
) -> None:
    await joined(trainer)
    clock.now = JOB.join_deadline
    asked = (join(JOB.digest, 0), join(JOB.digest, 15))
    assert await join_all(trainer, *asked) == [200, "wrong-phase"]
    await trainer.step()
    assert await join_all(trainer, *asked) == [200, "wrong-phase"]


async def test_joins_at_the_same_time_are_counted_once_each(trainer: Service) -> None:
    await post(trainer, "/v1/jobs", signed_job(JOB))
    outcomes = await asyncio.gather(
        *(join_all(trainer, *(join(JOB.digest, c) for c in range(12))) for _ in range(4))
    )
    assert sorted(each for batch in outcomes for each in batch) == [200] * 36 + [201] * 12
    assert (await state(trainer))["joined"] == 12


async def test_joins_that_the_disk_cannot_take_are_not_acknowledged_and_not_counted(
    trainer: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    await post(trainer, "/v1/jobs", signed_job(JOB))

    def full(*_: object, **__: object) -> None:
        raise StorageUnavailable

    with monkeypatch.context() as patched:
        patched.setattr(memberships, "keep", full)
        assert await post(trainer, MEMBERSHIPS, join(JOB.digest, 3)) == "storage-unavailable"
    assert (await state(trainer))["joined"] == 0
    assert await post(trainer, MEMBERSHIPS, join(JOB.digest, 3)) == 201


def cheap(nonce: int, clock: HandMovedClock, **changes: Any) -> StudyRequest:
    """Return a job at a quarter of the policy's mu^2 that anyone may join today."""
    fields = {
        "nonce": f"{nonce:032x}",
        "join_deadline": clock.now.replace(hour=23, minute=nonce),
        "privacy": PrivacyDemand(epsilon=1.8, delta=1e-6, dropouts=2, colluders=3),
    }
    return job(**(fields | changes))


@pytest.mark.slow
async def test_jobs_add_up_until_the_policys_budget_is_spent(
    assembled: Assemble, clock: HandMovedClock
) -> None:
    service = assembled()
    limit = CONSORTIUM.manifest.policy.cap.mu**2
    finished = 0
    while True:
        request = cheap(finished, clock)
        submitted = await post(service, "/v1/jobs", signed_job(request))
        if submitted == "budget-exceeded":
            break
        assert submitted == 201
        await join_all(
            service, *(join(request.digest, client) for client in range(14)), request=request
        )
        clock.now = request.join_deadline
        await service.step()
        clock.now = clock.now.replace(hour=12)
        finished += 1
        service = assembled()  # what was spent is known after a crash
    assert finished > 2
    assert finished == int(limit / cheap(0, clock).privacy.cost.mu ** 2)
    entries = (await ledger(service))["entries"]
    assert len(entries) == 2 * finished
    assert sum(entry["mu"] ** 2 for entry in entries) <= limit * (1.0 + 1e-9)


async def test_a_failed_round_stays_charged(
    assembled: Assemble, clock: HandMovedClock, federation: Federation
) -> None:
    service = assembled()
    federation.abandoned = True
    await running(service, clock)
    (entry,) = (await ledger(service))["entries"]
    for trainer in (service, assembled()):
        committed, client = trainer.resources.committed, BitMap([3])
        cap = CONSORTIUM.manifest.policy.cap
        left = (cap.mu**2 - entry["mu"] ** 2) ** 0.5
        assert committed.affording(client, Cost.gaussian(left), cap) == client
        assert not committed.affording(client, Cost.gaussian(left * 1.001), cap)


def accept(service: Service, consortium: Consortium) -> None:
    service.resources.book.accept(consortium.signed_manifest.encode(), consortium.roster.encode())


async def test_a_client_revoked_between_two_rounds_is_left_out_of_the_second(
    trainer: Service, clock: HandMovedClock, federation: Federation
) -> None:
    federation.decided = False
    await running(trainer, clock)
    federation.consortium = successor(CONSORTIUM, with_revoked(examples.roster(), (3, 7)))
    accept(trainer, federation.consortium)
    federation.decided = True
    trainer.wake.clear()
    await trainer.step()
    assert trainer.wake.is_set()  # its certificate need not wait for the next tick
    first, second = federation.rounds["aggregator"].values()
    assert first.clients() - second.clients() == BitMap([3, 7])
    assert second.manifest == federation.consortium.digest
    assert (await state(trainer))["phase"] == "finished"
