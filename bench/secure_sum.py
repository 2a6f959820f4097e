"""CPU seconds of a whole round at three nodes, beside what Flower's SecAgg+ took for such sums.

    python -m bench.secure_sum

Data holders of one record, real services over TLS: nodes and aggregator from the first envelope to
the published sum, and of each data holder what `bench.table1.clients` counts, noise and ledger
included; joins, the trainer and the clients' HTTP are not. Flower's is
a round in process, without network or noise.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Final

from bench.table1 import clients
from bench.table1.reference import DIMENSIONS
from bench.table1.services import Services

NODES: Final = 3
FLOWER: Final = {(100, 10_000): 2.8, (500, 1_000): 12.0}
"""Its CPU seconds, measured once, by clients and coordinates; the second took 12 to 14."""


async def measure(directory: Path, *, holders: int, entries: int) -> tuple[float, float]:
    """Return the CPU seconds of the services, and those of one data holder."""
    async with Services.running(directory, nodes=NODES, holders=holders) as services:
        await services.round(DIMENSIONS[0], 2)  # what only the first round costs
        whole = (await services.round(entries, holders))["server"]
        each = await clients.measure(services, [entries])
    return whole.cpu_seconds, each[entries].cpu_seconds


def main() -> None:
    """Measure and print."""
    for (holders, entries), flower in FLOWER.items():
        with tempfile.TemporaryDirectory() as directory:
            served, each = asyncio.run(measure(Path(directory), holders=holders, entries=entries))
        print(
            f"{holders} x {entries:,}: services {served:.2f} s, a client {1e3 * each:.1f} ms, "
            f"all {served + holders * each:.2f} s of Flower's {flower} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
