"""Whoever has a certificate carries out the study again, and sees where a trainer strayed."""

from pathlib import Path
from typing import Any

import pytest

from shoal_protocol.certificates.release_certificate import ReleaseCertificate, read_certificate
from shoal_protocol.wire.documents import Signed
from shoal_studies.replay import replay
from tests.command.running import run
from tests.federation.test_certificates import learned
from tests.world.federation import Federation
from tests.world.trust import TASK_WITH_PROJECTION, Trust


@pytest.fixture
async def encoded(federation: Federation) -> bytes:
    return (await learned(federation, task=TASK_WITH_PROJECTION))[1]


def altered(signed: Signed[Any], **changes: Any) -> Signed[Any]:
    """Return a document with other fields; a replay looks at no signature."""
    body = type(signed.body).model_validate(signed.body.model_dump(mode="json") | changes)
    return Signed(body, signed.signer, signed.signature)


def with_query(certificate: ReleaseCertificate, number: int, factor: float) -> ReleaseCertificate:
    """Return a certificate of which a round cut its first column at another multiple."""
    rounds = list(certificate.rounds)
    query = rounds[number].spec.body.query.model_dump(mode="json")
    query["columns"][0]["scale"] *= factor
    spec = altered(rounds[number].spec, query=query)
    rounds[number] = rounds[number].model_copy(update={"spec": spec})
    return certificate.model_copy(update={"rounds": tuple(rounds)})


def with_posterior(certificate: ReleaseCertificate, **changes: Any) -> ReleaseCertificate:
    posterior = certificate.report.body.posterior | changes
    report = altered(certificate.report, posterior=posterior)
    return certificate.model_copy(update={"report": report})


async def test_a_replay_is_the_same_for_what_happened_and_differs_for_what_did_not(
    encoded: bytes,
) -> None:
    told = read_certificate(encoded)
    assert replay(told).outcome == "same"

    rounded = [each * (1.0 + 1e-9) for each in told.report.body.posterior["coefficients"]]
    assert replay(with_posterior(told, coefficients=rounded)).outcome == "same"

    moved = [each * (1.0 + 1e-4) for each in told.report.body.posterior["coefficients"]]
    assert "after the last round" in replay(with_posterior(told, coefficients=moved)).detail
    assert "after the last round" in replay(with_posterior(told, target="age")).detail

    sd = [each[place] ** 0.5 for place, each in enumerate(told.report.body.posterior["covariance"])]
    # of the number with the smallest unit, which the largest one of the vector hides
    small = min(range(len(sd)), key=sd.__getitem__)
    forged = list(told.report.body.posterior["coefficients"])
    forged[small] += 0.01 * sd[small]
    assert replay(with_posterior(told, coefficients=forged)).outcome == "differs"
    assert "none that its study has" in replay(with_posterior(told, coefficients="0")).detail

    query = with_query(told, 1, 0.99)
    told.request.body.terms.check(query.rounds[1].spec.body.query, number=1)  # as holders do
    assert replay(query).outcome == "differs"
    assert "at round 1:" in replay(query).detail

    task = told.request.body.task | {"intercept": 0.2}
    other = told.model_copy(update={"request": altered(told.request, task=task)})
    assert "before the first round" in replay(other).detail


@pytest.mark.parametrize("changes", [{"name": "of_another_release"}, {"method_number": 7}])
async def test_a_study_or_method_that_this_release_does_not_know_is_not_replayed(
    encoded: bytes, changes: dict[str, Any]
) -> None:
    told = read_certificate(encoded)
    task = told.request.body.task | changes
    other = told.model_copy(update={"request": altered(told.request, task=task)})
    assert replay(other).outcome == "not possible"


async def test_the_command_replays_in_a_process_of_its_own(
    encoded: bytes, trust: Trust, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, manifest = tmp_path / "certificate.json", tmp_path / "manifest.json"
    file.write_bytes(encoded)
    (tmp_path / "numpy.py").write_text("raise SystemExit('what lies beside a certificate ran')")
    monkeypatch.chdir(tmp_path)
    manifest.write_bytes(trust.consortium.signed_manifest.encode())
    done = run("certificate", "verify", file, "--manifest", manifest, "--replay")
    assert done.exit_code == 0, done.output
    assert "Replay: same." in done.output
