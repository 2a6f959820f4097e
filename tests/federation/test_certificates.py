"""What a whole federation did is in one file, which holds by the manifest alone."""

from pathlib import Path

import httpx
import pytest

from shoal_consortium.journal_reading import Reading, read_journals
from shoal_kit.party import load_party
from shoal_protocol.certificates.checks import Verified, verify_certificate
from shoal_protocol.jobs.totals import JobEnd, JobTotal
from shoal_protocol.journal import Shown
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.schemes import ThresholdSharing
from shoal_protocol.wire.documents import decode, sign
from tests.federation.test_consortium_changes import publish, second_version
from tests.world.audit import audit
from tests.world.examples import LINK
from tests.world.federation import Federation
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
    assert [each.body.node for each in certified.partial_sums] == [*federation.nodes]
    assert certificate.report.digest == (await federation.report(job)).digest


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


async def test_the_journals_of_all_nodes_show_the_totals_that_a_certificate_has(
    federation: Federation, trust: Trust, tmp_path: Path
) -> None:
    _, encoded = await learned(federation)
    totals = verified(trust, encoded).certificate.totals

    async def look() -> Reading:
        shown = {each: await federation.ask(each, "/v1/journal") for each in federation.nodes}
        entries = {
            node: [Shown.model_validate(each) for each in page.json()["entries"]]
            for node, page in shown.items()
        }
        copy = tmp_path / "copy"
        return read_journals(lambda node: entries[node.name], [trust.consortium], copy=copy)

    reading = await look()
    assert not reading.findings
    assert [each.broken for each in reading.journals] == [None] * len(federation.nodes)
    assert tuple(reading.of_kind(JobTotal)) == totals
    await learned(federation)
    again = await look()
    assert not again.findings
    grown = [(each.seen, each.entries) for each in again.journals]
    assert all(0 < seen < entries for seen, entries in grown)


async def test_a_job_whose_report_changed_after_a_node_signed_gets_no_certificate(
    federation: Federation, trust: Trust
) -> None:
    job, round_id = await federation.collecting()
    await federation.until(lambda: federation.result(round_id))
    end = JobEnd(manifest=trust.consortium.digest, job=job, report="ab" * 32)
    key = load_party(trust.directory / "parties" / "trainer").signing_key
    early = await federation.ask(
        "compute-1", "/v1/totals", method="POST", content=sign(end, "trainer", key).encode()
    )
    assert early.status_code == 200
    assert (await federation.finish(job))["phase"] == "finished"
    assert (await federation.report(job)).digest != end.report
    for _ in range(2):
        answer = await federation.ask("trainer", f"/v1/jobs/{job}/certificate")
        problem = answer.json()
        assert (answer.status_code, problem["type"]) == (409, "urn:shoal:problem:changed-report")
        assert problem["detail"] == "compute-1 signed its total for another report of the job"
        await federation.crash("trainer")
        federation.clock.move(400.0)
        await federation.step()
    kept = await federation.ask(
        "compute-1", "/v1/totals", method="POST", content=sign(end, "trainer", key).encode()
    )
    assert kept.content == early.content


@pytest.mark.parametrize("lie", ["another version's", "another node's"])
async def test_a_total_that_the_certificate_could_not_hold_is_not_kept(
    federation: Federation, trust: Trust, lie: str
) -> None:
    later = second_version(trust, revoked=())

    def answer(request: httpx.Request) -> httpx.Response | None:
        if request.url.path != "/v1/totals":
            return None
        end = decode(request.content, JobEnd).body
        name = "compute-1" if lie == "another node's" else "compute-0"
        manifest = later.digest if lie == "another version's" else end.manifest
        body = JobTotal(
            manifest=manifest,
            entry=LINK,
            job=end.job,
            node=name,
            rounds=(round_id,),
            report=end.report,
        )
        key = load_party(trust.directory / "parties" / name).signing_key
        return httpx.Response(200, content=sign(body, name, key).encode())

    job, round_id = await federation.collecting()
    await federation.until(lambda: federation.result(round_id))
    await publish(federation, later, *federation.services)
    federation.wire.scripts["compute-0"] = answer
    assert (await federation.finish(job))["phase"] == "finished"
    answered = await federation.ask("trainer", f"/v1/jobs/{job}/certificate")
    assert answered.json()["detail"].endswith("missing: compute-0")
    del federation.wire.scripts["compute-0"]
    federation.clock.move(400.0)
    await federation.step()
    assert verified(trust, await certificate_of(federation, job))


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
