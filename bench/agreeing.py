"""CPU that a round costs each Compute node beside its answers, and an idle node each second.

    python -m bench.agreeing [--nodes 10] [--clients 4] [--rounds 20]

All nodes and the aggregator are real processes over TLS. Each round begins when the one before
is settled: announced, answered by a handful of phones, agreed, summed, published, erased.
Requests are by route, as the services count them.
"""

import asyncio
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Final

import numpy as np

from bench.command import options
from bench.drive import Drive, matrix_query, quickstart
from bench.freezing import milliseconds
from bench.raw_requests import Lines, request
from bench.rounds import cpu_seconds, service_client
from shoal_consortium.processes import Federation, Process
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.envelope import frame
from shoal_protocol.wire.documents import Signed

IDLE_SECONDS: Final = 10.0
SETTLING_SECONDS: Final = 0.5
PATIENCE_SECONDS: Final = 60.0
_COUNTED: Final = "shoal_http_requests_total{"


async def measure(directory: Path, *, nodes: int, clients: int, rounds: int) -> dict[str, float]:
    """Return the figures by what they are of."""
    services = quickstart(directory, phones=clients, nodes=nodes)
    drive = Drive(directory)
    with Federation() as federation:
        federation.start(*services[: nodes + 1])
        computing = [federation[each.name] for each in drive.consortium.manifest.compute_nodes]
        aggregator = federation["aggregator"]
        lines = {
            each.name: await Lines.open(drive.service(each.name), 1)
            for each in [*computing, aggregator]
        }
        for _ in range(nodes):  # most connections are opened, code is loaded
            await _round(drive, lines, clients)
        before, begun = _requests(computing), time.perf_counter()
        used = [cpu_seconds(each) for each in [*computing, aggregator]]
        phases: dict[str, float] = defaultdict(float)
        slowest = []
        for _ in range(rounds):
            for what, cpu in (await _round(drive, lines, clients, computing)).items():
                phases[what] += cpu
            slowest.append(max(milliseconds(computing)))
        spent = [cpu_seconds(each) for each in [*computing, aggregator]]
        seconds, after = time.perf_counter() - begun, _requests(computing)
        await asyncio.sleep(IDLE_SECONDS)
        idle = [cpu_seconds(each) for each in [*computing, aggregator]]
        for each in lines.values():
            await each.close()
    each_node = np.subtract(spent, used) / rounds
    waiting = np.subtract(idle, spent) / IDLE_SECONDS
    per_round = nodes * rounds
    return {
        "CPU of a node and round, ms": float(each_node[:-1].mean()) * 1e3,
        **{f"  {what}": spent_in * 1e3 / per_round for what, spent_in in phases.items()},
        "CPU of the aggregator and round, ms": float(each_node[-1]) * 1e3,
        "idle CPU of a node and second, ms": float(waiting[:-1].mean()) * 1e3,
        "idle CPU of the aggregator and second, ms": float(waiting[-1]) * 1e3,
        "last freeze to the slowest node's publishing, ms": float(np.median(slowest)),
        "seconds for a round": seconds / rounds,
        **{
            f"requests to a node and round: {route}": (count - before[route]) / per_round
            for route, count in after.items()
            if count > before[route] and route != "/metrics"
        },
    }


async def _round(
    drive: Drive, lines: dict[str, Lines], clients: int, computing: list[Process] | None = None
) -> dict[str, float]:
    """Take a round to its end; return the CPU seconds of all nodes in each part of it."""
    parts: dict[str, float] = {}
    spec = drive.spec(matrix_query(10), clients)
    envelopes = drive.envelopes(spec.body)
    last = _total(computing)

    def part(what: str) -> None:
        nonlocal last
        now = _total(computing)
        parts[what] = now - last
        last = now

    await _announce(drive, lines, spec)
    part("announced")
    for index, node in enumerate(spec.body.compute_nodes):
        body = frame([each[index] for each in envelopes])
        path = f"/v1/rounds/{spec.digest}/shares/bulk"
        await lines[node].ask([request(drive.service(node), "POST", path, body)])
    part("answered; all but the last node frozen")
    path = f"/v1/rounds/{spec.digest}/result?wait=20"
    async with asyncio.timeout(PATIENCE_SECONDS):
        waiting = request(drive.service("aggregator"), "GET", path)
        while b'"result"' not in (await lines["aggregator"].ask([waiting]))[0]:
            pass
    part("until the result is published")
    for node in spec.body.compute_nodes:
        end = drive.end_of(spec.body)
        await lines[node].ask([request(drive.service(node), "POST", "/v1/totals", end)])
    await asyncio.sleep(SETTLING_SECONDS)
    part("after that")
    return parts


async def _announce(drive: Drive, lines: dict[str, Lines], spec: Signed[RoundSpec]) -> None:
    job, encoded = drive.request_of(spec), spec.encode()
    for node in spec.body.compute_nodes:
        service = drive.service(node)
        messages = [("/v1/jobs", job), ("/v1/rounds", encoded)]
        await lines[node].ask([request(service, "POST", path, body) for path, body in messages])
    await lines["aggregator"].ask(
        [request(drive.service("aggregator"), "POST", "/v1/rounds", encoded)]
    )


def _total(computing: list[Process] | None) -> float:
    return sum(map(cpu_seconds, computing or []))


def _requests(computing: list[Process]) -> Counter[str]:
    """Return how many requests all nodes answered, by route."""
    found: Counter[str] = Counter()
    for node in computing:
        client, url = service_client(node)
        with client:
            text = client.get(f"{url}/metrics").raise_for_status().text
        for line in text.splitlines():
            if line.startswith(_COUNTED):
                labels, _, count = line.rpartition(" ")
                found[labels.partition('route="')[2].partition('"')[0]] += int(float(count))
    return found


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as directory:
        found = asyncio.run(
            measure(Path(directory), **vars(options(__doc__, nodes=10, clients=4, rounds=20)))
        )
    for what, figure in found.items():
        print(f"{what:64} {figure:10,.3f}")


if __name__ == "__main__":
    main()
