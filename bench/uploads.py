"""Uploads per second of one Compute node, single and in bulk, beside the bare primitives.

    python -m bench.uploads [--clients 2000] [--dimension 66]

The floor are the bare primitives (parse, verify, open, check) in one thread, without a service. The
load comes from one process on the same machine, so the node never has all cores to itself.
"""

import time
from pathlib import Path
from typing import Final

from bench.command import measured
from bench.drive import Drive, matrix_query, quickstart
from bench.raw_requests import ask, request
from shoal_consortium.processes import Federation
from shoal_kit.party import load_party
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing import summation
from shoal_protocol.sharing.envelope import frame
from shoal_protocol.sharing.received import parse

CONNECTIONS: Final = 16
BULK: Final = 250


def bare_primitives(
    directory: Path, drive: Drive, spec: RoundSpec, envelopes: list[bytes]
) -> float:
    """Return how many envelopes for node 0 one thread judges in a second, without a service."""
    node = load_party(directory / "parties" / "compute-0")
    assert node.box_private_key is not None
    private, public = bytes(node.box_private_key), bytes(node.box_private_key.public_key)
    scheme = spec.sharing
    begun = time.perf_counter()
    for encoded in envelopes:
        envelope = parse(encoded)
        holder = envelope.holder
        envelope.verify(drive.consortium.roster.key_of(holder))
        share = envelope.open(private, public)
        nodes = len(spec.compute_nodes)
        summation.check(scheme, share, holder=holder, node=0, nodes=nodes, dimension=spec.dimension)
    return len(envelopes) / (time.perf_counter() - begun)


async def measure(directory: Path, *, clients: int, dimension: int) -> dict[str, float]:
    """Return requests or envelopes per second for each way of asking."""
    services = quickstart(directory, phones=2 * clients, nodes=2)
    drive = Drive(directory)
    with Federation() as federation:
        federation.start(services[0], services[1], services[2])
        spec = drive.spec(matrix_query(dimension), 2 * clients)
        await drive.announce(spec)
        mine = [each[0] for each in drive.envelopes(spec.body)]
        single, bulk = mine[:clients], mine[clients:-1]  # one is missing: nothing freezes
        path = f"/v1/rounds/{spec.digest}/shares"
        node = drive.service("compute-0")
        bodies = [frame(bulk[start : start + BULK]) for start in range(0, len(bulk), BULK)]
        plans = {
            "single uploads": ([request(node, "POST", path, each) for each in single], clients),
            "bulk uploads": (
                [request(node, "POST", f"{path}/bulk", body) for body in bodies],
                len(bulk),
            ),
        }
        found = {
            "bare primitives, one thread": bare_primitives(directory, drive, spec.body, single)
        }
        for what, (requests, count) in plans.items():
            begun = time.perf_counter()
            await ask(node, requests, connections=CONNECTIONS)
            found[what] = count / (time.perf_counter() - begun)
        return found


if __name__ == "__main__":
    measured(__doc__, measure, clients=2000, dimension=66)
