"""Puts together what serves crowd jobs: a part of the trainer, or a process that does only that."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

import httpx
import nacl.utils
import structlog
from fastapi import FastAPI

from shoal_hosting.application import create_application
from shoal_hosting.database_schema import check_schema
from shoal_hosting.manifest_book import ManifestBook
from shoal_hosting.manifest_routes import MANIFEST_LIMIT_BYTES, MANIFEST_PATH, manifest_routes
from shoal_hosting.memory import open_memory
from shoal_hosting.party import Party, check_party
from shoal_hosting.security import StartupRefused
from shoal_hosting.shared_manifests import SharedManifests
from shoal_hosting.storage import StorageThread, open_engine
from shoal_protocol.errors import StorageUnavailable, UnknownManifest
from shoal_protocol.sharing import RandomBytes
from shoal_trainer import schema
from shoal_trainer.crowds import store
from shoal_trainer.crowds.book import CrowdBook
from shoal_trainer.crowds.conducting import Conductor
from shoal_trainer.crowds.drawing import Draws
from shoal_trainer.crowds.forwarding import Forwarding, forwarding_routes
from shoal_trainer.crowds.limiting import DrawLimit
from shoal_trainer.crowds.records import CrowdRecords
from shoal_trainer.crowds.routes import SUBMISSIONS_LIMIT_BYTES, Crowds, crowd_routes
from shoal_trainer.crowds.submitting import Submissions
from shoal_trainer.paths import JOINS_LIMIT_BYTES
from shoal_trainer.resources import Resources
from shoal_trainer.settings import DRAWS_AT_ONCE

_MARK: Final = "memory-crowds"  # rounds have one of their own, for they do not wait for these

log = structlog.get_logger()


def check_trainer(party: Party, book: ManifestBook) -> None:
    """Refuse to run as a party that is not the trainer of the manifest in force.

    Raises:
        StartupRefused
    """
    check_party(party, book.current)
    if party.name != book.current.manifest.trainer.name:
        raise StartupRefused(f"the manifest does not list {party.name} as its trainer")


def assemble_crowds(
    resources: Resources, random_bytes: RandomBytes, *, draws_at_once: int
) -> Crowds:
    """Return what serves the crowd jobs in the storage of `resources`.

    Up to `draws_at_once` draws are in work at a time; seeds are made by `random_bytes`.

    Raises:
        UnknownManifest: an open one is bound to a manifest that is not on file.
    """
    if resources.manifests is not None:
        resources.storage.run_here(resources.manifests.exchange)
    try:
        for crowd in resources.storage.run_here(store.open_records):
            resources.book.get(crowd.request.body.manifest)
    except UnknownManifest:
        resources.storage.let_go()
        raise
    book = CrowdBook(resources)
    return Crowds(
        resources=resources,
        conductor=Conductor(resources, book, random_bytes),
        draws=Draws(resources, book, DrawLimit(draws_at_once, resources.registry)),
        submissions=Submissions(resources, book),
        records=CrowdRecords(resources, book),
    )


def open_crowd_storage(
    database_url: str, data_directory: Path, accept_loss: str | None
) -> StorageThread:
    """Return the storage of crowd jobs in a PostgreSQL database, with a mark of its own.

    Raises:
        StartupRefused, StorageUnavailable
    """
    engine = open_engine(database_url)
    check_schema(engine, schema.metadata, schema.VERSION)
    mark = data_directory / _MARK
    memory = open_memory(engine, mark, schema.memory, ledger=schema.ledger, accept=accept_loss)
    return StorageThread(engine, memory)


async def share_manifests(resources: Resources) -> None:
    """Take the manifests that other processes have accepted, and hand them those that they lack.

    Raises:
        StorageUnavailable
    """
    if resources.manifests is not None:
        await resources.storage.run(resources.manifests.exchange)


@dataclass(frozen=True)
class Replica:
    """A process that serves the trainer's crowd jobs beside the one that conducts rounds."""

    app: FastAPI
    crowds: Crowds
    forwarding: Forwarding | None

    @property
    def wake(self) -> asyncio.Event:
        """Return the event that is set when there is work."""
        return self.crowds.resources.wake

    async def step(self) -> None:
        """Do all the work that is due now, once."""
        try:
            await share_manifests(self.crowds.resources)
            await self.crowds.conductor.step()
        except StorageUnavailable:
            log.warning("storage unavailable: crowd jobs go on once it answers again")

    def stop_waiting(self) -> None:
        """Answer all long polls now: the service is about to stop."""
        self.crowds.resources.changes.close()
        if self.forwarding is not None:
            self.forwarding.stop()

    async def close(self) -> None:
        """End long polls and connections, and let go of the database."""
        self.stop_waiting()
        if self.forwarding is not None:
            await self.forwarding.close()
        await self.crowds.resources.storage.close()


def assemble_replica(
    *,
    party: Party,
    book: ManifestBook,
    data_directory: Path,
    database_url: str | None,
    clock: Callable[[], datetime],
    random_bytes: RandomBytes = nacl.utils.random,
    draws_at_once: int = DRAWS_AT_ONCE,
    conducted_at: str | None = None,
    accept_loss: str | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> Replica:
    """Return a process that serves the crowd jobs of the trainer `party`, and nothing else.

    All other requests it hands to the process `conducted_at` that URL, None refuses them.
    `transport` stands in for the network in tests, `accept_loss` is the token of a loss that the
    operator accepts.

    In `data_directory` it keeps the mark of its commits, and the manifests that it accepts.

    Raises:
        StartupRefused: the database is not ours, or forgot what this process acknowledged, or it
            is no PostgreSQL: others could not share it.
        StorageUnavailable: the database does not answer.
        UnknownManifest: as `assemble_crowds`.
    """
    check_trainer(party, book)
    if database_url is None:
        raise StartupRefused(
            "SHOAL_SERVES=crowds is for a process beside the one that conducts rounds: set "
            "SHOAL_DATABASE_URL to the PostgreSQL database that both share"
        )
    resources = Resources(
        name=party.name,
        signing_key=party.signing_key,
        book=book,
        storage=open_crowd_storage(database_url, data_directory, accept_loss),
        clock=clock,
        manifests=SharedManifests(book, schema.manifests),
    )
    crowds = assemble_crowds(resources, random_bytes, draws_at_once=draws_at_once)
    app = create_application(
        "Shoal trainer, crowd jobs",
        ready=crowds.records.is_ready,
        registry=resources.registry,
        body_limit_bytes_by_ending={
            "/joins": JOINS_LIMIT_BYTES,
            "/submissions": SUBMISSIONS_LIMIT_BYTES,
            MANIFEST_PATH: MANIFEST_LIMIT_BYTES,
        },
        streamed=(MANIFEST_PATH,),
    )
    app.include_router(manifest_routes(book, accepted=partial(share_manifests, resources)))
    app.include_router(crowd_routes(crowds))
    forwarding = None
    if conducted_at is not None:
        certificate = book.current.manifest.trainer.certificate
        forwarding = Forwarding(conducted_at, certificate, transport)
        app.include_router(forwarding_routes(forwarding))
    return Replica(app, crowds, forwarding)
