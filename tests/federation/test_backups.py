"""A service goes on from a backup made while it ran; with an older one no cap is exceeded."""

import re
from contextlib import suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from shoal.jobs.job_failures import OutOfBudget
from shoal_protocol.privacy.accounting import compose
from shoal_protocol.privacy.job_costs import epsilon_at
from tests.command.running import shoal
from tests.federation.test_damaged_databases import DATABASES, content
from tests.world.audit import audit, look_at
from tests.world.federation import PRIVACY, Federation
from tests.world.losses import count_losses
from tests.world.spending import costs_of
from tests.world.trust import HOLDER_POLICY, SITES, Trust

CLIENTS = sum(SITES.values())
SERVICES = [each for each in DATABASES if each not in SITES]
CHEAP = PRIVACY.model_copy(update={"epsilon": 0.5})


class BackedUp(Federation):
    """A federation whose services can lose their databases."""

    def back_up(self, name: str, to: Path) -> None:
        shoal("party", "backup", "--data", self._data(name), "--to", to)

    async def lose(self, name: str, *endings: str) -> None:
        """Kill a service, and remove these of its files."""
        await self.crash(name)
        for ending in endings:
            for each in self._data(name).glob(f"*{ending}"):
                each.unlink()

    def restore(self, name: str, backup: Path) -> str:
        said = shoal("party", "restore", backup, "--data", self._data(name)).stdout
        return " ".join(said.split())

    def content(self, name: str, scratch: Path) -> object:
        return content(self._data(name) / DATABASES[name], scratch)

    async def spent(self) -> float:
        """Return the epsilon of the client that all rounds together cost most."""
        spent = [await costs_of(self.holder(site)) for site in SITES]
        costs = [compose(costs) for by_client in spent for costs in by_client.values()]
        return max(epsilon_at(HOLDER_POLICY.delta, each) for each in costs)

    def check_one_history(self) -> None:
        """See that nobody signed two documents of a kind."""
        assert all(len(digests) == 1 for digests in look_at(self).signed.values())


@pytest.mark.parametrize("name", SERVICES)
async def test_a_service_whose_disk_is_lost_in_a_round_goes_on_from_its_backup(
    trust: Trust, tmp_path: Path, name: str
) -> None:
    async with BackedUp(trust, tmp_path / "parties") as federation:
        job, round_id = await federation.collecting()
        late = federation.wire.cut("clinic-c", "compute-0", "/shares$")
        for _ in range(3):
            await federation.step()
        federation.back_up(name, tmp_path / "backup")
        before = federation.content(name, tmp_path / "before")
        await federation.lose(name, ".sqlite", "-wal", "-shm")
        assert "Start the service" in federation.restore(name, tmp_path / "backup")
        assert federation.content(name, tmp_path / "after") == before
        federation.wire.rules.remove(late)
        state = await federation.finish(job)
        assert state["phase"] == "finished", state
        result = (await audit(federation))[round_id]
        assert result is not None and result["cohort_size"] == CLIENTS
        losses = await count_losses(federation)
        assert losses.acknowledged and not losses.lost + losses.double_counted


@pytest.mark.parametrize("name", SERVICES)
async def test_an_older_backup_exceeds_no_cap_and_signs_no_second_history(
    trust: Trust, tmp_path: Path, name: str
) -> None:
    async with BackedUp(trust, tmp_path / "parties") as federation:
        await federation.learn(privacy=CHEAP)
        federation.back_up(name, tmp_path / "backup")
        await federation.learn()
        before = await federation.spent()
        await federation.lose(name, ".sqlite", "-wal", "-shm")
        assert "Start the service" in federation.restore(name, tmp_path / "backup")
        assert await is_told(federation, name)
        # all that the copy forgot is offered again, and then some more
        ended = "finished"
        with suppress(OutOfBudget):
            while ended == "finished":
                job = await federation.submit()
                ended = (await federation.finish(job, seconds=900))["phase"]
        assert before <= await federation.spent() <= HOLDER_POLICY.maximum_epsilon
        federation.check_one_history()
        assert not (await count_losses(federation)).double_counted


async def is_told(federation: Federation, name: str) -> bool:
    """Start a service until its keepers tell it of no loss; tell whether they told of any.

    Each loss is accepted.
    """
    was_told = False
    while True:
        with capture_logs() as said:
            for _ in range(3):
                await federation.step()
                federation.clock.move(6.0)
        errors = " ".join(each["event"] for each in said if each["log_level"] == "error")
        if (found := re.search("SHOAL_ACCEPT_LOSS=([0-9a-f]{16})", errors)) is None:
            return was_told
        was_told, federation.accept_loss[name] = True, found[1]
        await federation.crash(name)
