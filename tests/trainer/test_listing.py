"""What analysts and data holders are told of jobs, budgets and declarations, and nobody else."""

from datetime import timedelta
from typing import Any

from shoal_protocol.jobs.membership import HolderQuery
from shoal_protocol.wire.documents import Signed, sign
from shoal_studies.study_request import JobsQuery
from shoal_trainer.assembly import Service
from tests.trainer.test_jobs import JOB, joined
from tests.world import examples
from tests.world.around_trainer import CONSORTIUM
from tests.world.clock import HandMovedClock
from tests.world.parties import client_of, problem_code

LIST = "/v1/jobs/list"
JOINING = "/v1/jobs/joining"


def query(clock: HandMovedClock, **changes: Any) -> Signed[JobsQuery]:
    fields = {"manifest": CONSORTIUM.digest, "analyst": "analyst", "at": clock.now} | changes
    return examples.named("analyst", JobsQuery(**fields))


async def ask(trainer: Service, signed: Signed[Any], path: str = LIST) -> Any:
    async with client_of(trainer.app) as http:
        return await http.post(path, content=signed.encode())


async def test_a_query_is_refused_unless_an_analyst_signed_it_just_now(
    trainer: Service, clock: HandMovedClock
) -> None:
    assert (await ask(trainer, query(clock))).status_code == 200
    old = query(clock, at=clock.now - timedelta(minutes=11))
    assert problem_code(await ask(trainer, old)) == "stale-query"
    ahead = query(clock, at=clock.now + timedelta(minutes=11))
    assert problem_code(await ask(trainer, ahead)) == "stale-query"
    stranger = query(clock, analyst="aggregator")
    assert problem_code(await ask(trainer, stranger)) in ("wrong-signer", "unknown-signer")
    async with client_of(trainer.app) as http:
        assert (await http.get(LIST)).status_code == 405


async def test_jobs_that_may_be_joined_are_listed_to_data_holders_alone(
    trainer: Service, clock: HandMovedClock
) -> None:
    await joined(trainer)
    body = HolderQuery(manifest=CONSORTIUM.digest, holder=3, at=clock.now)
    own = examples.named("holder", body)
    for _ in range(2):  # it stands for some minutes
        listed = await ask(trainer, own, JOINING)
        assert listed.json() == {"jobs": [{"job": JOB.digest, "phase": "joining"}]}
    clock.now += timedelta(minutes=11)
    assert problem_code(await ask(trainer, own, JOINING)) == "stale-query"
    body = body.model_copy(update={"at": clock.now})
    revoked = body.model_copy(update={"holder": examples.REVOKED})
    unknown = body.model_copy(update={"manifest": "ab" * 32})
    for signed, code in (
        (examples.named("holder", revoked), "revoked-holder"),
        (examples.named("holder", unknown), "unknown-manifest"),
        (sign(body, "holder", examples.client_key(4)), "bad-signature"),
        (examples.named("analyst", body), "wrong-signer"),
        (query(clock), "malformed-document"),
    ):
        assert problem_code(await ask(trainer, signed, JOINING)) == code
    async with client_of(trainer.app) as http:
        for path in ("/v1/jobs", JOINING):
            assert (await http.get(path)).status_code == 405
    clock.now = JOB.join_deadline
    await trainer.step()
    body = body.model_copy(update={"at": clock.now})
    listed = await ask(trainer, examples.named("holder", body), JOINING)
    assert listed.json() == {"jobs": []}
