"""Rounds of many data holders of one record each: what nodes and aggregator spend on them.

Envelopes are valid and made by the product's functions, ahead of what is measured. One draw of
noise serves all, every second of them with the other sign, lest the sum be larger than noise can
be; the published sum must be theirs to the last bit.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from pyroaring import BitMap

from bench.drive import FIRST_PHONE, Drive, contributions, quickstart
from bench.raw_requests import ask, request
from bench.table1.costs import Cost, Meter
from bench.table1.floor import Floor
from shoal import ColumnBounds
from shoal_compute import shares
from shoal_compute.summing import Summing, sum_shares
from shoal_compute.uploading import MOST_IN_BULK
from shoal_consortium.processes import Federation, Process
from shoal_holder.contribution import box_keys, draw_noise
from shoal_holder.noise import exact_noise
from shoal_protocol.queries import Column, VectorSum
from shoal_protocol.rounds.attestations import Result
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing import summation
from shoal_protocol.sharing.envelope import frame
from shoal_protocol.trust.manifest import ServiceParty
from shoal_protocol.wire.documents import Signed, from_json
from shoal_protocol.wire.encoding import Uint64Vector
from shoal_protocol.wire.vectors import decode_uint64
from shoal_service.storage.database import open_engine, sqlite_url
from shoal_studies.catalogue.single_numbers import VectorSumTask

VECTOR: Final = ColumnBounds(name="x", lower=-1.0, upper=1.0)
RADIUS: Final = 1.0
_CHUNK_BYTES: Final = 16 << 20  # of envelopes that are made at once, for one node
_STARTED_TOGETHER: Final = 3
_BESIDE: Final = 6  # further data holders, for `clients`
_PATIENCE_SECONDS: Final = 900.0
_SUMMED_HERE: Final = 200_000_000  # coordinates: of more, one node's sum stands for all nodes'


def start(federation: Federation, processes: Sequence[Process]) -> None:
    """Start processes, a few at a time: two cores would keep all of them waiting for too long."""
    for first in range(0, len(processes), _STARTED_TOGETHER):
        federation.start(*processes[first : first + _STARTED_TOGETHER])


def vector_query(entries: int) -> VectorSum:
    """Return the query of a vector of so many entries, cut to the unit ball."""
    return VectorSum(
        columns=(Column(name=VECTOR.name, centre=VECTOR.centre, scale=VECTOR.half_range),),
        entries=entries,
        intercept=0.0,
        radius=RADIUS,
        grid_bits=15,
        records_per_client=1,
    )


def vector_task(entries: int) -> VectorSumTask:
    """Return the study that asks it."""
    return VectorSumTask(columns=(VECTOR,), entries=entries, radius=RADIUS)


@dataclass
class Services:
    """Running nodes and aggregator, of a roster with many data holders."""

    directory: Path
    services: Sequence[Process]
    drive: Drive
    count: int

    @property
    def _measured(self) -> Sequence[Process]:
        return self.services[:-1]  # all but the trainer

    @classmethod
    @asynccontextmanager
    async def running(
        cls, directory: Path, *, nodes: int, holders: int
    ) -> AsyncIterator["Services"]:
        """Start a federation of so many data holders, and a few beside."""
        services = quickstart(directory, phones=holders + _BESIDE, nodes=nodes)
        drive = Drive(directory)
        with Federation() as federation:
            start(federation, services)
            yield cls(directory, services, drive, holders)

    async def round(
        self, entries: int, clients: int, rows: Collection[str] = ("server",)
    ) -> dict[str, Cost]:
        """Run a round from its first envelope to the published sum, and return what `rows` cost.

        `server` is all that the services spend; `sum`, adding up the shares on file alone; `floor`,
        opening, verifying and adding up the same envelopes by the bare libraries, here.
        """
        spec = self.drive.spec(vector_query(entries), clients)
        await self.drive.announce(spec)
        noise = draw_noise(spec.body, 1, exact_noise)
        chunks = list(_chunks(clients, entries))
        *before, last = [*chunks[:-1], *_all_but_the_last(chunks[-1])]
        floor = (
            Floor(self.directory / "parties", self.drive.consortium) if "floor" in rows else None
        )
        before_last, ending = Meter(self._measured), Meter(self._measured)
        for chunk in before:
            await self._send(spec, chunk, noise, before_last, floor)
        costs = {}
        if "sum" in rows and clients > 2:
            costs["sum"] = Cost(cpu_seconds=await self._sum(spec, clients - 1), run=clients)
        await self._send(spec, last, noise, ending, floor)
        with ending:
            await self._published(spec, noise, clients)
        costs["server"] = Cost(
            cpu_seconds=before_last.cpu_seconds + ending.cpu_seconds,
            run=clients,
            empty=ending.cpu_seconds,
        )
        if floor is not None:
            costs["floor"] = Cost(cpu_seconds=floor.cpu_seconds, run=clients)
        return costs

    async def _send(
        self,
        spec: Signed[RoundSpec],
        chunk: range,
        noise: Any,
        meter: Meter,
        floor: Floor | None,
    ) -> None:
        by_node = self._envelopes(spec.body, chunk, noise)
        if floor is not None:
            floor.add(spec.body, chunk, by_node)
        nodes = self.drive.consortium.manifest.compute_nodes
        bodies = [frame(each) for each in by_node]
        with meter:
            path = f"/v1/rounds/{spec.digest}/shares/bulk"
            await asyncio.gather(
                *(_post(node, path, body) for node, body in zip(nodes, bodies, strict=True))
            )

    def _envelopes(self, spec: RoundSpec, chunk: range, noise: Any) -> list[list[bytes]]:
        signs = np.array([1 if number % 2 == 0 else -1 for number in chunk])
        drawn = signs[:, None] * noise
        boxes = box_keys(self.drive.consortium)
        made = contributions(spec, boxes, chunk, drawn)
        return [[each[node] for each in made] for node in range(len(boxes))]

    async def _published(self, spec: Signed[RoundSpec], noise: Any, clients: int) -> None:
        path = f"/v1/rounds/{spec.digest}/outcome?wait=20"
        async with self.drive.connection("aggregator") as aggregator:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                answer = await aggregator.ask("GET", path, wait_seconds=20)
                while answer.status == 202:
                    answer = await aggregator.ask("GET", path, wait_seconds=20)
        result = from_json(answer.json()["documents"][0], Result).body
        value = spec.body.query.encode(np.full((1, len(spec.body.query.column_names)), 0.25))
        expected = clients * value + clients % 2 * noise[0]
        if not np.array_equal(decode_uint64(result.values).view(np.int64), expected):
            raise RuntimeError("the published sum is not that of what was sent")

    async def _sum(self, spec: Signed[RoundSpec], clients: int) -> float:
        """Return the CPU seconds of adding up the shares on file of all nodes, and their sums."""
        nodes = spec.body.compute_nodes
        whole = clients * spec.body.dimension * len(nodes) <= _SUMMED_HERE
        here = nodes if whole else nodes[:1]
        holders = BitMap(range(FIRST_PHONE, FIRST_PHONE + clients))
        begun = time.process_time()
        total = np.zeros(spec.body.dimension, np.uint64)
        for node in here:
            [path] = (self.directory / "data" / node).glob("service.sqlite")
            added = await _summed(path, spec, holders)
            total = summation.plus(spec.body.sharing, total, added)
        return (time.process_time() - begun) * len(nodes) / len(here)


async def _summed(path: Path, spec: Signed[RoundSpec], holders: BitMap) -> Uint64Vector:
    engine, summing = open_engine(sqlite_url(path)), Summing()

    async def read(part: BitMap) -> list[shares.Packed]:
        with engine.begin() as db:
            return shares.read_shares(db, spec.digest, part)

    try:
        parts = shares.parts_of(holders, spec.body.dimension)
        return await sum_shares(spec.body, parts, read, summing)
    finally:
        summing.close()
        engine.dispose()


async def _post(node: ServiceParty, path: str, body: bytes) -> None:
    [answer] = await ask(node, [request(node, "POST", path, body)], connections=1)
    if any(outcome["status"] != 201 for outcome in json.loads(answer)["outcomes"]):
        raise RuntimeError(f"{node.name} refuses what was sent")


def _chunks(clients: int, entries: int) -> Iterator[range]:
    size = max(1, min(MOST_IN_BULK, _CHUNK_BYTES // (8 * entries)))
    for start in range(0, clients, size):
        yield range(start, min(start + size, clients))


def _all_but_the_last(chunk: range) -> list[range]:
    parts = [chunk[:-1], chunk[-1:]]
    return [each for each in parts if each]
