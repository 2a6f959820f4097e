"""Sends requests to one party's service, judges its answers by status, and backs off on failure."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import httpx

from shoal_hosting.clock import Clock
from shoal_hosting.manifests.manifest_book import ManifestBook, at_present
from shoal_hosting.manifests.manifest_exchange import NoMore, exchange, follow
from shoal_hosting.outcome import ACKNOWLEDGED
from shoal_hosting.peers.exchange import (
    ANSWER_SECONDS,
    LARGEST_ANSWER_BYTES,
    ORDINARY_ANSWER_BYTES,
    SLOWEST_BYTES_PER_SECOND,
    Connection,
    OtherCertificate,
    Unavailable,
    json_in,
)
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.trust.manifest import ServiceParty
from shoal_protocol.wire.errors import MalformedDocument, ProtocolError

FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 60.0
AWAY_FAILURES: Final = 4  # in a row
LONGEST_SENDING_SECONDS: Final = 60.0  # over a thin line
OK, CREATED, ACCEPTED = 200, 201, 202
NOT_FOUND, GONE = 404, 410
LATER: Final = frozenset({408, 425, 429})  # and every 5xx
LONGEST_DETAIL: Final = 4000  # characters of why a peer refuses
_PROBLEM: Final = re.compile(r"urn:shoal:problem:([a-z0-9-]{1,64})")


class NotThere(Unavailable):
    """The peer does not know the resource, or no longer: it lost the resource or is behind."""

    code: str = ""
    """The problem's code."""


@dataclass(frozen=True)
class Answer:
    """A peer's final answer: it took the request, or refused it."""

    status: int
    body: bytes

    @property
    def is_refusal(self) -> bool:
        """Tell whether the peer refused: the same request would be refused again."""
        return self.status >= 400

    @property
    def code(self) -> str:
        """Return the problem's code; `http-<status>` if the peer named none."""
        try:
            return problem_code(self.json(), self.status)
        except MalformedDocument:
            return problem_code(None, self.status)

    @property
    def reason(self) -> str:
        """Return a refusal's code, and its detail if it has one, for a person to read."""
        try:
            detail = self.json()["detail"]
        except (MalformedDocument, KeyError, TypeError):
            return self.code
        if not isinstance(detail, str):
            return self.code
        return f"{self.code}: {''.join(filter(str.isprintable, detail[:LONGEST_DETAIL]))}"

    @property
    def outcome(self) -> str:
        """Return the outcome of the one message that was sent: taken, or a refusal's code."""
        return self.code if self.is_refusal else ACKNOWLEDGED

    def json(self) -> Any:
        """Return the JSON in the body.

        Raises:
            MalformedDocument: there is none.
        """
        return json_in(self.body)


def problem_code(problem: object, status: int) -> str:
    """Return the code in a problem document; never anything else that the peer wrote."""
    kind = problem.get("type") if isinstance(problem, dict) else None
    match = _PROBLEM.fullmatch(kind) if isinstance(kind, str) else None
    return match[1] if match else f"http-{status}"


def outcomes(answer: Answer, count: int) -> list[str | None]:
    """Return the outcome of each of `count` messages in a bulk request, in order.

    "acknowledged", the code of a refusal, or None where the same message may be sent again later.
    A refusal of the whole request is one of each message in it.

    Raises:
        MalformedDocument: the answer does not say it for each.
    """
    if answer.is_refusal:
        return [answer.code] * count
    body = answer.json()
    listed = body.get("outcomes") if isinstance(body, dict) else None
    if not isinstance(listed, list) or len(listed) != count:
        raise MalformedDocument("a bulk answer must have one outcome for each message")
    return [_outcome(each) for each in listed]


def _outcome(listed: object) -> str | None:
    status = listed.get("status") if isinstance(listed, dict) else None
    if status in (OK, CREATED):
        return ACKNOWLEDGED
    if not isinstance(listed, dict) or not isinstance(status, int):
        raise MalformedDocument("an outcome must have a status")
    if 400 <= status < 500 and status != NOT_FOUND and status not in LATER:
        return problem_code(listed.get("problem"), status)
    return None


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
        self._clock = clock
        self._random_bytes = random_bytes
        self._connect = partial(Connection, transport=transport, answer_seconds=answer_seconds)
        self._connections = [self._connect(party.url, party.certificate)]
        self._failures = 0
        self._trouble = f"{self.name} does not answer yet"  # why it is left in peace
        self._not_before: datetime | None = None
        self._longest = timedelta(0)  # that is left of a pause at any time
        self.interruptions = 0
        """How often it could not be reached; after each, it may have lost what it had."""

    @property
    def is_due(self) -> bool:
        """Tell whether the peer may be asked now."""
        return self.seconds_until_due == 0.0

    @property
    def is_away(self) -> bool:
        """Tell whether it did not answer several times, and may be asked again."""
        return self._failures >= AWAY_FAILURES and self.is_due

    @property
    def seconds_until_due(self) -> float:
        """Return the seconds until the next request may be sent; 0 if one may be sent now."""
        if self._not_before is None:
            return 0.0
        left = self._not_before - self._clock()
        if left > self._longest:  # the clock was set back: the pause is never longer
            return 0.0
        return max(0.0, left.total_seconds())

    @property
    def url(self) -> str:
        """Return where it is."""
        return self._party.url

    async def close(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            await connection.close()

    async def catch_up(self) -> None:
        """Accept the manifest versions that the peer has and the book lacks, one after another.

        The authority's signature decides, so it does not matter who relays them.

        Raises:
            Unavailable: it did not answer, or shows none.
            ProtocolError: what it sent is no manifest that follows ours.
            OSError: a manifest could not be stored.
        """

        async def get(path: str, limit_bytes: int) -> bytes:
            answer = await self.get_large(path, limit_bytes=limit_bytes)
            if answer.status == NOT_FOUND:
                raise NoMore("there is none")
            if answer.status != OK:
                raise Unavailable(f"{self.name} shows no manifest")
            return answer.body

        if self._book is not None:
            await follow(get, self._book)

    def _go_over(self) -> Connection:
        """Return the connection to where the peer is now."""
        if self._book is not None and (now := at_present(self._book, self._party)) != self._party:
            if (now.url, now.certificate) != (self._party.url, self._party.certificate):
                self._connections.append(self._connect(now.url, now.certificate))
            self._party = now
        return self._connections[-1]

    async def _meet_other(self) -> None:
        if self._book is not None:
            async with self._connect(self.url, None) as anybody:
                with suppress(Unavailable, ProtocolError, OSError):  # it is tried again
                    await exchange(anybody, self._book)

    async def get(self, path: str, **parameters: str | int) -> Answer:
        """Send a GET request; return the answer.

        Raises:
            Unavailable: no answer, or one that says to come back later.
        """
        return await self._get(path, ORDINARY_ANSWER_BYTES, parameters)

    async def get_large(
        self, path: str, *, limit_bytes: int = LARGEST_ANSWER_BYTES, **parameters: str | int
    ) -> Answer:
        """Send a GET request for up to `limit_bytes`, with time in proportion.

        Raises:
            Unavailable: as `get`.
        """
        return await self._get(path, min(limit_bytes, LARGEST_ANSWER_BYTES), parameters)

    async def _get(
        self, path: str, limit_bytes: int, parameters: Mapping[str, str | int]
    ) -> Answer:
        return await self._request(
            "GET",
            path,
            limit_bytes=limit_bytes,
            wait_seconds=int(parameters.get("wait", 0)),
            parameters=parameters,
        )

    async def post(self, path: str, content: bytes, media_type: str) -> Answer:
        """Send a POST request; 404 means to try later, when the peer knows the resource.

        Raises:
            NotThere: 404.
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
            missing = NotThere(f"{self.name} answered 404, {answer.code}")
            missing.code = answer.code
            raise missing
        return answer

    async def _request(
        self, method: str, path: str, content: bytes | None = None, **how: Any
    ) -> Answer:
        if not self.is_due:
            raise Unavailable(f"{self._trouble}; trying again")
        try:
            reply = await self._go_over().ask(method, path, content, **how)
        except Unavailable as error:
            if isinstance(error, OtherCertificate):
                await self._meet_other()
            self.interruptions += 1
            self.pause()
            self._trouble = f"{self.name}: {error}"
            raise Unavailable(self._trouble) from error
        answer = Answer(reply.status, reply.body)
        if reply.status in LATER or reply.status >= 500:
            self.pause(reply.retry_after_seconds)
            self._trouble = f"{self.name} answered {reply.status}, {answer.reason}"
            raise Unavailable(self._trouble)
        if not answer.is_refusal:  # or a peer that answers nothing but 404 is asked every second
            self._failures = 0  # a pause that another request brought about still stands
        return answer

    def pause(self, wish_seconds: float = 0.0) -> None:
        """Wait before the next request, as after a failure, or as long as the peer wishes."""
        if not self.is_due:
            return  # several requests failed at once: one failure, as far as the peer goes
        seconds = min(FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures, 16), LONGEST_PAUSE_SECONDS)
        seconds = max(seconds, wish_seconds)
        jitter = int.from_bytes(self._random_bytes(4), "little") / 2.0**32
        self._failures += 1
        self._longest = timedelta(seconds=seconds * (1.0 + 0.5 * jitter))
        self._not_before = self._clock() + self._longest
