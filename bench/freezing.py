"""Milliseconds from the last node's freeze to the partial sums being published.

    python -m bench.freezing [--clients 1000] [--dimension 66]

Three Compute nodes and the aggregator, real processes over TLS; the times are the nodes' own
logs'. In between lie: signing and spreading holdings, votes, summing, signing, publishing.
"""

import asyncio
import json
from datetime import datetime, timedelta
from pathlib import Path

from bench.command import measured
from bench.drive import Drive, matrix_query, quickstart
from bench.raw_requests import ask, request
from shoal_consortium.processes import Federation, Process
from shoal_protocol.sharing.envelope import frame

BULK = 500
NODES = 3
PATIENCE_SECONDS = 120.0


async def measure(directory: Path, *, clients: int, dimension: int) -> dict[str, float]:
    """Return the milliseconds for each node."""
    services = quickstart(directory, phones=clients, nodes=NODES)
    drive = Drive(directory)
    with Federation() as federation:
        federation.start(*services[: NODES + 1])
        spec = drive.spec(matrix_query(dimension), clients)
        await drive.announce(spec)
        envelopes = drive.envelopes(spec.body)
        for index, node in enumerate(spec.body.compute_nodes):
            mine = [each[index] for each in envelopes]
            bodies = [frame(mine[start : start + BULK]) for start in range(0, clients, BULK)]
            service, path = drive.service(node), f"/v1/rounds/{spec.digest}/shares/bulk"
            requests = [request(service, "POST", path, body) for body in bodies]
            await ask(service, requests, connections=2)
        async with drive.connection("aggregator") as aggregator, asyncio.timeout(PATIENCE_SECONDS):
            path, published = f"/v1/rounds/{spec.digest}/outcome?wait=20", False
            while not published:
                published = (await aggregator.ask("GET", path, wait_seconds=20)).status == 200
            await asyncio.sleep(1)  # for the last acknowledgement to be logged
        nodes = [federation[name] for name in spec.body.compute_nodes]
        frozen = max(_when(node, "round frozen") for node in nodes)
        return {
            node.name: (_when(node, "partial sum published") - frozen) / timedelta(milliseconds=1)
            for node in nodes
        }


def _when(node: Process, event: str) -> datetime:
    for line in reversed(node.log.read_text().splitlines()):
        entry = json.loads(line)
        if entry["event"] == event:
            return datetime.fromisoformat(entry["timestamp"].replace("Z", "+00:00"))
    raise RuntimeError(f"{node.name} never logged: {event}")


if __name__ == "__main__":
    measured(__doc__, measure, clients=1000, dimension=66)
