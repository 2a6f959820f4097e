"""Jobs that no analyst of the consortium signed, or that its trainer made up."""

import json
from typing import Any

import pytest
from nacl.signing import SigningKey
from starlette.types import ASGIApp, Receive, Scope, Send

from shoal_hosting.party import load_party
from shoal_protocol.certificates.study_request import StudyRequest
from shoal_protocol.wire.documents import decode, sign
from shoal_protocol.wire.encoding import canonical_json
from tests.world.federation import Federation
from tests.world.trust import SITES, Trust


def signed_by(trust: Trust, federation: Federation, who: str) -> bytes:
    """Return a job request in the analyst's name, with somebody's signature."""
    body = federation.request().body
    if who == "nobody":
        value = sign(body, "analyst", SigningKey(bytes(32))).to_json() | {"signature": "0" * 128}
        return canonical_json(value)
    if who == "a stranger":
        return sign(body, "analyst", SigningKey(bytes(32))).encode()
    if who == "a stranger under its own name":
        other = body.model_copy(update={"analyst": "stranger"})
        return sign(other, "stranger", SigningKey(bytes(32))).encode()
    key = load_party(trust.directory / "parties" / "trainer").signing_key
    other = body.model_copy(update={"analyst": "trainer"})
    return sign(other, "trainer", key).encode()


FORGERIES = {
    "nobody": "bad-signature",
    "a stranger": "bad-signature",
    "a stranger under its own name": "unknown-signer",
    "the trainer": "wrong-signer",
}


@pytest.mark.parametrize(("who", "code"), FORGERIES.items())
async def test_the_trainer_takes_no_job_that_an_analyst_of_the_consortium_did_not_sign(
    federation: Federation, trust: Trust, who: str, code: str
) -> None:
    content = signed_by(trust, federation, who)
    answer = await federation.ask("trainer", "/v1/jobs", method="POST", content=content)

    assert answer.status_code == 403, answer.text
    assert answer.json()["type"] == f"urn:shoal:problem:{code}"
    assert (await federation.after(federation.analyst.jobs())).jobs == ()


class LyingTrainer:
    """A trainer that lists a job and shows a request that it made up."""

    def __init__(self, app: ASGIApp, request: bytes, job: str) -> None:
        self._app, self._request, self._job = app, request, job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        listed = {"jobs": [{"job": self._job, "phase": "joining"}]}
        answers: dict[str, bytes] = {
            "/v1/jobs/joining": json.dumps(listed).encode(),
            f"/v1/jobs/{self._job}/request": self._request,
        }
        if scope["path"] not in answers:
            await self._app(scope, receive, send)
            return
        start: dict[str, Any] = {"type": "http.response.start", "status": 200, "headers": []}
        await send(start)
        await send({"type": "http.response.body", "body": answers[scope["path"]]})


@pytest.mark.parametrize("who", FORGERIES)
async def test_no_client_joins_a_job_that_the_trainer_made_up(
    federation: Federation, trust: Trust, who: str
) -> None:
    content = signed_by(trust, federation, who)
    job = decode(content, StudyRequest).digest
    federation.wire.apps["trainer"] = LyingTrainer(federation.app("trainer"), content, job)
    await federation.step()

    asked = [m for m in federation.wire.log if m.path == f"/v1/jobs/{job}/request"]
    assert {message.sender for message in asked} == set(SITES)
    assert not [m for m in federation.wire.log if m.path.endswith("/joins")]
    for site in SITES:
        assert job in (await federation.holder(site).status()).refused
