"""Every commitment at the trainer has an end: in time, by its analyst's withdrawal, by leaving."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from pyroaring import BitMap

from shoal_protocol.jobs.membership import LEFT, JobWithdrawal, Membership
from shoal_protocol.wire.documents import sign
from shoal_protocol.wire.service_errors import StorageUnavailable
from shoal_studies.study_request import StudyRequest
from shoal_trainer import memberships, store
from shoal_trainer.assembly import Service
from tests.trainer.conftest import Assemble
from tests.trainer.test_jobs import JOB, get, joined, ledger, running, state
from tests.world import examples
from tests.world.around_trainer import Federation, job, join
from tests.world.clock import HandMovedClock
from tests.world.parties import post

WITHDRAWAL = f"/v1/jobs/{JOB.digest}/withdrawal"
MEMBERSHIPS = f"/v1/jobs/{JOB.digest}/memberships"
EVERYONE = range(20)


def withdrawal(request: StudyRequest = JOB, signer: str = "analyst", **changes: Any) -> bytes:
    fields = {"manifest": request.manifest, "job": request.digest, "analyst": request.analyst}
    return sign(JobWithdrawal(**(fields | changes)), signer, examples.signing_key(signer)).encode()


def leave(client: int, request: StudyRequest = JOB, *, signed_by: int | None = None) -> bytes:
    body = Membership(manifest=request.manifest, job=request.digest, holder=client, state=LEFT)
    key = examples.client_key(client if signed_by is None else signed_by)
    return sign(body, "holder", key).encode()


def committed(service: Service) -> dict[int, float]:
    """Return mu of what each client has spent or set aside, where it is more than rounding."""
    balances = service.resources.committed
    mus = {client: balances.largest(BitMap([client])).mu for client in EVERYONE}
    return {client: mu for client, mu in mus.items() if mu > 1e-6}


async def fail_reason(service: Service) -> tuple[str, str]:
    shown = await state(service)
    return shown["phase"], shown["reason"]


@pytest.mark.parametrize(
    ("document", "code"),
    {
        "by another party": (withdrawal(signer="trainer"), "wrong-signer"),
        "for another party": (withdrawal(analyst="trainer", signer="trainer"), "wrong-signer"),
        "of another job": (withdrawal(job="ab" * 32), "malformed-document"),
        "bound to another manifest": (withdrawal(manifest="ab" * 32), "malformed-document"),
        "a leave": (leave(3), "malformed-document"),
    }.values(),
)
async def test_a_withdrawal_that_is_not_the_jobs_analysts_is_refused(
    trainer: Service, document: bytes, code: str
) -> None:
    await joined(trainer)
    assert await post(trainer, WITHDRAWAL, document) == code
    assert (await state(trainer))["phase"] == "joining"
    assert len(committed(trainer)) == 14


async def test_a_withdrawal_during_an_announcement_ends_it(
    trainer: Service, clock: HandMovedClock, federation: Federation
) -> None:
    answering = asyncio.Event()
    asked = federation.freeze("compute-1", answering)
    await joined(trainer)
    clock.now = JOB.join_deadline
    stepping = asyncio.create_task(trainer.step())
    await asked.wait()
    assert await post(trainer, WITHDRAWAL, withdrawal()) == 201
    answering.set()
    await stepping
    await trainer.step()
    assert (await get(trainer, f"/v1/jobs/{JOB.digest}/rounds/0"))[0] == "job-withdrawn"
    assert committed(trainer) == {}
    assert trainer.runner._jobs == {}
    assert [entry["kind"] for entry in (await ledger(trainer))["entries"]] == ["charge", "return"]


async def test_a_result_that_comes_after_the_withdrawal_is_not_kept(
    trainer: Service, clock: HandMovedClock, federation: Federation
) -> None:
    federation.decided = False
    await running(trainer, clock)
    answering = asyncio.Event()
    asked, federation.decided = federation.freeze("aggregator", answering), True
    stepping = asyncio.create_task(trainer.step())
    await asked.wait()
    assert await post(trainer, WITHDRAWAL, withdrawal()) == 201
    answering.set()
    await stepping
    (round_,) = (await state(trainer))["rounds"]
    assert round_["phase"] == "collecting"


async def test_what_is_on_file_counts_whatever_became_of_the_answer_of_the_storage(
    trainer: Service, clock: HandMovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, add = trainer.resources.storage.run, memberships.keep
    losing = [add, add, store.end_job]

    async def run_and_lose(transaction: Any, *arguments: Any, **named: Any) -> Any:
        answer = await run(transaction, *arguments, **named)
        stored = getattr(transaction, "__wrapped__", transaction)  # of one that may append
        if stored in losing:
            losing.remove(stored)
            raise StorageUnavailable
        return answer

    def unavailable(*_: object) -> None:
        raise StorageUnavailable

    await joined(trainer, clients=3)
    monkeypatch.setattr(trainer.resources.storage, "run", run_and_lose)
    away = "storage-unavailable"
    assert [await post(trainer, MEMBERSHIPS, join(JOB.digest, 3)) for _ in range(2)] == [away, 200]
    assert [await post(trainer, MEMBERSHIPS, leave(0)) for _ in range(2)] == [away, 200]
    assert await post(trainer, MEMBERSHIPS, join(JOB.digest, 3)) == 200
    clock.now = JOB.join_deadline
    with monkeypatch.context() as patched:
        patched.setattr(store, "kept_charges", unavailable)  # the end is not stored
        await trainer.step()
    await trainer.step()
    assert committed(trainer).keys() == {1, 2, 3} and not losing
    await trainer.step()
    assert (await state(trainer))["phase"] == "failed"
    assert committed(trainer) == {}


async def test_neither_a_race_nor_a_replay_brings_a_client_back(
    trainer: Service, assembled: Assemble
) -> None:
    await joined(trainer, clients=3)
    assert await post(trainer, MEMBERSHIPS, leave(9)) == 201  # it comes before the join
    assert await post(trainer, MEMBERSHIPS, leave(2)) == 201
    for serving in (lambda: trainer, assembled):
        service = serving()  # of two processes, the later one holds the database
        for client in (2, 9):
            assert await post(service, MEMBERSHIPS, leave(client)) == 200
            assert await post(service, MEMBERSHIPS, join(JOB.digest, client)) == "holder-left"
        assert (await state(service))["joined"] == 2
        assert committed(service).keys() == {0, 1}


async def test_a_leave_is_its_own_clients_and_of_its_own_job(trainer: Service) -> None:
    await joined(trainer)
    other = job(nonce="cd" * 16)
    assert await post(trainer, MEMBERSHIPS, leave(3, signed_by=4)) == "bad-signature"
    assert await post(trainer, MEMBERSHIPS, leave(3, other)) == "malformed-document"
    assert len(committed(trainer)) == 14


async def test_no_round_begins_that_would_outlast_its_job(
    trainer: Service, clock: HandMovedClock, federation: Federation
) -> None:
    await joined(trainer)
    clock.now = JOB.ends_by - timedelta(seconds=JOB.round_seconds)
    await trainer.step()
    phase, reason = await fail_reason(trainer)
    assert (phase, "time does not suffice" in reason) == ("failed", True)
    assert committed(trainer) == {}
    assert federation.rounds["aggregator"] == {}
