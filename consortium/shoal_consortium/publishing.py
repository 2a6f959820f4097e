"""Hands versions of manifest and data dictionary to services over HTTPS."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

import httpx

from shoal_hosting.peers.exchange import Reply, Unavailable
from shoal_hosting.peers.service_calls import Endpoint, Refused, call, json_of
from shoal_protocol.trust.dictionary import DataDictionary
from shoal_protocol.trust.manifest import Consortium, ServiceParty
from shoal_protocol.trust.manifest_bundle import bundle
from shoal_protocol.wire.documents import Signed


@dataclass(frozen=True)
class Outcome:
    """The outcome of sending the newest version to one service."""

    name: str
    accepted: bool
    detail: str
    unreachable: bool = False


def publish_to_all(
    chain: Sequence[Consortium], *, transport: httpx.AsyncBaseTransport | None = None
) -> list[Outcome]:
    """Hand the versions of `chain`, oldest first, to every service of the newest one."""

    async def publish() -> list[Outcome]:
        manifest = chain[-1].manifest
        services = [*manifest.compute_nodes, manifest.aggregator, manifest.trainer]
        return list(await asyncio.gather(*(_publish(chain, each, transport) for each in services)))

    return asyncio.run(publish())


async def _publish(
    chain: Sequence[Consortium], service: ServiceParty, transport: httpx.AsyncBaseTransport | None
) -> Outcome:
    """Try the newest version; if the service lags behind further, hand it the missing ones."""

    async def put(version: Consortium) -> Reply:
        content = bundle(version)
        return await call(
            Endpoint.of(service), "PUT", "/v1/manifest", content=content, transport=transport
        )

    try:
        reply = await put(chain[-1])
        if reply.status == HTTPStatus.CONFLICT:
            for version in chain[1:]:
                reply = await put(version)
        json_of(reply)
    except Unavailable as error:
        return Outcome(service.name, False, str(error), unreachable=True)
    except Refused as refusal:
        return Outcome(service.name, False, str(refusal))
    return Outcome(service.name, True, f"version {len(chain)} is in force")


def publish_dictionary(
    trainer: ServiceParty,
    versions: Sequence[Signed[DataDictionary]],
    *,
    transport: httpx.AsyncBaseTransport | None = None,
) -> Outcome:
    """Hand the versions of the data dictionary, oldest first, to the trainer."""

    async def publish() -> None:
        for each in versions:
            place, content = Endpoint.of(trainer), each.encode()
            json_of(
                await call(place, "PUT", "/v1/dictionary", content=content, transport=transport)
            )

    try:
        asyncio.run(publish())
    except Unavailable as error:
        return Outcome(trainer.name, False, str(error), unreachable=True)
    except Refused as refusal:
        return Outcome(trainer.name, False, str(refusal))
    return Outcome(trainer.name, True, f"version {len(versions)} is in force")
