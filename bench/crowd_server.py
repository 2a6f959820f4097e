"""Draws and submissions per second of a trainer, as one process and as two, of an empty answer.

    python -m bench.crowd_server [--contributions 3200] [--weights 11] [--instances 20]

On databases that reach the disk. The load, and PostgreSQL, share this machine's cores with the
trainer, so read the ratios to `/healthz` of the same processes in the same round, of which the
median is shown: with as few cores as here, a second process shows what it costs and not what it
gains. CPU times are the trainer's own, without PostgreSQL's. The clients' own work is done while
no clock runs. PostgreSQL is left out, and it says so, where its server programs are not installed.
"""

import argparse
import asyncio
import json
import os
import secrets
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import nacl.utils
import numpy as np
from nacl.signing import SigningKey

from bench.load import Lines, ask, request
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

CONNECTIONS: Final = 64
BULK: Final = 100
CLIENTS: Final = 200
ROUNDS: Final = 8
SITE: Final = "site"
MOST_LOCAL_EPSILON: Final = 1000.0
SQLITE, POSTGRESQL, TWO = "one process, SQLite", "one process, PostgreSQL", "two processes"
EMPTY, DRAWS, SUBMISSIONS, IN_BULK = "empty", "draws", "submissions", f"in bodies of {BULK}"


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
                    "SHOAL_CONDUCTED_AT": listed.url,
                    "SHOAL_DATA": str(directory / f"crowds-{number}"),
                }
            name = f"trainer-{number}"
            log = directory / f"{name}.log"
            self.processes.append(Process(name, conducting.module, environment, log))
            self.addresses.append(listed.model_copy(update={"url": f"https://127.0.0.1:{port}"}))

    async def ask_all(
        self, all_lines: Sequence[Lines], requests: Sequence[tuple[str, str, bytes]]
    ) -> list[bytes]:
        """Spread requests over the processes; return the answers' bodies in order."""
        count = len(self.addresses)
        parts = await asyncio.gather(
            *(
                lines.ask([request(address, *each) for each in requests[turn::count]])
                for turn, (address, lines) in enumerate(zip(self.addresses, all_lines, strict=True))
            )
        )
        bodies = [b""] * len(requests)
        for turn, part in enumerate(parts):
            bodies[turn::count] = part
        return bodies

    def cpu_seconds(self) -> float:
        """Return the CPU time that all processes have used (Linux)."""
        used = 0
        for process in self.processes:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            used += int(fields[11]) + int(fields[12])  # in user mode, and in the kernel
        return used / os.sysconf("SC_CLK_TCK")

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


@dataclass
class Figures:
    """What every round measured, by kind: answers a second, and the trainer's CPU time of each."""

    rates: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    cpu_seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    sizes: dict[str, int] = field(default_factory=dict)

    def rate(self, kind: str) -> float:
        """Return the median rate."""
        return float(np.median(self.rates[kind]))

    def ratio(self, kind: str) -> float:
        """Return the median over rounds of the rate, of that of empty answers in the same round."""
        return float(np.median(np.divide(self.rates[kind], self.rates[EMPTY])))

    def cpu_milliseconds(self, kind: str) -> float:
        """Return the median CPU time that one answer took, of all processes together."""
        return 1e3 * float(np.median(self.cpu_seconds[kind]))


async def measure(
    directory: Path,
    *,
    processes: int,
    database_url: str,
    contributions: int,
    weights: int,
    instances: int,
) -> Figures:
    """Ask for empty answers, draw, and submit, by turns in `ROUNDS` rounds."""
    trainer = Trainer(directory, processes=processes, database_url=database_url)
    each = contributions // ROUNDS
    task = task_of(weights, instances, MOST_LOCAL_EPSILON * CLIENTS / (8.0 * each * ROUNDS))
    figures = Figures()
    with Federation() as federation:
        federation.start(trainer.processes[0])
        federation.start(*trainer.processes[1:])
        job = await trainer.open(task, 4 * each * ROUNDS)
        where = f"/v1/crowds/{job}"
        lines = [await Lines.open(each, CONNECTIONS // processes) for each in trainer.addresses]

        async def timed(kind: str, requests: list[tuple[str, str, bytes]], of: int) -> list[bytes]:
            cpu, begun = trainer.cpu_seconds(), time.perf_counter()
            answers = await trainer.ask_all(lines, requests)
            figures.rates[kind].append(of / (time.perf_counter() - begun))
            figures.cpu_seconds[kind].append((trainer.cpu_seconds() - cpu) / of)
            return answers

        for _ in range(ROUNDS):
            nonces = [{"nonce": secrets.token_hex(32)} for _ in range(2 * each)]
            asked = [json.dumps(nonce, separators=(",", ":")).encode() for nonce in nonces]
            await timed(EMPTY, [("GET", "/healthz", b"")] * each, each)
            drawn = await timed(DRAWS, [("POST", f"{where}/draws", one) for one in asked], 2 * each)
            made = answers_to(drawn, trainer.keys, task)
            single, bulk = made[:each], made[each:]
            sent = [("POST", f"{where}/submissions", one) for one in single]
            receipts = await timed(SUBMISSIONS, sent, each)
            bodies = [
                b'{"documents":[' + b",".join(bulk[start : start + BULK]) + b"]}"
                for start in range(0, each, BULK)
            ]
            sent = [("POST", f"{where}/submissions", one) for one in bodies]
            await timed(IN_BULK, sent, each)
            figures.sizes = {
                "draw": len(drawn[0]),
                "submission": len(single[0]),
                "receipt": len(receipts[0]),
            }
        [state] = await trainer.ask_all(lines, [("GET", where, b"")])
        if json.loads(state)["contributions"] != 2 * each * ROUNDS:
            raise RuntimeError("not every contribution was taken")
        for connected in lines:
            await connected.close()
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contributions", type=int, default=3200)
    parser.add_argument("--weights", type=int, default=11)
    parser.add_argument("--instances", type=int, default=20)
    arguments = parser.parse_args()
    has_postgresql = all(map(shutil.which, ("initdb", "postgres", "pg_isready")))
    if not has_postgresql:
        print("PostgreSQL's server programs are not installed here: SQLite only")
    found: dict[str, Figures] = {}
    for what, processes in ((SQLITE, 1), (POSTGRESQL, 1), (TWO, 2)):
        if what is not SQLITE and not has_postgresql:
            continue
        with ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            url = "" if what is SQLITE else stack.enter_context(postgresql())
            found[what] = asyncio.run(
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
    print(f"{'a second (of empty)':26}" + "".join(f"{kind:>20}" for kind in columns))
    for what, of in found.items():
        rates = [f"{of.rate(kind):.0f} ({of.ratio(kind):.2f})" for kind in columns]
        print(f"{what:26}" + "".join(f"{each:>20}" for each in rates))
    print("CPU milliseconds of each")
    for what, of in found.items():
        print(f"{what:26}" + "".join(f"{of.cpu_milliseconds(kind):20.2f}" for kind in columns))
    print("bytes: " + ", ".join(f"{name} {size}" for name, size in found[SQLITE].sizes.items()))


if __name__ == "__main__":
    main()
