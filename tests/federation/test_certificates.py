"""What a whole federation did is in one file, which holds by the manifest alone."""

from pathlib import Path

import pytest

from shoal.jobs.job_failures import JobFailed
from shoal_holder.noise import exact_noise
from shoal_hosting.party import load_party
from shoal_protocol.certificates.checks import Verified, verify_certificate
from shoal_protocol.certificates.release_certificate import unpack
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.schemes import ThresholdSharing
from shoal_protocol.wire.documents import decode, sign
from tests.federation.test_consortium_changes import publish, second_version
from tests.world.audit import audit
from tests.world.federation import PRIVACY, Federation
from tests.world.trust import HOLDER_POLICY, SITES, TASK_WITH_PROJECTION, Trust, make_trust

CLIENTS = sum(SITES.values())


async def certificate_of(federation: Federation, job: str) -> bytes:
    """Return a finished job's certificate, as the analyst got and checked it."""
    encoded = await federation.after(federation.analyst.job(job).certificate())
    assert encoded is not None
    return encoded


async def learned(federation: Federation, **changes: object) -> tuple[str, bytes]:
    job = await federation.submit(**changes)
    state = await federation.finish(job)
    assert state["phase"] == "finished", state
    return job, await certificate_of(federation, job)


def verified(trust: Trust, encoded: bytes) -> Verified:
    return verify_certificate(encoded, trust.consortium.signed_manifest.encode())


async def test_a_job_leaves_a_certificate_that_holds_by_the_manifest_alone(
    federation: Federation, trust: Trust
) -> None:
    job, encoded = await learned(federation)
    certificate = verified(trust, encoded).certificate
    assert certificate.job == job
    ((round_id, result),) = (await audit(federation)).items()
    (certified,) = certificate.rounds
    assert certified.spec.digest == round_id
    assert certified.result.body.model_dump(mode="json") == result
    assert [entry.ledger for entry in certified.ledger_entries] == ["trainer", *federation.nodes]
    assert certificate.report.body == await federation.report(job)


async def test_each_round_of_a_job_is_in_its_certificate(
    federation: Federation, trust: Trust
) -> None:
    first, _ = await learned(federation, task=TASK_WITH_PROJECTION)
    _, encoded = await learned(federation)
    both = [
        verified(trust, each).certificate
        for each in (await certificate_of(federation, first), encoded)
    ]
    assert [len(each.rounds) for each in both] == [2, 1]
    entries = [entry for each in both for one in each.rounds for entry in one.ledger_entries]
    assert [each.number for each in entries if each.ledger == "compute-1"] == [1, 2, 3]


async def test_a_certificate_is_the_same_to_the_last_byte_after_a_crash(
    federation: Federation, trust: Trust
) -> None:
    job, encoded = await learned(federation)
    await federation.crash("trainer")
    answer = await federation.ask("trainer", f"/v1/jobs/{job}/certificate")
    assert unpack(answer.content) == encoded


async def test_there_is_no_certificate_before_a_job_is_finished(federation: Federation) -> None:
    job, _ = await federation.collecting()
    answer = await federation.ask("trainer", f"/v1/jobs/{job}/certificate")
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:shoal:problem:wrong-phase")
    assert await federation.after(federation.analyst.job(job).certificate()) is None


async def test_no_trainer_can_run_two_rounds_of_one_number_and_certify_one(
    federation: Federation, trust: Trust
) -> None:
    job, genuine = await federation.collecting(task=TASK_WITH_PROJECTION)
    shown = await federation.ask("trainer", f"/v1/jobs/{job}/rounds/0")
    spec = decode(shown.content, RoundSpec).body
    key = load_party(trust.directory / "parties" / "trainer").signing_key
    second = sign(spec.model_copy(update={"opened_at": federation.clock.now}), "trainer", key)
    assert second.digest != genuine
    for name in (*federation.nodes, "aggregator"):
        for known, expected in ((shown.content, 200), (second.encode(), 409)):
            answer = await federation.ask(name, "/v1/rounds", method="POST", content=known)
            assert answer.status_code == expected, answer.text
    assert (await federation.finish(job))["phase"] == "finished"
    certificate = verified(trust, await certificate_of(federation, job)).certificate
    rounds = tuple(each.spec.digest for each in certificate.rounds)
    assert [each.body.rounds for each in certificate.totals] == [rounds] * len(federation.nodes)
    later = second.body.model_copy(update={"number": 2, "opened_at": federation.clock.now})
    later = later.model_copy(
        update={
            "deadline": federation.clock.now + (spec.deadline - spec.opened_at),
            "proceed_at": federation.clock.now + (spec.proceed_at - spec.opened_at),
            "give_up_at": federation.clock.now + (spec.give_up_at - spec.opened_at),
        }
    )
    for name in federation.nodes:
        answer = await federation.ask(
            name, "/v1/rounds", method="POST", content=sign(later, "trainer", key).encode()
        )
        assert (answer.status_code, answer.json()["detail"]) == (
            409,
            "the job is over: this node has signed how many rounds it had",
        )


async def test_there_is_no_certificate_of_a_job_that_failed(trust: Trust, tmp_path: Path) -> None:
    async with Federation(trust, tmp_path, absent=["clinic-a"]) as federation:
        job = await federation.submit()
        assert (await federation.finish(job))["phase"] == "failed"
        answer = await federation.ask("trainer", f"/v1/jobs/{job}/certificate")
        assert (answer.status_code, answer.json()["type"]) == (410, "urn:shoal:problem:job-failed")
        with pytest.raises(JobFailed, match="job-failed"):
            await federation.after(federation.analyst.job(job).certificate())


async def test_there_is_no_certificate_of_a_job_that_nobody_knows(federation: Federation) -> None:
    answer = await federation.ask("trainer", f"/v1/jobs/{'5' * 64}/certificate")
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:shoal:problem:unknown-job")


async def test_a_threshold_certificate_waits_for_the_total_of_the_node_that_was_lost(
    tmp_path: Path,
) -> None:
    trust = make_trust(tmp_path / "trust", minimum_threshold=2)
    policy = HOLDER_POLICY.model_copy(update={"minimum_threshold": 2})
    holders = {site: {"policy": policy} for site in SITES}
    async with Federation(trust, tmp_path, holders=holders, absent=["compute-2"]) as federation:
        job = await federation.submit(sharing=ThresholdSharing(threshold=2))
        assert (await federation.finish(job))["phase"] == "finished"
        await federation.report(job)  # does not wait for the node
        answer = await federation.ask("trainer", f"/v1/jobs/{job}/certificate")
        problem = answer.json()
        code = "urn:shoal:problem:certificate-incomplete"
        assert (answer.status_code, problem["type"]) == (409, code)
        assert problem["detail"].endswith("missing: compute-2")
        await federation.crash("trainer")
        federation.absent.clear()
        federation.clock.move(400.0)
        await federation.step()
        encoded = await certificate_of(federation, job)
    (certified,) = verified(trust, encoded).certificate.rounds
    assert [each.signer for each in certified.partial_sums] == ["compute-0", "compute-1"]
    totals = [each.body.rounds for each in verified(trust, encoded).certificate.totals]
    assert totals == [(certified.spec.digest,), (certified.spec.digest,), ()]


async def test_a_job_whose_manifest_changed_between_its_rounds_has_both_in_its_certificate(
    federation: Federation, trust: Trust
) -> None:
    job = await federation.submit(task=TASK_WITH_PROJECTION)
    await federation.until(lambda: federation.is_collecting(job))
    later = second_version(trust)
    await publish(federation, later, *federation.services)
    federation.analyst_book.accept(later.signed_manifest.encode(), later.roster.encode())
    state = await federation.finish(job)
    assert state["phase"] == "finished", state
    encoded = await certificate_of(federation, job)
    certificate = verify_certificate(encoded, later.signed_manifest.encode()).certificate
    versions = [each.spec.body.manifest for each in certificate.rounds]
    assert versions == [trust.consortium.digest, later.digest]


async def test_a_job_of_pure_epsilon_is_certified_at_a_price_without_delta(tmp_path: Path) -> None:
    trust = make_trust(tmp_path / "trust", delta=0.0, mechanisms=("discrete_laplace",))
    policy = HOLDER_POLICY.model_copy(update={"delta": 0.0})
    holders = {site: {"policy": policy} for site in SITES}
    async with Federation(trust, tmp_path, noise=exact_noise, holders=holders) as federation:
        demand = PRIVACY.model_copy(update={"delta": 0.0})
        _, encoded = await learned(federation, privacy=demand, task=TASK_WITH_PROJECTION)
    certificate = verified(trust, encoded).certificate
    noises = [each.spec.body.noise.mechanism for each in certificate.rounds]
    assert noises == ["discrete_laplace"] * 2
    *against, opened = certificate.prices
    for price in against:
        assert price.promised is not None
        assert price.promised.delta == 0.0
        assert price.promised.epsilon == pytest.approx(2.0)
    assert opened.promised is None
