"""A node holds rounds to the request that the analyst signed, and takes none that is withdrawn."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyroaring import BitMap

from shoal_protocol.jobs.job_request import JobRequest
from shoal_protocol.jobs.membership import JobWithdrawal
from shoal_protocol.privacy.mechanisms import gaussian_mu
from shoal_protocol.sharing.schemes import ThresholdSharing
from shoal_protocol.wire.documents import sign
from shoal_redteam.requests import ROUNDS
from tests.compute.test_announcing import CAP, announce
from tests.world import examples
from tests.world.around_node import Federation, called_off, job_for
from tests.world.examples import OPENED_AT
from tests.world.parties import reachable


def request_of(federation: Federation, **changes: Any) -> JobRequest:
    """Return the request of the federation's own rounds, with changes."""
    fields = job_for(federation.consortium).body.model_dump()
    return JobRequest.model_validate(fields | changes)


def signed(request: JobRequest, by: str = "analyst") -> bytes:
    return sign(request, by, examples.signing_key(by)).encode()


async def take(federation: Federation, content: bytes) -> tuple[int, str]:
    reply = await federation.request(0, "POST", "/v1/jobs", content)
    return reply.status_code, reply.json().get("type", "").removeprefix("urn:shoal:problem:")


async def test_a_round_waits_for_the_request_of_its_job_which_anyone_may_hand_on(
    federation: Federation,
) -> None:
    spec = federation.spec()
    request = federation.requests.pop(spec.body.job)
    assert await announce(federation, spec) == (409, "missing-request")
    for status in (201, 200):
        assert await take(federation, request) == (status, "")
    federation.crash(0)
    assert await announce(federation, spec) == (201, "")
    for junk in (b"{}", b"[]", request[:-1]):
        assert (await take(federation, junk))[0] == 422


@pytest.fixture
async def lenient(tmp_path: Path) -> AsyncIterator[Federation]:
    """A federation whose policy allows all that the job does not."""
    policy = examples.POLICY.model_copy(update={"minimum_threshold": 2, "minimum_cohort": 6})
    opened = Federation(tmp_path, trust=reachable(policy=policy))
    yield opened
    await opened.close()


BEYOND: dict[str, dict[str, Any]] = {
    "another radius": {"query": examples.MATRIX.model_copy(update={"radius": 1.5})},
    "another query": {"query": examples.MOMENTS},
    "more rounds": {"number": ROUNDS},
    "a higher number of dropouts": {"dropouts": 3},
    "fewer colluders": {"colluders": 2},
    "too few clients": {"population": BitMap(range(10)), "dropouts": 2},
    "another scheme": {"sharing": ThresholdSharing(threshold=2)},
    "after the job's end": {"opened_at": OPENED_AT + timedelta(days=30)},
}


@pytest.mark.parametrize("wish", BEYOND.values(), ids=BEYOND)
async def test_a_round_beyond_the_terms_of_its_job_is_refused_and_charged_nothing(
    lenient: Federation, wish: dict[str, Any]
) -> None:
    federation = lenient
    fields = {"minimum_population": 12, "maximum_population": 15}
    request = request_of(federation, **fields)
    federation.requests[request.digest] = signed(request)
    if "opened_at" in wish:
        federation.clock.now = wish["opened_at"]
    beyond = federation.spec(**{"job": request.digest} | wish)
    assert await announce(federation, beyond) == (422, "refused-spec")
    federation.clock.now = OPENED_AT
    within = federation.spec(job=request.digest, mu=CAP)
    assert await announce(federation, within) == (201, "")


async def test_the_rounds_of_a_job_cost_a_client_the_jobs_price_and_no_more(
    federation: Federation,
) -> None:
    fields = request_of(federation).privacy.model_dump() | {"epsilon": 1.0}
    cheap, other = (
        request_of(federation, privacy=fields, nonce=f"{number:032x}") for number in range(2)
    )
    share = gaussian_mu(epsilon=1.0, delta=1e-6) / 2.0  # four of these, squared, make up the price
    for request in (cheap, other):
        federation.requests[request.digest] = signed(request)
    for number in range(4):
        if number == 2:
            federation.crash(0)  # the price so far is read from the ledger
        spec = federation.spec(job=cheap.digest, number=number, mu=share)
        assert await announce(federation, spec) == (201, "")
    beyond = federation.spec(job=cheap.digest, number=4, mu=share / 10)
    assert await announce(federation, beyond) == (422, "refused-spec")
    federation.crash(0)
    assert await announce(federation, beyond) == (422, "refused-spec")
    of_other = federation.spec(job=other.digest, mu=share)
    assert await announce(federation, of_other) == (201, "")


async def test_a_round_that_was_given_back_is_not_in_the_jobs_price(
    federation: Federation,
) -> None:
    fields = request_of(federation).privacy.model_dump() | {"epsilon": 1.0}
    request = request_of(federation, privacy=fields)
    federation.requests[request.digest] = signed(request)
    whole = gaussian_mu(epsilon=1.0, delta=1e-6)
    spec = federation.spec(job=request.digest, mu=whole)
    assert await announce(federation, spec) == (201, "")
    again = federation.spec(job=request.digest, number=1, mu=whole)
    assert await announce(federation, again) == (422, "refused-spec")
    await federation.gossip(0, [called_off(spec.body)])
    await federation.step([0])
    assert await announce(federation, again) == (201, "")


@pytest.mark.parametrize(
    ("lie", "by", "refusal"),
    [
        ({}, "trainer", (403, "wrong-signer")),
        ({"analyst": "stranger"}, "analyst", (403, "wrong-signer")),
        ({"manifest": "ab" * 32}, "analyst", (404, "unknown-manifest")),
        ({"minimum_population": 9}, "analyst", (422, "refused-job")),
        ({"round_seconds": 10_000}, "analyst", (422, "refused-job")),
        ({"join_deadline": OPENED_AT + timedelta(days=60)}, "analyst", (422, "refused-job")),
    ],
)
async def test_a_request_that_is_no_analysts_or_against_the_policy_is_not_taken(
    federation: Federation, lie: dict[str, Any], by: str, refusal: tuple[int, str]
) -> None:
    assert await take(federation, signed(request_of(federation, **lie), by)) == refusal


def withdrawal(request: JobRequest, *, by: str = "analyst", **changes: Any) -> bytes:
    fields = {"manifest": request.manifest, "job": request.digest, "analyst": request.analyst}
    return sign(JobWithdrawal(**(fields | changes)), by, examples.signing_key(by)).encode()


async def test_no_round_of_a_withdrawn_job_is_taken_also_after_a_crash(
    federation: Federation,
) -> None:
    before = federation.spec()
    request = request_of(federation)
    assert request.digest == before.body.job
    assert (await announce(federation, before))[0] == 201
    for status in (201, 200):
        reply = await federation.request(0, "POST", "/v1/withdrawals", withdrawal(request))
        assert (reply.status_code, reply.json()) == (status, {"job": request.digest})
    federation.crash(0)
    later = federation.spec(job=request.digest, number=1)
    assert await announce(federation, later) == (422, "refused-spec")
    assert await announce(federation, before) == (200, "")  # what it took goes on
    assert (await announce(federation, federation.spec(job="ab" * 32)))[0] == 201


@pytest.mark.parametrize(
    ("lie", "status"),
    [
        ({"by": "trainer"}, 403),
        ({"by": "trainer", "analyst": "trainer"}, 403),
        ({"job": "ab" * 32}, 409),
        ({"manifest": "ab" * 32}, 422),
    ],
)
async def test_only_the_jobs_own_analyst_withdraws_it(
    federation: Federation, lie: dict[str, Any], status: int
) -> None:
    request = request_of(federation)
    assert await take(federation, signed(request)) == (201, "")
    reply = await federation.request(0, "POST", "/v1/withdrawals", withdrawal(request, **lie))
    assert reply.status_code == status
    assert (await announce(federation, federation.spec(job=request.digest)))[0] == 201
