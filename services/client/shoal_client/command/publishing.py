"""Handing manifest versions to services over HTTPS; it signs nothing and reads no file."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

from shoal_client.command.connection import json_of
from shoal_client.command.terminal import Refused
from shoal_hosting.connections import pinned_client
from shoal_protocol.manifest import Consortium, ServiceParty
from shoal_protocol.manifest_bundle import bundle

_TIMEOUT_SECONDS = 30.0


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
    async with pinned_client(
        service.certificate, base_url=service.url, transport=transport
    ) as client:
        try:
            response = await _put(client, chain[-1])
            if response.status_code == httpx.codes.CONFLICT:
                for version in chain[1:]:
                    response = await _put(client, version)
        except httpx.TransportError as error:
            detail = str(error) or type(error).__name__
            return Outcome(service.name, False, detail, unreachable=True)
    try:
        json_of(response)
    except Refused as refusal:
        return Outcome(service.name, False, str(refusal))
    return Outcome(service.name, True, f"version {len(chain)} is in force")


async def _put(client: httpx.AsyncClient, version: Consortium) -> httpx.Response:
    body, headers = bundle(version), {"Content-Type": "application/json"}
    return await client.put("/v1/manifest", content=body, headers=headers, timeout=_TIMEOUT_SECONDS)
