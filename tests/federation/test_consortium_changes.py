"""A new manifest version enrols and revokes data holders while all services run."""

import json
from pathlib import Path

import pytest
from nacl.signing import SigningKey

from shoal_consortium.parties import next_manifest
from shoal_consortium.party_files import read_signing_key
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.trust.manifest_bundle import bundle
from shoal_protocol.trust.roster_changes import with_enrolled, with_revoked
from tests.world.audit import audit
from tests.world.federation import Federation
from tests.world.trust import SITES, Trust

CLIENTS = sum(SITES.values())
NEWCOMER = SigningKey(b"newcomer".ljust(32, b"."))
REVOKED = list(SITES).index("clinic-c")
SLOTS = SITES["clinic-c"]


def second_version(trust: Trust, *, revoked: tuple[int, ...] = (REVOKED,)) -> Consortium:
    """Return a version with a newcomer, and without some data holders."""
    first = trust.consortium
    key = read_signing_key(trust.directory / "authority" / "signing.key")
    roster = with_revoked(with_enrolled(first.roster, [(NEWCOMER.verify_key, SLOTS)]), revoked)
    manifest = next_manifest(first, roster=roster, authority=key)
    return first.successor(manifest.encode(), roster.encode())


async def publish(federation: Federation, version: Consortium, *names: str) -> None:
    for name in names:
        answer = await federation.ask(name, "/v1/manifest", method="PUT", content=bundle(version))
        assert answer.status_code == 200, answer.text


async def test_a_data_holder_revoked_while_its_round_is_open_is_left_out_of_it(
    federation: Federation, trust: Trust
) -> None:
    job, round_id = await federation.collecting()
    await publish(federation, second_version(trust), *federation.services)
    state = await federation.finish(job)

    assert state["phase"] == "finished", state
    result = (await audit(federation))[round_id]
    assert result is not None
    assert result["cohort_size"] == CLIENTS - SLOTS
    refusals = [
        json.loads(message.answer)["type"]
        for message in federation.wire.log
        if message.sender == "clinic-c" and message.path.endswith("/shares")
    ]
    assert refusals == ["urn:shoal:problem:revoked-holder"] * len(federation.nodes)


async def test_the_next_job_is_open_to_who_was_enrolled_and_not_to_who_was_revoked(
    trust: Trust, tmp_path: Path
) -> None:
    holders = {"clinic-c": {"key": NEWCOMER}}
    async with Federation(trust, tmp_path, holders=holders) as federation:
        await publish(federation, second_version(trust), *federation.services)
        federation.analyst_book.accept(*both(second_version(trust)))
        report = await federation.learn()

        assert report.population_size == CLIENTS  # as many more as less
        assert (await federation.holder("clinic-c").status()).enrolled == SLOTS
        (result,) = (await audit(federation)).values()
        assert result is not None
        assert result["cohort_size"] == CLIENTS


def both(version: Consortium) -> tuple[bytes, bytes]:
    return version.signed_manifest.encode(), version.roster.encode()


async def test_services_that_missed_a_version_learn_it_from_the_trainer(
    federation: Federation, trust: Trust
) -> None:
    await publish(federation, second_version(trust), "trainer")
    federation.analyst_book.accept(*both(second_version(trust)))
    report = await federation.learn()

    assert report.population_size == CLIENTS - SLOTS
    for name in federation.services:
        answer = await federation.ask(name, "/v1/manifest")
        assert answer.json()["body"]["sequence"] == 2


async def test_a_version_outlives_a_crash_of_who_accepted_it(
    federation: Federation, trust: Trust
) -> None:
    await publish(federation, second_version(trust), *federation.services)
    for name in federation.services:
        await federation.crash(name)
    for name in federation.services:
        answer = await federation.ask(name, "/v1/manifest")
        assert answer.json()["body"]["sequence"] == 2


@pytest.mark.parametrize("name", ["compute-0", "aggregator", "trainer"])
async def test_a_version_that_the_authority_did_not_sign_is_refused(
    federation: Federation, trust: Trust, name: str
) -> None:
    version = second_version(trust)
    content = bundle(version)
    signature = version.signed_manifest.to_json()["signature"].encode()
    forged = content.replace(signature, signature[::-1])
    answer = await federation.ask(name, "/v1/manifest", method="PUT", content=forged)

    assert answer.status_code == 403
    assert answer.json()["type"] == "urn:shoal:problem:bad-signature"
    assert (await federation.ask(name, "/v1/manifest")).json()["body"]["sequence"] == 1
