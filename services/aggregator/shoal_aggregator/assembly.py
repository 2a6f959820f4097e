"""Puts an aggregator together out of a party, its manifests, a data directory and a clock."""

from dataclasses import dataclass
from typing import Unpack

import structlog

from shoal_aggregator import schema
from shoal_aggregator.aggregator import Aggregator
from shoal_aggregator.app import create_app
from shoal_aggregator.log import Log
from shoal_aggregator.retention import KEEPINGS
from shoal_hosting import service
from shoal_hosting.party import check_role
from shoal_hosting.storage.retention import Retention
from shoal_protocol.wire.service_errors import StorageUnavailable

_log = structlog.get_logger()


@dataclass(frozen=True, eq=False)
class Service(service.Service):
    """A running aggregator."""

    aggregator: Aggregator
    log: Log
    retention: Retention

    async def step(self) -> None:
        """Do all the work that is due now, once."""
        await self.aggregator.step()
        try:
            await self.log.step()
        except StorageUnavailable:
            _log.warning("storage unavailable: the log goes on once it answers again")
        await self.retention.step()
        self.resources.standing.erase(())

    async def close(self) -> None:
        """End what is under way, and let go of connections and the database."""
        await self.log.close()
        await super().close()


def assemble(**given: Unpack[service.Given]) -> Service:
    """Return the aggregator that is `given`, going on from what its database holds.

    It calls nobody but the Compute nodes, to sign the log, and, once retired, the trainer.

    Raises:
        StartupRefused: the party is not the manifest's aggregator, or as `Resources.open`.
        StorageUnavailable: the database does not answer.
    """
    check_role(given["party"], given["book"], "aggregator")
    resources = service.Resources.open(schema, alone=True, **given)
    log = Log(resources)
    aggregator = Aggregator(resources, log.note)
    resources.vitals.watch_open_rounds(aggregator.oldest_open)
    app, retention = create_app(aggregator, log, resources), Retention(resources, KEEPINGS)
    app.include_router(retention.routes)
    return Service(app, resources, aggregator, log, retention)
