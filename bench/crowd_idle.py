"""What an idle connection and an open crowd job take of a trainer's memory.

    python -m bench.crowd_idle [--connections 4000] [--jobs 200]

Resident memory (Linux) of one process on SQLite, as it grows: by TLS connections on each of which
one draw was answered and that are kept open, as phones keep theirs; by crowd jobs that were opened
and drawn from.
"""

import argparse
import asyncio
import json
import resource
import secrets
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

from bench.crowd_trainer import CLIENTS, MOST_LOCAL_EPSILON, Trainer, task_of
from bench.raw_requests import Lines, request
from bench.rounds import peak_memory_mib
from shoal_consortium.processes import Federation
from shoal_hosting.server.serving import KEEP_ALIVE_SECONDS, MOST_CONNECTIONS
from shoal_protocol.crowds.tasks import CrowdTask

AT_ONCE: Final = 50  # connections that shake hands together
WARM_UP: Final = 200
WEIGHTS, INSTANCES = 11, 20


def _resident_kib(trainer: Trainer) -> int:
    status = Path(f"/proc/{trainer.processes[0].pid}/status").read_text()
    [line] = [each for each in status.splitlines() if each.startswith("VmRSS:")]
    return int(line.split()[1])


def _asked() -> bytes:
    return json.dumps({"nonce": secrets.token_hex(32)}, separators=(",", ":")).encode()


async def _connect(trainer: Trainer, job: str, count: int) -> tuple[list[Lines], Counter[str]]:
    """Open connections, draw once on each, and keep them; say what became of them."""
    [service] = trainer.addresses
    content = request(service, "POST", f"/v1/crowds/{job}/draws", _asked())
    kept, said = list[Lines](), Counter[str]()
    for start in range(0, count, AT_ONCE):
        lines = await Lines.open(service, min(AT_ONCE, count - start))
        try:
            await lines.ask([content] * min(AT_ONCE, count - start))
            said["drew"] += min(AT_ONCE, count - start)
        except RuntimeError as error:
            said[str(error)] += 1
        kept.append(lines)
    return kept, said


async def measure(
    trainer: Trainer, task: CrowdTask, *, connections: int, jobs: int
) -> dict[str, float]:
    """Return KiB of each, and of the process as a whole."""
    job = await trainer.open(task, 10_000)
    warm, _ = await _connect(trainer, job, WARM_UP)
    for lines in warm:
        await lines.close()
    await asyncio.sleep(1.0)
    empty, begun = _resident_kib(trainer), time.monotonic()
    kept, said = await _connect(trainer, job, connections)
    seconds, full = time.monotonic() - begun, _resident_kib(trainer)
    if said["drew"] < connections:
        raise RuntimeError(f"not all connections were served: {dict(said)}")
    if seconds > KEEP_ALIVE_SECONDS:
        raise RuntimeError("the first were idle for too long: open fewer")
    for lines in kept:
        await lines.close()
    await asyncio.sleep(1.0)
    before = _resident_kib(trainer)
    [service] = trainer.addresses
    opened = [await trainer.open(task, 10_000) for _ in range(jobs)]
    lines = await Lines.open(service, 1)
    await lines.ask(
        [request(service, "POST", f"/v1/crowds/{each}/draws", _asked()) for each in opened]
    )
    after = _resident_kib(trainer)
    await lines.close()
    return {
        "the process, idle": empty,
        "an idle connection": (full - empty) / connections,
        "a crowd job": (after - before) / jobs,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=4000)
    parser.add_argument("--jobs", type=int, default=200)
    arguments = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory() as directory, Federation() as federation:
        trainer = Trainer(Path(directory), processes=1, database_url="")
        federation.start(trainer.processes[0])
        task = task_of(WEIGHTS, INSTANCES, MOST_LOCAL_EPSILON * CLIENTS / 1e5)
        found = asyncio.run(
            measure(trainer, task, connections=arguments.connections, jobs=arguments.jobs)
        )
        peak = peak_memory_mib(trainer.processes[0])
    for what, kib in found.items():
        print(f"{what:24} {kib:10,.1f} KiB")
    print(f"{'at most':24} {peak:10,.1f} MiB, with {arguments.connections:,} connections")
    whole = (found["the process, idle"] + MOST_CONNECTIONS * found["an idle connection"]) / 1024
    print(f"{MOST_CONNECTIONS:,} connections, the most it takes: {whole:,.0f} MiB")


if __name__ == "__main__":
    main()
