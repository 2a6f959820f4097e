"""One data holder's key on two machines whose states differ, as after a restored backup."""

from pathlib import Path

import pytest

from shoal_agent.data_holder import DataHolder
from shoal_agent.directory import MemoryLost
from shoal_holder.machine import IN_USE
from shoal_holder.site import Sources
from shoal_kit.manifest_book import ManifestBook
from shoal_kit.startup import read_pin
from shoal_protocol.rounds.attestations import Abandonment, Holdings, PartialSum, Result, Vote
from shoal_protocol.rounds.round_audit import Account, account_of
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import decode, from_json
from tests.world.chance import FixedNoise, fixed_bytes
from tests.world.clock import HandMovedTimer
from tests.world.federation import Federation
from tests.world.lives import Life
from tests.world.trust import HOLDER_POLICY, SITES

pytestmark = pytest.mark.essential

SITE = "clinic-c"


def clone_of_site(
    federation: Federation, life: Life, directory: Path, *, hears_nodes: bool
) -> DataHolder:
    """Return a second machine of the site, over its own files: same key and records."""
    trust = federation.trust
    directory.mkdir(exist_ok=True)
    pin = read_pin(trust.directory / "clients" / SITE)
    return DataHolder.inside(
        key=trust.key(SITE),
        records=trust.records(SITE),
        policy=HOLDER_POLICY,
        book=ManifestBook.open(trust.directory / "consortium", pin, directory),
        data_directory=directory,
        clock=federation.clock.of(SITE),
        sources=Sources(
            FixedNoise(life.name),
            clock=federation.clock.of(SITE),
            random_bytes=fixed_bytes(life.name),
            timer=HandMovedTimer(),
        ),
        transport=federation.wire.of(life),
        without_nodes=() if hears_nodes else federation.nodes,
    )


async def account(federation: Federation, round_id: str) -> Account:
    """Return what the public documents say became of the clients."""
    path = f"/v1/rounds/{round_id}"
    spec = decode((await federation.ask("compute-0", f"{path}/spec")).content, RoundSpec)
    values = []
    shown = [*((node, "documents") for node in federation.nodes), ("aggregator", "outcome")]
    for party, what in shown:
        values += (await federation.ask(party, f"{path}/{what}")).json()["documents"]
    kinds = (Holdings, Vote, Abandonment, PartialSum, Result)
    documents = [from_json(value, *kinds) for value in values]
    return account_of(spec, federation.trust.consortium, documents)


@pytest.mark.parametrize("copied", [True, False], ids=["a copy", "a new state that asks nobody"])
async def test_shares_of_two_answers_of_one_holder_cost_that_holder_only(
    federation: Federation, tmp_path: Path, copied: bool
) -> None:
    """No node can tell a copy from its original."""
    await federation.step()  # the site hears all nodes, and of no other machine
    if copied:
        await federation.copy_of(SITE, tmp_path / "twin")
        await federation.step()
    life = Life("twin")
    twin = clone_of_site(federation, life, tmp_path / "twin", hears_nodes=copied)
    for sender, receiver in (("twin", "compute-0"), ("twin", "compute-1"), (SITE, "compute-2")):
        federation.wire.cut(sender, receiver, "/shares")
    job = await federation.submit()

    async def is_over() -> bool:
        await life.outcome(life.spawn(twin.step()))
        return await federation.is_over(job)

    await federation.until(is_over)
    await twin.close()
    state = await federation.finish(job)

    (round_id,) = (each["round"] for each in state["rounds"])
    for node in federation.nodes:
        seen = (await federation.ask(node, f"/v1/rounds/{round_id}")).json()
        assert seen["held"] == len(SITES), "the attack did not come about"
    assert state["phase"] == "finished"
    result = await federation.result(round_id)
    assert result is not None
    assert result["cohort_size"] == sum(SITES.values()) - SITES[SITE]

    found = await account(federation, round_id)
    assert found.outcome == "published"
    assert found.counts() == {
        "in the cohort": result["cohort_size"],
        "left out: its shares are of different answers": SITES[SITE],
    }
    assert not found.misconduct


async def test_a_new_state_that_hears_the_nodes_takes_no_part_beside_the_machine_that_does(
    federation: Federation, tmp_path: Path
) -> None:
    await federation.learn()
    life = Life("twin")
    twin = clone_of_site(federation, life, tmp_path / "twin", hears_nodes=True)
    with pytest.raises(MemoryLost) as refused:
        await life.outcome(life.spawn(twin.step()))
    assert str(refused.value) == IN_USE
    sent = [message.path for message in federation.wire.log if message.sender == "twin"]
    await twin.close()
    assert set(sent) == {"/v1/charges"}
    report = await federation.learn()
    assert report.cohort_sizes == (sum(SITES.values()),)
