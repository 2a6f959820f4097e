"""One party's service as seen from here: requests, refusals and when to ask again.

Knows HTTP and no meaning. An answer is bounded in size and time: no peer is trusted with ours.
"""

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import httpx

from shoal_client.clock import Clock
from shoal_hosting.connections import WRITE_TIMEOUT_SECONDS, pinned_client
from shoal_protocol.errors import MalformedDocument
from shoal_protocol.manifest import ServiceParty
from shoal_protocol.sharing import RandomBytes

LARGEST_ANSWER_BYTES: Final = 256 << 20  # a manifest with a roster of six million clients
FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 60.0
LONGEST_WISH_SECONDS: Final = 3600.0  # of a Retry-After
ORDINARY_ANSWER_BYTES: Final = 16 << 20
ANSWER_SECONDS: Final = 20.0  # for an answer's head to come, and then for a small body
SLOWEST_BYTES_PER_SECOND: Final = 4096  # of an answer that takes longer than that
USUAL_BYTES_PER_SECOND: Final = 256 << 10  # at which the largest answer must come: 2 Mbit/s
ACKNOWLEDGED: Final = "acknowledged"
OK, CREATED, ACCEPTED = 200, 201, 202
NOT_FOUND, GONE, TOO_LARGE = 404, 410, 413
_LATER: Final = frozenset({408, 425, 429})  # and every 5xx
_PROBLEM: Final = re.compile(r"urn:shoal:problem:([a-z0-9-]{1,64})")


class Unavailable(Exception):
    """The peer gave no answer that counts; the same request may be made again later."""

    retry_after_seconds: float = 0.0
    """The least that it asked to be left in peace for. `Peer` sees to that by itself."""


class NotThere(Unavailable):
    """What the request is for is not known to the peer, or no longer: it lost it, or is behind."""


@dataclass(frozen=True)
class Answer:
    """A peer's answer that counts: it took the request, or refused it."""

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
        return f"{self.code}: {detail}" if isinstance(detail, str) else self.code

    @property
    def outcome(self) -> str:
        """Return what became of the one message that was sent: taken, or a refusal's code."""
        return self.code if self.is_refusal else ACKNOWLEDGED

    def json(self) -> Any:
        """Return the JSON in the body.

        Raises:
            MalformedDocument: there is none.
        """
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise MalformedDocument("the answer is not JSON") from None


def problem_code(problem: object, status: int) -> str:
    """Return the code in a problem document; never anything else that the peer wrote."""
    kind = problem.get("type") if isinstance(problem, dict) else None
    match = _PROBLEM.fullmatch(kind) if isinstance(kind, str) else None
    return match[1] if match else f"http-{status}"


def outcomes(answer: Answer, count: int) -> list[str | None]:
    """Return what became of each of `count` messages in a bulk request, in order.

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
    if 400 <= status < 500 and status != NOT_FOUND and status not in _LATER:
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
    ) -> None:
        """Give an answer's head `answer_seconds` to come, and its body as much to begin with."""
        self.name = party.name
        self.url = party.url
        self._clock = clock
        self._random_bytes = random_bytes
        self._client = pinned_client(
            party.certificate,
            base_url=party.url,
            transport=transport,
            read_timeout_seconds=answer_seconds,
        )
        self._answer_seconds = answer_seconds
        self._client.headers["Accept-Encoding"] = "identity"  # what is bounded is what is sent
        self._failures = 0
        self._not_before: datetime | None = None
        self._longest = timedelta(0)  # that is left of a pause at any time
        self.interruptions = 0
        """How often it could not be reached; after each, it may have lost what it had."""

    @property
    def is_due(self) -> bool:
        """Tell whether the peer may be asked now."""
        return self.seconds_until_due == 0.0

    @property
    def seconds_until_due(self) -> float:
        """Return how long the peer is to be left in peace; 0 if it may be asked now."""
        if self._not_before is None:
            return 0.0
        left = self._not_before - self._clock()
        if left > self._longest:  # the clock has gone back: nobody asked for more than the pause
            return 0.0
        return max(0.0, left.total_seconds())

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def get(self, path: str, **parameters: str | int) -> Answer:
        """Ask.

        Raises:
            Unavailable: no answer, or one that says to come back later.
        """
        return await self._get(path, ORDINARY_ANSWER_BYTES, parameters)

    async def get_large(self, path: str, **parameters: str | int) -> Answer:
        """Ask for what may have up to `LARGEST_ANSWER_BYTES`, and takes time in proportion.

        Raises:
            Unavailable: as `get`.
        """
        return await self._get(path, LARGEST_ANSWER_BYTES, parameters)

    async def _get(
        self, path: str, limit_bytes: int, parameters: Mapping[str, str | int]
    ) -> Answer:
        patience = self._answer_seconds + int(parameters.get("wait", 0))
        return await self._request("GET", path, patience, limit_bytes, params=parameters)

    async def post(self, path: str, content: bytes, media_type: str) -> Answer:
        """Send. 404 says to come back later: what this is for has not arrived there yet.

        Raises:
            NotThere: 404.
            Unavailable: no answer, or one that says to come back later.
        """
        headers = {"Content-Type": media_type}
        sending = min(len(content) / SLOWEST_BYTES_PER_SECOND, WRITE_TIMEOUT_SECONDS)
        patience = self._answer_seconds + sending
        answer = await self._request(
            "POST", path, patience, ORDINARY_ANSWER_BYTES, content=content, headers=headers
        )
        if answer.status == NOT_FOUND:
            self._pause(None)
            raise NotThere(f"{self.name} answered 404, {answer.code}")
        return answer

    async def _request(
        self, method: str, path: str, patience: float, limit_bytes: int, **request: Any
    ) -> Answer:
        """Give up when `patience` seconds brought no head, or the body is too slow or too long.

        A read's own timeout would begin anew with each line of a head, and with each 103.
        """
        if not self.is_due:
            raise Unavailable(f"{self.name} does not answer yet; trying again")
        try:
            async with (
                asyncio.timeout(patience) as deadline,
                self._client.stream(method, path, **request) as response,
            ):
                body = await _bounded(response, deadline, self._answer_seconds, limit_bytes)
        except (httpx.HTTPError, OSError, _TooLong) as error:
            self.interruptions += 1
            self._pause(None)
            raise Unavailable(f"{self.name}: {type(error).__name__}") from error
        answer = Answer(response.status_code, body)
        redirected = 300 <= answer.status < 400  # nobody in the manifest has reason to
        if redirected or answer.status in _LATER or answer.status >= 500:
            self._pause(response.headers)
            raise Unavailable(f"{self.name} answered {answer.status}")
        if not answer.is_refusal:  # or a peer that answers nothing but 404 is asked every second
            self._failures = 0  # a pause that another request brought about still stands
        return answer

    def _pause(self, headers: Mapping[str, str] | None) -> None:
        if not self.is_due:
            return  # several requests failed at once: one failure, as far as the peer goes
        seconds = min(FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures, 16), LONGEST_PAUSE_SECONDS)
        wish = (headers or {}).get("Retry-After", "")
        if wish.isascii() and wish.isdecimal() and len(wish) < 9:
            seconds = max(seconds, min(float(wish), LONGEST_WISH_SECONDS))
        jitter = int.from_bytes(self._random_bytes(4), "little") / 2.0**32
        self._failures += 1
        self._longest = timedelta(seconds=seconds * (1.0 + 0.5 * jitter))
        self._not_before = self._clock() + self._longest


class _TooLong(Exception):
    """An answer outgrew its bound."""


async def _bounded(
    response: httpx.Response, deadline: asyncio.Timeout, grace_seconds: float, limit_bytes: int
) -> bytes:
    """Read an answer; one that drips would hold up all that waits for it, whoever else answers."""
    body = bytearray()
    latest = asyncio.get_running_loop().time() + grace_seconds
    longest = limit_bytes / USUAL_BYTES_PER_SECOND
    deadline.reschedule(latest)
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > limit_bytes:
            raise _TooLong
        deadline.reschedule(latest + min(len(body) / SLOWEST_BYTES_PER_SECOND, longest))
    return bytes(body)
