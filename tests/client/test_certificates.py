"""An analyst gets no certificate from the SDK that does not hold, or is of another job."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from shoal.jobs.analyst import Analyst, Job
from shoal.jobs.job_failures import JobFailed, JobRefused
from shoal_protocol.wire.errors import ProtocolError, UnknownJob, UnknownManifest
from shoal_protocol.wire.service_errors import RefusedCertificate
from tests.world import certified, examples
from tests.world.around_trainer import CONSORTIUM
from tests.world.parties import book
from tests.world.strategies import flipped

MAKING = certified.under(CONSORTIUM)
CERTIFICATE = MAKING.encode()
JOB = MAKING.job.digest


def job_of(directory: Path, answer: Callable[[], httpx.Response], job: str = JOB) -> Job:
    """Return a job whose trainer answers that."""

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path.startswith("/v1/manifests/"):
            return problem(404, "unknown-manifest")()
        assert request.url.path == f"/v1/jobs/{job}/certificate"
        return answer()

    return Analyst(
        name="analyst",
        key=examples.signing_key("analyst"),
        book=book(directory, CONSORTIUM),
        transport=httpx.MockTransport(handle),
    ).job(job)


def problem(status: int, code: str) -> Callable[[], httpx.Response]:
    return lambda: httpx.Response(status, json={"type": f"urn:shoal:problem:{code}"})


def served(content: bytes) -> Callable[[], httpx.Response]:
    return lambda: httpx.Response(200, content=content)


def test_a_certificate_comes_as_the_bytes_that_anyone_can_check(tmp_path: Path) -> None:
    assert job_of(tmp_path, served(CERTIFICATE)).certificate() == CERTIFICATE


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [(410, "job-failed", JobFailed), (404, "unknown-job", JobRefused)],
)
def test_there_never_is_one_of_a_job_that_failed(
    tmp_path: Path, status: int, code: str, error: type[Exception]
) -> None:
    with pytest.raises(error, match=code):
        job_of(tmp_path, problem(status, code)).certificate()


REFUSED: dict[str, tuple[bytes, type[ProtocolError], Any]] = {
    "a changed byte": (
        flipped(CERTIFICATE, CERTIFICATE.index(b'"cohort_size":11') + 15),
        RefusedCertificate,
        "signature does not verify",
    ),
    "a manifest that is not known": (
        certified.ONE_ROUND.encode(),
        UnknownManifest,
        "not among the versions at hand",
    ),
    "no certificate": (b"{}", ProtocolError, "request: is missing"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_certificate_that_does_not_hold_is_refused(tmp_path: Path, name: str) -> None:
    content, error, said = REFUSED[name]
    assert content != CERTIFICATE
    with pytest.raises(error, match=said):
        job_of(tmp_path, served(content)).certificate()


def test_a_certificate_of_another_job_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownJob, match="another job"):
        job_of(tmp_path, served(CERTIFICATE), job="5" * 64).certificate()
