"""Parties change their keys, come, go and are replaced while a job runs."""

import secrets
import shutil
import sqlite3
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from shoal.jobs.job_failures import JobRefused
from shoal_agent.client_files import write_pin
from shoal_consortium import consortium_files, parties, party_files
from shoal_consortium.party_files import (
    KeyKind,
    new_party,
    read_party_card,
    read_signing_key,
)
from shoal_holder.charge_comparison import AFTER_NONSENSE
from shoal_kit.manifest_chain import open_chain
from shoal_kit.party import PartyRole
from shoal_protocol.certificates.checks import verify_certificate
from shoal_protocol.jobs.totals import JobEnd
from shoal_protocol.rounds.attestations import Abandonment, AbandonmentReason
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.documents import BoundDocument, sign
from tests.federation.test_consortium_changes import publish
from tests.federation.test_forgetful_holders import CHEAP, SITE, Forgetful
from tests.world.audit import audit
from tests.world.clock import NOW
from tests.world.examples import PLACE
from tests.world.federation import Federation, InThread
from tests.world.trust import SITES, TASK_WITH_PROJECTION, Trust, make_trust

CLIENTS = sum(SITES.values())


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    """Return a consortium of this test's own: its directories change."""
    return make_trust(tmp_path / "trust")


def rotate(trust: Trust, name: str, *kinds: KeyKind) -> Path:
    """Make a party's next keys and return its card; the audit keeps what will be erased."""
    _, card = party_files.rotate(
        trust.directory / "parties" / name,
        kinds,
        url=None,
        extra_hosts=[],
        now=NOW,
        valid_days=30,
        random_bytes=secrets.token_bytes,
    )
    kept = trust.directory / "kept for the audit" / name
    shutil.copytree(trust.directory / "parties" / name, kept, dirs_exist_ok=True)
    return card


def newcomer(trust: Trust, role: PartyRole, name: str) -> Path:
    """Make a new party's directory and return it."""
    home = trust.directory / "parties" / name
    made = new_party(
        role,
        name=name,
        operator="one that joins",
        url=f"https://{name}.example:8999",
        extra_hosts=[],
        now=NOW,
        valid_days=30,
        random_bytes=secrets.token_bytes,
    )
    party_files.write_party(home, made)
    return home


def change(trust: Trust, cards: Iterable[Path] = (), **how: Any) -> Consortium:
    """Sign the next version and write it to the consortium's directory."""
    directory = trust.directory / "consortium"
    chain = open_chain(directory)
    key = read_signing_key(trust.directory / "authority" / "signing.key")
    read = [read_party_card(path) for path in cards]
    manifest = parties.changed(chain, authority=key, cards=read, **how)
    return consortium_files.add_version(directory, manifest, chain[-1].roster)


def signed_by_an_old_key(trust: Trust, name: str, body: BoundDocument) -> bytes:
    """Return a document that the first signing key of a party signed."""
    key = read_signing_key(trust.directory / "parties" / name / "signing.key")
    return sign(body, name, key).encode()


def problem(answer: httpx.Response) -> str:
    return str(answer.json()["type"]).rpartition(":")[2]


async def certified(federation: Federation, job: str, newest: Consortium) -> Any:
    """Return a finished job's certificate, verified by the newest version of the manifest."""

    async def is_there() -> bool:
        return (await federation.ask("trainer", f"/v1/jobs/{job}/certificate")).status_code == 200

    await federation.until(is_there)
    answer = await federation.ask("trainer", f"/v1/jobs/{job}/certificate")
    return verify_certificate(answer.content, newest.signed_manifest.encode()).certificate


@pytest.mark.parametrize(
    ("name", "restarts"),
    [("compute-1", False), ("compute-1", True), ("aggregator", True), ("trainer", True)],
)
async def test_a_round_ends_by_the_keys_it_began_with_and_the_next_has_the_new_ones(
    trust: Trust, tmp_path: Path, name: str, restarts: bool
) -> None:
    async with Federation(trust, tmp_path / "run") as federation:
        job, _ = await federation.collecting(task=TASK_WITH_PROJECTION)
        second = change(trust, [rotate(trust, name)])
        await publish(federation, second, *federation.services)
        if restarts:
            await federation.crash(name)
        state = await federation.finish(job)

        assert state["phase"] == "finished", state
        first_round, second_round = (await audit(federation)).values()
        assert first_round is not None and second_round is not None
        assert first_round["manifest"] == trust.consortium.digest
        assert second_round["manifest"] == second.digest
        assert first_round["cohort_size"] == second_round["cohort_size"] == CLIENTS
        certificate = await certified(federation, job, second)
        assert [each.spec.body.manifest for each in certificate.rounds] == [
            trust.consortium.digest,
            second.digest,
        ]


async def test_an_old_key_signs_nothing_of_a_later_version(trust: Trust, tmp_path: Path) -> None:
    async with Federation(trust, tmp_path / "run") as federation:
        second = change(trust, [rotate(trust, "compute-1"), rotate(trust, "trainer")])
        await publish(federation, second, *federation.services)
        federation.analyst_book.accept(second.signed_manifest.encode(), second.roster.encode())
        job, round_id = await federation.collecting()
        called_off = Abandonment(
            manifest=second.digest,
            round=round_id,
            party="compute-1",
            reason=AbandonmentReason(code="sum_failed"),
            entry=PLACE,
        )
        forged = signed_by_an_old_key(trust, "compute-1", called_off)
        path = f"/v1/rounds/{round_id}/ends"
        answer = await federation.ask("aggregator", path, method="POST", content=forged)
        assert (answer.status_code, problem(answer)) == (403, "bad-signature")
        old = Abandonment(**(called_off.model_dump() | {"manifest": trust.consortium.digest}))
        forged = signed_by_an_old_key(trust, "compute-1", old)
        answer = await federation.ask("aggregator", path, method="POST", content=forged)
        assert problem(answer) == "wrong-manifest", "nor may it name the version that listed it"
        for manifest in (trust.consortium.digest, second.digest):
            end = signed_by_an_old_key(
                trust, "trainer", JobEnd(manifest=manifest, job=job, report="0" * 64)
            )
            answer = await federation.ask("compute-0", "/v1/totals", method="POST", content=end)
            assert (answer.status_code, problem(answer)) == (403, "bad-signature")
        assert (await federation.finish(job))["phase"] == "finished"


async def test_a_round_that_was_signed_before_a_version_came_begins_under_the_one_before(
    trust: Trust, tmp_path: Path
) -> None:
    async with Federation(trust, tmp_path / "run") as federation:
        cut = federation.wire.cut("trainer", "compute-1", "/rounds$")
        job = await federation.submit()
        await federation.until(lambda: _has_round(federation, job))
        second = change(trust, policy={"maximum_round_seconds": 80_000})
        await publish(federation, second, *federation.services)
        federation.wire.rules.remove(cut)
        state = await federation.finish(job)

        assert state["phase"] == "finished", state
        (result,) = (await audit(federation)).values()
        assert result is not None and result["manifest"] == trust.consortium.digest


async def told(federation: Federation, service: str) -> str:
    """Return what a service says of its own place in the consortium."""
    return str((await federation.ask(service, "/readyz")).json()["party"])


async def _has_round(federation: Federation, job: str) -> bool:
    return bool((await federation.state(job))["rounds"])


async def test_a_job_goes_on_without_a_node_that_was_retired(trust: Trust, tmp_path: Path) -> None:
    async with Federation(trust, tmp_path / "run") as federation:
        job, _ = await federation.collecting(task=TASK_WITH_PROJECTION)
        second = change(trust, retired=["compute-2"])
        await publish(federation, second, *federation.services)
        state = await federation.finish(job)

        assert state["phase"] == "finished", state
        certificate = await certified(federation, job, second)
        first_round, second_round = (each.spec.body for each in certificate.rounds)
        assert first_round.compute_nodes == ("compute-0", "compute-1", "compute-2")
        assert second_round.compute_nodes == ("compute-0", "compute-1")
        assert [each.body.node for each in certificate.totals] == list(first_round.compute_nodes)
        path = f"/v1/rounds/{second_round.digest}/ends"
        body = Abandonment(
            manifest=second.digest,
            round=second_round.digest,
            party="compute-2",
            reason=AbandonmentReason(code="sum_failed"),
            entry=PLACE,
        )
        forged = signed_by_an_old_key(trust, "compute-2", body)
        answer = await federation.ask("aggregator", path, method="POST", content=forged)
        assert problem(answer) == "unknown-signer"


@pytest.mark.parametrize("left", [1, 0], ids=["one is left", "none is left"])
async def test_a_site_that_was_set_back_learns_what_it_spent_while_one_old_node_is_left(
    trust: Trust, tmp_path: Path, left: int
) -> None:
    async with Forgetful(trust, tmp_path / "run") as federation:
        await federation.step()
        await federation.copy_of(SITE, tmp_path / "copy")
        await federation.learn(privacy=CHEAP)
        spent = await federation.charged()
        assert len(spent) == SITES[SITE]
        for old in federation.nodes[left:]:
            home = newcomer(trust, "compute", f"after-{old}")
            version = change(trust, [home], retired=[old])
            write_pin(home, version.digest, replace_other=False)
            federation.wire.party_of = Trust(trust.directory, version).party_of
            federation.names.append(home.name)
            nodes = [node.name for node in version.manifest.compute_nodes]
            await publish(federation, version, *federation.services, *nodes)
            await federation.step()

        await federation.set_back(SITE, tmp_path / "copy")
        if left:
            assert "shoal agent restore" in await federation.refusal()
        else:
            await federation.step()
        await federation.restore()
        for _ in range(4):  # to all that it waits for
            await federation.step()
            federation.clock.move(AFTER_NONSENSE.total_seconds())
        assert (await federation.holder(SITE).status()).refusal is None
        assert await federation.charged() == (spent if left else set())


async def with_heir(federation: Federation, trust: Trust) -> Consortium:
    """Publish a version in which another trainer takes the trainer's place."""
    home = newcomer(trust, "trainer", "heir")
    second = change(trust, [home])
    write_pin(home, second.digest, replace_other=False)
    heir = second.manifest.trainer
    federation.wire.party_of = lambda url: (
        heir.name if url.host in heir.url else trust.party_of(url)
    )
    federation.names.append("heir")
    await publish(federation, second, *federation.services)
    return second


async def test_a_trainer_whose_place_another_took_ends_what_it_began(
    trust: Trust, tmp_path: Path
) -> None:
    async with Federation(trust, tmp_path / "run") as federation:
        one, _ = await federation.collecting()
        two, _ = await federation.collecting(task=TASK_WITH_PROJECTION)
        second = await with_heir(federation, trust)
        await federation.crash("trainer")
        assert (await federation.finish(one))["phase"] == "finished"
        state = await federation.finish(two)
        assert state["phase"] == "failed"
        assert "heir is the trainer now" in state["reason"]
        certificate = await certified(federation, one, trust.consortium)
        assert certificate.manifest == trust.consortium.digest
        federation.analyst_book.accept(second.signed_manifest.encode(), second.roster.encode())
        request = federation.request().encode()
        answer = await federation.ask("trainer", "/v1/jobs", method="POST", content=request)
        assert problem(answer) == "refused-job"

        analyst = InThread(federation.open_analyst())
        assert (await analyst.job(one).result()) is not None
        assert (await analyst.job(two).state()).phase == "failed"
        with pytest.raises(JobRefused, match="unknown-job"):
            await analyst.job("0" * 64).state()

        # the old trainer goes on, and tells nobody of the new one: who joins heard it of a node
        federation.analyst = analyst
        third = await federation.submit(join_seconds=100)

        async def is_joined() -> bool:
            return (await analyst.job(third).state()).joined == CLIENTS

        await federation.until(is_joined)


async def test_a_round_ends_at_the_aggregator_that_it_began_with(
    trust: Trust, tmp_path: Path
) -> None:
    async with Federation(trust, tmp_path / "run") as federation:
        job, round_id = await federation.collecting()
        second = change(trust, [newcomer(trust, "aggregator", "sums")])
        await publish(federation, second, *federation.services)
        await federation.crash("aggregator")
        state = await federation.finish(job)

        assert state["phase"] == "finished", state
        assert (await audit(federation))[round_id] is not None


async def test_nodes_erase_the_shares_of_a_round_whose_aggregator_is_lost_for_good(
    trust: Trust, tmp_path: Path
) -> None:
    async def phases() -> set[str]:
        asked = [await federation.ask(name, f"/v1/rounds/{round_id}") for name in federation.nodes]
        return {answer.json()["phase"] for answer in asked}

    async def are(phase: str) -> bool:
        return await phases() == {phase}

    async with Federation(trust, tmp_path / "run") as federation:
        job, round_id = await federation.collecting()
        federation.absent.add("aggregator")
        await federation.crash("aggregator")
        await federation.until(partial(are, "agreed"))
        patience = trust.consortium.manifest.policy.maximum_round_seconds
        federation.clock.move(patience - 600)
        await federation.step()
        assert await phases() == {"agreed"}, "the aggregator may come back"

        federation.clock.move(1200)
        await federation.until(partial(are, "published"))
        await federation.step()
        for name in federation.nodes:
            with sqlite3.connect(next((tmp_path / "run" / name).glob("*.sqlite"))) as database:
                kept = "SELECT COUNT(payload) FROM shares"
                assert database.execute(kept).fetchall() == [(0,)]
        state = await federation.finish(job)
        assert state["phase"] == "failed" and "does not say what became" in state["reason"]


async def test_a_stricter_policy_ends_a_job_that_does_not_keep_to_it(
    trust: Trust, tmp_path: Path
) -> None:
    async with Federation(trust, tmp_path / "run") as federation:
        job, _ = await federation.collecting(task=TASK_WITH_PROJECTION)
        second = change(trust, policy={"minimum_cohort": CLIENTS + 1})
        await publish(federation, second, *federation.services)
        state = await federation.finish(job)

        assert state["phase"] == "failed"
        assert "minimum_cohort" in state["reason"]
