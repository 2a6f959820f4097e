"""`shoal sign`: what it signs is what an analyst wrote, and what it refuses to sign."""

import json
from typing import Any

import pytest
from typer.testing import Result

from shoal_protocol.jobs.membership import JobWithdrawal
from shoal_protocol.wire.documents import decode
from shoal_studies.study_request import StudyRequest
from tests.command.running import run
from tests.world.examples import JOB, SPEC
from tests.world.trust import Trust, make_trust


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return make_trust(tmp_path_factory.mktemp("federation"))


def sign(trust: Trust, body: Any, *, by: str = "analyst") -> Result:
    typed = body if isinstance(body, bytes) else json.dumps(body, indent=2).encode()
    return run("sign", "--party", trust.directory / "parties" / by, typed=typed)


@pytest.mark.parametrize(
    "example", [JOB, JobWithdrawal(manifest="0" * 64, job="1" * 64, analyst="analyst")]
)
def test_what_was_typed_is_signed_in_canonical_form(
    trust: Trust, example: StudyRequest | JobWithdrawal
) -> None:
    body = example.model_copy(update={"manifest": trust.consortium.digest, "analyst": "analyst"})
    given = body.model_dump(mode="json", exclude={"version", "purpose"})
    result = sign(trust, dict(reversed(given.items())))
    assert result.exit_code == 0, result.stderr
    signed = decode(result.stdout_bytes, type(body))
    assert signed.body == body
    trust.consortium.verify(signed)


WITHDRAWAL = {"kind": "job_withdrawal", "manifest": "0" * 64, "job": "1" * 64}


@pytest.mark.parametrize(
    ("body", "by", "why"),
    [
        (WITHDRAWAL | {"analyst": "somebody"}, "analyst", "is not the directory of the analyst"),
        (WITHDRAWAL | {"analyst": "trainer"}, "trainer", "is not the directory of the analyst"),
        (WITHDRAWAL | {"analyst": "analyst", "job": "1"}, "analyst", "job: should be 64"),
        (
            WITHDRAWAL | {"analyst": "analyst", "more": 1},
            "analyst",
            "more: is not known to release",
        ),
        (SPEC.model_dump(mode="json"), "trainer", "signs bodies of the kinds job_request, "),
        (b"[1]", "analyst", "signs bodies of the kinds"),
        (b'{"kind": ["a"]}', "analyst", "signs bodies of the kinds"),
        (b'{"kind": NaN}', "analyst", "expected value"),
        (b"[" * 100_000, "analyst", "recursion limit"),
        (b"", "analyst", "EOF"),
    ],
)
def test_anything_else_is_refused_in_one_line(trust: Trust, body: Any, by: str, why: str) -> None:
    result = sign(trust, body, by=by)
    assert (result.exit_code, result.stdout) == (1, "")
    [line] = result.stderr.splitlines()
    assert line.startswith("Error: ") and why in line
