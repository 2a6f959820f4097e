"""Puts a trainer together out of a party, its manifests, a data directory, a clock and a wire."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import httpx
import structlog
from fastapi import FastAPI
from prometheus_client import Counter

from shoal_hosting.ledger import RESTORE
from shoal_hosting.manifest_book import ManifestBook
from shoal_hosting.party import Party, check_party
from shoal_hosting.security import StartupRefused
from shoal_hosting.storage import StorageThread, check_schema, open_engine, sqlite_url
from shoal_protocol.errors import LedgerBroken, StorageUnavailable
from shoal_trainer import schema
from shoal_trainer.app import create_app
from shoal_trainer.enrolment import Enrolment
from shoal_trainer.peers import Peers
from shoal_trainer.records import Records
from shoal_trainer.resources import Resources
from shoal_trainer.running import Runner

log = structlog.get_logger()


@dataclass(frozen=True)
class Service:
    """A running trainer: whoever holds it serves `app` and calls `step` on every `wake`."""

    app: FastAPI
    resources: Resources
    enrolment: Enrolment
    runner: Runner
    peers: Peers

    @property
    def wake(self) -> asyncio.Event:
        """Return the event that is set when there is work."""
        return self.resources.wake

    async def step(self) -> None:
        """Do all the work that is due now, once."""
        try:
            await self.enrolment.close_due()
            await self.runner.step()
        except StorageUnavailable:
            log.warning("storage unavailable: jobs go on once it answers again")

    def stop_waiting(self) -> None:
        """Answer all long polls now: the service is about to stop."""
        self.resources.changes.close()

    async def close(self) -> None:
        """End long polls and connections, and let go of the database."""
        self.stop_waiting()
        await self.runner.close()
        await self.peers.close()
        await self.resources.storage.close()


def assemble(
    *,
    party: Party,
    book: ManifestBook,
    data_directory: Path,
    database_url: str | None,
    clock: Callable[[], datetime],
    transport: httpx.AsyncBaseTransport | None = None,
    long_polls: bool = False,
) -> Service:
    """Return the trainer of `party`, going on from what its database holds.

    With `long_polls` it is woken as soon as the aggregator has decided; without, each `step`
    asks once and nothing runs between steps.

    Raises:
        StartupRefused: the party is not the manifest's trainer, or the database is not ours, or
            its ledger is broken.
        StorageUnavailable: the database does not answer.
    """
    check_party(party, book.current)
    if party.name != book.current.manifest.trainer.name:
        raise StartupRefused(f"the manifest does not list {party.name} as its trainer")
    engine = open_engine(database_url or sqlite_url(data_directory / "trainer.sqlite"), alone=True)
    check_schema(engine, schema.metadata, schema.VERSION)
    resources = Resources(
        name=party.name,
        signing_key=party.signing_key,
        book=book,
        storage=StorageThread(engine),
        clock=clock,
    )
    peers = Peers(transport)
    ends = Counter(
        "shoal_trainer_jobs_ended", "Jobs by their end", ["end"], registry=resources.registry
    )
    try:
        enrolment = Enrolment(resources, ends)
    except LedgerBroken as error:
        engine.dispose()
        raise StartupRefused(f"{error}; {RESTORE}") from None
    runner = Runner(resources, peers, ends, long_polls=long_polls)
    app = create_app(enrolment, Records(resources), resources)
    return Service(app, resources, enrolment, runner, peers)
