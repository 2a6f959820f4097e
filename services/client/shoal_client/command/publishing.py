"""Handing manifest versions to services over HTTPS; it signs nothing and reads no file."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

from shoal_client.command.connection import json_of
from shoal_client.command.terminal import Refused
from shoal_hosting.exchange import Connection, Reply, Unavailable
from shoal_protocol.manifest import Consortium, ServiceParty
from shoal_protocol.manifest_bundle import bundle

_ANSWER_SECONDS = 30.0  # beyond what sending a roster takes
_CONFLICT = 409


@dataclass(frozen=True)
class Outcome:
    """What became of handing the newest version to one service."""

    name: str
    accepted: bool
    detail: str
    unreachable: bool = False


def publish_to_all(
    chain: Sequence[Consortium], *, transport: httpx.AsyncBaseTransport | None = None
) -> list[Outcome]:
    """Hand the versions of `chain`, oldest first, to every service of the newest one."""
    return asyncio.run(_publish_to_all(chain, transport))


async def _publish_to_all(
    chain: Sequence[Consortium], transport: httpx.AsyncBaseTransport | None
) -> list[Outcome]:
    manifest = chain[-1].manifest
    services = [*manifest.compute_nodes, manifest.aggregator, manifest.trainer]
    return list(await asyncio.gather(*(_publish(chain, each, transport) for each in services)))


async def _publish(
    chain: Sequence[Consortium], service: ServiceParty, transport: httpx.AsyncBaseTransport | None
) -> Outcome:
    """Try the newest version; if the service lags behind further, hand it the missing ones."""
    async with Connection(
        service.url, service.certificate, transport=transport, answer_seconds=_ANSWER_SECONDS
    ) as connection:
        try:
            reply = await _put(connection, chain[-1])
            if reply.status == _CONFLICT:
                for version in chain[1:]:
                    reply = await _put(connection, version)
        except Unavailable as error:
            return Outcome(service.name, False, str(error), unreachable=True)
    try:
        json_of(reply)
    except Refused as refusal:
        return Outcome(service.name, False, str(refusal))
    return Outcome(service.name, True, f"version {len(chain)} is in force")


async def _put(connection: Connection, version: Consortium) -> Reply:
    return await connection.ask("PUT", "/v1/manifest", bundle(version))
