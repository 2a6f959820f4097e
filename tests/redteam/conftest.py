"""The red team's target over a simulated federation: its services, its wire, its clock."""

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import structlog

from shoal_protocol.trust.manifest import ServiceParty
from shoal_redteam.target import Target
from shoal_service.view import Operator
from tests.redteam.lag import LAG
from tests.world.chance import fixed_bytes
from tests.world.federation import Federation
from tests.world.lives import Life
from tests.world.trust import CONSORTIUM_POLICY, PHONES, SITES, Trust, make_trust


@pytest.fixture(scope="session")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return make_trust(
        tmp_path_factory.mktemp("trust"),
        sites=PHONES,
        maximum_local_epsilon=2.0,
        manifest_signatures=2,
        queries=(*CONSORTIUM_POLICY.queries, "gradient_sum"),
    )


class KnownHosts(httpx.AsyncBaseTransport):
    """The wire; a host that is none of the services' does not answer, as an agent that is down."""

    def __init__(self, trust: Trust, wire: httpx.AsyncBaseTransport) -> None:
        self._hosts = {each.url for each in services_of(trust)}
        self._wire = wire

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if f"{request.url.scheme}://{request.url.netloc.decode()}" not in self._hosts:
            raise httpx.ConnectError("nobody listens") from ConnectionRefusedError()
        return await self._wire.handle_async_request(request)


def services_of(trust: Trust) -> list[ServiceParty]:
    manifest = trust.consortium.manifest
    return [*manifest.compute_nodes, manifest.aggregator, manifest.trainer]


@asynccontextmanager
async def target_over(trust: Trust, directory: Path) -> AsyncIterator[Target]:
    """No data holder is up: the red team has their keys."""
    operator = Operator("a" * 64)
    async with Federation(trust, directory, absent=SITES, operator=operator) as federation:

        async def pause(seconds: float) -> None:
            await federation.step()
            federation.clock.move(seconds)

        target = Target.open(
            trust.directory,
            clock=federation.clock.of("red team"),
            timer=lambda: federation.clock.now.timestamp() + LAG.seconds,
            pause=pause,
            random_bytes=fixed_bytes("red team"),
            transport=KnownHosts(trust, federation.wire.of(Life("red team"))),
        )
        yield target
        await target.close()
        assert not federation.wire.crashes, "an application raised"


@pytest.fixture
async def target(trust: Trust, tmp_path: Path) -> AsyncIterator[Target]:
    async with target_over(trust, tmp_path) as opened:
        yield opened


@pytest.fixture
async def other_target(tmp_path: Path) -> AsyncIterator[Target]:
    """A consortium with another policy: pure epsilon, threshold sharing, no colluders demanded."""
    trust = make_trust(
        tmp_path / "trust",
        sites=PHONES,
        delta=0.0,
        mechanisms=("discrete_laplace",),
        queries=("second_moment_matrix",),
        minimum_threshold=2,
        minimum_colluders=0,
        colluding_holders=0,
        minimum_holders=1,
    )
    async with target_over(trust, tmp_path) as opened:
        yield opened


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    """Show no logs: an attack makes thousands of lines."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)
