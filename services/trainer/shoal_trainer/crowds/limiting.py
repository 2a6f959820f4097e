"""How many draws are in work at a time: anybody may ask, and submissions must find room beside.

It knows no asker: an address is a balancer's or a whole mobile network's, and a limit on addresses
would stop a crowd before it stopped whoever floods.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from prometheus_client import CollectorRegistry, Counter

from shoal_trainer.crowds.errors import TooManyDraws

LONGEST_WAIT_SECONDS: Final = 8.0


class DrawLimit:
    """Places for draws. Who finds none free waits for its turn, and is refused after some time.

    So draws take what submissions leave and little more, however fast the machine is. Refusing
    only who has waited means that to ask again at once gains nothing.
    """

    def __init__(self, at_once: int, registry: CollectorRegistry) -> None:
        """Have `at_once` places."""
        self.at_once = at_once
        self._free = asyncio.Semaphore(at_once)
        self._turn = asyncio.Lock()  # nobody holds a part of its places while another waits
        self._answered = Counter(
            "shoal_trainer_crowd_draws", "Draws that were answered", registry=registry
        )
        self._refused = Counter(
            "shoal_trainer_crowd_draw_requests_refused",
            "Requests for draws refused, or answered in part, because too many were waiting",
            registry=registry,
        )

    def latest(self) -> float:
        """Return until when, by the loop's clock, a request that comes now may wait."""
        return asyncio.get_running_loop().time() + LONGEST_WAIT_SECONDS

    @asynccontextmanager
    async def places(self, draws: int, *, until: float) -> AsyncIterator[None]:
        """Hold `draws` places, at most `at_once`, in the order that they were asked for.

        Raises:
            TooManyDraws: others had not left them `until` then.
        """
        taken = 0
        try:
            async with asyncio.timeout_at(until), self._turn:
                while taken < draws:
                    await self._free.acquire()
                    taken += 1
        except TimeoutError:
            self._release(taken)
            self._refused.inc()
            raise TooManyDraws from None
        except BaseException:
            self._release(taken)
            raise
        try:
            yield
            self._answered.inc(draws)
        finally:
            self._release(taken)

    def _release(self, places: int) -> None:
        for _ in range(places):
            self._free.release()
