"""CPU microseconds that one Compute node spends on one share, and on one session's opening.

    python -m bench.node_costs [--holders 20000] [--dimension 10] [--nodes 10] [--profile]

One of `--nodes` Compute nodes, in this process without TLS: its application takes openings of data
holders of one record and their envelopes under sessions, in bulk, and stores them; then it reads
what it holds, as a freeze does, and adds it up. `--profile` names the functions that take longest.
"""

import argparse
import asyncio
import cProfile
import pstats
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
from pyroaring import BitMap

from bench.drive import FIRST_PHONE, Drive, matrix_query, phone_key, quickstart
from shoal_compute.assembly import Service, assemble
from shoal_compute.node import Stored
from shoal_compute.uploading import MOST_IN_BULK
from shoal_hosting.clock import system_clock
from shoal_hosting.manifests.manifest_book import ManifestBook
from shoal_hosting.party import load_party
from shoal_hosting.server.logs import configure_logs
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.envelope import ANSWER_BYTES, frame
from shoal_protocol.sharing.session_envelope import SessionHeader, SessionWrapping, seed_for, wrap
from shoal_protocol.sharing.sessions import (
    STEP_SECONDS,
    Prekey,
    advance,
    hour_for,
    open_session,
)
from shoal_protocol.sharing.shares import Share, ShareKind
from shoal_protocol.wire.documents import Role, Signed, decode, sign

TOGETHER: Final = 1000  # openings in a request


class Costs:
    """CPU seconds of this process by what was done, without what is not the node's."""

    def __init__(self, profile: cProfile.Profile | None) -> None:
        self.seconds: dict[str, float] = {}
        self._profile = profile

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        """Count what is done inside."""
        if self._profile is not None:
            self._profile.enable()
        begun = time.process_time()
        yield
        self.seconds[what] = self.seconds.get(what, 0.0) + time.process_time() - begun
        if self._profile is not None:
            self._profile.disable()


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


class Sessions:
    """Sessions of all phones with one node."""

    def __init__(self, prekey: Prekey, phones: range) -> None:
        self.number = int(time.time())
        self.chains: list[bytes] = []
        self.openings: list[bytes] = []
        for phone in phones:
            opening, keys = open_session(
                [prekey],
                holder=FIRST_PHONE + phone,
                number=self.number,
                previous=None,
                random_bytes=secrets.token_bytes,
            )
            self.chains.append(keys[prekey.node])
            self.openings.append(sign(opening, Role.HOLDER, phone_key(phone)).encode())

    def envelope(self, spec: Signed[RoundSpec], phone: int) -> bytes:
        """Return the phone's envelope for node 0; the share is random."""
        body, holder = spec.body, FIRST_PHONE + phone
        kind = body.sharing.kind_for(holder=holder, node=0, nodes=len(body.compute_nodes))
        is_seed = kind is ShareKind.SEED
        wrapping = SessionWrapping.NOTICE if is_seed else SessionWrapping.VECTOR
        answer = secrets.token_bytes(ANSWER_BYTES - 4) + bytes(4)
        header = SessionHeader(wrapping, 0, holder, self.number, spec.digest, answer)
        steps = hour_for(self.number, body.opened_at) - self.number // STEP_SECONDS
        key = advance(self.chains[phone], steps)
        payload = secrets.token_bytes(8 * body.dimension)
        if is_seed:
            payload = seed_for(header, key, manifest=body.manifest)
        return wrap(Share(kind, payload), header, key=key, manifest=body.manifest)


async def measure(
    directory: Path, *, holders: int, dimension: int, nodes: int, profile: cProfile.Profile | None
) -> Costs:
    """Return the costs by name."""
    quickstart(directory, phones=holders, nodes=nodes)
    drive, costs, phones = Drive(directory), Costs(profile), range(holders)
    configure_logs(level="error")
    if profile is not None:  # of one thread, so all is done in this one
        asyncio.get_running_loop().run_in_executor = _at_once  # type: ignore[method-assign, assignment]
    async with one_node(directory, drive) as (service, client):

        async def post(path: str, body: bytes) -> None:
            reply = await client.post(path, content=body)
            if reply.status_code not in (200, 201) or reply.content.count(b"201") < 1:
                raise RuntimeError(f"refused: {reply.content[:300]!r}")

        prekey = decode((await client.get("/v1/prekey")).content, Prekey).body
        sessions = Sessions(prekey, phones)
        for start in phones[::TOGETHER]:
            body = (
                b'{"documents":[' + b",".join(sessions.openings[start : start + TOGETHER]) + b"]}"
            )
            with costs.of("opening"):
                await post("/v1/openings", body)
        spec = drive.spec(matrix_query(dimension), holders, wrapping="session")
        for path, encoded in drive.to_announce(spec):
            await client.post(path, content=encoded)
        known = service.node._rounds.live[spec.digest]
        for start in phones[::MOST_IN_BULK]:
            some = phones[start : start + MOST_IN_BULK]
            made = frame([sessions.envelope(spec, each) for each in some])
            with costs.of("taken"):
                await post(f"/v1/rounds/{spec.digest}/shares/bulk", made)
        if len(known.held) != holders:
            raise RuntimeError("shares were lost")
        cohort = BitMap(known.held)

        stored = Stored(service.resources.storage, known)
        with costs.of("added up at the end"):
            await service.node._tallies.total(known, cohort, stored)
        service.node._tallies.drop(known.id)
        with costs.of("freeze"):
            await service.step()
        with costs.of("added up from the store"):
            await service.node._tallies.total(known, cohort, stored)
        with costs.of("erased"):
            await service.node._erase(known)
    return costs


def _at_once(executor: object, work: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
    done = asyncio.get_running_loop().create_future()
    done.set_result(work(*arguments))
    return done


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--holders", type=int, default=20_000)
    parser.add_argument("--dimension", type=int, default=10)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--profile", action="store_true")
    asked = parser.parse_args()
    profile = cProfile.Profile(time.process_time) if asked.profile else None
    with tempfile.TemporaryDirectory() as directory:
        costs = asyncio.run(
            measure(
                Path(directory),
                holders=asked.holders,
                dimension=asked.dimension,
                nodes=asked.nodes,
                profile=profile,
            )
        )
    for what, seconds in costs.seconds.items():
        print(f"{what:24} {seconds / asked.holders * 1e6:8.2f} us a holder")
    if profile is not None:
        pstats.Stats(profile).sort_stats("tottime").print_stats(40)


if __name__ == "__main__":
    main()
