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
import secrets
import shutil
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from bench.crowd_trainer import (
    CLIENTS,
    CONNECTIONS,
    MOST_LOCAL_EPSILON,
    Trainer,
    answers_to,
    task_of,
)
from bench.raw_requests import Lines
from bench.replicas import postgresql
from shoal_consortium.processes import Federation

BULK: Final = 100
ROUNDS: Final = 8
SQLITE, POSTGRESQL, TWO = "one process, SQLite", "one process, PostgreSQL", "two processes"
EMPTY, DRAWS, SUBMISSIONS, IN_BULK = "empty", "draws", "submissions", f"in bodies of {BULK}"


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
            made = answers_to(drawn, trainer.key, task)
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
