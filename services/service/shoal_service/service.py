"""Settings, resources and start-up that all services of the manifest share.

The environment and the clock are read here, once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import Any, NotRequired, Self, TypedDict, Unpack

import httpx
from fastapi import FastAPI
from nacl.signing import SigningKey
from prometheus_client import CollectorRegistry
from sqlalchemy import select

from shoal_kit.clock import Clock
from shoal_kit.database_file import DATABASE, RESTORE
from shoal_kit.manifest_book import Handover, ManifestBook, newest_with
from shoal_kit.manifest_exchange import exchange
from shoal_kit.pace import Pace
from shoal_kit.party import Party
from shoal_kit.peers.exchange import ANSWER_SECONDS, Connections
from shoal_kit.startup import StartupRefused
from shoal_kit.vitals import Vitals
from shoal_kit.web.application import create_application
from shoal_kit.web.openapi import only_with
from shoal_protocol.keeping import HEADS_PATH, LARGEST_ADVANCE_BYTES
from shoal_protocol.rounds.round_spec import RoundSpec, check_spec
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.documents import BoundDocument, DocumentT, Signed, sign
from shoal_protocol.wire.errors import LedgerBroken, UnknownManifest
from shoal_service.manifest_routes import (
    MANIFEST_LIMIT_BYTES,
    MANIFEST_PATH,
    manifest_routes,
)
from shoal_service.operator_page import console_routes
from shoal_service.signed_documents import read_signed
from shoal_service.standing import Standing
from shoal_service.storage.database import open_engine, sqlite_url
from shoal_service.storage.database_schema import check_pages, check_schema
from shoal_service.storage.shared_manifests import SharedManifests
from shoal_service.storage.thread import StorageThread
from shoal_service.view import Look, Operator
from shoal_service.waiting import Changes
from shoal_service.work import Work, Worker


class Given(TypedDict):
    """The parts from which every service is assembled; see `Resources.open`."""

    party: Party
    book: ManifestBook
    data_directory: Path
    database_url: str | None
    clock: Clock
    transport: NotRequired[httpx.AsyncBaseTransport | None]
    accept_loss: NotRequired[str | None]
    operator: NotRequired[Operator | None]


@dataclass(frozen=True, eq=False)
class Resources:
    """The resources that all parts of a service share: identity, trust, storage, peers, clock."""

    party: Party
    book: ManifestBook
    storage: StorageThread
    clock: Clock
    peers: Connections
    standing: Standing
    data_directory: Path
    handover: Handover
    manifests: SharedManifests
    """Where processes over one database hand each other manifests."""
    operator: Operator | None = None
    """Who may see what is not for strangers; None, in a simulation: anybody may."""
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    changes: Changes = field(default_factory=Changes)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there is work."""
    on_manifest: list[Callable[[], None]] = field(default_factory=list)
    """Called in the event loop when another version of the manifest may be in force."""
    on_close: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    """Called in order when the service ends, before anything is let go of."""
    workers: dict[str, Worker] = field(default_factory=dict)
    """By name; their threads are let go of last."""

    @classmethod
    def open(
        cls,
        schema: ModuleType,
        *,
        alone: bool,
        answer_seconds: float = ANSWER_SECONDS,
        **given: Unpack[Given],
    ) -> Self:
        """Open the database of the party that is `given`, and go on from what is in it.

        `schema` is the module with the service's tables: it has `metadata`, `VERSION` and
        `manifests`. What other processes accepted of manifests is in force then. With `alone`, no
        other process may use the database. Who is asked has `answer_seconds` for an answer's head.
        `transport` stands in for the network. `accept_loss` is the token of a loss that the
        operator accepts, for `Keepers`.

        Raises:
            StartupRefused: the database is not ours, or damaged.
            StorageUnavailable: it does not answer.
        """
        party, book, directory = given["party"], given["book"], given["data_directory"]
        url = given["database_url"] or sqlite_url(directory / DATABASE)
        storage = open_storage(schema, url, own=book.current, alone=alone)
        registry, manifests = CollectorRegistry(), SharedManifests(book, schema.manifests)
        storage.run_here(manifests.exchange)
        return cls(
            party=party,
            book=book,
            storage=storage,
            registry=registry,
            standing=Standing(party, book, given["clock"], registry),
            clock=given["clock"],
            peers=Connections(
                given.get("transport"),
                answer_seconds=answer_seconds,
                exchange=partial(exchange, book=book),
            ),
            data_directory=directory,
            handover=Handover(book),
            operator=given.get("operator"),
            manifests=manifests,
        )

    @cached_property
    def vitals(self) -> Vitals:
        """Return what monitoring watches."""
        return Vitals(
            self.registry, book=self.book, directory=self.data_directory, clock=self.clock
        )

    @property
    def for_the_operator(self) -> list[Any]:
        """Return the dependencies of a route that is for the operator alone."""
        return [] if self.operator is None else [only_with(self.operator.token)]

    @property
    def name(self) -> str:
        """Return the party's name in the manifest."""
        return self.party.name

    @property
    def patience(self) -> timedelta:
        """Return how long after its time the end of a round, or of a job, is waited for.

        It is one for all parties, so that nobody waits for somebody who has given up.
        """
        return timedelta(seconds=self.book.current.manifest.policy.maximum_round_seconds)

    def sign(self, body: DocumentT) -> Signed[DocumentT]:
        """Sign a document as this party, by the key of the version that it is bound to.

        What is bound to none is signed by the key in force.

        Raises:
            UnknownManifest, UnknownSigner: it is bound to a version without this party.
            KeyNotHere: the party's directory lacks the key.
        """
        manifest = body.manifest if isinstance(body, BoundDocument) else None
        return sign(body, self.name, self.key_in(manifest))

    def key_in(self, manifest: str | None = None) -> SigningKey:
        """Return the signing key of a version, by its digest, or of the newest with this party.

        Raises:
            UnknownManifest, UnknownSigner, KeyNotHere: as `sign`.
        """
        version = newest_with(self.book, self.name) if manifest is None else self.book.get(manifest)
        return self.party.signing_key_in(version)

    def beginning_under(self, digest: str) -> Consortium:
        """Return the version under which a round begins, as `Handover.version` does.

        Raises:
            WrongManifest: another is in force.
        """
        return self.handover.version(digest, self.clock())

    def check_announced(self, signed: Signed[RoundSpec]) -> Consortium:
        """Check a round that its trainer announces; return the version under which it begins.

        Raises:
            WrongManifest, UnknownSigner, WrongSigner, BadSignature, RefusedSpec, MalformedDocument
        """
        consortium = self.beginning_under(signed.body.manifest)
        consortium.verify(signed)
        check_spec(signed.body, consortium, now=self.clock())
        return consortium

    async def ready(self) -> None:
        """Raise `StorageUnavailable` unless the database answers."""
        await self.storage.run(lambda db: db.execute(select(1)))

    async def read(self, encoded: bytes, *kinds: type[DocumentT]) -> Signed[DocumentT]:
        """Decode a signed document as `read_signed` does, beside the event loop if large.

        The version that it is bound to may be one that another process has accepted.

        Raises:
            MalformedDocument, UnsupportedVersion, UnknownManifest, UnknownSigner, WrongSigner,
            BadSignature, UnknownHolder, RevokedHolder, StorageUnavailable
        """
        decoding = partial(
            self.worker("reading").run_sized, len(encoded), read_signed, self.book, encoded, *kinds
        )
        try:
            signed: Signed[DocumentT] = await decoding()
            if isinstance(signed.body, BoundDocument):
                self.book.get(signed.body.manifest)
        except UnknownManifest:
            await self.share_manifests()
            signed = await decoding()
        return signed

    async def share_manifests(self) -> None:
        """Take the manifests that other processes have accepted, and hand them those they lack.

        Raises:
            StorageUnavailable
        """
        await self.storage.run(self.manifests.exchange)
        self.follow_manifest()

    def follow_manifest(self) -> None:
        """Do what is to be done where another version of the manifest is in force than before."""
        self.beginning_under(self.book.current.digest)  # from now on the one before is let go
        self.standing.look()
        for follow in self.on_manifest:
            follow()

    def worker(self, name: str, *, threads: int = 1) -> Worker:
        """Return the worker of that name, with so many threads."""
        if name not in self.workers:
            self.workers[name] = Worker(name, threads=threads)
        return self.workers[name]

    def work(self, pace: Callable[[], Pace] = Pace) -> Work:
        """Return background work of a part of the service, which ends with the service."""
        work = Work(self.clock, pace)
        self.on_close.append(work.close)
        return work

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
        busy: Callable[[], Awaitable[bool]],
        look: Look | None = None,
        ready: Callable[[], Awaitable[None]] | None = None,
    ) -> FastAPI:
        """Return an application with what all services answer, and the manifest's routes.

        `busy` tells whether something is open here that began under the party's own version; the
        console shows what `look` returns beside what every service shows.
        """

        async def told() -> dict[str, str]:
            await (ready or self.ready)()
            return await self.standing.told(busy)

        app = create_application(
            title,
            ready=told,
            registry=self.registry,
            vitals=self.vitals,
            metrics_token=None
            if self.operator is None or self.operator.metrics_for_anybody
            else self.operator.token,
            body_limit_bytes_by_ending={
                **body_limit_bytes_by_ending,
                MANIFEST_PATH: MANIFEST_LIMIT_BYTES,
                HEADS_PATH: LARGEST_ADVANCE_BYTES,
            },
        )
        app.include_router(manifest_routes(self.book, accepted=self.share_manifests))
        if self.operator is not None and self.operator.console:
            app.include_router(
                console_routes(
                    title,
                    party=self.name,
                    token=self.operator.token,
                    ready=told,
                    look=look,
                    book=self.book,
                    vitals=self.vitals,
                    peers=self.peers,
                    registry=self.registry,
                    clock=self.clock,
                )
            )
        return app

    async def close(self) -> None:
        """End what is under way, and let go of connections, the database and threads."""
        for close in self.on_close:
            await close()
        await self.peers.close()
        await self.storage.close()
        for worker in self.workers.values():
            worker.close()


def open_storage(
    schema: ModuleType, url: str, *, own: Consortium | None = None, alone: bool
) -> StorageThread:
    """Open the database of the tables in `schema`.

    Raises:
        StartupRefused, StorageUnavailable: as `Resources.open`.
    """
    engine = open_engine(url, alone=alone)
    try:
        check_schema(engine, schema.metadata, schema.VERSION, own=own)
        check_pages(engine)
    except StartupRefused:
        engine.dispose()
        raise
    return StorageThread(engine)


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
