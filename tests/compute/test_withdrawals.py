"""A node that was told of a withdrawal takes no round of the job, whatever its trainer says."""

from typing import Any

import pytest

from shoal_protocol.documents import sign
from shoal_protocol.encoding import canonical_json
from shoal_protocol.jobs import JobRequest
from shoal_protocol.membership import JobWithdrawal
from tests.compute.federation import Federation
from tests.compute.test_announcing import announce
from tests.protocol import examples


def request_of(federation: Federation, **changes: Any) -> JobRequest:
    fields = examples.JOB.model_dump() | {"manifest": federation.consortium.digest}
    return JobRequest.model_validate(fields | changes)


def told(request: JobRequest, *, by: str = "analyst", **changes: Any) -> bytes:
    fields = {"manifest": request.manifest, "job": request.digest, "analyst": request.analyst}
    withdrawal = sign(JobWithdrawal(**(fields | changes)), by, examples.signing_key(by))
    asked = sign(request, request.analyst, examples.signing_key(request.analyst))
    return canonical_json({"request": asked.to_json(), "withdrawal": withdrawal.to_json()})


async def test_no_round_of_a_withdrawn_job_is_taken_also_after_a_crash(
    federation: Federation,
) -> None:
    request = request_of(federation)
    before = federation.spec(job=request.digest)
    assert (await announce(federation, before))[0] == 201
    for status in (201, 200):
        reply = await federation.request(0, "POST", "/v1/withdrawals", told(request))
        assert (reply.status_code, reply.json()) == (status, {"job": request.digest})
    federation.crash(0)
    later = federation.spec(job=request.digest, number=1)
    assert await announce(federation, later) == (422, "refused-spec")
    assert await announce(federation, before) == (200, "")  # what it took goes on
    assert (await announce(federation, federation.spec(job="ab" * 32)))[0] == 201
    shown = await federation.request(0, "GET", f"/v1/withdrawals/{request.digest}")
    assert JobWithdrawal.model_validate(shown.json()["body"]).job == request.digest
    unknown = await federation.request(0, "GET", f"/v1/withdrawals/{'ab' * 32}")
    assert unknown.status_code == 404


@pytest.mark.parametrize(
    ("lie", "status"),
    [
        ({"by": "trainer"}, 403),
        ({"by": "trainer", "analyst": "trainer"}, 403),
        ({"job": "ab" * 32}, 422),
        ({"manifest": "ab" * 32}, 422),
    ],
)
async def test_only_the_jobs_own_analyst_withdraws_it(
    federation: Federation, lie: dict[str, Any], status: int
) -> None:
    request = request_of(federation)
    reply = await federation.request(0, "POST", "/v1/withdrawals", told(request, **lie))
    assert reply.status_code == status
    assert (await announce(federation, federation.spec(job=request.digest)))[0] == 201


async def test_a_withdrawal_alone_says_nothing_to_a_node(federation: Federation) -> None:
    for junk in (b"{}", b"[]", b'{"request":1,"withdrawal":2}'):
        reply = await federation.request(0, "POST", "/v1/withdrawals", junk)
        assert reply.status_code == 422
