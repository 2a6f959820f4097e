"""A new version of the manifest in a federation: who signs it, and who believes it."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import httpx
import pytest

from shoal_consortium.parties import next_manifest
from shoal_consortium.party_files import read_signing_key
from shoal_holder.vault import Vault
from shoal_protocol.trust.manifest import Manifest
from shoal_protocol.trust.manifest_bundle import framed
from shoal_protocol.trust.succession import SIGNATURES_PATH, ManifestStatement, written
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.errors import TooFewSignatures
from tests.world.federation import PRIVACY, Federation
from tests.world.parties import problem_code
from tests.world.trust import SITES, Trust, make_trust

CHEAP = PRIVACY.model_copy(update={"epsilon": 0.5})


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return make_trust(tmp_path_factory.mktemp("trust"), manifest_signatures=2)


def next_version(trust: Trust, cohort: int = 3) -> Signed[Manifest]:
    """Return the version after the first; the cohort tells one from another."""
    key = read_signing_key(trust.directory / "authority" / "signing.key")
    now = trust.consortium
    policy = now.manifest.policy.model_copy(update={"minimum_cohort": cohort})
    return next_manifest(now, roster=now.roster, authority=key, policy=policy)


async def hand(federation: Federation, name: str, version: Signed[Manifest]) -> httpx.Response:
    body = framed(version.encode(), federation.trust.consortium.roster.encode())
    return await federation.ask(name, "/v1/manifest", method="PUT", content=body)


async def ask(federation: Federation, node: str, version: Signed[Manifest]) -> httpx.Response:
    return await federation.ask(node, SIGNATURES_PATH, method="POST", content=version.encode())


async def signed_by(
    federation: Federation, version: Signed[Manifest], nodes: Iterable[str]
) -> Signed[Manifest]:
    """Return a version with what these nodes sign of it."""
    answers = [await ask(federation, node, version) for node in nodes]
    found = [decode(each.content, ManifestStatement) for each in answers]
    return replace(version, countersignatures=written(found))


async def test_R8_nobody_believes_a_version_that_too_few_nodes_signed(
    trust: Trust, tmp_path: Path
) -> None:
    async with Federation(trust, tmp_path) as federation:
        version = next_version(trust)
        lonely = await signed_by(federation, version, federation.nodes[:1])
        for name in federation.services:
            for each in (version, lonely):
                assert problem_code(await hand(federation, name, each)) == "too-few-signatures"
        signed = await signed_by(federation, version, federation.nodes[:2])
        for name in federation.services:
            assert (await hand(federation, name, signed)).status_code == 200, name
        # what a service hands on has the signatures: holders, vaults and analysts believe it
        shown = await federation.ask("trainer", "/v1/manifest")
        assert shown.content == signed.encode()
        federation.analyst_book.accept(signed.encode(), trust.consortium.roster.encode())
        await federation.learn()
        for site in SITES:
            opened = await federation.holder(site)._directory._vault.ask(Vault.opened)
            assert opened.sequence == version.body.sequence
        await federation.crash("compute-0")
        await federation.start_the_dead()
        again = await federation.ask("compute-0", "/v1/manifest")
        assert again.content == signed.encode()


async def test_R8_a_holder_believes_nothing_that_the_trainer_alone_hands_it(
    trust: Trust, tmp_path: Path
) -> None:
    async with Federation(trust, tmp_path) as federation:
        version = next_version(trust)
        book, roster = federation.party("trainer").resources.book, trust.consortium.roster
        with patch("shoal_protocol.trust.succession.check_believed"):
            book.accept(version.encode(), roster.encode())  # a lying trainer
        await federation.step()
        holder = federation.holder("clinic-a")
        with pytest.raises(TooFewSignatures):
            holder._directory._book.accept(version.encode(), roster.encode())
        opened = await holder._directory._vault.ask(Vault.opened)
        assert opened.sequence == trust.consortium.manifest.sequence


async def test_R8_two_versions_of_one_number_are_not_both_believed(
    trust: Trust, tmp_path: Path
) -> None:
    async with Federation(trust, tmp_path) as federation:
        one, other = next_version(trust, 3), next_version(trust, 4)
        signed = await signed_by(federation, one, federation.nodes[:2])
        answers = {node: await ask(federation, node, other) for node in federation.nodes}
        codes = {node: each.status_code for node, each in answers.items()}
        assert codes == {"compute-0": 409, "compute-1": 409, "compute-2": 200}
        found = [decode(answers["compute-2"].content, ManifestStatement)]
        rival = replace(other, countersignatures=written(found))
        for name in federation.services:
            assert problem_code(await hand(federation, name, rival)) == "too-few-signatures"
            assert (await hand(federation, name, signed)).status_code == 200


async def test_R8_a_node_that_was_set_back_signs_no_version(trust: Trust, tmp_path: Path) -> None:
    async with Federation(trust, tmp_path / "parties") as federation:
        await federation.learn(privacy=CHEAP)
        await federation.copy_of("compute-0", tmp_path / "backup")
        await federation.learn(privacy=CHEAP)
        one, other = next_version(trust, 3), next_version(trust, 4)
        await signed_by(federation, one, federation.nodes)
        await federation.set_back("compute-0", tmp_path / "backup")
        await federation.start_the_dead()
        assert problem_code(await ask(federation, "compute-0", other)) == "ledger-broken"


async def test_R1_with_one_node_lost_and_another_restarted_versions_are_signed(
    trust: Trust, tmp_path: Path
) -> None:
    async with Federation(trust, tmp_path) as federation:
        one, other = next_version(trust, 3), next_version(trust, 4)
        await federation.crash("compute-2")
        federation.absent.add("compute-2")
        await signed_by(federation, one, federation.nodes[:1])
        await federation.crash("compute-1")
        await federation.start_the_dead()
        signed = await signed_by(federation, one, federation.nodes[:2])
        assert (await hand(federation, "trainer", signed)).status_code == 200
        assert (await ask(federation, "compute-1", other)).status_code == 409
