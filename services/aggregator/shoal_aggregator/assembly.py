"""Puts an aggregator together out of a party, its manifests, a data directory and a clock."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import httpx
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from shoal_aggregator import schema
from shoal_aggregator.aggregator import Aggregator
from shoal_aggregator.app import create_app
from shoal_hosting.database_schema import check_schema
from shoal_hosting.manifest_book import ManifestBook
from shoal_hosting.memory import MARK, open_memory
from shoal_hosting.party import Party, check_party
from shoal_hosting.security import StartupRefused
from shoal_hosting.storage import StorageThread, open_engine, sqlite_url


@dataclass(frozen=True)
class Service:
    """A running aggregator: whoever holds it serves `app` and calls `step` on every `wake`."""

    app: FastAPI
    aggregator: Aggregator
    storage: StorageThread

    @property
    def wake(self) -> asyncio.Event:
        """Return the event that is set when there is work."""
        return self.aggregator.wake

    async def step(self) -> None:
        """Do all the work that is due now, once."""
        await self.aggregator.step()

    def stop_waiting(self) -> None:
        """Answer all long polls now: the service is about to stop."""
        self.aggregator.changes.close()

    async def close(self) -> None:
        """End long polls and let go of the database."""
        self.stop_waiting()
        await self.storage.close()


def assemble(
    *,
    party: Party,
    book: ManifestBook,
    data_directory: Path,
    database_url: str | None,
    clock: Callable[[], datetime],
    transport: httpx.AsyncBaseTransport | None = None,
    accept_loss: str | None = None,
) -> Service:
    """Return the aggregator of `party`, going on from what its database holds.

    It calls nobody, so `transport` is there only to be assembled like every other service.
    `accept_loss` is the token of a loss that the operator accepts.

    Raises:
        StartupRefused: the party is not the manifest's aggregator, or the database is not ours,
            or forgot what it acknowledged.
        StorageUnavailable: the database does not answer.
    """
    check_party(party, book.current)
    if party.name != book.current.manifest.aggregator.name:
        raise StartupRefused(f"the manifest does not list {party.name} as its aggregator")
    engine = open_engine(
        database_url or sqlite_url(data_directory / "aggregator.sqlite"), alone=True
    )
    check_schema(engine, schema.metadata, schema.VERSION)
    memory = open_memory(
        engine, data_directory / MARK, schema.memory, ledger=None, accept=accept_loss
    )
    storage = StorageThread(engine, memory)
    registry = CollectorRegistry()
    aggregator = Aggregator(
        name=party.name,
        signing_key=party.signing_key,
        book=book,
        storage=storage,
        clock=clock,
        registry=registry,
    )
    return Service(create_app(aggregator, book, registry), aggregator, storage)
