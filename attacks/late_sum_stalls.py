"""A lying node sends its late sum again and again: how long the aggregator's loop stands still."""

import asyncio
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from shoal_aggregator import store
from shoal_protocol.wire.vectors import encode_uint64
from tests.aggregator.conftest import told_of
from tests.aggregator.test_threshold import FIVE, SPEC, SUMS, signed
from tests.world.clock import HandMovedClock

DIMENSION = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000


async def attack(directory: Path) -> None:
    values = encode_uint64(np.arange(DIMENSION, dtype=np.uint64))
    large = [each.model_copy(update={"values": values}) for each in SUMS]
    stored = [signed(each) for each in large]
    url = f"sqlite:///{directory}/aggregator.sqlite"
    at = told_of(SPEC, FIVE, database_url=url, directory=directory, clock=HandMovedClock())
    async with at as service:
        store.find_partial_sums = lambda db, round_id, which=None: (
            stored[:3] if which is not None else stored
        )
        longest, is_over = 0.0, False

        async def watch() -> None:
            nonlocal longest
            while not is_over:
                before = time.monotonic()
                await asyncio.sleep(0.005)
                longest = max(longest, time.monotonic() - before)

        watching = asyncio.create_task(watch())
        await asyncio.sleep(0.1)
        began = time.process_time()
        await service.aggregator._compare_late(SPEC, large[4])
        is_over = True
        await watching
        print(
            f"{len(stored[0]):,} bytes sent once more: {time.process_time() - began:.2f} s of "
            f"processor time, the loop stood still for {longest:.2f} s"
        )


with TemporaryDirectory() as made:
    asyncio.run(attack(Path(made)))
