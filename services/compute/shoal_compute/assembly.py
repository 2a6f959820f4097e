"""Puts a Compute node together from a party's keys, a directory and a clock; starts nothing."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import httpx
from prometheus_client import CollectorRegistry
from sqlalchemy import Connection, select
from starlette.types import ASGIApp

from shoal_compute import schema
from shoal_compute.announcing import Announcements
from shoal_compute.app import create_app
from shoal_compute.erasing import truncate_log
from shoal_compute.executors import Threads, open_summing
from shoal_compute.gossiping import Gossip
from shoal_compute.holding import HeldQueries
from shoal_compute.leading import Leadership
from shoal_compute.ledger import Ledger
from shoal_compute.metrics import Metrics
from shoal_compute.node import Node
from shoal_compute.round_book import RoundBook
from shoal_compute.summing import Adders
from shoal_compute.tally import Tallies
from shoal_compute.totals import Totals
from shoal_compute.uploading import JUDGING_THREADS, Uploads
from shoal_compute.withdrawals import Withdrawals
from shoal_compute.witnesses import Witnesses, newest_votes
from shoal_hosting.database_schema import check_schema
from shoal_hosting.exchange import Connections
from shoal_hosting.ledger import RESTORE
from shoal_hosting.manifest_book import ManifestBook
from shoal_hosting.memory import MARK, open_memory
from shoal_hosting.party import Party
from shoal_hosting.security import StartupRefused
from shoal_hosting.shared_manifests import SharedManifests
from shoal_hosting.storage import StorageThread, open_engine, sqlite_url
from shoal_protocol.errors import LedgerBroken

PEER_SECONDS = 10.0  # for the head of a peer's or the aggregator's answer, and then for its body


@dataclass(frozen=True)
class Service:
    """A Compute node: an application to serve, and work to do beside it."""

    app: ASGIApp
    wake: asyncio.Event
    _node: Node
    _peers: Connections
    _storage: StorageThread
    _adders: Adders
    _executors: tuple[Executor, ...]

    async def step(self) -> None:
        """Do all that is due now."""
        await self._node.step()

    def stop_waiting(self) -> None:
        """Do nothing: a node holds no request back."""

    async def close(self) -> None:
        """End the work in progress and let go of connections, threads and the database."""
        await self._node.close()
        await self._peers.close()
        await self._storage.close()
        self._adders.close()
        for executor in self._executors:
            executor.shutdown()


def assemble(
    *,
    party: Party,
    book: ManifestBook,
    data_directory: Path,
    database_url: str | None,
    clock: Callable[[], datetime],
    transport: httpx.AsyncBaseTransport | None = None,
    summing: str = "processes",
    accept_loss: str | None = None,
) -> Service:
    """Return the node over what is on file; it goes on where it was.

    `transport` stands in for the network in tests. `summing` is where large sums are added up:
    `processes`, `threads` or the address of a Dask scheduler. `accept_loss` is the token of a loss
    that the operator accepts.

    Raises:
        StartupRefused: the database is not this service's, or of another version, or forgot what
            it acknowledged, its ledger is broken, or there is no Dask here.
        StorageUnavailable: it cannot be reached.
        UnknownManifest: a round on file is bound to a manifest that is not.
    """
    engine = open_engine(database_url or sqlite_url(data_directory / "compute.sqlite"))
    check_schema(engine, schema.metadata, schema.VERSION)
    truncate_log(engine)  # a crash may have come between an erasure and this
    mark = data_directory / MARK
    memory = open_memory(engine, mark, schema.memory, ledger=schema.ledger, accept=accept_loss)
    storage = StorageThread(engine, memory)
    judging = ThreadPoolExecutor(JUDGING_THREADS, thread_name_prefix="judging")
    adders = Adders(small=Threads(), large=open_summing(summing))
    # what anyone may send is read apart from uploads, so that junk does not hold those up
    announcing = ThreadPoolExecutor(1, thread_name_prefix="announcing")
    gossiping = ThreadPoolExecutor(1, thread_name_prefix="gossiping")
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    wake = asyncio.Event()
    peers = Connections(transport, answer_seconds=PEER_SECONDS)
    manifests = SharedManifests(book, schema.manifests)
    storage.run_here(manifests.exchange)
    rounds = RoundBook(storage, book, manifests, party, metrics)
    ledger = Ledger(party.name)
    witnesses = Witnesses(storage, book, peers, party, clock, accept=accept_loss)
    try:
        announcements = Announcements(
            *(rounds, storage, book, manifests, clock, announcing),
            ledger=ledger,
            witnesses=witnesses,
        )
    except LedgerBroken as error:
        storage.let_go()
        raise StartupRefused(f"{error}; {RESTORE}") from None
    # only one process can use an SQLite file of ours, which leads without being asked
    leadership = Leadership(storage) if engine.dialect.name == "postgresql" else None
    tallies = Tallies(adders)
    uploads = Uploads(
        *(rounds, storage, book, clock, judging, tallies, metrics, wake),
        leads=lambda: leadership is None or leadership.leads,
    )
    gossip = Gossip(rounds, storage, book, peers, clock, gossiping, metrics, wake)
    node = Node(
        rounds=rounds,
        gossip=gossip,
        storage=storage,
        engine=engine,
        book=book,
        peers=peers,
        key=party.signing_key,
        clock=clock,
        tallies=tallies,
        metrics=metrics,
        wake=wake,
        leadership=leadership,
        manifests=manifests,
        witnesses=witnesses,
    )

    async def share_manifests() -> None:
        await storage.run(manifests.exchange)

    async def ready() -> None:
        await storage.run(_touch)
        await witnesses.ready()

    async def votes_of(name: str) -> list[bytes]:
        nodes = {node.name for node in book.current.manifest.compute_nodes}
        return await storage.run(newest_votes, name) if name in nodes else []

    app = create_app(
        rounds=rounds,
        announcements=announcements,
        totals=Totals(party.name, party.signing_key, storage, book, manifests, announcing),
        uploads=uploads,
        held=HeldQueries(rounds, storage),
        withdrawals=Withdrawals(storage, book, announcing),
        gossip=gossip,
        votes_of=votes_of,
        book=book,
        manifest_accepted=share_manifests,
        ready=ready,
        registry=registry,
    )
    return Service(app, wake, node, peers, storage, adders, (judging, announcing, gossiping))


def _touch(db: Connection) -> None:
    db.execute(select(1))
