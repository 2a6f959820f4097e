"""Assembles the parts that serve crowd jobs, in the trainer or in a process of their own."""

from dataclasses import dataclass
from typing import Final, Unpack

import nacl.utils
import structlog

from shoal_hosting import service
from shoal_hosting.party import check_role
from shoal_hosting.startup import StartupRefused
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.wire.service_errors import StorageUnavailable
from shoal_trainer import schema
from shoal_trainer.crowds import store
from shoal_trainer.crowds.conducting import Conductor
from shoal_trainer.crowds.drawing import DrawLimit, Draws
from shoal_trainer.crowds.routes import LIMITS, CrowdJobViews, Crowds, crowd_routes
from shoal_trainer.crowds.store import CrowdBook
from shoal_trainer.crowds.submitting import Submissions
from shoal_trainer.resources import Resources
from shoal_trainer.settings import DRAWS_AT_ONCE

MARK: Final = "memory-crowds"  # rounds have one of their own, for they do not wait for these

log = structlog.get_logger()


def assemble_crowds(
    resources: Resources, random_bytes: RandomBytes, *, draws_at_once: int
) -> Crowds:
    """Return what serves the crowd jobs in the storage of `resources`.

    Up to `draws_at_once` draws are in work at a time; seeds are made by `random_bytes`.

    Raises:
        UnknownManifest: an open one is bound to a manifest that is not on file.
    """
    with resources.starting():
        resources.adopt_manifests()
        for crowd in resources.storage.run_here(store.open_records):
            resources.book.get(crowd.request.body.manifest)
    book = CrowdBook(resources)
    return Crowds(
        resources=resources,
        conductor=Conductor(resources, book, random_bytes),
        draws=Draws(resources, book, DrawLimit(draws_at_once, resources.registry)),
        submissions=Submissions(resources, book),
        views=CrowdJobViews(resources, book),
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

    A balancer sends it the paths below /v1/crowds. In its data directory it keeps the mark of its
    commits, and the manifests that it accepts.

    Raises:
        StartupRefused: as `Resources.open`, or the database is no PostgreSQL: others could not
            share it.
        StorageUnavailable: the database does not answer.
        UnknownManifest: as `assemble_crowds`.
    """
    check_role(given["party"], given["book"], "trainer")
    if given["database_url"] is None:
        raise StartupRefused(
            "SHOAL_SERVES=crowds is for a process beside the one that conducts rounds: set "
            "SHOAL_DATABASE_URL to the PostgreSQL database that both share"
        )
    resources = Resources.open(schema, alone=False, mark=MARK, manifests=schema.manifests, **given)
    crowds = assemble_crowds(resources, random_bytes, draws_at_once=draws_at_once)
    app = resources.application(
        "Shoal trainer, crowd jobs",
        busy=crowds.is_open,
        body_limit_bytes_by_ending=LIMITS,
    )
    app.include_router(crowd_routes(crowds))
    return Replica(app, resources, crowds)
