"""A load's counts are of what really happened; its records are made up and stay in bounds."""

import asyncio
from pathlib import Path

import httpx
import pytest

from bench.load.crowd_accounts import account_of
from bench.load.crowds import CrowdFigures
from bench.load.lines import Line
from bench.load.metering import BULK_UPLOAD, JOIN, OTHER, RECEIPT_QUERY, UPLOAD, Meter
from shoal_agent.crowds.trainer import LogPage
from shoal_holder.crowds.crowd import Crowd
from shoal_hosting.peers.exchange import Connection, Unavailable
from shoal_protocol.crowds.draws import weights_digest
from tests.world.around_holder import World
from tests.world.crowd_examples import (
    CLOSING,
    CROWD_CONSORTIUM,
    CROWD_JOB,
    DRAW,
    DRAWN,
    ENTRY,
    NONCE,
    OPENING,
)

ROUND = f"/v1/rounds/{'a' * 64}"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


class Seconds:
    """A stopwatch that goes on by one second each time it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def metered(world: World, answer: httpx.Response | Exception) -> Meter:
    """Return a meter in front of services that all give the same answer."""

    def reply(request: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer

    meter = Meter(world.consortium, Seconds(), connections=4)
    for origin in meter._transports:
        meter._transports[origin] = httpx.MockTransport(reply)  # type: ignore[assignment]
    return meter


async def test_requests_are_counted_by_kind_with_all_that_is_sent(world: World) -> None:
    meter = metered(world, httpx.Response(200))
    node = world.consortium.manifest.compute_nodes[0].url
    async with httpx.AsyncClient(base_url=node, transport=meter) as client:
        for path in ("/shares", "/shares", "/shares/bulk", "/shares/stored"):
            await client.post(ROUND + path, content=bytes(1000))
        await client.post(f"/v1/jobs/{'b' * 64}/joins", content=b"{}")
        await client.get("/v1/jobs")
    figures = meter.figures()
    counts = {kind: requests.count for kind, requests in figures.items()}
    assert counts == {UPLOAD: 2, BULK_UPLOAD: 1, RECEIPT_QUERY: 1, JOIN: 1, OTHER: 1}
    assert all(each.p50_milliseconds == each.p99_milliseconds == 1000 for each in figures.values())
    assert 2 * 1000 + 2 * len(ROUND) < figures[UPLOAD].sent_bytes < 2 * 1400
    assert not meter.errors
    await meter.close()


@pytest.mark.parametrize(("wish", "seconds"), [("7", 7.0), ("soon", 0.0), ("999999", 3600.0)])
async def test_a_line_says_how_long_a_busy_service_wants_to_be_left_in_peace(
    world: World, wish: str, seconds: float
) -> None:
    meter = metered(world, httpx.Response(503, headers={"Retry-After": wish}))
    line = Line(world.consortium.manifest.compute_nodes[0], meter)
    with pytest.raises(Unavailable, match="status 503") as later:
        await line.post(f"{ROUND}/shares", b"{}", "application/json")
    assert later.value.retry_after_seconds == seconds
    assert dict(meter.errors) == {"upload: status 503": 1}


async def test_a_question_that_is_given_up_is_counted(world: World) -> None:
    meter = Meter(world.consortium, Seconds(), connections=4)

    async def silent(request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    for origin in meter._transports:
        meter._transports[origin] = httpx.MockTransport(silent)  # type: ignore[assignment]
    node = world.consortium.manifest.compute_nodes[0]
    connection = Connection(node.url, node.certificate, transport=meter, answer_seconds=0.05)
    with pytest.raises(Unavailable, match="no answer in time"):
        await connection.ask("POST", f"{ROUND}/shares", b"{}")
    assert dict(meter.errors) == {"upload: given up": 1}


class OneLog:
    """A trainer that shows the log of the one contribution that the examples have."""

    async def log(self, job: str, instance: int, *, after: int) -> LogPage:
        assert (instance, after) == (ENTRY.instance, 0)
        return LogPage(entries=[ENTRY], next=None)


SERVED = weights_digest(DRAW.weights)


@pytest.mark.parametrize(
    ("links", "acknowledged", "draw", "expected"),
    [
        ({ENTRY.digest}, 1, (DRAWN, 0, SERVED), (0, 0, 0, 0)),
        # a receipt for what is in no chain
        ({ENTRY.digest, "f" * 64}, 2, (DRAWN, 0, SERVED), (1, 0, 0, 0)),
        # two receipts for one link
        ({ENTRY.digest}, 2, (DRAWN, 0, SERVED), (0, 1, 0, 0)),
        # another instance than the seed gives, and so not its weights
        ({ENTRY.digest}, 1, ((DRAWN + 1) % 4, 0, SERVED), (0, 0, 1, 1)),
        # weights, and a revision, that the instance never had
        ({ENTRY.digest}, 1, (DRAWN, 0, "f" * 64), (0, 0, 0, 1)),
        ({ENTRY.digest}, 1, (DRAWN, 5, SERVED), (0, 0, 0, 1)),
    ],
)
async def test_a_crowds_account_finds_what_was_lost_counted_twice_steered_or_forged(
    links: set[str],
    acknowledged: int,
    draw: tuple[int, int, str],
    expected: tuple[int, int, int, int],
) -> None:
    figures = CrowdFigures(
        seconds=1.0,
        acknowledged=acknowledged,
        refused={},
        errors={},
        requests={},
        received_bytes={},
        links=frozenset(links),
        draws={NONCE: draw},
    )
    crowd = Crowd(CROWD_JOB, OPENING, CROWD_CONSORTIUM)
    found = await account_of(OneLog(), crowd, CLOSING, figures, now=CROWD_JOB.closes_at)
    assert found.linked == 1
    assert (found.lost, found.counted_twice, found.misdrawn, found.forged) == expected
