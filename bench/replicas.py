"""Uploads per second of a node as one process on SQLite, on PostgreSQL, and as two replicas.

    python -m bench.replicas [--clients 2000] [--dimension 66]

All in one run, on databases that reach the disk, so read the ratios. The two replicas, PostgreSQL
and the load share this machine's cores: with as few as here, replicas show what they cost and
not what they gain. Skipped, and says so, where PostgreSQL's server programs are not installed.
"""

import argparse
import asyncio
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.drive import Drive, matrix_query, quickstart
from bench.raw_requests import ask, request
from demo.ports import free_ports
from shoal_consortium.processes import Federation, Process
from shoal_protocol.sharing.envelope import frame

CONNECTIONS: Final = 16
BULK: Final = 250
SQLITE, POSTGRESQL, REPLICAS = "one process, SQLite", "one process, PostgreSQL", "two replicas"


@contextmanager
def postgresql() -> Iterator[str]:
    """Run a PostgreSQL server with its usual durability, and give its URL."""
    as_user: dict[str, Any] = {"user": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/"}
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as directory:
        if os.geteuid() == 0:
            os.chown(directory, pwd.getpwnam("postgres").pw_uid, -1)
        data = ["-D", f"{directory}/data"]
        made = ["initdb", *data, "-A", "trust", "-U", "shoal"]
        subprocess.run(made, check=True, **quiet, **as_user)
        options = [*data, "-c", "listen_addresses=", "-k", directory]
        server = subprocess.Popen(["postgres", *options], **quiet, **as_user)
        try:
            while subprocess.run(["pg_isready", "-h", directory], **quiet).returncode != 0:
                time.sleep(0.05)
            yield f"postgresql+psycopg://shoal@/postgres?host={directory}"
        finally:
            server.terminate()
            server.wait()


async def measure(
    directory: Path, *, replicas: int, database_url: str, clients: int, dimension: int
) -> tuple[float, float]:
    """Return single uploads per second, and envelopes per second in bulk."""
    services = quickstart(directory, phones=2 * clients, nodes=2)
    drive = Drive(directory)
    node = drive.service("compute-0")
    addresses = [node]
    processes = [_process(services[0], directory, 0, services[0].environment["SHOAL_PORT"])]
    for number in range(1, replicas):
        port = str(free_ports(1))
        processes.append(_process(services[0], directory, number, port))
        addresses.append(node.model_copy(update={"url": f"https://127.0.0.1:{port}"}))
    for process in processes:
        process.environment = {**process.environment, "SHOAL_DATABASE_URL": database_url}
    with Federation() as federation:
        federation.start(*processes, *services[1:3])
        spec = drive.spec(matrix_query(dimension), 2 * clients)
        await drive.announce(spec)
        mine = [each[0] for each in drive.envelopes(spec.body)]
        single, bulk = mine[:clients], mine[clients:-1]  # one is missing: nothing freezes
        path = f"/v1/rounds/{spec.digest}/shares"
        bodies = [frame(bulk[start : start + BULK]) for start in range(0, len(bulk), BULK)]
        found = []
        for where, contents, count in (
            (path, single, len(single)),
            (f"{path}/bulk", bodies, len(bulk)),
        ):
            begun = time.perf_counter()
            await asyncio.gather(
                *(
                    ask(
                        address,
                        [
                            request(address, "POST", where, each)
                            for each in contents[turn::replicas]
                        ],
                        connections=CONNECTIONS // replicas,
                    )
                    for turn, address in enumerate(addresses)
                )
            )
            found.append(count / (time.perf_counter() - begun))
        return found[0], found[1]


def _process(service: Process, directory: Path, number: int, port: str) -> Process:
    data = str(directory / f"replica-{number}")
    environment = {**service.environment, "SHOAL_PORT": port, "SHOAL_DATA": data}
    name = f"{service.name}-{number}"
    return Process(name, service.module, environment, directory / f"{name}.log")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=2000)
    parser.add_argument("--dimension", type=int, default=66)
    arguments = parser.parse_args()
    if any(shutil.which(program) is None for program in ("initdb", "postgres", "pg_isready")):
        print("skipped: PostgreSQL's server programs are not installed here")
        return
    found: dict[str, tuple[float, float]] = {}
    for what, replicas in ((SQLITE, 1), (POSTGRESQL, 1), (REPLICAS, 2)):
        with postgresql() as url, tempfile.TemporaryDirectory() as directory:
            found[what] = asyncio.run(
                measure(
                    Path(directory),
                    replicas=replicas,
                    database_url="" if what is SQLITE else url,
                    clients=arguments.clients,
                    dimension=arguments.dimension,
                )
            )
    print(f"{'uploads a second':28}{'single':>10}{'bulk':>10}{'of SQLite':>16}")
    for what, (single, bulk) in found.items():
        ratios = f"{single / found[SQLITE][0]:.2f} / {bulk / found[SQLITE][1]:.2f}"
        print(f"{what:28}{single:10.0f}{bulk:10.0f}{ratios:>16}")


if __name__ == "__main__":
    main()
