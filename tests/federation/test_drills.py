"""Drills of the handbook: its commands as they stand there, while a job runs.

After each nothing that was acknowledged is lost, no answer counts twice, no cap is exceeded.
"""

import shutil
from pathlib import Path

import httpx
import pytest

from shoal_consortium.consortium_files import add_countersignatures
from shoal_kit.manifest_chain import open_chain
from shoal_protocol.trust.manifest import Consortium
from tests.command.running import refused, shoal
from tests.federation.test_backups import CHEAP, CLIENTS, BackedUp
from tests.federation.test_consortium_changes import publish
from tests.federation.test_manifest_signatures import signed_by
from tests.federation.test_parties_change import certified
from tests.world.audit import audit, look_at
from tests.world.handbook import commands
from tests.world.losses import count_losses
from tests.world.trust import HOLDER_POLICY, TASK_WITH_PROJECTION, Trust, make_trust

NEW = "https://new.example:8447"


class Drilled(BackedUp):
    """A federation that its operators change by the handbook, in its own directory."""

    async def follow(self, *some: list[str]) -> None:
        """Do what commands say; `publish` goes past TLS."""
        for each in some:
            if each[:2] == ["consortium", "publish"]:
                await self.publish()
            else:
                shoal(*each)

    async def publish(self) -> None:
        *_, before, newest = open_chain(self.trust.directory / "consortium")
        if before.manifest.policy.manifest_signatures and not newest.manifest.emergency:
            nodes = [each.name for each in before.manifest.compute_nodes]
            signed = await signed_by(self, newest.signed_manifest, nodes)
            add_countersignatures(Path("consortium"), newest, signed.countersignatures or "")
        newest, known = self.newest, self.wire.party_of

        def party_of(url: httpx.URL) -> str:
            """Return who has a URL, or had it: retired parties are still asked for a while."""
            try:
                return Trust(self.trust.directory, newest).party_of(url)
            except httpx.ConnectError:
                return known(url)

        self.wire.party_of = party_of
        await publish(self, newest, *self.services)
        self.analyst_book.accept(newest.signed_manifest.encode(), newest.roster.encode())

    @property
    def newest(self) -> Consortium:
        return open_chain(self.trust.directory / "consortium")[-1]

    async def check(self) -> None:
        """See that all was paid, below the cap, and all that was acknowledged is in its sum."""
        await audit(self)
        losses = await count_losses(self)
        assert losses.acknowledged
        assert not losses.lost + losses.double_counted + losses.unexplained
        assert await self.spent() <= HOLDER_POLICY.maximum_epsilon


@pytest.fixture
def trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trust:
    """Return a consortium of this test's own, whose directory is the one that commands work in."""
    made = make_trust(tmp_path / "federation")
    monkeypatch.chdir(made.directory)
    return made


async def test_a_node_is_installed_while_a_job_runs(trust: Trust, tmp_path: Path) -> None:
    async with Drilled(trust, trust.directory / "data") as federation:
        job, _ = await federation.collecting(task=TASK_WITH_PROJECTION)
        new, change, pin, announce, _ = commands("Install a node", URL=NEW)
        await federation.follow(new, change)
        federation.names.append("compute-3")
        await federation.follow(
            [federation.newest.digest if each == "DIGEST" else each for each in pin], announce
        )
        assert (await federation.finish(job))["phase"] == "finished"
        certificate = await certified(federation, job, federation.newest)
        assert certificate.rounds[1].spec.body.compute_nodes == (*federation.nodes, "compute-3")
        await federation.check()


@pytest.mark.parametrize("what", ["disk lost", "compromised"])
async def test_a_node_is_replaced_by_one_of_another_name_and_its_job_submitted_anew(
    trust: Trust, tmp_path: Path, what: str
) -> None:
    async with Drilled(trust, trust.directory / "data") as federation:
        await federation.learn(privacy=CHEAP)
        before = await federation.spent()
        job, _ = await federation.collecting(task=TASK_WITH_PROJECTION)
        if what == "disk lost":
            await federation.crash("compute-2")
            federation.absent.add("compute-2")
            shutil.rmtree(trust.directory / "data" / "compute-2")
        new, replace, pin, announce = commands("Replace a node", URL=NEW)
        await federation.follow(new, replace)
        federation.names.append("compute-4")
        pin = [federation.newest.digest if each == "DIGEST" else each for each in pin]
        federation.services[2] = "compute-4"
        await federation.follow(pin, announce)
        state = await federation.finish(job)
        why = "no holdings from compute-2" if what == "disk lost" else "submit the job anew"
        assert state["phase"] == "failed" and why in state["reason"]
        [newest] = (await federation.learn()).rounds
        result = await federation.result(newest)
        assert result is not None and result["cohort_size"] == CLIENTS
        assert before < await federation.spent()
        await federation.check()
        version = look_at(federation).specs[newest]
        assert version.compute_nodes == ("compute-0", "compute-1", "compute-4")


async def test_the_recovery_key_stands_in_for_a_lost_authority_while_a_job_runs(
    trust: Trust, tmp_path: Path
) -> None:
    async with Drilled(trust, trust.directory / "data") as federation:
        job, _ = await federation.collecting(task=TASK_WITH_PROJECTION)
        shutil.move("authority", "lost")
        await federation.follow(*commands("The key of the authority is lost"))
        assert (await federation.finish(job))["phase"] == "finished"
        change = ("consortium", "change", "consortium", "--minimum-cohort", 9, "--authority")
        assert "authority" in refused(*change, "lost")
        assert "authority" in refused(*change, "authority-recovery")
        shoal(*change, "authority-2")
        await federation.publish()
        await federation.check()


@pytest.fixture
def signing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trust:
    """Return a consortium whose nodes sign versions of the manifest, to work in its directory."""
    made = make_trust(tmp_path / "federation", manifest_signatures=2)
    monkeypatch.chdir(made.directory)
    return made


async def test_too_few_nodes_left_are_replaced_in_an_emergency(signing: Trust) -> None:
    async with Drilled(signing, signing.directory / "data") as federation:
        await federation.learn(privacy=CHEAP)
        await federation.check()
        for lost in ("compute-1", "compute-2"):
            await federation.crash(lost)
            federation.absent.add(lost)
            federation.services.remove(lost)
        new, change, pin, announce, _ = commands("Too few nodes are left to sign", URL=NEW)
        await federation.follow(new)
        assert "enough Compute nodes stay" in refused(*change[:5], *change[7:])
        await federation.follow(change)
        federation.names.append("compute-4")
        pin = [federation.newest.digest if each == "DIGEST" else each for each in pin]
        await federation.follow(pin)
        federation.services.append("compute-4")
        await federation.follow(announce)
        assert (await federation.learn()).population_size == CLIENTS
        said = shoal("consortium", "show", "consortium").stdout
        assert "in an emergency: two sites burnt" in " ".join(said.split())
        assert await federation.spent() <= HOLDER_POLICY.maximum_epsilon


async def test_R8_a_lost_aggregator_is_replaced_by_a_version_that_nodes_sign(
    signing: Trust,
) -> None:
    async with Drilled(signing, signing.directory / "data") as federation:
        await federation.learn(privacy=CHEAP)
        await federation.crash("aggregator")
        federation.absent.add("aggregator")
        who = ("--role", "aggregator", "--name", "sums", "--operator", "St. Mary", "--url", NEW)
        shoal("party", "new", "parties/sums", *who)
        change = ("consortium", "change", "consortium", "--authority", "authority", "--card")
        shoal(*change, "parties/sums/card.json")
        pinned = federation.newest.digest
        shoal("party", "pin", "parties/sums", pinned, "--consortium", "consortium")
        federation.names[-1] = "sums"
        federation.services[federation.services.index("aggregator")] = "sums"
        await federation.publish()
        assert (await federation.learn()).population_size == CLIENTS
        assert await federation.spent() <= HOLDER_POLICY.maximum_epsilon


async def test_a_wrong_release_stands_beside_its_correction_and_both_are_paid(
    trust: Trust, tmp_path: Path
) -> None:
    async with Drilled(trust, trust.directory / "data") as federation:
        jobs, spent = [], [0.0]
        for _ in ("wrong", "corrected"):
            jobs.append(await federation.submit(privacy=CHEAP))
            assert (await federation.finish(jobs[-1]))["phase"] == "finished"
            spent.append(await federation.spent())
        assert spent[0] < spent[1] < spent[2]
        for job in jobs:
            assert (await certified(federation, job, trust.consortium)).job == job
        await federation.check()
