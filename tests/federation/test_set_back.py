"""A node whose whole directory was set back, mark included, is told by others what it forgot."""

import json
import re
import shutil
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from shoal_compute.schema import ledger
from shoal_protocol.log.submissions import ADD_CHECKPOINT
from tests.world.audit import audit
from tests.world.federation import PRIVACY, Federation
from tests.world.parties import problem_code
from tests.world.trust import SITES, Trust
from tests.world.wire import Fault, Rule

NODE = "compute-0"
CHEAP = PRIVACY.model_copy(update={"epsilon": 0.5})


class SetBack(Federation):
    """A federation of which one node's directory can be set back."""

    async def copy(self, to: Path) -> None:
        await self.crash(NODE)
        shutil.copytree(self._directory / NODE, to)
        await self.start_the_dead()

    async def set_back(self, copy: Path) -> None:
        await self.crash(NODE)
        shutil.rmtree(self._directory / NODE)
        shutil.copytree(copy, self._directory / NODE)

    async def restart(self) -> str | None:
        """Start the node again; return the token of the loss that it tells its operator of."""
        with capture_logs() as said:
            for _ in range(3):
                await self.step()
                self.clock.move(6.0)
        words = " ".join(each["event"] for each in said if each["log_level"] == "error")
        found = re.search("restore the database.*SHOAL_ACCEPT_LOSS=([0-9a-f]{16})", words)
        return found and found[1]

    async def has_two(self, round_id: str) -> bool:
        answer = await self.ask(NODE, f"/v1/rounds/{round_id}")
        return answer.status_code == 200 and bool(answer.json()["held"] == 2)

    def charged(self) -> int:
        node = self._up[NODE].party
        return int(node.resources.storage.run_here(lambda db: ledger.hold(db, lock=False)).number)

    async def is_ready(self) -> bool:
        answer = await self.ask(NODE, "/readyz")
        assert answer.status_code == 200 or json.loads(answer.content)["type"].endswith(
            "ledger-broken"
        )
        return answer.status_code == 200


async def test_a_node_that_was_set_back_whole_charges_nothing_until_that_is_accepted_by_name(
    trust: Trust, tmp_path: Path
) -> None:
    async with SetBack(trust, tmp_path / "parties") as federation:
        await federation.learn(privacy=CHEAP)
        await federation.copy(tmp_path / "copy")
        assert await federation.restart() is None
        await federation.learn(privacy=CHEAP)
        whole = federation.charged()

        await federation.set_back(tmp_path / "copy")
        token = await federation.restart()
        assert token is not None
        assert not await federation.is_ready()
        log = [each.body for each in federation.wire.log if each.path.endswith(ADD_CHECKPOINT)]
        answer = await federation.ask(NODE, ADD_CHECKPOINT, method="POST", content=log[-1])
        # nor does it sign what it may have forgotten
        assert problem_code(answer) == "ledger-broken"
        charged = federation.charged()
        assert charged == whole - 1
        job = await federation.submit(privacy=CHEAP)
        await federation.until(lambda: federation.is_over(job), seconds=600)
        assert (await federation.state(job))["phase"] == "failed"
        assert federation.charged() == charged

        federation.accept_loss[NODE] = token
        await federation.crash(NODE)
        assert await federation.restart() is None
        assert await federation.is_ready()
        await federation.learn(privacy=CHEAP)
        await federation.crash(NODE)
        assert await federation.restart() is None  # the setting may stay, and the loss is known
        await federation.set_back(tmp_path / "copy")
        assert await federation.restart() not in (None, token)  # it was for that loss only


@pytest.mark.parametrize("forgets", ["shares", "the round"])
async def test_a_job_ends_although_a_node_is_set_back_in_it(
    trust: Trust, tmp_path: Path, forgets: str
) -> None:
    async with SetBack(trust, tmp_path / "parties") as federation:
        await federation.learn(privacy=CHEAP)
        if forgets == "the round":
            await federation.copy(tmp_path / "copy")
        cut = Rule(Fault.LOST, receiver=NODE, path="/shares$")
        federation.wire.rules.append(cut)
        job, round_id = await federation.collecting(privacy=CHEAP)
        await federation.step()
        if forgets == "shares":
            await federation.copy(tmp_path / "copy")
        federation.wire.rules.remove(cut)
        # one answer is late, or the node would sign what it holds before it forgets that
        late = federation.wire.cut("clinic-b", NODE, "/shares$")
        await federation.until(lambda: federation.has_two(round_id))
        await federation.set_back(tmp_path / "copy")
        assert await federation.restart() is None, "what it lacks is nowhere else"
        federation.wire.rules.remove(late)
        state = await federation.finish(job)
        assert state["phase"] == "finished", state
        result = (await audit(federation))[round_id]
        assert result is not None
        assert result["cohort_size"] == sum(SITES.values())


@pytest.mark.parametrize("witness", ["compute-1", "aggregator"])
async def test_one_other_party_is_enough_and_may_come_late(
    trust: Trust, tmp_path: Path, witness: str
) -> None:
    async with SetBack(trust, tmp_path / "parties") as federation:
        await federation.copy(tmp_path / "copy")
        await federation.learn(privacy=CHEAP)
        await federation.set_back(tmp_path / "copy")
        others = {each for each in federation.services if each != NODE}
        for other in others:
            await federation.crash(other)
        federation.absent |= others
        assert await federation.restart() is None  # nobody is there to say so
        assert await federation.is_ready()
        federation.absent.remove(witness)
        assert await federation.restart() is not None
        assert not await federation.is_ready()
