"""Requests to other services: no reply, of whatever kind, does more harm than none."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable

import httpx
import pytest

from shoal_compute import peers as peers_module
from shoal_compute.peers import Peers, PeerUnreachable
from shoal_protocol.manifest import ServiceParty
from tests.compute.federation import CERTIFICATE
from tests.hosting.certificates import make_identity
from tests.protocol import examples

PARTY = ServiceParty(**examples.service("aggregator") | {"certificate": CERTIFICATE})


async def asked(answer: Callable[[httpx.Request], httpx.Response]) -> tuple[int, bytes]:
    peers = Peers(httpx.MockTransport(answer))
    try:
        reply = await peers.request(PARTY, "POST", "/v1/x", b"{}", limit_bytes=1000)
        return reply.status, reply.body
    finally:
        await peers.close()


@pytest.mark.parametrize("status", [200, 201, 302, 404, 410, 500, 503])
async def test_a_reply_is_returned_whatever_its_status(status: int) -> None:
    assert await asked(lambda _: httpx.Response(status, content=b"x" * 1000)) == (
        status,
        b"x" * 1000,
    )


async def test_a_reply_beyond_the_limit_is_cut_off() -> None:
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        while True:
            read += 100
            yield bytes(100)

    with pytest.raises(PeerUnreachable):
        await asked(lambda _: httpx.Response(200, content=endless()))
    assert read <= 2000


async def test_a_peer_that_drips_its_reply_is_given_up_after_the_time_for_a_whole_exchange(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peers_module, "EXCHANGE_SECONDS", 0.05)

    async def dripping() -> AsyncIterator[bytes]:
        while True:
            yield b"x"
            await asyncio.sleep(0.01)

    with pytest.raises(PeerUnreachable):
        await asked(lambda _: httpx.Response(200, content=dripping()))


async def test_a_compressed_reply_is_refused() -> None:
    headers = {"content-encoding": "gzip"}
    bomb = gzip.compress(bytes(10_000_000))
    with pytest.raises(PeerUnreachable):
        await asked(lambda _: httpx.Response(200, content=bomb, headers=headers))


@pytest.mark.parametrize(
    "error", [httpx.ConnectError, httpx.ReadTimeout, httpx.RemoteProtocolError]
)
async def test_a_broken_connection_is_an_unreachable_peer(error: type[httpx.HTTPError]) -> None:
    def fail(_: httpx.Request) -> httpx.Response:
        raise error("broken")

    with pytest.raises(PeerUnreachable):
        await asked(fail)


async def test_a_party_that_moved_is_asked_at_its_new_address() -> None:
    hosts = []

    def note(request: httpx.Request) -> httpx.Response:
        hosts.append(request.url.host)
        return httpx.Response(200)

    peers = Peers(httpx.MockTransport(note))
    moved = PARTY.model_copy(
        update={"url": "https://elsewhere.example", "certificate": make_identity().pem}
    )
    for party in (PARTY, PARTY, moved, moved):
        await peers.request(party, "GET", "/")
    await peers.close()
    assert hosts == ["aggregator.example"] * 2 + ["elsewhere.example"] * 2
