"""A new manifest version enrols and revokes data holders while all services run."""

import asyncio
from pathlib import Path

from nacl.signing import SigningKey
from structlog.testing import capture_logs

from shoal_agent.assembly import Service
from shoal_agent.console import sentences
from shoal_consortium.parties import next_manifest
from shoal_consortium.party_files import read_signing_key
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.trust.manifest_bundle import bundle
from shoal_protocol.trust.roster import key_fingerprint
from shoal_protocol.trust.roster_changes import with_enrolled, with_key, with_revoked
from shoal_protocol.trust.succession import following_version
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
    return following_version(first, manifest.encode(), roster.encode())


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
    # it hears that it was revoked when it next asks for jobs, before it sends anything
    assert not [each for each in said_by(federation, "clinic-c") if each.endswith("/shares")]


async def test_who_was_revoked_asks_nobody_anything_again_and_says_why(
    federation: Federation, trust: Trust
) -> None:
    await publish(federation, second_version(trust), *federation.services)
    for _ in range(3):  # it is refused, looks for the version, and stops
        await federation.step()
        federation.clock.move(61)
    asked = len(said_by(federation, "clinic-c"))
    for _ in range(10):
        await federation.step()
        federation.clock.move(61)
    assert asked and len(said_by(federation, "clinic-c")) == asked
    assert len(said_by(federation, "clinic-a")) > asked  # others go on
    status = await federation.holder("clinic-c").status()
    assert status.key == key_fingerprint(bytes(trust.key("clinic-c").verify_key))
    assert "revoked this data holder, for good" in (status.refusal or "")
    assert "keep its data directory" in (status.refusal or "")
    first, *others = sentences.troubles(status)  # of the owner's page
    assert (status.refusal or "") in first and "enrol" not in str(others)
    more = status.model_copy(update={"unheard": {"trainer": "nobody answers"}})
    lines = str(sentences.described(more)["Action needed"]).splitlines()
    assert lines == sentences.troubles(more) and len(lines) > 1
    service = Service(federation.app("trainer"), asyncio.Event(), federation.holder("clinic-c"))
    with capture_logs() as logged:
        for _ in range(3):
            await service.step()
    assert [each["event"] for each in logged] == [status.refusal]

    await federation.crash("clinic-c")  # it starts, and asks nobody
    await federation.step()
    assert len(said_by(federation, "clinic-c")) == asked


async def test_a_key_that_another_took_the_place_of_asks_nobody_anything_again(
    federation: Federation, trust: Trust
) -> None:
    roster = with_key(trust.consortium.roster, REVOKED, NEWCOMER.verify_key)
    key = read_signing_key(trust.directory / "authority" / "signing.key")
    manifest = next_manifest(trust.consortium, roster=roster, authority=key)
    version = following_version(trust.consortium, manifest.encode(), roster.encode())
    await publish(federation, version, *federation.services)
    for _ in range(3):
        await federation.step()
        federation.clock.move(61)
    asked = len(said_by(federation, "clinic-c"))
    await federation.step()
    assert len(said_by(federation, "clinic-c")) == asked
    status = await federation.holder("clinic-c").status()
    assert "another key, for good" in (status.refusal or "")
    assert "tell the authority at once" in (status.refusal or "")


def said_by(federation: Federation, name: str) -> list[str]:
    return [message.path for message in federation.wire.log if message.sender == name]


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
