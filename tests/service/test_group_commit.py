"""Batches: nobody's item is lost, doubled or answered with another's outcome."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from shoal_service.storage.group_commit import Batches


@given(
    bursts=st.lists(st.lists(st.integers(0, 9), max_size=20), max_size=6),
    largest=st.integers(1, 7),
    at_once=st.integers(1, 3),
)
def test_everyone_gets_the_outcome_of_their_own_item(
    bursts: list[list[int]], largest: int, at_once: int
) -> None:
    async def run() -> None:
        in_work = 0

        async def work(items: list[int]) -> list[int]:
            nonlocal in_work
            in_work += 1
            assert 0 < len(items) <= largest
            assert in_work <= at_once
            await asyncio.sleep(0)
            in_work -= 1
            return [-item for item in items]

        batches = Batches(work, largest=largest, at_once=at_once)
        groups, singles = [], []
        for burst in bursts:
            groups.append((burst, asyncio.create_task(batches.submit_all(burst))))
            singles += [(item, asyncio.create_task(batches.submit(item))) for item in burst]
            await asyncio.sleep(0)
        assert [await each for _, each in singles] == [-item for item, _ in singles]
        for burst, group in groups:
            assert await group == [-item for item in burst]

    asyncio.run(run())


async def test_a_batch_that_fails_fails_for_all_in_it_and_for_nobody_else() -> None:
    async def work(items: list[int]) -> list[int]:
        if 13 in items:
            raise OSError
        return items

    batches = Batches(work, largest=2)
    submitted = [batches.submit(item) for item in (1, 13, 2, 3)]
    outcomes = await asyncio.gather(*submitted, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [OSError, OSError, int, int]
