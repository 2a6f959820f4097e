"""Sends requests to one party's service, judges its answers by status, and backs off on failure."""

from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import Any, Final

import httpx

from shoal_kit.clock import Clock
from shoal_kit.manifest_book import ManifestBook, at_present
from shoal_kit.manifest_exchange import exchange, follow
from shoal_kit.outcome import NOT_FOUND
from shoal_kit.pace import Pace
from shoal_kit.peers.exchange import (
    ANSWER_SECONDS,
    ORDINARY_ANSWER_BYTES,
    SLOWEST_BYTES_PER_SECOND,
    Connections,
    Reply,
    Unavailable,
)
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.trust.manifest import ServiceParty
from shoal_protocol.wire.errors import UnknownJob

FIRST_PAUSE: Final = timedelta(seconds=0.5)
LONGEST_PAUSE: Final = timedelta(seconds=60)
AWAY_FAILURES: Final = 4  # in a row
LONGEST_SENDING_SECONDS: Final = 60.0  # over a thin line
LATER: Final = frozenset({408, 425, 429})  # and every 5xx


class Peer:
    """A connection to one party, whose certificate is pinned in the manifest.

    After a failure it waits: twice as long each time, or as long as the peer asks, and a random
    part more, so that clients do not all come back at once.
    """

    def __init__(
        self,
        party: ServiceParty,
        *,
        clock: Clock,
        random_bytes: RandomBytes,
        transport: httpx.AsyncBaseTransport | None,
        answer_seconds: float = ANSWER_SECONDS,
        book: ManifestBook | None = None,
    ) -> None:
        """Give an answer's head `answer_seconds` to come, and its body as much to begin with.

        With a `book` the peer is where its newest version says. If it shows another certificate,
        both are brought to the same version, over a connection to whoever answers.
        """
        self.name = party.name
        self._party, self._book = party, book
        self._connections = Connections(
            transport,
            answer_seconds=answer_seconds,
            exchange=None if book is None else partial(exchange, book=book),
        )
        self._clock = clock
        self._random_bytes = random_bytes
        self._pace = Pace(FIRST_PAUSE, LONGEST_PAUSE)
        self._trouble = f"{self.name} does not answer yet"  # why it is left in peace

    @property
    def is_due(self) -> bool:
        """Tell whether the peer may be asked now."""
        return self._pace.is_due(self._clock())

    @property
    def is_away(self) -> bool:
        """Tell whether it did not answer several times, and may be asked again."""
        return self._pace.failures >= AWAY_FAILURES and self.is_due

    @property
    def seconds_until_due(self) -> float:
        """Return the seconds until the next request may be sent; 0 if one may be sent now."""
        return self._pace.left(self._clock()).total_seconds()

    @property
    def party(self) -> ServiceParty:
        """Return it with its present address and certificate."""
        return self._party if self._book is None else at_present(self._book, self._party)

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()

    async def catch_up(self) -> None:
        """Accept the manifest versions that the peer has and the book lacks, one after another.

        The authority's signature decides, so it does not matter who relays them.

        Raises:
            Unavailable: it did not answer, or shows none.
            ProtocolError: what it sent is no manifest that follows ours.
            OSError: a manifest could not be stored.
        """
        if self._book is not None:
            await follow(lambda path, limit: self.get(path, limit_bytes=limit), self._book)

    async def get(
        self, path: str, *, limit_bytes: int = ORDINARY_ANSWER_BYTES, **parameters: str | int
    ) -> Reply:
        """Send a GET request; return the answer, of up to `limit_bytes`, with time in proportion.

        Raises:
            Unavailable: no answer, or one that says to come back later.
        """
        return await self._request(
            "GET",
            path,
            limit_bytes=limit_bytes,
            wait_seconds=int(parameters.get("wait", 0)),
            parameters=parameters,
        )

    async def post(self, path: str, content: bytes, media_type: str) -> Reply:
        """Send a POST request; 404 means to pause, until the peer knows the resource.

        Raises:
            Unavailable: no answer, or one that says to come back later.
        """
        answer = await self._request(
            "POST",
            path,
            content,
            wait_seconds=min(len(content) / SLOWEST_BYTES_PER_SECOND, LONGEST_SENDING_SECONDS),
            media_type=media_type,
        )
        if answer.status == NOT_FOUND:
            self.pause()
        return answer

    async def _request(
        self, method: str, path: str, content: bytes | None = None, **how: Any
    ) -> Reply:
        if not self.is_due:
            raise Unavailable(f"{self._trouble}; trying again")
        try:
            reply = await self._connections.to(self.party).ask(method, path, content, **how)
        except Unavailable as error:
            self.pause()
            self._trouble = f"{self.name}: {error}"
            raise Unavailable(self._trouble) from None
        if reply.status in LATER or reply.status >= 500:
            self.pause(reply.retry_after_seconds)
            self._trouble = f"{self.name} answered {reply.status}, {reply.reason}"
            raise Unavailable(self._trouble)
        if not reply.is_refusal:  # or a peer that answers nothing but 404 is asked every second
            self._pace.failures = 0  # a pause that another request brought about still stands
        return reply

    def pause(self, wish_seconds: float = 0.0) -> None:
        """Wait before the next request, as after a failure, or as long as the peer wishes."""
        if not self.is_due:
            return  # several requests failed at once: one failure, as far as the peer goes
        jitter = int.from_bytes(self._random_bytes(4), "little") / 2.0**32
        wish = timedelta(seconds=wish_seconds)
        self._pace.failed(self._clock(), at_least=wish, stretch=1.0 + 0.5 * jitter)


async def of_former_trainers(
    answer: Reply, former: Iterable[ServiceParty], ask: Callable[[ServiceParty], Awaitable[Reply]]
) -> Reply:
    """Return a trainer's answer about a job; if it does not know the job, that of a former trainer.

    Raises:
        Unavailable: nobody who answers knows the job, and a former trainer does not answer.
    """
    silent = []
    for party in former if _is_unknown(answer) else ():
        try:
            earlier = await ask(party)
        except Unavailable:  # it may be switched off
            silent.append(f"{party.name} at {party.url}")
        else:
            if not _is_unknown(earlier):
                return earlier
    if silent:
        raise Unavailable(
            "the trainer does not know the job, and who was the trainer before does not "
            f"answer: {', '.join(silent)}. Have it started again if the job is one of its own; "
            "else the job's id is wrong"
        )
    return answer


def _is_unknown(answer: Reply) -> bool:
    return answer.is_refusal and answer.code == UnknownJob.code
