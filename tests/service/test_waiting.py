"""Long polls: who waits is woken by a change, and by nothing else."""

import asyncio

from shoal_service.waiting import Changes


class Place:
    """Something that can be looked at; it counts the looks."""

    def __init__(self) -> None:
        self.content: str | None = None
        self.looks = 0

    async def look(self) -> str | None:
        self.looks += 1
        await asyncio.sleep(0)
        return self.content


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_everyone_who_waits_is_woken_and_nobody_looks_without_a_change() -> None:
    changes, place = Changes(), Place()
    waiting = [asyncio.create_task(changes.until_found("key", place.look, 30)) for _ in range(3)]
    await settle()
    assert place.looks == 3
    changes.tell("other key")
    await settle()
    assert place.looks == 3
    place.content = "found"
    changes.tell("key")
    assert await asyncio.gather(*waiting) == ["found"] * 3
    assert place.looks == 6


async def test_a_change_between_the_look_and_the_wait_is_not_missed() -> None:
    changes, place = Changes(), Place()

    async def look() -> str | None:
        before = place.content
        place.content = "found"
        changes.tell("key")  # while the first look is under way
        return before

    assert await changes.until_found("key", look, 30) == "found"
