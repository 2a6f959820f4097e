"""Puts a trainer together out of a party, its manifests, a data directory, a clock and a wire."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import nacl.utils
import structlog
from fastapi import FastAPI
from prometheus_client import Counter

from shoal_hosting.database_choice import is_postgresql_url
from shoal_hosting.database_schema import check_schema
from shoal_hosting.ledger import RESTORE
from shoal_hosting.manifest_book import ManifestBook
from shoal_hosting.memory import MARK, open_memory
from shoal_hosting.party import Party
from shoal_hosting.security import StartupRefused
from shoal_hosting.shared_manifests import SharedManifests
from shoal_hosting.storage import StorageThread, open_engine, sqlite_url
from shoal_protocol.errors import LedgerBroken, StorageUnavailable, UnknownManifest
from shoal_protocol.sharing import RandomBytes
from shoal_trainer import schema
from shoal_trainer.app import create_app
from shoal_trainer.certifying import Certifier
from shoal_trainer.crowds.assembly import (
    Replica,
    assemble_crowds,
    assemble_replica,
    check_trainer,
    open_crowd_storage,
    share_manifests,
)
from shoal_trainer.crowds.routes import Crowds
from shoal_trainer.enrolment import Enrolment
from shoal_trainer.peers import Peers
from shoal_trainer.records import Records
from shoal_trainer.resources import Resources
from shoal_trainer.running import Runner
from shoal_trainer.settings import DRAWS_AT_ONCE, Serves

log = structlog.get_logger()


@dataclass(frozen=True)
class Service:
    """A running trainer: whoever holds it serves `app` and calls `step` on every `wake`."""

    app: FastAPI
    resources: Resources
    enrolment: Enrolment
    runner: Runner
    certifier: Certifier
    peers: Peers
    crowds: Crowds

    @property
    def wake(self) -> asyncio.Event:
        """Return the event that is set when there is work."""
        return self.resources.wake

    async def step(self) -> None:
        """Do all the work that is due now, once."""
        try:
            await share_manifests(self.crowds.resources)
            await self.enrolment.close_due()
            await self.crowds.conductor.step()
            await self.runner.step()
            await self.certifier.step()
        except StorageUnavailable:
            log.warning("storage unavailable: jobs go on once it answers again")

    def stop_waiting(self) -> None:
        """Answer all long polls now: the service is about to stop."""
        self.resources.changes.close()

    async def close(self) -> None:
        """End long polls and connections, and let go of the database."""
        self.stop_waiting()
        await self.runner.close()
        await self.certifier.close()
        await self.peers.close()
        await self.resources.storage.close()
        if self.crowds.resources.storage is not self.resources.storage:
            await self.crowds.resources.storage.close()


def assemble(
    *,
    party: Party,
    book: ManifestBook,
    data_directory: Path,
    database_url: str | None,
    clock: Callable[[], datetime],
    transport: httpx.AsyncBaseTransport | None = None,
    long_polls: bool = False,
    random_bytes: RandomBytes = nacl.utils.random,
    draws_at_once: int = DRAWS_AT_ONCE,
    accept_loss: str | None = None,
) -> Service:
    """Return the trainer of `party`, going on from what its database holds.

    With `long_polls` it is woken as soon as the aggregator has decided; without, each `step`
    asks once and nothing runs between steps. `random_bytes` makes the seeds of crowd jobs, for
    which up to `draws_at_once` draws are in work at a time. `accept_loss` is the token of a loss
    that the operator accepts.

    Raises:
        StartupRefused: the party is not the manifest's trainer, or the database is not ours, or
            forgot what it acknowledged, or its ledger is broken.
        StorageUnavailable: the database does not answer.
        UnknownManifest: an open crowd job is bound to a manifest that is not on file.
    """
    check_trainer(party, book)
    engine = open_engine(database_url or sqlite_url(data_directory / "trainer.sqlite"), alone=True)
    check_schema(engine, schema.metadata, schema.VERSION)
    memory = open_memory(
        engine, data_directory / MARK, schema.memory, ledger=schema.ledger, accept=accept_loss
    )
    resources = Resources(
        name=party.name,
        signing_key=party.signing_key,
        book=book,
        storage=StorageThread(engine, memory),
        clock=clock,
    )
    peers = Peers(transport)
    ends = Counter(
        "shoal_trainer_jobs_ended", "Jobs by their end", ["end"], registry=resources.registry
    )
    try:
        enrolment = Enrolment(resources, ends)
    except LedgerBroken as error:
        resources.storage.let_go()
        raise StartupRefused(f"{error}; {RESTORE}") from None
    runner = Runner(resources, peers, ends, long_polls=long_polls)
    crowds = resources
    if database_url is not None and is_postgresql_url(database_url):
        # a connection of their own: neither rounds nor crowds wait for each other's transactions,
        # and crowd jobs need no lock on the whole database, for other processes serve them too
        crowds = replace(
            resources,
            storage=open_crowd_storage(database_url, data_directory, accept_loss),
            manifests=SharedManifests(book, schema.manifests),
        )
    try:
        serving = assemble_crowds(crowds, random_bytes, draws_at_once=draws_at_once)
    except UnknownManifest:
        resources.storage.let_go()
        raise
    certifier = Certifier(resources, peers)
    app = create_app(enrolment, Records(resources, certifier), resources, serving)
    return Service(app, resources, enrolment, runner, certifier, peers, serving)


def assemble_serving(
    *, serves: Serves, conducted_at: str | None, **named: Any
) -> Service | Replica:
    """Return what `SHOAL_SERVES` asks for, of what every service is assembled from.

    Raises:
        StartupRefused, StorageUnavailable: as `assemble` and `assemble_replica`.
    """
    if serves == "crowds":
        return assemble_replica(**named, conducted_at=conducted_at)
    return assemble(**named, long_polls=True)
