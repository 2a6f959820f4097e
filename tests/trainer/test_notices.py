"""The trainer counts for the analyst which data holders wait for their owners, by their word."""

from pathlib import Path
from typing import Any

import pytest

from shoal_protocol.crowds.draws import CrowdJobRequest
from shoal_protocol.jobs.membership import JobWithdrawal, Membership, State
from shoal_protocol.wire.documents import decode, sign
from shoal_studies.study_request import JobsQuery, StudyRequest
from shoal_trainer.assembly import Service
from tests.trainer.conftest import Assemble
from tests.trainer.test_jobs import JOB, joined, state
from tests.trainer.test_leaving import leave
from tests.trainer.test_listing import ask, query
from tests.world import examples
from tests.world.around_trainer import CONSORTIUM, job, join, signed_job
from tests.world.around_trainer_crowds import CROWDS, Asker, crowd, trainer_of
from tests.world.clock import HandMovedClock
from tests.world.parties import post

MEMBERSHIPS = f"/v1/jobs/{JOB.digest}/memberships"
HOLDERS = len(CONSORTIUM.roster.enrolled_set)


def notice(
    holder: int,
    said: State = "waits",
    request: StudyRequest | CrowdJobRequest = JOB,
    *,
    by: int | None = None,
) -> bytes:
    body = Membership(manifest=request.manifest, job=request.digest, holder=holder, state=said)
    key = examples.client_key(holder if by is None else by)
    return sign(body, "holder", key).encode()


async def counted(service: Service) -> tuple[int, int]:
    found = (await state(service))["approvals"]
    assert found["holders"] == HOLDERS
    return found["waits"], found["refused"]


async def test_who_waits_is_counted_until_it_joins_leaves_or_refuses(
    trainer: Service, assembled: Assemble, clock: HandMovedClock
) -> None:
    assert await post(trainer, "/v1/jobs", signed_job(JOB)) == 201
    assert await counted(trainer) == (0, 0)
    for answer in (201, 200):
        assert await post(trainer, MEMBERSHIPS, notice(0)) == answer
    for holder in (1, 2, 3):
        assert await post(trainer, MEMBERSHIPS, notice(holder)) == 201
    assert await counted(trainer) == (4, 0)
    assert await post(trainer, MEMBERSHIPS, join(JOB.digest, 0)) == 201
    assert await post(trainer, MEMBERSHIPS, leave(1)) == 201
    assert await post(trainer, MEMBERSHIPS, notice(2, "refused")) == 201
    again = assembled()
    assert await counted(again) == (1, 1)
    [listed] = (await ask(again, query(clock))).json()["jobs"]
    assert listed["approvals"] == (await state(again))["approvals"]
    assert await post(again, MEMBERSHIPS, notice(2, "waits")) == 200  # an older word, shown again
    assert await counted(again) == (1, 1)


@pytest.mark.parametrize(
    ("document", "code"),
    {
        "by another data holder": (notice(3, by=4), "bad-signature"),
        "of another job": (notice(3, request=job(nonce="cd" * 16)), "malformed-document"),
        "of one who is not on the roster": (notice(2**31, by=0), "unknown-holder"),
    }.values(),
)
async def test_a_notice_is_its_own_holder_s_and_of_its_own_job(
    trainer: Service, document: bytes, code: str
) -> None:
    await joined(trainer)
    assert await post(trainer, MEMBERSHIPS, document) == code
    assert await counted(trainer) == (0, 0)


async def test_no_request_is_read_for_what_nobody_signed(
    trainer: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    await joined(trainer)
    read = list[object]()

    def noting(encoded: bytes, *kinds: Any) -> Any:
        read.append(kinds)
        return decode(encoded, *kinds)

    monkeypatch.setattr("shoal_trainer.store.decode", noting)
    body = JobWithdrawal(manifest=JOB.manifest, job=JOB.digest, analyst="analyst")
    forged = sign(body, "analyst", examples.client_key(0)).encode()
    withdrawal = f"/v1/jobs/{JOB.digest}/withdrawal"
    for path, document in ((MEMBERSHIPS, notice(3, by=4)), (withdrawal, forged)):
        assert await post(trainer, path, document) == "bad-signature"
    assert read == []


async def crowd_counted(asker: Asker, request: CrowdJobRequest) -> tuple[int, int]:
    found = (await asker.ask("GET", f"{CROWDS}/{request.digest}")).json()["approvals"]
    assert found["holders"] == HOLDERS
    return found["waits"], found["refused"]


async def test_owners_of_a_crowd_job_are_waited_for_until_they_approve_or_refuse_it(
    tmp_path: Path, clock: HandMovedClock
) -> None:
    trainer, request = trainer_of(tmp_path, None, clock), crowd()
    asker, path = Asker(trainer.app), f"/v1/jobs/{request.digest}/memberships"
    assert (await asker.open(request)).status_code == 201
    assert await crowd_counted(asker, request) == (0, 0)
    for holder in range(4):
        assert await post(trainer, path, notice(holder, request=request)) == 201
    for said in ("joined", "left"):
        assert await post(trainer, path, notice(5, said, request)) == "unknown-job"
    assert await crowd_counted(asker, request) == (4, 0)
    assert await post(trainer, path, notice(0, "approved", request)) == 201
    assert await post(trainer, path, notice(1, "refused", request)) == 201
    for older in (notice(0, "waits", request), notice(1, "approved", request)):
        assert await post(trainer, path, older) == 200
    assert await crowd_counted(asker, request) == (2, 1)
    asking = JobsQuery(manifest=request.manifest, analyst="analyst", at=clock.now)
    [listed] = (await asker.ask("POST", f"{CROWDS}/list", fresh(asking, clock))).json()["crowds"]
    assert listed["approvals"] == {"waits": 2, "refused": 1, "holders": HOLDERS}
    clock.now = request.closes_at
    await trainer.step()
    assert await post(trainer, path, notice(4, request=request)) == "wrong-phase"
    assert await crowd_counted(asker, request) == (0, 0)
    [listed] = (await asker.ask("POST", f"{CROWDS}/list", fresh(asking, clock))).json()["crowds"]
    assert listed["approvals"] == {"waits": 0, "refused": 0, "holders": HOLDERS}
    await trainer.close()


def fresh(query: JobsQuery, clock: HandMovedClock) -> bytes:
    return examples.named("analyst", query.model_copy(update={"at": clock.now})).encode()
