"""Requests of the trainer to services: one that answers slowly holds up no round for long."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from shoal_kit.manifest_book import ManifestBook
from shoal_kit.peers.exchange import Connections
from shoal_trainer.peers import Peers
from tests.world.around_trainer_crowds import CONSORTIUM

MANIFEST = CONSORTIUM.manifest
SLOW = MANIFEST.compute_nodes[0]
ENDS_AFTER = 400  # parts, so that a test without a deadline fails and does not hang


async def dripping() -> AsyncIterator[bytes]:
    for _ in range(ENDS_AFTER):
        yield b" "
        await asyncio.sleep(0.01)
    yield b"{}"


async def drips(_: httpx.Request) -> httpx.Response:
    return httpx.Response(201, content=dripping())


async def shows_no_head(_: httpx.Request) -> httpx.Response:
    async for _part in dripping():
        pass
    return httpx.Response(201)


@pytest.mark.parametrize("answer", [drips, shows_no_head])
async def test_a_service_that_drips_its_answer_keeps_the_others_acceptance_from_nobody(
    answer: Callable[[httpx.Request], Awaitable[httpx.Response]], tmp_path: Path
) -> None:
    async def handler(request: httpx.Request) -> httpx.Response:
        slow = str(request.url).startswith(SLOW.url)
        return await answer(request) if slow else httpx.Response(201, json={})

    connections = Connections(httpx.MockTransport(handler), answer_seconds=1.0)
    peers = Peers(connections, ManifestBook(CONSORTIUM, tmp_path))
    reception = await peers.announce(
        b"{}", CONSORTIUM, request=b"{}", asked_under=CONSORTIUM, without=frozenset()
    )
    others = {MANIFEST.aggregator.name, *(node.name for node in MANIFEST.compute_nodes[1:])}
    assert reception.accepted == others
    assert reception.refusal is None
    await connections.close()
