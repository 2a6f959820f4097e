"""A site whose whole directory was lost or set back, mark included, is told by the nodes."""

import secrets
from pathlib import Path

import pytest

from shoal_agent.directory import MemoryLost
from shoal_agent.restoring import restore_file
from shoal_holder.site_files import STATE_FILE
from tests.world.around_holder import charged_on, state_of
from tests.world.federation import PRIVACY, Federation
from tests.world.trust import SITES, Trust

SITE = "clinic-a"
CHEAP = PRIVACY.model_copy(update={"epsilon": 0.5})


class Forgetful(Federation):
    """A federation of which one site may lose its directory, or have it set back."""

    async def refusal(self) -> str:
        """Step until the site says what it forgot."""
        with pytest.raises(MemoryLost) as lost:
            for _ in range(3):
                await self.step()
                self.clock.move(1.0)
        return str(lost.value)

    async def restore(self) -> None:
        await self.crash(SITE)
        directory = self._directory / SITE
        directory.mkdir(exist_ok=True)
        restore_file(
            directory / STATE_FILE,
            authority=self.trust.consortium.manifest.authority,
            random_bytes=secrets.token_bytes,
            now=self.clock(),
        )
        await self.step()

    async def charged(self) -> set[tuple[str, str, int]]:
        """Return which slot was charged for which round."""
        return set(charged_on(state_of(self.holder(SITE))))


@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "set back"])
async def test_R3_a_site_that_forgot_what_it_spent_takes_part_in_nothing_until_it_is_restored(
    trust: Trust, tmp_path: Path, is_lost: bool
) -> None:
    async with Forgetful(trust, tmp_path / "parties") as federation:
        await federation.learn(privacy=CHEAP)
        await federation.copy_of(SITE, tmp_path / "copy")
        await federation.learn(privacy=CHEAP)
        whole = await federation.charged()
        spent = await federation.holder(SITE).committed()
        assert len(whole) == 2 * SITES[SITE]

        await federation.set_back(SITE, None if is_lost else tmp_path / "copy")
        assert "shoal agent restore" in await federation.refusal()
        assert len(await federation.charged()) == (0 if is_lost else SITES[SITE])

        await federation.restore()
        for _ in range(3):
            await federation.step()
        assert await federation.charged() == whole
        assert await federation.holder(SITE).committed() == pytest.approx(spent)
        await federation.learn(privacy=CHEAP)
        charged = await federation.charged()
        assert len(charged) == 3 * SITES[SITE]

        await federation.crash(SITE)  # the loss is known
        await federation.learn(privacy=CHEAP)
        status = await federation.holder(SITE).status()
        # all slots were asked as often, so none has to be brought up to the largest
        assert status.refusal is None
        entries = await federation.holder(SITE).chain()
        kinds = [each.statement.kind for each in entries if each.statement]
        assert kinds.count("charge") == (2 if is_lost else 1)
