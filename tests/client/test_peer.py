"""A peer as seen from here: what counts as an answer, and how long it is left in peace."""

import asyncio
from collections.abc import AsyncIterator, Callable

import httpx
import pytest

from shoal_kit.peers import peer as peers
from shoal_kit.peers.exchange import Reply, Unavailable
from shoal_kit.peers.peer import Peer
from tests.world.around_holder import World, problem

Handler = Callable[[httpx.Request], httpx.Response]


def connect(world: World, handler: Handler, random_bytes: Callable[[int], bytes] = bytes) -> Peer:
    return Peer(
        world.consortium.manifest.trainer,
        clock=world.clock,
        random_bytes=random_bytes,
        transport=httpx.MockTransport(handler),
    )


async def pause_after(world: World, answer: httpx.Response, random_bytes=bytes) -> float:
    peer = connect(world, lambda request: answer, random_bytes)
    with pytest.raises(Unavailable):
        await peer.get("/v1/jobs")
    seconds = peer.seconds_until_due
    await peer.close()
    return seconds


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 301, 307])
async def test_statuses_that_say_nothing_of_the_request_mean_later(
    world: World, status: int
) -> None:
    elsewhere = {"Location": "https://elsewhere.example/"}
    answer = httpx.Response(status, headers=elsewhere)
    assert await pause_after(world, answer) == peers.FIRST_PAUSE.total_seconds()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 413, 422])
async def test_statuses_that_refuse_the_request_are_answers(world: World, status: int) -> None:
    peer = connect(world, lambda request: problem(status, "too-late"))
    answer = await peer.get("/v1/jobs")
    assert answer.is_refusal
    assert answer.code == "too-late"
    assert peer.is_due
    await peer.close()


@pytest.mark.parametrize(
    ("wish", "seconds"),
    [
        ("7", 7.0),
        ("0", 0.5),
        ("999999", 3600.0),
        ("-5", 0.5),
        ("soon", 0.5),
        ("٣", 0.5),
        ("1e9", 0.5),
    ],
)
async def test_a_retry_after_is_honoured_within_reason(
    world: World, wish: str, seconds: float
) -> None:
    headers = [(b"Retry-After", wish.encode())]
    assert await pause_after(world, httpx.Response(503, headers=headers)) == seconds


async def test_a_clock_that_goes_back_does_not_prolong_a_pause(world: World) -> None:
    up = False

    def handler(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200) if up else problem(503, "not-ready", **{"Retry-After": "8"})

    peer = connect(world, handler)
    with pytest.raises(Unavailable):
        await peer.get("/")
    world.clock.move(3)
    assert peer.seconds_until_due == 5.0
    world.clock.move(-600)
    up = True
    assert (await peer.get("/")).status == 200
    await peer.close()


async def test_an_answer_beyond_what_its_path_allows_is_cut_off(world: World) -> None:
    peer = connect(world, lambda request: httpx.Response(200, content=bytes(1000)))
    assert len((await peer.get("/")).body) == 1000
    with pytest.raises(Unavailable, match="too long"):
        await peer.get("/", limit_bytes=999)
    assert peer.seconds_until_due == 0.5
    await peer.close()


def impatient(world: World, transport: httpx.AsyncBaseTransport) -> Peer:
    return Peer(
        world.consortium.manifest.trainer,
        clock=world.clock,
        random_bytes=bytes,
        transport=transport,
        answer_seconds=0.1,
    )


async def test_an_answer_has_no_longer_than_its_path_allows(world: World) -> None:
    """It comes at many times the slowest rate, but would take seconds for its 64 KiB."""

    async def slow() -> AsyncIterator[bytes]:
        while True:
            yield bytes(300)
            await asyncio.sleep(0.01)

    peer = impatient(world, httpx.MockTransport(lambda _: httpx.Response(200, content=slow())))
    with pytest.raises(Unavailable, match="no answer in time"):
        await peer.get("/", limit_bytes=1 << 16)
    await peer.close()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[]",
        b'{"type": 7}',
        b'{"type": "urn:shoal:problem:<script>"}',
        b"[" * 99999,
    ],
    ids=["nothing", "text", "list", "number", "markup", "deep"],
)
def test_a_code_is_never_anything_else_that_the_peer_wrote(body: bytes) -> None:
    assert Reply(409, body).code == "http-409"
