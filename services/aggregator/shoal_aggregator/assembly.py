"""Puts an aggregator together out of a party, its manifests, a data directory and a clock."""

from dataclasses import dataclass
from typing import Unpack

from shoal_aggregator import schema
from shoal_aggregator.aggregator import Aggregator
from shoal_aggregator.app import create_app
from shoal_hosting import service
from shoal_hosting.party import check_role


@dataclass(frozen=True, eq=False)
class Service(service.Service):
    """A running aggregator."""

    aggregator: Aggregator

    async def step(self) -> None:
        """Do all the work that is due now, once."""
        await self.aggregator.step()
        self.resources.standing.erase(())


def assemble(**given: Unpack[service.Given]) -> Service:
    """Return the aggregator that is `given`, going on from what its database holds.

    It calls nobody, so `transport` is there only to be assembled like every other service.

    Raises:
        StartupRefused: the party is not the manifest's aggregator, or as `Resources.open`.
        StorageUnavailable: the database does not answer.
    """
    check_role(given["party"], given["book"], "aggregator")
    resources = service.Resources.open(schema, alone=True, **given)
    aggregator = Aggregator(resources)
    resources.vitals.watch_open_rounds(aggregator.oldest_open)
    return Service(create_app(aggregator, resources), resources, aggregator)
