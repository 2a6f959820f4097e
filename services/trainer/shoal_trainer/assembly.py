"""Assembles a trainer, or a process that serves only its crowd jobs.

Their settings, and what is deleted some time after a job ended, are declared here, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final, Literal, Unpack

import nacl.utils
import structlog
from pydantic import Field
from sqlalchemy import Connection, select, update

from shoal_kit.startup import StartupRefused
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.wire.phases import JobPhase
from shoal_protocol.wire.service_errors import StorageUnavailable
from shoal_service import service
from shoal_service.journal_routes import journal_routes, ledger_routes
from shoal_service.keepers import Keepers
from shoal_service.running import ServiceSettings
from shoal_service.storage import retention
from shoal_service.storage.retention import MOST_JOBS, Retention, delete_some
from shoal_trainer import schema
from shoal_trainer.app import create_app
from shoal_trainer.certifying import Certifier
from shoal_trainer.crowds import store
from shoal_trainer.crowds.conducting import Conductor
from shoal_trainer.crowds.drawing import DrawLimit, Draws
from shoal_trainer.crowds.routes import LIMITS, Crowds, crowd_routes
from shoal_trainer.crowds.store import CrowdBook
from shoal_trainer.crowds.submitting import Submissions
from shoal_trainer.declarations import Declarations
from shoal_trainer.dictionaries import Dictionaries
from shoal_trainer.joining import Joining
from shoal_trainer.peers import ANSWER_SECONDS, Peers
from shoal_trainer.releases import REPORT
from shoal_trainer.resources import Resources
from shoal_trainer.running import Runner
from shoal_trainer.schema import (
    certificates,
    jobs,
    journal,
    memberships,
    partial_sums,
    rounds,
    totals,
)
from shoal_trainer.store import list_jobs, newest_of

log = structlog.get_logger()

DRAWS_AT_ONCE: Final = 16
Serves = Literal["everything", "crowds"]


class TrainerSettings(ServiceSettings):
    """Settings of every service, and this process's duties for the trainer."""

    serves: Serves = Field(
        default="everything",
        description=(
            "everything, or crowds: crowd jobs only, for any number of processes beside the one "
            "that conducts rounds, over the same PostgreSQL database; a balancer sends them the "
            "paths below /v1/crowds"
        ),
    )
    draws_at_once: int = Field(
        default=DRAWS_AT_ONCE,
        ge=1,
        le=1000,
        description=(
            "how many draws of crowd jobs are in work at a time: anybody may ask for them, and "
            "those beyond wait, so that submissions find room; refused after eight seconds"
        ),
    )


def assemble_crowds(
    resources: Resources, random_bytes: RandomBytes, *, draws_at_once: int
) -> Crowds:
    """Return what serves the crowd jobs in the storage of `resources`.

    Up to `draws_at_once` draws are in work at a time; seeds are made by `random_bytes`.

    Raises:
        UnknownManifest: an open one is bound to a manifest that is not on file.
    """
    with resources.starting():
        for job, _ in resources.storage.run_here(store.open_crowds):
            crowd = resources.storage.run_here(partial(store.find_crowd, job=job))
            resources.book.get(crowd.request.body.manifest)
    book = CrowdBook(resources)
    return Crowds(
        resources=resources,
        conductor=Conductor(resources, book, random_bytes),
        draws=Draws(resources, book, DrawLimit(draws_at_once, resources.registry)),
        submissions=Submissions(resources, book),
        book=book,
    )


@dataclass(frozen=True, eq=False)
class Replica(service.Service):
    """A process that serves the trainer's crowd jobs beside the one that conducts rounds."""

    crowds: Crowds

    async def step(self) -> None:
        """Do all the work that is due now, once."""
        try:
            await self.resources.share_manifests()
            await self.crowds.conductor.step()
        except StorageUnavailable:
            log.warning("storage unavailable: crowd jobs go on once it answers again")


def assemble_replica(
    *,
    random_bytes: RandomBytes = nacl.utils.random,
    draws_at_once: int = DRAWS_AT_ONCE,
    **given: Unpack[service.Given],
) -> Replica:
    """Return a process that serves only the crowd jobs of the trainer that is `given`.

    A balancer sends it the paths below /v1/crowds. In its data directory it keeps the manifests
    that it accepts.

    Raises:
        StartupRefused: as `Resources.open`, or the database is no PostgreSQL: others could not
            share it.
        StorageUnavailable: the database does not answer.
        UnknownManifest: as `assemble_crowds`.
    """
    if given["database_url"] is None:
        raise StartupRefused(
            "SHOAL_SERVES=crowds is for a process beside the one that conducts rounds: set "
            "SHOAL_DATABASE_URL to the PostgreSQL database that both share"
        )
    resources = Resources.open(schema, alone=False, **given)
    crowds = assemble_crowds(resources, random_bytes, draws_at_once=draws_at_once)
    app = resources.application(
        "Shoal trainer, crowd jobs",
        busy=crowds.is_open,
        body_limit_bytes_by_ending=LIMITS,
    )
    app.include_router(crowd_routes(crowds))
    return Replica(app, resources, crowds)


_OPEN: Final = (JobPhase.JOINING.value, JobPhase.RUNNING.value)


def _due(db: Connection, before: datetime) -> Sequence[str]:
    """Return jobs that ended so long ago, those whose deletion was begun first.

    One waits for its certificate, however long it takes.
    """
    columns = jobs.c
    certified = select(certificates.c.job)
    uncertified = (columns.phase == JobPhase.FINISHED.value) & columns.id.not_in(certified)
    over = (columns.ends_by < before.timestamp()) & columns.phase.not_in(_OPEN)
    is_due = columns.erased | (over & ~uncertified)
    query = select(columns.id).where(~columns.emptied, is_due)
    chosen = query.order_by(columns.erased.desc(), columns.id).limit(MOST_JOBS)
    return db.execute(chosen).scalars().all()


DELETED: Final = (certificates, totals, partial_sums, memberships)
"""Tables of documents that go. Requests, rounds and the journal stay, without reports."""


def forget(db: Connection, before: datetime) -> bool:
    """Delete documents of jobs that ended before a moment; tell whether any were due.

    The jobs answer as deleted before the first of their documents goes. A report goes before its
    certificate: a result without one would be certified again.
    """
    due = _due(db, before)
    here, of_jobs = jobs.c.id.in_(due), select(rounds.c.id).where(rounds.c.job.in_(due))
    db.execute(update(jobs).where(here).values(erased=True))
    if due and not journal.forget(db, REPORT, due, most=retention.MOST_ROWS):
        chosen = (
            each.c.round.in_(of_jobs) if each is partial_sums else each.c.job.in_(due)
            for each in DELETED
        )
        if not any(map(partial(delete_some, db), DELETED, chosen)):
            db.execute(update(jobs).where(here).values(emptied=True))
    return bool(due)


@dataclass(frozen=True, eq=False)
class Service(service.Service):
    """A running trainer."""

    resources: Resources
    joining: Joining
    runner: Runner
    certifier: Certifier
    crowds: Crowds
    retention: Retention

    async def step(self) -> None:
        """Do all the work that is due now, once."""
        try:
            await self.crowds.resources.share_manifests()
            running = await self.joining.close_due()
            await self.crowds.conductor.step()
            await self.runner.step(running)
            await self.certifier.step()
            await self.retention.step()
            self.resources.standing.erase(())
        except StorageUnavailable:
            log.warning("storage unavailable: jobs go on once it answers again")


def assemble(
    *,
    long_polls: bool = False,
    random_bytes: RandomBytes = nacl.utils.random,
    draws_at_once: int = DRAWS_AT_ONCE,
    **given: Unpack[service.Given],
) -> Service:
    """Return the trainer that is `given`, going on from what its database holds.

    With `long_polls` rounds go on as soon as the aggregator has decided; without, each `step`
    asks once and nothing runs between steps. `random_bytes` makes the seeds of crowd jobs, for
    which up to `draws_at_once` draws are in work at a time.

    Raises:
        StartupRefused: as `Resources.open`, or its ledger is broken.
        StorageUnavailable: the database does not answer.
        UnknownManifest: an open crowd job is bound to a manifest that is not on file.
    """
    resources = Resources.open(schema, alone=True, answer_seconds=ANSWER_SECONDS, **given)
    peers = Peers(resources.peers, resources.book)
    _ = resources.ends  # shown from the start
    with resources.starting():
        keepers = Keepers(
            resources,
            resources.journal,
            schema.kept,
            newest_of,
            accept=given.get("accept_loss"),
        )
        dictionaries = Dictionaries(resources)
        if resources.book.published is not None:
            dictionaries.follow(resources.book.published)
        declarations = Declarations(resources)
        joining = Joining(resources, dictionaries, declarations, peers)
        runner = Runner(resources, peers, keepers, long_polls=long_polls)
        crowds, url = resources, given["database_url"]
        if url is not None and resources.storage.is_shared:
            # a connection of their own: neither rounds nor crowds wait for each other's
            # transactions, and crowd jobs need no lock on the whole database, for other processes
            # serve them too
            storage = service.open_storage(schema, url, own=resources.book.current, alone=False)
            crowds = replace(resources, storage=storage)
            resources.on_close.append(storage.close)
        serving = assemble_crowds(crowds, random_bytes, draws_at_once=draws_at_once)
    serving.resources.vitals.watch_open_rounds(runner.oldest_open)  # of the one that is served
    certifier = Certifier(resources, peers, keepers)
    app = create_app(
        joining, certifier, resources, serving, dictionaries, declarations, ready=keepers.ready
    )
    app.include_router(journal_routes(keepers))
    withdrawn = partial(list_jobs, phase=JobPhase.WITHDRAWN)
    app.include_router(ledger_routes(resources, resources.ledger, withdrawn))
    return Service(
        app, resources, joining, runner, certifier, serving, Retention(resources, forget)
    )


def assemble_serving(*, serves: Serves, **given: Unpack[service.Given]) -> Service | Replica:
    """Return what `SHOAL_SERVES` asks for, of what every service is assembled from.

    Raises:
        StartupRefused, StorageUnavailable: as `assemble` and `assemble_replica`.
    """
    if serves == "crowds":
        return assemble_replica(**given)
    return assemble(**given, long_polls=True)
