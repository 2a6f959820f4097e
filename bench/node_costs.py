"""CPU microseconds that one Compute node spends on one share.

    python -m bench.node_costs [--holders 20000] [--dimension 10] [--nodes 10]

One of `--nodes` Compute nodes, in this process without TLS: its application takes the envelopes of
data holders of one record, in bulk, and stores the shares; then it reads what it holds, as a freeze
does, and adds it up.
"""

import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx
from pyroaring import BitMap

from bench.command import measured
from bench.drive import FIRST_PHONE, Drive, matrix_query, phone_key, quickstart
from shoal_compute.assembly import Service, assemble
from shoal_compute.uploading import MOST_IN_BULK
from shoal_holder.contribution import box_keys
from shoal_kit.clock import system_clock
from shoal_kit.manifest_book import ManifestBook
from shoal_kit.party import load_party
from shoal_kit.web.logs import configure_logs
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.envelope import ANSWER_BYTES, EPOCH_BYTES, Header, frame, seal
from shoal_protocol.sharing.shares import SEED_BYTES, Share, ShareKind
from shoal_protocol.wire.documents import Signed


class Costs:
    """CPU seconds of this process by what was done, without what is not the node's."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        """Count what is done inside."""
        begun = time.process_time()
        yield
        self.seconds[what] = self.seconds.get(what, 0.0) + time.process_time() - begun


@asynccontextmanager
async def one_node(
    directory: Path, drive: Drive
) -> AsyncIterator[tuple[Service, httpx.AsyncClient]]:
    """Run node 0 of a quickstart's files in this process; give it and a client that asks it."""
    data = directory / "data" / "alone"
    data.mkdir(parents=True)
    service = assemble(
        party=load_party(directory / "parties" / "compute-0"),
        book=ManifestBook(drive.consortium, data),
        data_directory=data,
        database_url=None,
        clock=system_clock,
    )
    transport = httpx.ASGITransport(service.app)
    async with httpx.AsyncClient(transport=transport, base_url="https://node") as client:
        yield service, client
    await service.close()


def envelope_of(drive: Drive, spec: Signed[RoundSpec], phone: int) -> bytes:
    """Return the phone's envelope for node 0; the share is random."""
    body, holder = spec.body, FIRST_PHONE + phone
    kind = body.sharing.kind_for(holder=holder, node=0, nodes=len(body.compute_nodes))
    answer = secrets.token_bytes(ANSWER_BYTES - EPOCH_BYTES) + bytes(EPOCH_BYTES)
    size = SEED_BYTES if kind is ShareKind.SEED else 8 * body.dimension
    return seal(
        Share(kind, secrets.token_bytes(size)),
        Header(kind, 0, holder, body.manifest, spec.digest, answer),
        box_key=box_keys(drive.consortium)[0],
        key=phone_key(phone),
        random_bytes=secrets.token_bytes,
    )


async def measure(directory: Path, *, holders: int, dimension: int, nodes: int) -> dict[str, float]:
    """Return CPU microseconds for each data holder, by what they are spent on."""
    quickstart(directory, phones=holders, nodes=nodes)
    drive, costs, phones = Drive(directory), Costs(), range(holders)
    configure_logs(level="error")
    async with one_node(directory, drive) as (service, client):

        async def post(path: str, body: bytes) -> None:
            reply = await client.post(path, content=body)
            if reply.status_code not in (200, 201) or reply.content.count(b"201") < 1:
                raise RuntimeError(f"refused: {reply.content[:300]!r}")

        spec = drive.spec(matrix_query(dimension), holders)
        for path, encoded in drive.to_announce(spec):
            await client.post(path, content=encoded)
        known = service.node._rounds.live[spec.digest]
        for start in phones[::MOST_IN_BULK]:
            some = phones[start : start + MOST_IN_BULK]
            made = frame([envelope_of(drive, spec, each) for each in some])
            with costs.of("taken"):
                await post(f"/v1/rounds/{spec.digest}/shares/bulk", made)
        if len(known.held) != holders:
            raise RuntimeError("shares were lost")
        cohort = BitMap(known.held)

        with costs.of("freeze"):
            await service.node._advance(known)
        with costs.of("added up from the store"):
            await service.node._sum_of(known, cohort)
        with costs.of("erased"):
            await service.node._erase(known)
    return {what: seconds / holders * 1e6 for what, seconds in costs.seconds.items()}


if __name__ == "__main__":
    measured(__doc__, measure, holders=20_000, dimension=10, nodes=10)
