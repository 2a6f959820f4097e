"""Requests of the trainer to services: one that answers slowly holds up no round for long."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from shoal_kit.manifest_book import ManifestBook
from shoal_kit.peers.exchange import Connections
from shoal_protocol.wire.service_errors import MissingRequest
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
        b"{}",
        CONSORTIUM,
        request=b"{}",
        asked_under=CONSORTIUM,
        informed=set(),
        without=frozenset(),
    )
    others = {MANIFEST.aggregator.name, *(node.name for node in MANIFEST.compute_nodes[1:])}
    assert reception.accepted == others
    assert reception.refusal is None
    await connections.close()


async def test_a_node_has_a_jobs_request_before_its_first_round_and_again_if_it_lost_it(
    tmp_path: Path,
) -> None:
    asked: list[tuple[str, str]] = []
    lacking: set[str] = set()

    async def handler(request: httpx.Request) -> httpx.Response:
        host, path = str(request.url).removesuffix(request.url.path), request.url.path
        asked.append((host, path))
        if path == "/v1/jobs":
            lacking.discard(host)
        elif host in lacking:
            return httpx.Response(409, json={"type": f"urn:shoal:problem:{MissingRequest.code}"})
        return httpx.Response(201, json={})

    connections = Connections(httpx.MockTransport(handler))
    peers, informed = Peers(connections, ManifestBook(CONSORTIUM, tmp_path)), set[str]()

    async def announced() -> frozenset[str]:
        asked.clear()
        reception = await peers.announce(
            b"{}",
            CONSORTIUM,
            request=b"{}",
            asked_under=CONSORTIUM,
            informed=informed,
            without=frozenset(),
        )
        assert reception.refusal is None
        return reception.accepted

    nodes = [node.url for node in MANIFEST.compute_nodes]
    lacking.update(nodes)
    assert len(await announced()) == 4  # nobody has to refuse the first round
    for url in nodes:
        assert [path for host, path in asked if host == url] == ["/v1/jobs", "/v1/rounds"]
    assert (MANIFEST.aggregator.url, "/v1/jobs") not in asked

    assert len(await announced()) == 4
    assert {path for _, path in asked} == {"/v1/rounds"}

    lacking.add(SLOW.url)  # its disk was lost
    assert len(await announced()) == 3
    assert len(await announced()) == 4
    assert [host for host, path in asked if path == "/v1/jobs"] == [SLOW.url]
    await connections.close()
