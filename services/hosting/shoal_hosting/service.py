"""Settings, resources and start-up that all services of the manifest share.

The environment and the clock are read here, once.
"""

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, NotRequired, Protocol, Self, TypedDict, TypeVar, Unpack

import httpx
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from pydantic import BaseModel
from sqlalchemy import MetaData, Table, select

from shoal_hosting.clock import Clock, system_clock
from shoal_hosting.manifests.manifest_book import ManifestBook
from shoal_hosting.manifests.manifest_routes import (
    MANIFEST_LIMIT_BYTES,
    MANIFEST_PATH,
    manifest_routes,
)
from shoal_hosting.marks import DAMAGED
from shoal_hosting.party import Party, check_party, load_party, read_pin
from shoal_hosting.peers.exchange import ANSWER_SECONDS, Connections
from shoal_hosting.programs import startup_of
from shoal_hosting.security import server_tls
from shoal_hosting.server.application import create_application
from shoal_hosting.server.logs import configure_logs
from shoal_hosting.server.openapi import JsonSchema
from shoal_hosting.server.serving import serve, step_for_ever
from shoal_hosting.server.waiting import Changes
from shoal_hosting.service_settings import ServiceSettings
from shoal_hosting.settings import read_settings
from shoal_hosting.startup import StartupRefused
from shoal_hosting.storage.data_directory import hold_data_directory
from shoal_hosting.storage.database import StorageThread, open_engine, sqlite_url
from shoal_hosting.storage.database_choice import (
    check_choice,
    note_choice,
    why_unavailable,
)
from shoal_hosting.storage.database_memory import MARK, open_memory
from shoal_hosting.storage.database_schema import check_schema
from shoal_hosting.storage.ledger import RESTORE, LedgerTables
from shoal_hosting.storage.shared_manifests import SharedManifests
from shoal_hosting.tokens import OPERATOR_TOKEN, token_of
from shoal_hosting.vitals import Vitals
from shoal_hosting.work import Worker
from shoal_protocol.wire.documents import Document, Signed, sign
from shoal_protocol.wire.errors import LedgerBroken, ProtocolError, UnknownManifest
from shoal_protocol.wire.service_errors import StorageUnavailable

DocumentT = TypeVar("DocumentT", bound=Document)


class Given(TypedDict):
    """The parts from which every service is assembled; see `Resources.open`."""

    party: Party
    book: ManifestBook
    data_directory: Path
    database_url: str | None
    clock: Clock
    transport: NotRequired[httpx.AsyncBaseTransport | None]
    accept_loss: NotRequired[str | None]
    metrics_token: NotRequired[str | None]


class Schema(Protocol):
    """The module with a service's tables."""

    @property
    def metadata(self) -> MetaData: ...
    @property
    def VERSION(self) -> int: ...
    @property
    def memory(self) -> Table: ...
    @property
    def ledger(self) -> LedgerTables | None: ...


@dataclass(frozen=True, eq=False)
class Resources:
    """The resources that all parts of a service share: identity, trust, storage, peers, clock."""

    party: Party
    book: ManifestBook
    storage: StorageThread
    clock: Clock
    peers: Connections
    data_directory: Path
    metrics_token: str | None = field(default=None, repr=False)
    """Who has it may see the metrics; None: anybody may."""
    manifests: SharedManifests | None = None
    """Where processes over one database hand each other manifests; None: there are no others."""
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    changes: Changes = field(default_factory=Changes)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there is work."""
    _workers: dict[str, Worker] = field(default_factory=dict)

    @classmethod
    def open(
        cls,
        schema: Schema,
        *,
        alone: bool,
        mark: str = MARK,
        answer_seconds: float = ANSWER_SECONDS,
        manifests: Table | None = None,
        **given: Unpack[Given],
    ) -> Self:
        """Open the database of the party that is `given`, and go on from what is in it.

        With `alone`, no other process may use it. Commits are marked in the file `mark`. Who is
        asked has `answer_seconds` for an answer's head. `transport` stands in for the network;
        `accept_loss` is the token of a loss that the operator accepts.

        Raises:
            StartupRefused: the database is not ours, or forgot what it acknowledged.
            StorageUnavailable: it does not answer.
        """
        party, book, directory = given["party"], given["book"], given["data_directory"]
        url = given["database_url"] or sqlite_url(directory / f"{party.card.role}.sqlite")
        storage = open_storage(
            schema, url, directory / mark, accept_loss=given.get("accept_loss"), alone=alone
        )
        return cls(
            party=party,
            book=book,
            storage=storage,
            clock=given["clock"],
            peers=Connections(given.get("transport"), answer_seconds=answer_seconds),
            data_directory=directory,
            metrics_token=given.get("metrics_token"),
            manifests=None if manifests is None else SharedManifests(book, manifests),
        )

    @cached_property
    def vitals(self) -> Vitals:
        """Return what monitoring watches."""
        return Vitals(
            self.registry, book=self.book, directory=self.data_directory, clock=self.clock
        )

    @property
    def name(self) -> str:
        """Return the party's name in the manifest."""
        return self.party.name

    def sign(self, body: DocumentT) -> Signed[DocumentT]:
        """Sign a document as this party."""
        return sign(body, self.name, self.party.signing_key)

    async def ready(self) -> None:
        """Raise `StorageUnavailable` unless the database answers."""
        await self.storage.run(lambda db: db.execute(select(1)))

    async def share_manifests(self) -> None:
        """Take the manifests that other processes have accepted, and hand them those they lack.

        Raises:
            StorageUnavailable
        """
        if self.manifests is not None:
            await self.storage.run(self.manifests.exchange)

    def worker(self, name: str, *, threads: int = 1) -> Worker:
        """Return the worker of that name, with so many threads."""
        if name not in self._workers:
            self._workers[name] = Worker(name, threads=threads)
        return self._workers[name]

    def adopt_manifests(self) -> None:
        """Do what `share_manifests` does, for start-up: it waits for the database."""
        if self.manifests is not None:
            self.storage.run_here(self.manifests.exchange)

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Let go of the database if the service cannot start over it.

        Raises:
            StartupRefused: its ledger is broken.
        """
        try:
            yield
        except LedgerBroken as error:
            self.storage.let_go()
            raise StartupRefused(f"{error}; {RESTORE}") from None
        except UnknownManifest:
            self.storage.let_go()
            raise

    def application(
        self,
        title: str,
        *,
        body_limit_bytes_by_ending: Mapping[str, int],
        ready: Callable[[], Awaitable[None]] | None = None,
        plain: Mapping[str, JsonSchema] | None = None,
    ) -> FastAPI:
        """Return an application with what all services answer, and the manifest's routes."""
        app = create_application(
            title,
            ready=ready or self.ready,
            registry=self.registry,
            vitals=self.vitals,
            metrics_token=self.metrics_token,
            body_limit_bytes_by_ending={
                **body_limit_bytes_by_ending,
                MANIFEST_PATH: MANIFEST_LIMIT_BYTES,
            },
            streamed=(MANIFEST_PATH,),
            plain=plain,
        )
        app.include_router(manifest_routes(self.book, accepted=self.share_manifests))
        return app

    async def close(self) -> None:
        """Let go of connections, the database and threads."""
        await self.peers.close()
        await self.storage.close()
        for worker in self._workers.values():
            worker.close()


def open_storage(
    schema: Schema, url: str, mark: Path, *, accept_loss: str | None, alone: bool
) -> StorageThread:
    """Open a service's database, whose commits are marked in the file `mark`.

    Raises:
        StartupRefused, StorageUnavailable: as `Resources.open`.
    """
    engine = open_engine(url, alone=alone)
    check_schema(engine, schema.metadata, schema.VERSION)
    memory = open_memory(engine, mark, schema.memory, ledger=schema.ledger, accept=accept_loss)
    return StorageThread(engine, memory)


@dataclass(frozen=True, eq=False)
class Service:
    """A service: its caller serves `app`, and calls `step` on every `wake`."""

    app: FastAPI
    resources: Resources

    @property
    def wake(self) -> asyncio.Event:
        """Return the event that is set when there is work."""
        return self.resources.wake

    async def step(self) -> None:
        """Do all the work that is due now, once."""
        raise NotImplementedError

    def stop_waiting(self) -> None:
        """Answer all long polls now: the service is about to stop."""
        self.resources.changes.close()

    async def close(self) -> None:
        """End what is under way, and let go of connections and the database."""
        self.stop_waiting()
        await self.resources.close()


# Puts a service together and starts nothing. It is called with what `Given` lists, and with the
# settings that only this service has.
Assemble = Callable[..., Service]


def run_service(
    role: Literal["compute", "aggregator", "trainer"],
    assemble: Assemble,
    *,
    tick_seconds: float,
    settings: type[ServiceSettings] = ServiceSettings,
    also: str = "",
) -> None:
    """Run a service until it is told to stop; it steps at least every `tick_seconds`.

    `also` is said by --help. Settings beyond those of every service are handed to `assemble` by
    their names.

    Raises:
        SystemExit: with status 78 and one line on standard error, if it cannot start; 0 after
            --help, and 2 if it was given another argument.
    """
    argparse.ArgumentParser(
        prog=f"python -m shoal_{role}",
        description=f"Run the service until it is told to stop. {also}",
        epilog=f"It reads the environment:\n{_describe(settings, 'SHOAL_')}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args()
    with startup_of(f"shoal-{role}"):
        read = read_settings(settings, "SHOAL_", os.environ)
        configure_logs(level=read.log_level)
        party = load_party(read.party)
        if party.card.role != role:
            raise StartupRefused(f"{read.party} is the {party.card.role} {party.name}'s")
        hold_data_directory(read.data)
        check_choice(read.data, role, read.database_url)
        book = ManifestBook.open(read.consortium, read_pin(read.party), read.data)
        check_party(party, book.current)
        tls = server_tls(party.tls_certificate, party.tls_key, party.card.certificate or "")
        service = _assembled(assemble, read, party, book)
        note_choice(read.data, read.database_url)
        serve(
            service.app,
            host=read.host,
            port=read.port,
            tls=tls,
            work=lambda: _work(service, tick_seconds),
            on_stop=service.stop_waiting,
        )


def _assembled(
    assemble: Assemble, settings: ServiceSettings, party: Party, book: ManifestBook
) -> Service:
    own = {
        name: getattr(settings, name)
        for name in type(settings).model_fields.keys() - ServiceSettings.model_fields.keys()
    }
    with refusing_what_is_on_file(settings.database_url):
        return assemble(
            party=party,
            book=book,
            data_directory=settings.data,
            database_url=settings.database_url,
            accept_loss=settings.accept_loss,
            metrics_token=None
            if settings.metrics_for_anybody
            else token_of(settings.data / OPERATOR_TOKEN),
            clock=system_clock,
            **own,
        )


@contextmanager
def refusing_what_is_on_file(database_url: str | None) -> Iterator[None]:
    """Turn what a service finds on file, and cannot begin with, into a `StartupRefused`."""
    try:
        yield
    except StorageUnavailable as error:
        raise StartupRefused(why_unavailable(database_url, error)) from error
    except UnknownManifest as error:
        raise StartupRefused(
            "what is on file began under a manifest older than the pinned one: pin that version"
        ) from error
    except (ProtocolError, IndexError, ValueError) as error:  # a document that reads no more
        raise StartupRefused(DAMAGED) from error


async def _work(service: Service, tick_seconds: float) -> None:
    try:
        await step_for_ever(service.step, service.wake, tick_seconds=tick_seconds)
    finally:
        await asyncio.shield(service.close())


def _describe(model: type[BaseModel], prefix: str) -> str:
    """Return a line for each variable that `read_settings` reads."""
    lines = []
    for name, setting in model.model_fields.items():
        needed = ""
        if setting.is_required():
            needed = " (must be set)"
        elif setting.default is not None:
            needed = f" (default: {setting.default})"
        lines.append(f"  {prefix}{name.upper()}: {setting.description}{needed}")
    return "\n".join(lines)
