"""Bytes that one client sends in a round, envelopes and HTTP heads alike.

python -m bench.traffic [--dimension 10000] [--nodes 10]
"""

import argparse
import asyncio
import secrets
import tempfile
from pathlib import Path

import httpx

from bench.drive import Drive, matrix_query, quickstart
from bench.load.metering import sent_bytes
from shoal_hosting.clock import system_clock
from shoal_hosting.peers.peer import Peer


def measure(directory: Path, *, dimension: int, nodes: int) -> dict[str, float]:
    """Return the bytes of one client's uploads, and the bound that they are held to."""
    quickstart(directory, phones=3, nodes=nodes)
    drive = Drive(directory)
    spec = drive.spec(matrix_query(dimension), 3)
    envelopes = drive.envelopes(spec.body)[0]
    path = f"/v1/rounds/{spec.digest}/shares"
    heads = sum(_head_bytes(drive, path, envelope) for envelope in envelopes)
    actual = spec.body.dimension
    return {
        "dimension": actual,
        "envelopes": sum(map(len, envelopes)),
        "HTTP heads": heads,
        "in all": sum(map(len, envelopes)) + heads,
        "bound 1.05 * 8 d + 400 M": 1.05 * 8 * actual + 400 * nodes,
        "uncompressed shares 8 d M": 8 * actual * nodes,
    }


def _head_bytes(drive: Drive, path: str, body: bytes) -> int:
    sent: list[int] = []

    def count(request: httpx.Request) -> httpx.Response:
        sent.append(sent_bytes(request) - len(body))
        return httpx.Response(201)

    node = drive.service("compute-0")
    peer = Peer(
        node,
        clock=system_clock,
        random_bytes=secrets.token_bytes,
        transport=httpx.MockTransport(count),
    )
    asyncio.run(peer.post(path, body, "application/octet-stream"))
    return sent[0]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dimension", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=10)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = measure(Path(directory), dimension=arguments.dimension, nodes=arguments.nodes)
    for what, figure in found.items():
        print(f"{what:28} {figure:10.0f}")


if __name__ == "__main__":
    main()
