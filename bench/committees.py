"""A round of many Compute nodes, in committees and without: CPU time and bytes.

    python -m bench.committees [--nodes 30] [--holders 600] [--dimension 1000]

The real nodes and the aggregator over SQLite, in one process, so a message costs no TLS; the clock
is moved on by hand. First each data holder shares with 3 nodes, 2 of which open its
answer, and one of every three is lost before it begins: all data holders must be in what is
released. Then the same by threshold without committees, and additively with no node lost.
"""

import asyncio
import logging
import secrets
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import httpx
import numpy as np
import structlog
from starlette.types import ASGIApp

from bench.command import options
from bench.drive import FIRST_PHONE, Drive, matrix_query, phone_key, quickstart
from shoal_aggregator import assembly as aggregator
from shoal_compute import assembly as compute
from shoal_holder.contribution import box_keys, draw_noise, seal_contribution
from shoal_holder.noise import exact_noise
from shoal_hosting.manifests.manifest_book import ManifestBook
from shoal_hosting.party import load_party
from shoal_protocol.rounds.attestations import Result
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.envelope import frame
from shoal_protocol.sharing.schemes import Sharing, sharing_of
from shoal_protocol.wire.documents import Signed, decode

COMMITTEE, THRESHOLD = 3, 2
BULK: Final = 200
TICKS: Final = 10
_RULES: Final = ("--threshold", str(THRESHOLD), "--minimum-committee", str(COMMITTEE))


@dataclass
class Found:
    """What a round took: CPU seconds, and bytes, all nodes together where nothing else is said."""

    holder_seconds: float  # of one
    holder_bytes: float  # of one
    taking_seconds: float
    agreeing_seconds: float  # from the deadline to the published sum
    spoken_bytes: int  # between nodes, and to the aggregator
    partial_sums: int
    cohort_size: int


class Wire(httpx.AsyncBaseTransport):
    """Hands each request to the service that has its address, and counts what nodes say."""

    def __init__(self) -> None:
        self.apps: dict[str, ASGIApp] = {}
        self.bytes = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        app = self.apps.get(f"{request.url.scheme}://{request.url.netloc.decode()}")
        if app is None:
            raise httpx.ConnectError("this node is lost", request=request)
        response = await httpx.ASGITransport(app).handle_async_request(request)
        self.bytes += len(await request.aread()) + len(await response.aread())
        return response


def answers(spec: RoundSpec, drive: Drive) -> dict[int, list[bytes]]:
    """Return all envelopes, by node."""
    values = spec.query.encode(np.full((1, len(spec.query.column_names)), 0.25))
    found: dict[int, list[bytes]] = {node: [] for node in range(len(spec.compute_nodes))}
    for number in range(spec.population_size):
        holder = FIRST_PHONE + number
        [noise] = draw_noise(spec, 1, exact_noise)
        made = seal_contribution(
            spec,
            box_keys(drive.consortium),
            holder,
            phone_key(number),
            values,
            noise,
            random_bytes=secrets.token_bytes,
        )
        members = spec.sharing.members(holder=holder, nodes=len(spec.compute_nodes))
        for node, envelope in zip(members, made, strict=True):
            found[node].append(envelope)
    return found


async def measure(
    directory: Path, sharing: Sharing, *, nodes: int, holders: int, dimension: int, lost: set[int]
) -> Found:
    """Play one round.

    Raises:
        RuntimeError: a service refuses, or nothing is released.
    """
    quickstart(directory, phones=holders, nodes=nodes, options=_RULES)
    drive, wire, ahead = Drive(directory), Wire(), timedelta(0)
    signed = drive.spec(matrix_query(dimension), holders, sharing=sharing)
    spec, manifest = signed.body, drive.consortium.manifest
    up = [each for place, each in enumerate(manifest.compute_nodes) if place not in lost]
    async with AsyncExitStack() as stack:
        services: list[compute.Service | aggregator.Service] = []
        for party in (*up, manifest.aggregator):
            make = aggregator if party is manifest.aggregator else compute
            data = directory / "played" / party.name
            data.mkdir(parents=True, mode=0o700)
            service = make.assemble(
                party=load_party(directory / "parties" / party.name),
                book=ManifestBook(drive.consortium, data),
                data_directory=data,
                database_url=None,
                clock=lambda: datetime.now(UTC) + ahead,
                transport=wire,
            )
            stack.push_async_callback(service.close)
            services.append(service)
            wire.apps[party.url] = service.app
        http = await stack.enter_async_context(httpx.AsyncClient(transport=wire))
        for party in up:
            for path, message in drive.to_announce(signed):
                await _post(http, party.url + path, message)
        await _post(http, f"{manifest.aggregator.url}/v1/rounds", signed.encode())
        begun = time.process_time()
        by_node = answers(spec, drive)
        made = time.process_time() - begun
        begun = time.process_time()
        for place, party in enumerate(manifest.compute_nodes):
            for start in range(0, 0 if place in lost else len(by_node[place]), BULK):
                body = frame(by_node[place][start : start + BULK])
                await _post(http, f"{party.url}/v1/rounds/{signed.digest}/shares/bulk", body)
        taken = time.process_time() - begun
        begun, wire.bytes, ticks = time.process_time(), 0, 0
        while (result := await _result(http, manifest.aggregator.url, signed)) is None:
            for service in services:
                await service.step()
            ahead, ticks = ahead + timedelta(seconds=1), ticks + 1
            if ticks == TICKS and lost:  # holdings are everywhere: nobody waits longer than need be
                ahead = max(ahead, spec.proceed_at - datetime.now(UTC))
            if datetime.now(UTC) + ahead > spec.give_up_at + timedelta(minutes=1):
                raise RuntimeError("nothing is released")
        agreed = time.process_time() - begun
    sent = sum(len(envelope) for each in by_node.values() for envelope in each)
    return Found(
        holder_seconds=made / holders,
        holder_bytes=sent / holders,
        taking_seconds=taken,
        agreeing_seconds=agreed,
        spoken_bytes=wire.bytes,
        partial_sums=len(result.partial_sums),
        cohort_size=result.cohort_size,
    )


async def _post(http: httpx.AsyncClient, url: str, body: bytes) -> None:
    reply = await http.post(url, content=body)
    refused = [each for each in reply.json().get("outcomes", ()) if each["status"] >= 400]
    if reply.status_code not in (200, 201) or refused:
        raise RuntimeError(f"{url}: {reply.text[:300]}")


async def _result(http: httpx.AsyncClient, url: str, signed: Signed[RoundSpec]) -> Result | None:
    reply = await http.get(f"{url}/v1/rounds/{signed.digest}/result")
    if reply.status_code == 410:
        raise RuntimeError(f"the round was abandoned: {reply.text[:300]}")
    return decode(reply.content, Result).body if reply.status_code == 200 else None


def main() -> None:
    """Measure and print."""
    asked = options(__doc__, nodes=30, holders=600, dimension=1000)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    nodes, lost = asked.nodes, set(range(0, asked.nodes, COMMITTEE))
    needed = sharing_of(THRESHOLD, COMMITTEE).needed(nodes)
    for sharing, gone in (
        (sharing_of(THRESHOLD, COMMITTEE), lost),
        (sharing_of(needed, None), lost),
        (sharing_of(None, COMMITTEE), set[int]()),
        (sharing_of(None, None), set[int]()),
    ):
        with tempfile.TemporaryDirectory() as directory:
            found = asyncio.run(
                measure(
                    Path(directory),
                    sharing,
                    nodes=nodes,
                    holders=asked.holders,
                    dimension=asked.dimension,
                    lost=gone,
                )
            )
        up = nodes - len(gone)
        print(
            f"{sharing.scheme}, threshold {sharing.opening(nodes)} of {sharing.shares(nodes)}, "
            f"{up} of {nodes} nodes: {found.cohort_size} of {asked.holders} data holders in "
            f"{found.partial_sums} sums; a data holder {found.holder_seconds * 1e3:.1f} ms and "
            f"{found.holder_bytes:,.0f} bytes; a node {found.taking_seconds / up * 1e3:,.0f} ms to "
            f"take shares, {found.agreeing_seconds / up * 1e3:,.0f} ms and "
            f"{found.spoken_bytes / up:,.0f} bytes to agree and publish",
            flush=True,
        )


if __name__ == "__main__":
    main()
