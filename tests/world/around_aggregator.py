"""An aggregator that was told of a round, and what it answers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from shoal_aggregator.assembly import Service, assemble
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.trust.manifest import Consortium
from tests.world.clock import HandMovedClock
from tests.world.parties import book, client_of, party, problem_code, signed_by


async def post(service: Service, path: str, body: bytes) -> object:
    """Return the status, or the problem's code."""
    async with client_of(service.app) as http:
        response = await http.post(path, content=body)
    return response.status_code if response.status_code < 400 else problem_code(response)


@asynccontextmanager
async def told_of(
    spec: RoundSpec,
    consortium: Consortium,
    *,
    database_url: str,
    directory: Path,
    clock: HandMovedClock,
) -> AsyncIterator[Service]:
    """Assemble the aggregator of a consortium, and announce the round to it."""
    service = assemble(
        party=party("aggregator", consortium),
        book=book(directory, consortium),
        data_directory=directory,
        database_url=database_url,
        clock=clock,
    )
    assert await post(service, "/v1/rounds", signed_by("trainer", spec)) == 201
    yield service
    await service.close()
