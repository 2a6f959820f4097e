"""A Compute node as three processes over one PostgreSQL, any of them killed at any time.

A small balancer in front of them stands for the load balancer that a node's operator runs.
"""

import asyncio
import base64
import itertools
import random
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import numpy as np
import pytest

from bench.drive import FIRST_PHONE, Drive, matrix_query, phone_key, quickstart
from shoal_consortium.processes import Federation, Process
from shoal_holder.contribution import box_keys, seal_contribution
from shoal_protocol.rounds.attestations import Result
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.envelope import frame
from shoal_protocol.wire.documents import Signed, from_json
from tests.end_to_end.conftest import first_free_port
from tests.world.loopback import pinned_client

pytestmark = pytest.mark.slow

CLIENTS = 300
REPLICAS = 3
UPLOADERS = 6
KILLS = 5


class Balancer:
    """Hands each connection to the next replica that takes it."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = itertools.cycle(ports)
        self._count = len(ports)
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self, port: int) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", port)
        try:
            yield
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        for port in itertools.islice(self._ports, self._count):
            with suppress(OSError):
                to_reader, to_writer = await asyncio.open_connection("127.0.0.1", port)
                await asyncio.gather(_pipe(reader, to_writer), _pipe(to_reader, writer))
                return
        writer.close()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while content := await reader.read(65_536):
            writer.write(content)
            await writer.drain()
    except OSError:
        return  # one end is gone, and the other is about to be
    finally:
        writer.close()


@pytest.fixture
def processes() -> Iterator[Federation]:
    with Federation() as federation:
        yield federation


def noise(client: int, dimension: int) -> np.ndarray:
    return np.arange(dimension, dtype=np.int64) - 3 * client


def envelopes(drive: Drive, spec: RoundSpec) -> list[list[bytes]]:
    values = spec.query.encode(np.full((1, len(spec.query.columns)), 0.25))
    return [
        seal_contribution(
            *(spec, box_keys(drive.consortium), FIRST_PHONE + client, phone_key(client), values),
            noise(client, spec.dimension),
            random_bytes=secrets.token_bytes,
        )
        for client in range(spec.population_size)
    ]


def expected(spec: RoundSpec) -> np.ndarray:
    encoded = spec.query.encode(np.full((1, len(spec.query.columns)), 0.25))
    return sum(encoded + noise(client, spec.dimension) for client in range(spec.population_size))


async def upload(client: httpx.AsyncClient, path: str, envelope: bytes) -> None:
    """Send an envelope until it is acknowledged."""
    while True:
        try:
            reply = await client.post(path, content=envelope)
        except httpx.HTTPError:
            await asyncio.sleep(0.02)
            continue
        if reply.status_code in (200, 201):
            return
        assert reply.status_code == 503, reply.text


async def test_replicas_that_are_killed_one_after_another_lose_nothing_and_sum_exactly(
    tmp_path: Path, postgresql_url: str, processes: Federation
) -> None:
    chance = random.Random(7)
    services = quickstart(tmp_path, phones=CLIENTS, nodes=2)
    listed, peer, aggregator = services[:3]
    first = first_free_port()
    ports = list(range(first, first + REPLICAS))
    replicas = [
        Process(
            f"replica-{number}",
            listed.module,
            {
                **listed.environment,
                "SHOAL_PORT": str(port),
                "SHOAL_DATA": str(tmp_path / f"replica-{number}"),
                "SHOAL_DATABASE_URL": postgresql_url,
            },
            tmp_path / f"replica-{number}.log",
        )
        for number, port in enumerate(ports)
    ]
    async with Balancer(ports).listening(int(listed.environment["SHOAL_PORT"])):
        await asyncio.to_thread(processes.start, *replicas, peer, aggregator)
        drive = Drive(tmp_path)
        spec = drive.spec(matrix_query(10), CLIENTS)
        await drive.announce(spec)
        made = envelopes(drive, spec.body)
        shares = f"/v1/rounds/{spec.digest}/shares"
        async with drive.connection("compute-1") as node:
            body = frame(each[1] for each in made)
            assert (await node.ask("POST", f"{shares}/bulk", body)).status == 200
        acknowledged = await upload_while_killing(drive, spec, made, replicas, chance)
        assert acknowledged == CLIENTS
        result = await the_result(drive, spec)
    assert result.cohort_size == CLIENTS
    total = np.frombuffer(base64.b64decode(result.values), "<i8")
    assert np.array_equal(total, expected(spec.body))


async def upload_while_killing(
    drive: Drive,
    spec: Signed[RoundSpec],
    made: list[list[bytes]],
    replicas: list[Process],
    chance: random.Random,
) -> int:
    """Upload everything to the replicas; kill and restart one of them at a time meanwhile."""
    waiting, acknowledged, progress = iter(made), 0, asyncio.Event()
    kills = sorted(chance.sample(range(CLIENTS), KILLS))
    service = drive.service("compute-0")

    async def uploader() -> None:
        nonlocal acknowledged
        async with pinned_client(service.certificate, base_url=service.url) as client:
            for each in waiting:
                await upload(client, f"/v1/rounds/{spec.digest}/shares", each[0])
                acknowledged += 1
                progress.set()

    async def killer() -> None:
        for number, kill_at in enumerate(kills):
            while acknowledged < kill_at:
                progress.clear()
                await progress.wait()
            victim = replicas[number % REPLICAS]
            await asyncio.to_thread(victim.kill)
            await asyncio.to_thread(victim.start)

    await asyncio.gather(killer(), *(uploader() for _ in range(UPLOADERS)))
    return acknowledged


async def the_result(drive: Drive, spec: Signed[RoundSpec]) -> Result:
    path = f"/v1/rounds/{spec.digest}/outcome?wait=20"
    async with drive.connection("aggregator") as aggregator, asyncio.timeout(120):
        while (reply := await aggregator.ask("GET", path, wait_seconds=20.0)).status != 200:
            assert reply.status == 202, reply.body
    return from_json(reply.json()["documents"][0], Result).body
