"""A new manifest version enrols and revokes clients while all services run."""

import json
from pathlib import Path

import numpy as np
import pytest
from nacl.signing import SigningKey

from shoal_consortium.parties import next_manifest
from shoal_consortium.party_files import read_signing_key
from shoal_holder.records import Records
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.trust.manifest_bundle import bundle
from tests.world.audit import audit
from tests.world.federation import Federation
from tests.world.trust import COLUMNS, SITES, Trust

CLIENTS = sum(SITES.values())
NEWCOMER = SigningKey(b"newcomer".ljust(32, b"."))
REVOKED = CLIENTS - 1  # the last client of the last clinic


def second_version(trust: Trust) -> Consortium:
    first = trust.consortium
    key = read_signing_key(trust.directory / "authority" / "signing.key")
    roster = first.roster.with_enrolled([NEWCOMER.verify_key]).with_revoked([REVOKED])
    manifest = next_manifest(first, roster=roster, authority=key)
    return first.successor(manifest.encode(), roster.encode())


async def publish(federation: Federation, version: Consortium, *names: str) -> None:
    for name in names:
        answer = await federation.ask(name, "/v1/manifest", method="PUT", content=bundle(version))
        assert answer.status_code == 200, answer.text


async def test_a_client_revoked_while_its_round_is_open_is_left_out_of_it(
    federation: Federation, trust: Trust
) -> None:
    job, round_id = await federation.collecting()
    await publish(federation, second_version(trust), *federation.services)
    state = await federation.finish(job)

    assert state["phase"] == "finished", state
    result = (await audit(federation))[round_id]
    assert result is not None
    assert result["cohort_size"] == CLIENTS - 1
    refusals = [
        outcome["problem"]["type"]
        for message in federation.wire.log
        if message.sender == "clinic-c" and message.path.endswith("/shares/bulk")
        for outcome in json.loads(message.answer)["outcomes"]
        if outcome["status"] != 201
    ]
    assert refusals == ["urn:shoal:problem:revoked-client"] * len(federation.nodes)


async def test_the_next_job_is_open_to_who_was_enrolled_and_not_to_who_was_revoked(
    trust: Trust, tmp_path: Path
) -> None:
    keys = [*trust.keys("clinic-c"), NEWCOMER]
    old = trust.records("clinic-c")
    records = Records(COLUMNS, np.vstack([old.values, [[50.0, 120.0]]]), np.arange(4))
    holders = {"clinic-c": {"keys": keys, "records": records}}
    async with Federation(trust, tmp_path, holders=holders) as federation:
        await publish(federation, second_version(trust), *federation.services)
        federation.analyst_book.accept(*both(second_version(trust)))
        report = await federation.learn()

        assert report.population_size == CLIENTS  # one more and one less
        assert (await federation.holder("clinic-c").status()).enrolled == 2
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

    assert report.population_size == CLIENTS - 1
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
