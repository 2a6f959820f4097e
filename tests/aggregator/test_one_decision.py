"""Whatever arrives in whatever order, with crashes between: a round has one end, for ever."""

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_aggregator import store
from shoal_aggregator.assembly import Service, assemble
from shoal_protocol.rounds.attestations import Result
from shoal_protocol.wire.documents import sign
from tests.aggregator.test_aggregator import (
    ROUND_PATH,
    SPEC,
    SUMS,
    changed_sum,
    end_of,
    get,
    give_up,
    post,
)
from tests.world import examples
from tests.world.clock import HandMovedClock
from tests.world.parties import book, party

NODES = st.integers(0, examples.NODES - 1)
ACTIONS = st.one_of(
    st.tuples(st.just("sum"), NODES),
    st.tuples(st.just("sum"), NODES),
    st.tuples(st.just("sum over another cohort"), NODES),
    st.tuples(st.just("abandonment"), NODES),
    st.tuples(st.just("seconds"), st.sampled_from([0, 30, 61])),
    st.tuples(st.just("step"), st.just(0)),
    st.tuples(st.just("crash"), st.just(0)),
)
RESULT = sign(examples.RESULT, "aggregator", examples.signing_key("aggregator")).encode()


class Round:
    """Drives one aggregator, and remembers what it acknowledged and what it said of the end."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = HandMovedClock()
        self.services: list[Service] = []
        self.acknowledged: set[int] = set()
        self.ends: set[tuple[object, bytes]] = set()
        self.crash()

    @property
    def service(self) -> Service:
        return self.services[-1]

    def crash(self) -> None:
        self.services.append(
            assemble(
                party=party("aggregator"),
                book=book(self.directory),
                data_directory=self.directory,
                database_url=None,
                clock=self.clock,
            )
        )

    async def act(self, action: str, number: int) -> None:
        match action:
            case "sum":
                if await post(self.service, f"{ROUND_PATH}/ends", SUMS[number]) in {
                    200,
                    201,
                }:
                    self.acknowledged.add(number)
            case "sum over another cohort":
                other = changed_sum(number, cohort="1" * 64)
                await post(self.service, f"{ROUND_PATH}/ends", other)
            case "abandonment":
                await post(self.service, f"{ROUND_PATH}/ends", give_up(number))
            case "seconds":
                self.clock.move(number)
            case "step":
                await self.service.step()
            case "crash":
                self.crash()

    async def look(self) -> None:
        """Note the round's end, if it has one, and check that it is consistent."""
        end, (_, shown) = await end_of(self.service), await get(self.service, "/outcome")
        if isinstance(end, Result):
            assert RESULT in shown or b'"cohort":"' + b"1" * 64 in shown
        if end is not None:
            self.ends.add((end.kind, shown))
        assert len(self.ends) <= 1
        run = self.service.resources.storage.run
        assert await run(store.count_sums, examples.SPEC.digest) >= len(self.acknowledged)


@pytest.mark.slow
@settings(max_examples=25)
@given(actions=st.lists(ACTIONS, max_size=14))
def test_a_round_never_has_two_ends_and_no_acknowledged_sum_is_lost(
    actions: list[tuple[str, int]],
) -> None:
    async def play() -> None:
        with tempfile.TemporaryDirectory() as directory:
            played = Round(Path(directory))
            assert await post(played.service, "/v1/rounds", SPEC) == 201
            for action, number in actions:
                await played.act(action, number)
                await played.look()
            played.clock.move(100)
            await played.service.step()
            await played.look()
            assert len(played.ends) == 1
            for service in played.services:
                await service.close()

    asyncio.run(play())
