"""Retries a request to the trainer until it answers or the attempts run out."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from shoal_hosting.peers.exchange import Unavailable
from shoal_hosting.peers.peer import Peer

TRIES: Final = 6  # over about 20 seconds
PATIENT_TRIES: Final = 8  # over a minute and more: a trainer may start anew while a job runs

T = TypeVar("T")
Notice = Callable[[str], None]


def unheard(notice: str) -> None:
    """Leave a notice unheard."""


class Retry:
    """Asks the trainer several times, with the pauses that its `Peer` sets."""

    def __init__(self, trainer: Peer, notice: Notice) -> None:
        """`notice` is told, once a request, that the trainer does not answer."""
        self._trainer = trainer
        self._notice = notice

    async def __call__(self, request: Callable[[], Awaitable[T]], tries: int = TRIES) -> T:
        """Return what comes of `request`; give up after `tries` without an answer.

        Raises:
            Unavailable: the trainer did not answer, several times.
        """
        silent = f"the trainer at {self._trainer.url} does not answer"
        for tried in range(tries - 1):
            try:
                return await request()
            except Unavailable as error:
                if not tried:
                    self._notice(f"{silent}: {error}; trying again")
                await asyncio.sleep(self._trainer.seconds_until_due)
        try:
            return await request()
        except Unavailable as error:
            raise Unavailable(f"{silent}: {error}") from error
