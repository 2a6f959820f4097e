"""Draws and submissions per second of a trainer, as one process and as two, of an empty answer.

    python -m bench.crowd_server [--contributions 4000] [--weights 11] [--instances 20]

All in one run, on databases that reach the disk. Each is a ratio to `/healthz` of the same
processes at the same moment, for the load shares this machine's cores with them: with as few as
here, a second process shows what it costs and not what it gains. The clients' own work is done
before the clock runs. PostgreSQL is left out, and it says so, where its server programs are not
installed.
"""

import argparse
import asyncio
import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import nacl.utils
import numpy as np
from nacl.signing import SigningKey

from bench.load import ask, request
from bench.replicas import postgresql
from demo.federation import Federation, Process
from demo.watching import free_ports
from shoal_client import quickstart, read_client_keys
from shoal_hosting.party import load_party
from shoal_protocol.documents import decode, sign
from shoal_protocol.draw_and_discard.documents import CrowdJobRequest, Draw, Submission
from shoal_protocol.draw_and_discard.tasks import CrowdTask
from shoal_protocol.draw_and_discard.updates import contribute
from shoal_protocol.manifest import Consortium, Policy, ServiceParty
from shoal_protocol.tasks import ColumnBounds

CONNECTIONS: Final = 16
BULK: Final = 100
CLIENTS: Final = 200
SITE: Final = "site"
MOST_LOCAL_EPSILON: Final = 1000.0
SQLITE, POSTGRESQL, TWO = "one process, SQLite", "one process, PostgreSQL", "two processes"
EMPTY, DRAWS, SUBMISSIONS, IN_BULK = "empty", "draws", "submissions", f"in bodies of {BULK}"

Rates = dict[str, float]


def task_of(weights: int, instances: int, epsilon: float) -> CrowdTask:
    """Return a logistic regression with so many weights and instances."""
    return CrowdTask(
        family="logistic",
        features=tuple(
            ColumnBounds(name=f"x{j}", lower=-1.0, upper=1.0) for j in range(weights - 1)
        ),
        target=ColumnBounds(name="y", lower=0.0, upper=1.0),
        clip=0.03,
        epsilon=epsilon,
        learning_rate=0.03,
        instances=instances,
    )


class Trainer:
    """A trainer's processes in a made-up consortium; nothing else of it runs."""

    def __init__(self, directory: Path, *, processes: int, database_url: str) -> None:
        """Make keys and files, and say how to start the processes."""
        plan = quickstart.Plan(
            consortium="crowd",
            compute_nodes=2,
            clients={SITE: CLIENTS},
            url_template="https://127.0.0.1:{port}",
            first_port=free_ports(5),
            extra_hosts=(),
            policy=Policy(
                minimum_cohort=2,
                minimum_colluders=0,
                maximum_epsilon=10.0,
                delta=1e-6,
                mechanisms=("discrete_gaussian",),
                queries=("second_moments",),
                maximum_round_seconds=3600,
                maximum_local_epsilon=MOST_LOCAL_EPSILON,
            ),
            valid_days=1,
        )
        now = datetime.now(UTC)
        self.consortium: Consortium = quickstart.make(
            directory, plan, now=now, random_bytes=nacl.utils.random
        )
        self.keys = read_client_keys(directory / "clients" / SITE / "clients.key")
        self._analyst = load_party(directory / "parties" / "analyst")
        [conducting] = [
            each
            for each in quickstart.services(directory, self.consortium)
            if each.name == "trainer"
        ]
        listed = self.consortium.manifest.trainer
        self.addresses: list[ServiceParty] = []
        self.processes: list[Process] = []
        for number in range(processes):
            port = conducting.environment["SHOAL_PORT"] if not number else str(free_ports(1))
            environment = {
                **conducting.environment,
                "SHOAL_PORT": port,
                "SHOAL_DATABASE_URL": database_url,
            }
            if number:
                environment |= {
                    "SHOAL_SERVES": "crowds",
                    "SHOAL_DATA": str(directory / f"crowds-{number}"),
                }
            name = f"trainer-{number}"
            log = directory / f"{name}.log"
            self.processes.append(Process(name, conducting.module, environment, log))
            self.addresses.append(listed.model_copy(update={"url": f"https://127.0.0.1:{port}"}))

    async def ask_all(self, requests: Sequence[tuple[str, str, bytes]]) -> list[bytes]:
        """Spread requests over the processes; return the answers' bodies in order."""
        count = len(self.addresses)
        parts = await asyncio.gather(
            *(
                ask(
                    address,
                    [request(address, *each) for each in requests[turn::count]],
                    connections=CONNECTIONS // count,
                )
                for turn, address in enumerate(self.addresses)
            )
        )
        bodies = [b""] * len(requests)
        for turn, part in enumerate(parts):
            bodies[turn::count] = part
        return bodies

    async def open(self, task: CrowdTask, contributions: int) -> str:
        """Open a crowd job for so many contributions and return its id."""
        each = -(-contributions // CLIENTS)
        body = CrowdJobRequest(
            manifest=self.consortium.digest,
            nonce=secrets.token_hex(16),
            analyst=self._analyst.name,
            task=task,
            contributions=contributions,
            contributions_per_client=each,
            contributions_per_record=each,
            session_seconds=3600,
            closes_at=datetime.now(UTC) + timedelta(hours=1),
        )
        signed = sign(body, self._analyst.name, self._analyst.signing_key)
        await ask(
            self.addresses[0],
            [request(self.addresses[0], "POST", "/v1/crowds", signed.encode())],
            connections=1,
        )
        return body.digest


def submissions(
    drawn: Sequence[bytes], first: int, keys: Sequence[SigningKey], task: CrowdTask
) -> list[bytes]:
    """Return signed answers to draws. Steps and noise are zero: neither is the trainer's work."""
    zero, none = np.zeros(task.dimension, np.int64), np.zeros(task.touched, np.int64)
    made = []
    for number, encoded in enumerate(drawn, first):
        draw = decode(encoded, Draw)
        sent = contribute(
            *(task, np.array(draw.body.weights, np.int64), zero), coordinate=0, noise=none
        )
        body = Submission(
            manifest=draw.body.manifest,
            client=number % CLIENTS,
            draw=draw,
            weights=tuple(sent.tolist()),
        )
        made.append(sign(body, "client", keys[number % CLIENTS]).encode())
    return made


def answers_to(drawn: list[bytes], keys: Sequence[SigningKey], task: CrowdTask) -> list[bytes]:
    """Return `submissions` of all draws, made on all cores."""
    size = -(-len(drawn) // (os.cpu_count() or 1))
    starts = range(0, len(drawn), size)
    with ProcessPoolExecutor() as pool:
        made = pool.map(
            submissions,
            [drawn[start : start + size] for start in starts],
            starts,
            [keys] * len(starts),
            [task] * len(starts),
        )
        return [each for part in made for each in part]


async def measure(
    directory: Path,
    *,
    processes: int,
    database_url: str,
    contributions: int,
    weights: int,
    instances: int,
) -> tuple[Rates, dict[str, int]]:
    """Return what is answered per second, and the bytes of a draw, a submission and a receipt."""
    trainer = Trainer(directory, processes=processes, database_url=database_url)
    task = task_of(weights, instances, MOST_LOCAL_EPSILON * CLIENTS / contributions / 4.0)
    with Federation() as federation:
        federation.start(trainer.processes[0])
        federation.start(*trainer.processes[1:])
        job = await trainer.open(task, 2 * contributions)
        where = f"/v1/crowds/{job}"
        nonces = [{"nonce": secrets.token_hex(32)} for _ in range(2 * contributions)]
        asked = [json.dumps(each, separators=(",", ":")).encode() for each in nonces]
        empty: list[tuple[str, str, bytes]] = [("GET", "/healthz", b"")] * contributions
        draws = [("POST", f"{where}/draws", each) for each in asked]
        await trainer.ask_all([*empty[:100], *draws[:100]])  # what is only the first time slow
        rates: Rates = {}

        async def timed(what: str, requests: list[tuple[str, str, bytes]], of: int) -> list[bytes]:
            begun = time.perf_counter()
            answers = await trainer.ask_all(requests)
            rates[what] = of / (time.perf_counter() - begun)
            return answers

        await timed(EMPTY, empty, contributions)
        drawn = await timed(DRAWS, draws, len(draws))
        made = await asyncio.to_thread(answers_to, drawn, trainer.keys, task)
        single, bulk = made[:contributions], made[contributions:]
        receipts = await timed(
            SUBMISSIONS, [("POST", f"{where}/submissions", each) for each in single], len(single)
        )
        bodies = [
            b'{"documents":[' + b",".join(bulk[start : start + BULK]) + b"]}"
            for start in range(0, len(bulk), BULK)
        ]
        await timed(IN_BULK, [("POST", f"{where}/submissions", each) for each in bodies], len(bulk))
        [state] = await trainer.ask_all([("GET", where, b"")])
        if json.loads(state)["contributions"] != 2 * contributions:
            raise RuntimeError("not every contribution was taken")
        sizes = {"draw": drawn[0], "submission": single[0], "receipt": receipts[0]}
        return rates, {name: len(content) for name, content in sizes.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contributions", type=int, default=4000)
    parser.add_argument("--weights", type=int, default=11)
    parser.add_argument("--instances", type=int, default=20)
    arguments = parser.parse_args()
    has_postgresql = all(map(shutil.which, ("initdb", "postgres", "pg_isready")))
    if not has_postgresql:
        print("PostgreSQL's server programs are not installed here: SQLite only")
    found: dict[str, Rates] = {}
    sizes: dict[str, int] = {}
    for what, processes in ((SQLITE, 1), (POSTGRESQL, 1), (TWO, 2)):
        if what is not SQLITE and not has_postgresql:
            continue
        with ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            url = "" if what is SQLITE else stack.enter_context(postgresql())
            found[what], sizes = asyncio.run(
                measure(
                    directory,
                    processes=processes,
                    database_url=url,
                    contributions=arguments.contributions,
                    weights=arguments.weights,
                    instances=arguments.instances,
                )
            )
    columns = (EMPTY, DRAWS, SUBMISSIONS, IN_BULK)
    print(f"{'a second, and of empty':26}" + "".join(f"{each:>20}" for each in columns))
    for what, rates in found.items():
        shown = [f"{rates[each]:.0f} ({rates[each] / rates[EMPTY]:.2f})" for each in columns]
        print(f"{what:26}" + "".join(f"{each:>20}" for each in shown))
    print("bytes: " + ", ".join(f"{name} {size}" for name, size in sizes.items()))


if __name__ == "__main__":
    main()
