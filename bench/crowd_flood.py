"""What a flood of draws does to submissions and honest draws, with and without the trainer's limit.

    python -m bench.crowd_flood [--submissions 600] [--draws-at-once 16]

Anybody may draw, so anybody may flood. One process on SQLite takes submissions over 64 lines and
draws of a few honest phones, then draws of an agent that asks for 64 in a request, by turns alone
and beside a flood from another process, which asks again as soon as it is answered or refused and
heeds no Retry-After. In the same run the same trainer without a limit. All share this machine's
cores, the flood too: read the ratios.
"""

import argparse
import asyncio
import json
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import httptools
import numpy as np

from bench.crowd_trainer import (
    CLIENTS,
    CONNECTIONS,
    MOST_LOCAL_EPSILON,
    Trainer,
    answers_to,
    task_of,
)
from bench.raw_requests import Lines, request
from shoal_consortium.processes import Federation
from shoal_holder.crowds.contributor import MOST_TOGETHER
from shoal_hosting.tls_certificates import pinned_tls
from shoal_protocol.crowds.tasks import CrowdTask
from shoal_protocol.trust.manifest import ServiceParty
from shoal_trainer.settings import DRAWS_AT_ONCE

ROUNDS: Final = 3
AGENTS_REQUESTS: Final = 2
HONEST: Final = 4  # phones that draw one after another while submissions come
WEIGHTS, INSTANCES = 11, MOST_TOGETHER  # so that an agent asks for as many draws as it ever does
MOST_AT_ONCE: Final = 1000  # all that one read takes, as if there were no limit
SETTLING_SECONDS: Final = 10.0  # longer than a draw may wait
READY: Final = "flooding"


@dataclass(frozen=True)
class Flood:
    """So many lines, on each of which draws are asked for by so many nonces at a time."""

    name: str
    lines: int
    nonces: int

    def body(self) -> bytes:
        """Return what is asked for, again and again."""
        nonces = [secrets.token_hex(32) for _ in range(self.nonces)]
        asked = {"nonce": nonces[0]} if self.nonces == 1 else {"nonces": nonces}
        return json.dumps(asked, separators=(",", ":")).encode()


FLOODS: Final = (
    Flood("64 lines", 64, 1),
    Flood("2,000 lines", 2000, 1),
    Flood("16 lines, 1,000 draws in a request", 16, 1000),
)


async def _flood_line(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    content: bytes,
    counts: Counter[int],
) -> None:
    while True:
        writer.write(content)
        complete = asyncio.Event()
        answer = _Answer(complete)
        parser = httptools.HttpResponseParser(answer)
        while not complete.is_set():
            received = await reader.read(1 << 16)
            if not received:
                return
            parser.feed_data(received)
        counts[parser.get_status_code()] += 1


class _Answer:
    """What httptools calls back, of which only the end matters."""

    def __init__(self, complete: asyncio.Event) -> None:
        self._complete = complete

    def on_message_complete(self) -> None:
        self._complete.set()


def _address(service: ServiceParty) -> tuple[str, int]:
    host, _, port = service.url.removeprefix("https://").rpartition(":")
    return host, int(port)


async def flood(service: ServiceParty, path: str, wanted: Flood) -> None:
    """Flood until standard input is closed; print how often which status was answered."""
    content, counts = request(service, "POST", path, wanted.body()), Counter[int]()
    tls = pinned_tls(service.certificate)
    streams = [
        await asyncio.open_connection(*_address(service), ssl=tls) for _ in range(wanted.lines)
    ]
    lines = [asyncio.ensure_future(_flood_line(*each, content, counts)) for each in streams]
    print(READY, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for line in lines:
        line.cancel()
    await asyncio.gather(*lines, return_exceptions=True)
    print(json.dumps(counts))


@contextmanager
def flooded(service: ServiceParty, path: str, wanted: Flood | None) -> Iterator[Counter[int]]:
    """Run a flood in a process of its own; the counts are there once it has ended."""
    counts = Counter[int]()
    if wanted is None:
        yield counts
        return
    asked = json.dumps([service.model_dump(mode="json"), path, asdict(wanted)])
    with subprocess.Popen(
        [sys.executable, "-m", "bench.crowd_flood", "--flood", asked],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        if process.stdout is None or process.stdout.readline().strip() != READY.encode():
            raise RuntimeError("the flood did not begin")
        time.sleep(SETTLING_SECONDS)
        yield counts
        said, _ = process.communicate(b"")
        counts.update({int(status): count for status, count in json.loads(said).items()})


@dataclass
class Figures:
    """What one flood left: submissions a second, and milliseconds of honest draws, by round."""

    rates: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)  # the trainer's, for one submission
    draws: list[float] = field(default_factory=list)
    agents: list[int] = field(default_factory=list)  # draws that each of an agent's requests had
    agent_seconds: float = 0.0
    answered: Counter[int] = field(default_factory=Counter)


async def _honest_draws(service: ServiceParty, path: str, waited: list[float]) -> None:
    """Draw one after another until cancelled, over a line of its own; note the milliseconds."""
    [line] = [await Lines.open(service, 1)]
    with suppress(asyncio.CancelledError):
        while True:
            content = json.dumps({"nonce": secrets.token_hex(32)}, separators=(",", ":"))
            begun = time.perf_counter()
            with suppress(RuntimeError):  # refused: it asks again, and the time counts on
                await line.ask([request(service, "POST", path, content.encode())])
                waited.append((time.perf_counter() - begun) * 1e3)
    await line.close()


async def _agents_draws(service: ServiceParty, path: str, figures: Figures) -> None:
    """Ask for draws like an agent with much to do; note how many came of each request."""
    line, begun = await Lines.open(service, 1), time.perf_counter()
    for _ in range(AGENTS_REQUESTS):
        content = Flood("", 1, MOST_TOGETHER).body()
        try:
            [answer] = await line.ask([request(service, "POST", path, content)])
            figures.agents.append(len(json.loads(answer)["documents"]))
        except RuntimeError:  # refused
            figures.agents.append(0)
    figures.agent_seconds += time.perf_counter() - begun
    await line.close()


async def measure(directory: Path, *, draws_at_once: int, submissions: int) -> dict[str, Figures]:
    """Return what each flood leaves of submissions and honest draws; "none" is without one."""
    trainer = Trainer(directory, processes=1, database_url="", draws_at_once=draws_at_once)
    floods: tuple[Flood | None, ...] = (None, *FLOODS)
    total = submissions * ROUNDS * len(floods)
    task = task_of(WEIGHTS, INSTANCES, MOST_LOCAL_EPSILON * CLIENTS / (8.0 * total))
    found = {_name(each): Figures() for each in floods}
    with Federation() as federation:
        federation.start(trainer.processes[0])
        job = await trainer.open(task, 2 * total)
        where, [service] = f"/v1/crowds/{job}", trainer.addresses
        lines = await Lines.open(service, CONNECTIONS)
        prepared = [
            await _submissions(trainer, lines, where, submissions, task)
            for _ in range(ROUNDS * len(floods))
        ]
        for _ in range(ROUNDS):
            for each in floods:
                sent = prepared.pop()
                with flooded(service, f"{where}/draws", each) as counts:
                    figures = found[_name(each)]
                    drawing = [
                        asyncio.ensure_future(
                            _honest_draws(service, f"{where}/draws", figures.draws)
                        )
                        for _ in range(HONEST)
                    ]
                    begun, cpu = time.perf_counter(), trainer.cpu_seconds()
                    await trainer.ask_all([lines], sent)
                    figures.cpu_seconds.append((trainer.cpu_seconds() - cpu) / submissions)
                    figures.rates.append(submissions / (time.perf_counter() - begun))
                    for drawer in drawing:
                        drawer.cancel()
                    await asyncio.gather(*drawing, return_exceptions=True)
                    await _agents_draws(service, f"{where}/draws", figures)
                figures.answered += counts
        await lines.close()
    return found


def _name(wanted: Flood | None) -> str:
    return "none" if wanted is None else wanted.name


async def _submissions(
    trainer: Trainer, lines: Lines, where: str, count: int, task: CrowdTask
) -> list[tuple[str, str, bytes]]:
    """Return signed submissions, whose draws were asked for while nothing is measured."""
    nonces = [secrets.token_hex(32) for _ in range(count)]
    [drawn] = [
        json.loads(each)["documents"]
        for each in await trainer.ask_all(
            [lines],
            [
                (
                    "POST",
                    f"{where}/draws",
                    json.dumps({"nonces": nonces}, separators=(",", ":")).encode(),
                )
            ],
        )
    ]
    encoded = [
        json.dumps(each, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()
        for each in drawn
    ]
    made = answers_to(encoded, trainer.key, task)
    return [("POST", f"{where}/submissions", each) for each in made]


def main() -> None:
    """Measure and print; or be the flood, which is a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--submissions", type=int, default=600)
    parser.add_argument("--draws-at-once", type=int, default=DRAWS_AT_ONCE)
    parser.add_argument("--flood", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.flood is not None:
        service, path, wanted = json.loads(arguments.flood)
        asyncio.run(flood(ServiceParty.model_validate(service), path, Flood(**wanted)))
        return
    for limit in (arguments.draws_at_once, MOST_AT_ONCE):
        with tempfile.TemporaryDirectory() as directory:
            found = asyncio.run(
                measure(Path(directory), draws_at_once=limit, submissions=arguments.submissions)
            )
        print(f"draws at once: {'no limit' if limit == MOST_AT_ONCE else limit}")
        alone, cost = np.array(found["none"].rates), np.array(found["none"].cpu_seconds)
        for name, of in found.items():
            rate, ratio = np.median(of.rates), np.median(np.array(of.rates) / alone)
            share = np.median(cost / np.array(of.cpu_seconds))
            waited = np.percentile(of.draws, [50, 95]) if of.draws else [np.nan, np.nan]
            print(
                f"  flood: {name:36} submissions {rate:6.0f} a second ({ratio:.2f}; of CPU "
                f"{share:.2f}), honest draws {len(of.draws):5} in {waited[0]:6.0f} ms, 95 % "
                f"{waited[1]:6.0f}, an agent's {of.agents} of {MOST_TOGETHER} in "
                f"{of.agent_seconds:.1f} s; answered {dict(of.answered)}",
                flush=True,
            )


if __name__ == "__main__":
    main()
