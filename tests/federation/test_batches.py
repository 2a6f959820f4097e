"""Jobs of many rounds, each of which asks a batch of the clients."""

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pyroaring import BitMap

from shoal.jobs.job_failures import JobRefused
from shoal_kit.party import load_party
from shoal_protocol.certificates.checks import Verified, verify_certificate
from shoal_protocol.certificates.release_certificate import (
    LostRound,
    ReleaseCertificate,
    read_certificate,
)
from shoal_protocol.privacy.accounting import compose
from shoal_protocol.rounds.batches import Owners, largest_part
from shoal_protocol.rounds.round_spec import AskedHolders, RoundSpec
from shoal_protocol.wire.documents import sign
from shoal_protocol.wire.encoding import decode_clients, encode_clients
from shoal_protocol.wire.service_errors import RefusedCertificate
from shoal_studies.posterior_report import PosteriorReport
from shoal_trainer import running
from tests.federation.test_consortium_changes import REVOKED, both, publish, second_version
from tests.world.audit import look_at
from tests.world.batches import BATCH, CLIENTS, CONSORTIUM, HOLDERS, MOST, ROUNDS, TASK
from tests.world.federation import PRIVACY, Federation
from tests.world.spending import costs_of
from tests.world.trust import SITES, Trust, make_trust


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return make_trust(tmp_path_factory.mktemp("trust"), **CONSORTIUM)


@pytest.fixture
async def federation(trust: Trust, tmp_path: Path) -> AsyncIterator[Federation]:
    async with Federation(trust, tmp_path, holders=HOLDERS) as running:
        yield running


async def number_of(federation: Federation, job: str) -> int:
    """Return the number of the job's newest round, -1 before the first."""
    rounds = (await federation.state(job))["rounds"]
    return int(rounds[-1]["number"]) if rounds else -1


async def reach(federation: Federation, job: str, number: int) -> None:
    """Go on until a round of the job takes answers."""

    async def is_reached() -> bool:
        return await number_of(federation, job) == number and await federation.is_collecting(job)

    await federation.until(is_reached)


def specs_of(federation: Federation) -> list[RoundSpec]:
    return sorted(look_at(federation).specs.values(), key=lambda spec: spec.number)


async def certified(federation: Federation, trust: Trust, job: str) -> Verified:
    encoded = (await federation.ask("trainer", f"/v1/jobs/{job}/certificate")).content
    return verify_certificate(encoded, trust.consortium.signed_manifest.encode())


async def test_every_party_may_die_in_mid_job_and_each_client_pays_for_its_own_rounds(
    federation: Federation, trust: Trust
) -> None:
    job = await federation.submit(task=TASK)
    for number, name in enumerate(["trainer", "compute-1", "aggregator", "clinic-a"], start=2):
        await reach(federation, job, number)
        await federation.crash(name)
    state = await federation.finish(job)
    assert state["phase"] == "finished", state
    report = await federation.report(job)
    assert (len(report.rounds), report.lost_rounds) == (ROUNDS, ())
    assert (report.participations.least, report.participations.most) == (MOST, MOST)
    assert report.privacy.epsilon == pytest.approx(PRIVACY.epsilon)

    asked = Counter(client for spec in specs_of(federation) for client in spec.clients())
    assert set(asked.values()) == {MOST}
    for site in SITES:
        spent = await costs_of(federation.holder(site))
        assert {client: len(costs) for client, costs in spent.items()} == {
            client: asked[client] for client in spent
        }
        assert all(PRIVACY.cap.allows(compose(costs)) for costs in spent.values())
    holds = await certified(federation, trust, job)
    assert len(holds.certificate.rounds) == ROUNDS


async def test_a_job_that_was_admitted_has_noise_against_the_largest_data_holder_in_every_round(
    tmp_path: Path,
) -> None:
    trust = make_trust(tmp_path / "trust", **CONSORTIUM | {"colluding_holders": 1})
    part = largest_part(SITES.values(), holders=1, size=BATCH, population=CLIENTS)
    terms = {"task": TASK, "minimum_population": CLIENTS}
    async with Federation(trust, tmp_path, holders=HOLDERS) as federation:
        for least, needed in ((CLIENTS, part), (10, 5)):  # of 10 clients 6 may be of one
            few = PRIVACY.model_copy(update={"dropouts": 0, "colluders": needed - 1})
            with pytest.raises(JobRefused, match=f"colluders must be at least {needed}"):
                await federation.submit(**terms | {"minimum_population": least}, privacy=few)
        enough = PRIVACY.model_copy(update={"colluders": part})
        job = await federation.submit(**terms, privacy=enough)
        state = await federation.finish(job)
        assert state["phase"] == "finished", state
        assert len((await federation.report(job)).rounds) == ROUNDS
        for spec in specs_of(federation):
            asked = AskedHolders.of(spec.clients(), trust.consortium.roster)
            assert asked.largest(1) == part == spec.colluders


async def go_away(federation: Federation, *names: str) -> None:
    for name in names:
        federation.absent.add(name)
        await federation.crash(name)


async def lose_a_round(federation: Federation, job: str) -> str:
    """Keep most clients away from the job's newest round until it is abandoned."""
    number = await number_of(federation, job)
    await go_away(federation, "clinic-a", "clinic-b")

    async def is_lost() -> bool:
        found = (await federation.state(job))["rounds"][number]["phase"]
        return bool(found == "abandoned")

    await federation.until(is_lost, tick=10.0)
    federation.absent.clear()
    return str((await federation.state(job))["rounds"][number]["round"])


async def lossy(federation: Federation) -> tuple[str, str]:
    """Run a job that loses its third round; return the job and that round."""
    job = await federation.submit(task=TASK)
    await reach(federation, job, 2)
    lost = await lose_a_round(federation, job)
    state = await federation.finish(job)
    assert state["phase"] == "finished", state
    return job, lost


async def test_R5_a_lost_round_is_paid_for_and_the_certificate_says_so(
    federation: Federation, trust: Trust
) -> None:
    job, lost = await lossy(federation)
    report = await federation.report(job)
    assert (report.lost_rounds, len(report.rounds)) == ((lost,), ROUNDS - 1)
    assert (report.participations.least, report.participations.most) == (MOST, MOST)
    assert report.privacy.epsilon == pytest.approx(PRIVACY.epsilon)
    entries = (await federation.ask("trainer", "/v1/ledger")).json()["entries"]
    assert [each["kind"] for each in entries] == ["charge"] * ROUNDS  # clients were told of it

    told = (await certified(federation, trust, job)).certificate
    (missing,) = told.lost_rounds
    assert missing.abandonment is not None
    assert missing.abandonment.body.reason.code != ""
    public, *others = bought(told)
    assert public < min(others)  # who may see partial sums or shares is taken to have added them up
    unsigned = (missing.model_copy(update={"abandonment": None}),)
    assert bought(told.model_copy(update={"lost_rounds": unsigned})) == pytest.approx(
        [others[0], *others]
    )

    for what, changes in lies(told).items():
        for by_nodes in (False, True):
            with pytest.raises(RefusedCertificate):
                verify_certificate(*lied(trust, told, changes, by_nodes=by_nodes))
                pytest.fail(what)


async def test_a_released_round_that_is_told_as_lost_lowers_no_price(
    federation: Federation, trust: Trust
) -> None:
    job = await federation.submit(task=TASK)
    assert (await federation.finish(job))["phase"] == "finished"
    told = (await certified(federation, trust, job)).certificate
    *shown, hidden = told.rounds
    lost = (LostRound(spec=hidden.spec, abandonment=None),)
    lie = told.model_copy(update={"rounds": tuple(shown), "lost_rounds": lost})
    report = PosteriorReport.of(
        told.request.body,
        shown,
        lost,
        population=decode_clients(told.population),
        posterior=told.report.body.posterior,
        entry=told.report.body.entry,
    )
    changes = {"rounds": lie.rounds, "lost_rounds": lost, "report": dict(report)}
    honest, stated = bought(told), bought(lie)
    assert all(one <= other for one, other in zip(honest, stated, strict=True))
    assert stated[0] > honest[0]  # the noise of a whole cohort is not known to have been there
    with pytest.raises(RefusedCertificate, match="signed its total for another report"):
        verify_certificate(*lied(trust, told, changes))
    held = verify_certificate(*lied(trust, told, changes, by_nodes=True))
    assert bought(held.certificate) == stated


def bought(told: ReleaseCertificate) -> list[float]:
    """Return the epsilon that the noise of the rounds bought, against each adversary."""
    return [each.bought.epsilon for each in told.statements if each.bought is not None]


def lies(told: ReleaseCertificate) -> dict[str, dict[str, Any]]:
    """Return what the trainer alone can change in a certificate."""
    report, rounds = told.report.body, told.rounds
    fewer = report.participations.model_copy(update={"most": MOST - 1})
    cheaper = report.privacy.model_copy(update={"epsilon": report.privacy.epsilon / 2})
    (missing,) = told.lost_rounds
    return {
        "the lost round is not told of": {"lost_rounds": ()},
        "the lost round is said never to have asked": {
            "lost_rounds": (missing.model_copy(update={"abandonment": None}),),
            "report": {"lost_rounds": ()},
        },
        "a released round is left out": {"rounds": rounds[:-1]},
        "a round in the middle is left out": {"rounds": (*rounds[:3], *rounds[4:])},
        "a round is told of twice": {"rounds": (*rounds, rounds[-1])},
        "more joined than did": {
            "population": encode_clients(BitMap(range(CLIENTS + 1))),
        },
        "clients were asked less often": {"report": {"participations": fewer}},
        "clients paid less": {"report": {"privacy": cheaper}},
    }


def lied(
    trust: Trust, told: ReleaseCertificate, changes: dict[str, Any], *, by_nodes: bool = False
) -> tuple[bytes, bytes]:
    """Return a certificate whose report the trainer signed again, and all nodes their totals."""

    def signed(body: Any, name: str) -> Any:
        return sign(body, name, load_party(trust.directory / "parties" / name).signing_key)

    report = signed(told.report.body.model_copy(update=changes.get("report", {})), "trainer")
    totals = tuple(
        signed(each.body.model_copy(update={"report": report.digest}), each.signer)
        for each in told.totals
    )
    lie = {"report": report} | ({"totals": totals} if by_nodes else {})
    body = told.model_copy(update=changes | lie)
    return body.encode(), trust.consortium.signed_manifest.encode()


async def test_a_round_that_no_client_was_told_of_is_lost_and_given_back(
    federation: Federation, trust: Trust
) -> None:
    job = await federation.submit(task=TASK)
    await reach(federation, job, 1)
    cut = federation.wire.cut("trainer", "compute-2")  # round 1 goes on, round 2 never opens

    async def is_lost() -> bool:
        return await number_of(federation, job) == 3

    await federation.until(is_lost, tick=5.0)
    federation.wire.rules.remove(cut)
    state = await federation.finish(job)
    assert state["phase"] == "finished", state
    (lost,) = (await certified(federation, trust, job)).certificate.lost_rounds
    assert lost.abandonment is None
    entries = (await federation.ask("trainer", "/v1/ledger")).json()["entries"]
    assert [each["round"] for each in entries if each["kind"] == "return"] == [lost.spec.digest]


async def test_who_is_revoked_in_mid_job_is_not_asked_again_and_nobody_is_instead(
    federation: Federation, trust: Trust
) -> None:
    job = await federation.submit(task=TASK)
    await reach(federation, job, 3)
    later = second_version(trust)
    await publish(federation, later, *federation.services)
    federation.analyst_book.accept(*both(later))
    state = await federation.finish(job)
    assert state["phase"] == "finished", state

    specs = specs_of(federation)
    asked = Counter(client for spec in specs for client in spec.clients())
    revoked = later.roster.slots_of(REVOKED)
    since = [spec.clients() for spec in specs if spec.manifest == later.digest]
    assert since and not any(clients & revoked for clients in since)
    assert all(spec.population_size == BATCH for spec in specs)
    assert max(asked.values()) == MOST
    assert len(specs) == ROUNDS - 1  # who is left has no room for a whole batch more
    encoded = (await federation.ask("trainer", f"/v1/jobs/{job}/certificate")).content
    manifest = later.signed_manifest.encode()
    assert not verify_certificate(encoded, manifest).all_rosters
    verified = verify_certificate(encoded, manifest, known=(trust.consortium, later))
    assert verified.all_rosters
    assert len(verified.certificate.rounds) == ROUNDS - 1
    assert read_certificate(encoded).report.body.population_size == CLIENTS


async def test_who_is_left_out_after_a_change_of_the_manifest_is_seen_by_whoever_has_the_rosters(
    federation: Federation, trust: Trust, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trainer may say that a client was revoked; without the roster nobody can tell."""
    job = await federation.submit(task=TASK)
    await reach(federation, job, 3)
    later = second_version(trust, revoked=())
    await publish(federation, later, *federation.services)
    federation.analyst_book.accept(*both(later))
    honest, left_out = running.choose_batch, BitMap([0])

    def without_one(
        participation: Any, present: BitMap, owners: Owners, **terms: Any
    ) -> BitMap | None:
        return honest(participation, present - left_out, owners, **terms)

    monkeypatch.setattr(running, "choose_batch", without_one)
    state = await federation.finish(job)
    assert state["phase"] == "finished", state
    encoded = (await federation.ask("trainer", f"/v1/jobs/{job}/certificate")).content
    manifest = later.signed_manifest.encode()
    assert not verify_certificate(encoded, manifest).all_rosters
    with pytest.raises(RefusedCertificate, match="not the batch that the public rule chooses"):
        verify_certificate(encoded, manifest, known=(later,))
    with pytest.raises(RefusedCertificate):  # an analyst has all rosters
        await federation.after(federation.analyst.job(job).certificate())
