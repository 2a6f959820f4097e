"""A data holder changes its key while a job runs: its slots, answers and charges stay."""

from contextlib import suppress
from pathlib import Path

import pytest
from nacl.signing import SigningKey

from shoal_consortium.parties import next_manifest
from shoal_consortium.party_files import read_signing_key
from shoal_holder.machine import IN_USE
from shoal_holder.vault import Vault
from shoal_protocol.sharing.received import Envelope, parse
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.trust.roster_changes import with_key
from shoal_protocol.trust.succession import following_version
from shoal_protocol.wire.errors import BadSignature
from shoal_trainer.resources import Resources
from tests.federation.test_consortium_changes import both, publish
from tests.federation.test_forgetful_holders import CHEAP, Forgetful
from tests.federation.test_forgetful_holders import SITE as FORGETFUL
from tests.federation.test_reupload import pass_time
from tests.world.audit import audit
from tests.world.federation import Federation
from tests.world.spending import costs_of
from tests.world.trust import SITES, Trust

SITE = "clinic-c"
CLIENTS = sum(SITES.values())
NEW = SigningKey(b"the next one".ljust(32, b"."))
ROTATES = {SITE: {"next_key": NEW}}


def with_new_key(trust: Trust, site: str = SITE) -> Consortium:
    first = trust.consortium
    holder = first.roster.holder_with(trust.key(site).verify_key)
    assert holder is not None
    roster = with_key(first.roster, holder, NEW.verify_key)
    key = read_signing_key(trust.directory / "authority" / "signing.key")
    manifest = next_manifest(first, roster=roster, authority=key)
    return following_version(first, manifest.encode(), roster.encode())


def trainer_of(federation: Federation) -> Resources:
    own = federation.party("trainer").resources
    assert isinstance(own, Resources)
    return own


def signers(federation: Federation, trust: Trust) -> dict[str, list[str]]:
    """Return, by node, which key of the site signed each envelope that the node took."""
    found: dict[str, list[str]] = {}
    for message in federation.wire.log:
        if message.sender == SITE and message.path.endswith("/shares"):
            if message.status in (200, 201):
                signed = signer(parse(message.body), trust)
                found.setdefault(message.receiver, []).append(signed)
    return found


def signer(envelope: Envelope, trust: Trust) -> str:
    for name, key in (("new", NEW.verify_key), ("old", trust.key(SITE).verify_key)):
        with suppress(BadSignature):
            envelope.verify(bytes(key))
            return name
    raise AssertionError("signed by neither key")


@pytest.mark.parametrize("restarts", [False, True], ids=["running", "restarted"])
async def test_a_round_that_is_answered_by_half_is_answered_in_full_under_the_new_key(
    trust: Trust, tmp_path: Path, restarts: bool
) -> None:
    async with Federation(trust, tmp_path, holders=ROTATES) as federation:
        cut = federation.wire.cut(SITE, "compute-1", "/shares$")
        job, round_id = await federation.collecting()
        await pass_time(federation, 3)
        assert signers(federation, trust) == {"compute-0": ["old"], "compute-2": ["old"]}
        await publish(federation, with_new_key(trust), *federation.services)
        if restarts:
            await federation.crash(SITE)
        federation.wire.rules.remove(cut)
        state = await federation.finish(job)

        assert state["phase"] == "finished", state
        result = (await audit(federation))[round_id]
        assert result is not None
        assert result["cohort_size"] == CLIENTS
        took = signers(federation, trust)
        assert took["compute-0"] == took["compute-2"] == ["old"], "what is stored stands"
        assert took["compute-1"] == ["new"]


async def test_the_old_key_is_refused_by_all_once_it_is_replaced(
    federation: Federation, trust: Trust
) -> None:
    rules = [federation.wire.cut(SITE, node, "/shares$") for node in federation.nodes]
    job, round_id = await federation.collecting()
    await pass_time(federation, 3)
    await publish(federation, with_new_key(trust), *federation.services)
    for rule in rules:
        federation.wire.rules.remove(rule)
    state = await federation.finish(job)

    assert state["phase"] == "finished", state
    assert signers(federation, trust) == {}, "no node took what the old key signed"
    result = (await audit(federation))[round_id]
    assert result is not None
    assert result["cohort_size"] == CLIENTS - SITES[SITE]
    federation.analyst_book.accept(*both(with_new_key(trust)))
    assert (await federation.learn()).population_size == CLIENTS - SITES[SITE]


async def test_what_was_spent_stays_with_the_slots(trust: Trust, tmp_path: Path) -> None:
    async with Forgetful(trust, tmp_path, holders={FORGETFUL: {"next_key": NEW}}) as federation:
        slots = trust.consortium.roster.slots_of(list(SITES).index(FORGETFUL))
        others = trust.consortium.roster.slots_of(list(SITES).index("clinic-b"))
        await federation.learn(privacy=CHEAP)
        version = with_new_key(trust, FORGETFUL)
        await publish(federation, version, *federation.services)
        federation.analyst_book.accept(*both(version))
        await federation.crash("trainer")
        await federation.learn(privacy=CHEAP)

        spent = await costs_of(federation.holder(FORGETFUL))
        assert set(spent) == set(slots) and {len(costs) for costs in spent.values()} == {2}
        committed = trainer_of(federation).committed
        assert committed.largest(slots) == committed.largest(others)

        await federation.set_back(FORGETFUL, None)
        await federation.refusal()
        assert (await federation.holder(FORGETFUL).vault.ask(Vault.opened)).refusal == IN_USE
