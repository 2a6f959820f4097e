"""One node as several replicas over one PostgreSQL: whatever they do at once, it is one node."""

import asyncio
import random
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from pyroaring import BitMap
from sqlalchemy import create_engine, text

from shoal_compute import store
from shoal_compute.assembly import Service
from shoal_compute.schema import VERSION, journal, metadata
from shoal_compute.shares import (
    AcceptedShare,
    add_shares,
)
from shoal_compute.store import LostRace
from shoal_kit.manifest_book import ManifestBook
from shoal_protocol.journal import EMPTY, Link
from shoal_protocol.privacy.mechanisms import gaussian_mu
from shoal_protocol.rounds.attestations import Holdings, StoredAnswers
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.shares import ShareKind
from shoal_protocol.trust.manifest_bundle import bundle
from shoal_protocol.wire.documents import Signed, sign
from shoal_protocol.wire.phases import Phase
from shoal_service.storage.database import open_engine
from shoal_service.storage.database_schema import check_schema
from shoal_service.storage.journal import JournalWriter
from shoal_service.storage.thread import StorageThread
from tests.kit.test_manifest_book import next_version
from tests.world import examples
from tests.world.around_node import (
    POPULATION,
    Federation,
    envelopes,
    expected,
)
from tests.world.examples import signing_key

CAP = gaussian_mu(epsilon=4.0, delta=1e-6)


class Replicas(Federation):
    """A federation whose node 0 is several replicas; `services[0]` is the first of them."""

    def __init__(self, directory: Path, database_url: str, count: int = 2) -> None:
        self.database_url = database_url
        self.replicas: list[Service] = []
        super().__init__(directory)
        for _ in range(1, count):
            self.add_replica()

    def _assemble(self, node: int) -> Service:
        if node:
            return super()._assemble(node)
        return self.add_replica()

    def add_replica(self) -> Service:
        number = len(self.replicas)
        directory = self.directory / f"replica-{number}"
        book = ManifestBook(self.consortium, directory)
        service = self.start(0, directory, book=book, database_url=self.database_url)
        self.replicas.append(service)
        self.take_place("compute-0", self.replicas[0])
        return service

    def drop(self, replica: int) -> None:
        """Kill a replica: it takes no further step and lets go of nothing."""
        self.discarded.append(self.replicas.pop(replica))
        self.services[0] = self.replicas[0]
        self.take_place("compute-0", self.replicas[0])

    async def at(
        self, replica: int, method: str, path: str, content: bytes = b""
    ) -> httpx.Response:
        transport = httpx.ASGITransport(self.replicas[replica].app)
        async with httpx.AsyncClient(transport=transport, base_url="https://node") as client:
            return await self.call(client, method, path, content)

    async def announce_at(self, replica: int, spec: Signed[RoundSpec]) -> int:
        return (await self.at(replica, "POST", "/v1/rounds", spec.encode())).status_code

    async def upload_at(self, replica: int, spec: Signed[RoundSpec], client: int) -> int:
        path = f"/v1/rounds/{spec.digest}/shares"
        return (await self.at(replica, "POST", path, envelopes(spec.body, client)[0])).status_code

    async def step_all(self, times: int = 1) -> None:
        """Let all nodes step, and the replicas of node 0 at the same time."""
        for _ in range(times):
            await asyncio.gather(*(replica.step() for replica in self.replicas))
            await self.step([1, 2])

    async def phase_at(self, replica: int, spec: Signed[RoundSpec]) -> str:
        return str((await self.at(replica, "GET", f"/v1/rounds/{spec.digest}")).json()["phase"])

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        engine = create_engine(self.database_url)
        with engine.begin() as db:
            done = db.execute(text(statement))
            rows = [tuple(row) for row in done] if done.returns_rows else []
        engine.dispose()
        return rows

    async def close(self) -> None:
        for service in {*self.replicas, *self.services[1:], *self.discarded, self.aggregator}:
            await service.close()


@pytest.fixture
async def replicas(tmp_path: Path, postgresql_url: str) -> AsyncIterator[Replicas]:
    made = Replicas(tmp_path, postgresql_url)
    await made.replicas[0].step()  # so that the first of them leads
    yield made
    await made.close()


async def test_replicas_that_announce_at_once_cannot_together_exceed_a_clients_cap(
    replicas: Replicas,
) -> None:
    specs = [replicas.spec(job=f"{job:064x}", mu=CAP * 0.9) for job in range(10)]
    statuses = await asyncio.gather(
        *(replicas.announce_at(number % 2, spec) for number, spec in enumerate(specs))
    )
    assert sorted(statuses) == [201] + [403] * 9


async def test_rounds_at_all_replicas_together_may_cost_the_cap_and_no_more(
    replicas: Replicas,
) -> None:
    specs = [replicas.spec(job=f"{job:064x}", mu=CAP / 2) for job in range(12)]
    statuses = await asyncio.gather(
        *(replicas.announce_at(number % 2, spec) for number, spec in enumerate(specs))
    )
    assert sorted(statuses) == [201] * 4 + [403] * 8


async def test_uploads_that_are_spread_over_replicas_make_one_sum(replicas: Replicas) -> None:
    spec = replicas.spec()
    await replicas.announce(spec)
    await replicas.upload_all(spec, nodes=[1, 2])
    for client in POPULATION:
        assert await replicas.upload_at(client % 2, spec, client) == 201
        assert await replicas.upload_at((client + 1) % 2, spec, client) == 200
    await replicas.step_all(times=4)
    assert await replicas.phases(spec) == ["published"] * 3
    assert np.array_equal(await replicas.result(spec), expected(spec.body, POPULATION))
    assert [await replicas.phase_at(replica, spec) for replica in (0, 1)] == ["published"] * 2


async def test_a_manifest_on_file_that_the_authority_did_not_sign_is_not_adopted(
    replicas: Replicas, capsys: pytest.CaptureFixture[str]
) -> None:
    second = next_version(replicas.consortium, 3)
    assert (await replicas.at(1, "PUT", "/v1/manifest", bundle(second))).status_code == 200
    replicas.sql("UPDATE manifests SET roster = roster || roster WHERE sequence = 2")
    for _ in range(3):
        await replicas.replicas[0].step()
    shown = (await replicas.at(0, "GET", "/v1/manifest")).json()
    assert shown["body"]["sequence"] == 1
    assert capsys.readouterr().out.count("does not follow ours") == 1


def test_uploads_at_many_replicas_and_a_freeze_are_never_in_each_others_way(
    postgresql_url: str,
) -> None:
    engine = open_engine(postgresql_url)
    check_schema(engine, metadata, VERSION)
    specs = [
        sign(examples.spec(number=number), "trainer", signing_key("trainer")) for number in (0, 1)
    ]
    clients = range(250)
    with engine.begin() as db:
        for spec in specs:
            store.add_round(db, spec)

    def share(spec: Signed[RoundSpec], client: int) -> AcceptedShare:
        content = ShareKind.SEED, bytes(32)
        return AcceptedShare(spec.digest, client, bytes(16), bytes(32), bytes(64), *content)

    def upload(replica: int) -> set[tuple[str, int]]:
        """Store every share, in another order than the other replicas; return those stored."""
        storage, stored = StorageThread(open_engine(postgresql_url)), set()
        offered = [share(spec, client) for spec in specs for client in clients]
        random.Random(replica).shuffle(offered)
        for start in range(0, len(offered), 25):
            batch = offered[start : start + 25]
            outcomes = storage.run_here(add_shares, batch)
            for each, outcome in zip(batch, outcomes, strict=True):
                if outcome in (201, 200):
                    stored.add((each.round_id, each.holder))
        storage._engine.dispose()
        return stored

    def freeze() -> BitMap:
        def attest(held: StoredAnswers, entry: Link) -> Signed[Holdings]:
            names = {"manifest": specs[0].body.manifest, "round_id": specs[0].digest}
            body = Holdings.attest(held, BitMap(clients), node="compute-0", **names, entry=entry)
            return sign(body, "compute-0", signing_key("compute-0"))

        storage = StorageThread(open_engine(postgresql_url))
        while True:
            phase = Phase(storage.run_here(store.get_round, specs[0].digest).phase)
            try:
                return storage.run_here(
                    lambda db, phase=phase: store.freeze(
                        JournalWriter(journal, db, EMPTY), specs[0].digest, phase, attest
                    )
                )[0]
            except LostRace:
                continue
            finally:
                storage._engine.dispose()

    with ThreadPoolExecutor(5) as threads:
        uploads = [threads.submit(upload, replica) for replica in range(4)]
        held = threads.submit(freeze).result()
        acknowledged = set().union(*(each.result() for each in uploads))
    assert {client for round_id, client in acknowledged if round_id == specs[0].digest} == set(held)
    assert {client for round_id, client in acknowledged if round_id == specs[1].digest} == {
        *clients
    }
    engine.dispose()
