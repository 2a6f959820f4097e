"""The trainer's side of HTTP: announces rounds and asks for their outcomes; it decides nothing.

Answers are bytes from another organisation: bounded here, verified by whoever asked.
"""

import asyncio
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import httpx

from shoal_hosting.connections import CONNECT_TIMEOUT_SECONDS, pinned_client
from shoal_protocol.errors import RefusedResult
from shoal_protocol.manifest import Consortium, ServiceParty
from shoal_protocol.manifest_bundle import bundle
from shoal_protocol.rounds import LARGEST_DIMENSION, RoundSpec
from shoal_trainer.jobs import refusal_text


def _document_limit_bytes(dimension: int) -> int:
    # base64 of 8 bytes for each coordinate, and room for the rest of the document
    return dimension * 8 * 4 // 3 + (1 << 16)


HANDED_LIMIT_BYTES: Final = 1 << 20  # a total names each round of its job, of 10,000 at most
ANSWER_LIMIT_BYTES: Final = _document_limit_bytes(LARGEST_DIMENSION)
LONG_POLL_SECONDS: Final = 25
ANSWER_SECONDS: Final = 15.0  # for a part of an answer to come, beyond what a long poll waits
# for a whole exchange, however its bytes come: a peer that drips them holds up no job for longer
EXCHANGE_SECONDS: Final = 30.0
SLOWEST_BYTES_PER_SECOND: Final = 256 << 10  # of an exchange that may take longer, for its size
# they ask for another try, unlike the rest of 400 to 499
_TRY_AGAIN: Final = frozenset({408, 421, 425, 429})
_BEHIND: Final = frozenset(
    {"urn:shoal:problem:wrong-manifest", "urn:shoal:problem:unknown-manifest"}
)


class State(StrEnum):
    """Where a round stands at the aggregator, as far as is known."""

    PENDING = "pending"
    DECIDED = "decided"
    ABANDONED = "abandoned"


@dataclass(frozen=True)
class Answer:
    """What the aggregator says of a round; `document` is unverified."""

    state: State
    document: bytes = b""


@dataclass(frozen=True)
class Reception:
    """Which services have accepted a round, and the words of one that refused it."""

    accepted: frozenset[str]
    refusal: str | None


class Unreachable(Exception):
    """A service did not answer, or not in a way that says anything."""


class Peers:
    """Connections to the services of the consortium, each to its pinned certificate."""

    def __init__(
        self,
        transport: httpx.AsyncBaseTransport | None,
        *,
        exchange_seconds: float = EXCHANGE_SECONDS,
    ) -> None:
        """Connect over `transport`, or over the network where it is None.

        An exchange may take `exchange_seconds`, and more if a long poll or large documents do.
        """
        self._transport = transport
        self._exchange_seconds = exchange_seconds
        self._clients: dict[tuple[str, str], httpx.AsyncClient] = {}

    async def announce(
        self, spec: bytes, consortium: Consortium, *, without: frozenset[str]
    ) -> Reception:
        """Offer a signed spec to all services at once but those that accepted it already."""
        manifest = consortium.manifest
        parties = [
            party
            for party in (manifest.aggregator, *manifest.compute_nodes)
            if party.name not in without
        ]
        answers = await asyncio.gather(*(self._offer(party, spec, consortium) for party in parties))
        accepted = {
            party.name for party, answer in zip(parties, answers, strict=True) if answer == ""
        }
        refusals = [answer for answer in answers if answer]
        return Reception(without | accepted, refusals[0] if refusals else None)

    async def _offer(self, party: ServiceParty, spec: bytes, consortium: Consortium) -> str | None:
        """Return "" if the party accepted, why if it refused, None if that is open.

        It is open too where the party's manifest is not ours: it may be the newer one, of which
        we shall hear.
        """
        try:
            status, body = await self._hand_bound(party, "/v1/rounds", spec, consortium)
        except Unreachable:
            return None
        if status in {200, 201}:
            return ""
        if 400 <= status < 500 and status not in _TRY_AGAIN:
            return refusal_text(party.name, _problem(body))
        return None

    async def total(self, party: ServiceParty, end: bytes, consortium: Consortium) -> bytes:
        """Have a Compute node sign what it charged of a job, at the trainer's signed `end` of it.

        Raises:
            Unreachable
        """
        status, body = await self._hand_bound(party, "/v1/totals", end, consortium)
        if status != 200:
            raise Unreachable
        return body

    async def outcome(
        self, aggregator: ServiceParty, round_id: str, *, wait_seconds: int = 0
    ) -> Answer:
        """Ask the aggregator what became of a round.

        Raises:
            Unreachable
        """
        address = f"/v1/rounds/{round_id}"
        query = f"?wait={wait_seconds}" if wait_seconds else ""
        status, body = await self._send(
            aggregator, "GET", f"{address}/result{query}", wait_seconds=wait_seconds
        )
        if status == 200:
            return Answer(State.DECIDED, body)
        if status == 410:
            status, body = await self._send(aggregator, "GET", f"{address}/abandonment")
            if status == 200:
                return Answer(State.ABANDONED, body)
        if status == 202:
            return Answer(State.PENDING)
        raise Unreachable

    async def partial_sums(self, aggregator: ServiceParty, spec: RoundSpec) -> bytes:
        """Ask the aggregator what a round's result is the sum of.

        Raises:
            Unreachable
            RefusedResult: it published a result, and does not show this.
        """
        limit = len(spec.compute_nodes) * _document_limit_bytes(spec.dimension)
        path = f"/v1/rounds/{spec.digest}/partial-sums"
        status, body = await self._send(aggregator, "GET", path, limit_bytes=limit)
        if status == 200:
            return body
        if 200 <= status < 500 and status not in _TRY_AGAIN:
            raise RefusedResult("the aggregator does not show the partial sums of a result")
        raise Unreachable

    async def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            await client.aclose()

    async def _hand_bound(
        self, party: ServiceParty, path: str, document: bytes, consortium: Consortium
    ) -> tuple[int, bytes]:
        """Hand a party a document that is bound to a version, and that version if it lacks it.

        Raises:
            Unreachable: or it does not take the version.
        """
        limit = HANDED_LIMIT_BYTES
        status, body = await self._send(party, "POST", path, document, limit_bytes=limit)
        if 400 <= status < 500 and _problem(body).get("type") in _BEHIND:
            # it may not have heard of the version: anyone may relay that
            known = bundle(consortium)
            status, _ = await self._send(party, "PUT", "/v1/manifest", known, limit_bytes=limit)
            if status != 200:
                raise Unreachable
            status, body = await self._send(party, "POST", path, document, limit_bytes=limit)
        return status, body

    async def _send(
        self,
        party: ServiceParty,
        method: str,
        path: str,
        content: bytes | None = None,
        *,
        limit_bytes: int = ANSWER_LIMIT_BYTES,
        wait_seconds: int = 0,
    ) -> tuple[int, bytes]:
        headers = {} if content is None else {"Content-Type": "application/json"}
        timeout = httpx.Timeout(ANSWER_SECONDS + wait_seconds, connect=CONNECT_TIMEOUT_SECONDS)
        size = limit_bytes + len(content or b"")
        most = self._exchange_seconds + wait_seconds + size / SLOWEST_BYTES_PER_SECOND
        try:
            async with (
                asyncio.timeout(most),
                self._client(party).stream(
                    method, path, content=content, headers=headers, timeout=timeout
                ) as response,
            ):
                body = bytearray()
                async for part in response.aiter_bytes():
                    body += part
                    if len(body) > limit_bytes:
                        raise Unreachable
                return response.status_code, bytes(body)
        except (httpx.HTTPError, TimeoutError) as error:
            raise Unreachable from error

    def _client(self, party: ServiceParty) -> httpx.AsyncClient:
        key = (party.url, party.certificate)
        if key not in self._clients:
            self._clients[key] = pinned_client(
                party.certificate, base_url=party.url, transport=self._transport
            )
        return self._clients[key]


def current_party(party: ServiceParty, current: Consortium) -> ServiceParty:
    """Return where a service of a version is now: a later one may give it another address."""
    manifest = current.manifest
    services = (manifest.aggregator, *manifest.compute_nodes)
    return next((now for now in services if now.name == party.name), party)


def _problem(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
