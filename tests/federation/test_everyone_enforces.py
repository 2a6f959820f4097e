"""Trainer, clients and Compute nodes each enforce the cap: one honest enforcer is enough.

PITFALLS, entry 20: enforcement by clients alone. "Forgetful" stands for restored from a backup of
before the first job, and for a party that keeps no ledger at all: both know of nothing spent.
"""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from shoal.jobs.job_failures import JobRefused
from shoal_holder.site_files import STATE_FILE
from shoal_kit.database_file import DATABASE
from shoal_kit.startup import StartupRefused
from shoal_protocol.journal import GENESIS
from shoal_protocol.privacy.mechanisms import gaussian_mu
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.schemes import ThresholdSharing
from shoal_protocol.wire.documents import Signed
from tests.service.test_charges import tamper
from tests.world import around_node as nodes
from tests.world import examples
from tests.world.around_holder import charged_on, state_of
from tests.world.federation import PRIVACY, Federation
from tests.world.parties import reachable
from tests.world.trust import SITES, Trust
from tests.world.wire import Fault, Rule

ALL_THERE_IS = PRIVACY.model_copy(update={"epsilon": 4.0})
STATES = (DATABASE, STATE_FILE)


async def forget(federation: Federation, names: list[str]) -> None:
    """Set parties back to before they knew of anything, as an old backup does.

    Data holders among them do not ask the nodes either, nor do services hear those that remember:
    they do not want to know.
    """
    honest = {*federation.services} - {*names}
    federation.wire.rules += [Rule(Fault.LOST, receiver=each, path="/heads$") for each in honest]
    deaf = {"without_nodes": federation.nodes}
    federation._holder_arguments = {name: deaf for name in names if name in SITES}
    for name in names:
        await federation.crash(name)
        data = federation._data(name)
        files = [each for state in STATES for each in data.glob(f"{state}*")]
        assert files
        for file in [*files, data / "holder.mark"]:
            file.unlink(missing_ok=True)
    await federation.start_the_dead()


@pytest.fixture
async def spent(trust: Trust, tmp_path: Path) -> AsyncIterator[Federation]:
    """A federation whose clients have spent all that the manifest allows."""
    async with Federation(trust, tmp_path) as running:
        await running.learn(privacy=ALL_THERE_IS)
        yield running


async def again(federation: Federation) -> str:
    """Ask for as much again, and return why there is nothing."""
    try:
        job = await federation.submit(privacy=ALL_THERE_IS)
    except JobRefused as refusal:
        return str(refusal)
    state = await federation.finish(job)
    assert state["phase"] == "failed"
    for each in state["rounds"]:
        assert await federation.result(each["round"]) is None
    return str(state["reason"])


async def test_an_honest_trainer_alone_refuses_what_exceeds_the_cap(spent: Federation) -> None:
    await forget(spent, [*SITES, *spent.nodes, "aggregator"])
    assert "budget-exceeded" in await again(spent)


async def test_honest_clients_alone_refuse_what_exceeds_the_cap(spent: Federation) -> None:
    await forget(spent, ["trainer", *spent.nodes, "aggregator"])
    assert "0 clients joined" in await again(spent)


async def test_one_honest_client_keeps_out_of_what_the_others_join(spent: Federation) -> None:
    honest, *others = SITES
    await forget(spent, ["trainer", *others, *spent.nodes, "aggregator"])
    job = await spent.submit(privacy=ALL_THERE_IS)
    await spent.finish(job)
    charged = charged_on(state_of(spent.holder(honest)))
    assert len(charged) == SITES[honest]  # those of the first job, and no more


@pytest.mark.parametrize("honest", [0, 1, 2])
async def test_one_honest_node_stops_a_trainer_clients_and_nodes_that_know_of_nothing_spent(
    spent: Federation, honest: int
) -> None:
    others = [name for name in spent.nodes if name != spent.nodes[honest]]
    await forget(spent, ["trainer", *SITES, *others, "aggregator"])
    why = await again(spent)
    assert f"{spent.nodes[honest]} refused the round: budget-exceeded" in why


async def test_with_nobody_honest_left_the_cap_can_be_exceeded(spent: Federation) -> None:
    """The tests above can fail: it is the honest one that stops it, and nothing else."""
    await forget(spent, ["trainer", *SITES, *spent.nodes, "aggregator"])
    await spent.learn(privacy=ALL_THERE_IS)


# Worse than forgetting: a trainer that signs what it likes and announces it where it likes, and
# clients who answer anything, by envelopes made without any ledger.

CAP = gaussian_mu(epsilon=4.0, delta=1e-6)
DEAR = {"mu": CAP * 0.9}
THRESHOLD = ThresholdSharing(threshold=2)


class Conspiracy(nodes.Federation):
    """Real Compute nodes under a trainer and clients without scruples."""

    def keep_backup(self, node: int) -> Path:
        backup = self.directory / f"backup of {node}"
        shutil.copytree(self.directory / f"{node}", backup)
        return backup

    async def restore(self, node: int, backup: Path) -> None:
        await self.services[node].close()
        shutil.rmtree(self.directory / f"{node}")
        shutil.copytree(backup, self.directory / f"{node}")
        self.services[node] = self._assemble(node)
        # an honest one would refuse once its peers show what it signed: this one does not listen
        self.services[node].node._keepers._refuse = AsyncMock()  # type: ignore[method-assign]

    async def try_round(self, spec: Signed[RoundSpec]) -> list[int]:
        """Announce everywhere, answer wherever it is taken; return the nodes that took it."""
        takers = []
        for node in range(len(self.names)):
            reply = await self.request(node, "POST", "/v1/rounds", spec.encode())
            assert reply.status_code in (201, 403), reply.text
            if reply.status_code == 201:
                takers.append(node)
        await self.upload_all(spec, nodes=takers)
        for _ in range(25):  # past the time at which the round is given up
            await self.step()
            self.clock.move(4)
        return takers

    def set_back(self, before: Signed[RoundSpec], after: Signed[RoundSpec]) -> set[str]:
        """Return the nodes whose journals charge a round in front of an earlier one's sum."""
        earlier, later = self.sums(before), self.sums(after)
        return {
            name
            for name in earlier.keys() & later.keys()
            if later[name].charge.entry.order <= earlier[name].entry.order
        }


EMPTIED = f"UPDATE journal_head SET number = 0, hash = '{GENESIS}'"


@pytest.fixture
async def conspiracy(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Conspiracy]:
    policy = examples.POLICY.model_copy(update={"minimum_threshold": 2})
    opened = Conspiracy(tmp_path, trust=reachable(policy=policy))
    yield opened
    await opened.close()


async def released_once(conspiracy: Conspiracy, restored: list[int], sharing: Any) -> Any:
    """Release a round, then set some nodes back to before it; return the round."""
    backups = {node: conspiracy.keep_backup(node) for node in restored}
    first = conspiracy.spec(number=0, sharing=sharing, **DEAR)
    assert await conspiracy.try_round(first) == [0, 1, 2]
    await check_total(conspiracy, first)
    for node, backup in backups.items():
        await conspiracy.restore(node, backup)
    return first


async def check_total(conspiracy: Conspiracy, spec: Signed[RoundSpec]) -> None:
    total = nodes.expected(spec.body, nodes.POPULATION)
    assert (await conspiracy.result(spec) == total).all()


@pytest.mark.parametrize("honest", [0, 1, 2])
async def test_additive_all_but_one_node_restored_cannot_release_beyond_the_cap(
    conspiracy: Conspiracy, honest: int
) -> None:
    restored = [node for node in range(3) if node != honest]
    await released_once(conspiracy, restored, nodes.SHARING)
    second = conspiracy.spec(number=1, **DEAR)
    assert await conspiracy.try_round(second) == restored
    # the honest node has no share of it, and without its sum the others' are random
    assert conspiracy.names[honest] not in conspiracy.sums(second)
    assert (
        await conspiracy.request(honest, "GET", f"/v1/rounds/{second.digest}")
    ).status_code == 404


async def test_threshold_fewer_than_t_restored_nodes_cannot_release_beyond_the_cap(
    conspiracy: Conspiracy,
) -> None:
    await released_once(conspiracy, [1], THRESHOLD)
    second = conspiracy.spec(number=1, sharing=THRESHOLD, **DEAR)
    assert await conspiracy.try_round(second) == [1]
    assert len(conspiracy.sums(second)) < THRESHOLD.threshold


async def test_threshold_t_restored_nodes_can_so_more_than_one_must_be_honest(
    conspiracy: Conspiracy,
) -> None:
    """With threshold sharing M - t + 1 nodes must be honest: t of them open a sum by themselves."""
    first = await released_once(conspiracy, [0, 1], THRESHOLD)
    second = conspiracy.spec(number=1, sharing=THRESHOLD, **DEAR)
    assert await conspiracy.try_round(second) == [0, 1]
    await check_total(conspiracy, second)
    # it is done, but not unseen: the two releases together convict both nodes
    assert conspiracy.set_back(first, second) == {"compute-0", "compute-1"}


async def test_a_node_restored_from_a_backup_is_found_as_soon_as_it_releases_again(
    conspiracy: Conspiracy,
) -> None:
    first = await released_once(conspiracy, [2], nodes.SHARING)
    cheap = conspiracy.spec(number=1, mu=CAP * 0.1)
    assert await conspiracy.try_round(cheap) == [0, 1, 2]
    assert conspiracy.set_back(first, cheap) == {"compute-2"}


async def test_a_node_whose_journal_was_emptied_consistently_does_not_start(
    conspiracy: Conspiracy,
) -> None:
    await conspiracy.announce(conspiracy.spec(**DEAR), [0])
    conspiracy.crash(0)  # whole, it starts
    engine = conspiracy.services[0].resources.storage._engine
    tamper(engine, "DELETE FROM journal", EMPTIED)
    with pytest.raises(StartupRefused, match="not charged in the journal"):
        conspiracy.crash(0)


async def test_a_running_node_whose_journal_lost_an_entry_takes_no_round(
    conspiracy: Conspiracy,
) -> None:
    for number in range(2):  # at the second it reads what became of the first
        await conspiracy.announce(conspiracy.spec(number=number, mu=CAP * 0.6), [0])
    engine = conspiracy.services[0].resources.storage._engine
    tamper(engine, "DELETE FROM journal", EMPTIED)
    later = conspiracy.spec(number=2, **DEAR)
    reply = await conspiracy.request(0, "POST", "/v1/rounds", later.encode())
    assert (reply.status_code, reply.json()["type"]) == (500, "urn:shoal:problem:ledger-broken")
