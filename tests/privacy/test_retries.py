"""A retry sends the same bytes, for fresh noise would let it be averaged away."""

import shutil
import sqlite3
from pathlib import Path

import httpx

from shoal_holder.noise import exact_noise
from shoal_holder.site_files import STATE_FILE
from tests.world.around_holder import World

CLIENTS = 12
SENDS = 5


async def test_retries_send_the_same_bytes_and_are_charged_once_before_the_first(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, CLIENTS)
    sent: list[bytes] = []
    charged: list[int] = []

    def down(request: httpx.Request) -> httpx.Response | None:
        if not request.url.path.endswith("/shares"):
            return None
        sent.append(request.content)
        charged.append(charges(tmp_path / "holder"))
        if len(sent) < SENDS:
            raise httpx.ReadTimeout("no answer")
        return None

    world.wire.scripts["compute-1"] = down
    holder = world.holder(noise=exact_noise)
    request = world.submit()
    await holder.step()
    world.announce(request)
    for attempt in range(2 * SENDS):
        if attempt % 3 == 2:  # a restart draws no noise either
            await holder.close()
            holder = world.holder(noise=exact_noise)
        await holder.step()
        world.clock.move(5.0)
    await holder.close()
    assert len(sent) == SENDS
    assert len(set(sent)) == 1
    assert charged == [charged[0]] * SENDS and charged[0] > 0
    assert world.nodes[1].bodies == sent[-1:]


def charges(directory: Path) -> int:
    """Return how many charges a crash at this moment would leave on disk."""
    left = directory.with_name("left by a crash")
    shutil.copytree(directory, left)
    database = sqlite3.connect(left / STATE_FILE)
    [[count]] = database.execute("SELECT COUNT(*) FROM journal WHERE kind = 'answer'")
    database.close()
    shutil.rmtree(left)
    return int(count)
