"""Calls a service once and returns what it answers, checked to have the expected shape."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

import httpx
import pydantic

from shoal_kit.peers.exchange import LARGEST_ANSWER_BYTES, Connection, Reply, Unavailable
from shoal_protocol.trust.manifest import ServiceParty
from shoal_protocol.wire.documents import describe
from shoal_protocol.wire.errors import MalformedDocument

ANSWER_SECONDS: Final = 30.0

Shape = TypeVar("Shape")


class Refused(Exception):
    """A service refused; the message says why, in its own words."""


class NoResult(Exception):
    """The requested document will never exist; the message says why."""


class Page(Protocol):
    """A part of a list that a service hands out in parts."""

    next: int | None


PageT = TypeVar("PageT", bound=Page)


@dataclass(frozen=True)
class Endpoint:
    """A service's URL, its pinned certificate, and the token that it may ask for.

    Without a certificate whoever answers there is asked. `transport` stands in for the network.
    """

    url: str
    certificate: str | None
    token: str | None = field(default=None, repr=False)
    transport: httpx.AsyncBaseTransport | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(
        cls, party: ServiceParty, transport: httpx.AsyncBaseTransport | None = None
    ) -> "Endpoint":
        """Return the endpoint of a party of the manifest."""
        return cls(party.url, party.certificate, transport=transport)

    def ask(self, shape: type[Shape], path: str, **how: Any) -> Shape:
        """Return what `answer` returns, to who runs no event loop."""
        return asyncio.run(self.answer(shape, path, **how))

    async def answer(
        self,
        shape: type[Shape],
        path: str,
        *,
        method: str = "GET",
        content: bytes | None = None,
        **query: str | int,
    ) -> Shape:
        """Return the service's answer, which must have the shape of a type.

        Raises:
            Refused: it answered with a problem, or with something else.
            Unavailable: it did not answer.
        """
        try:
            return pydantic.TypeAdapter(shape).validate_python(
                json_of(await call(self, method, path, query, content=content))
            )
        except Unavailable as error:
            raise Unavailable(f"{self.url} does not answer: {error}") from None
        except pydantic.ValidationError as error:
            raise Refused(f"the answer is none that is expected here: {describe(error)}") from None

    def pages(self, shape: type[PageT], path: str, *, count: int = 1000) -> Iterator[PageT]:
        """Yield the parts of a list, of `count` entries each; raises as `ask`."""
        following: int | None = 0
        while following is not None:
            page = self.ask(shape, path, after=following, count=count)
            yield page
            is_further = page.next is not None and page.next > following
            following = page.next if is_further else None


async def call(
    service: Endpoint,
    method: str,
    path: str,
    query: dict[str, str | int] | None = None,
    *,
    content: bytes | None = None,
) -> Reply:
    """Return a service's reply, whatever its status.

    Raises:
        Unavailable: it did not answer.
    """
    headers = {} if service.token is None else {"Authorization": f"Bearer {service.token}"}
    async with Connection(
        service.url,
        service.certificate,
        transport=service.transport,
        answer_seconds=ANSWER_SECONDS,
    ) as connection:
        return await connection.ask(
            method,
            path,
            content,
            limit_bytes=LARGEST_ANSWER_BYTES,
            headers=headers,
            parameters=query,
        )


def json_of(reply: Reply) -> Any:
    """Return the JSON value of a reply.

    Raises:
        Refused: the reply is a problem, or no JSON.
    """
    try:
        value = reply.json()
    except MalformedDocument:
        raise Refused(f"status {reply.status}") from None
    if not reply.is_refusal:
        return value
    problem = value if isinstance(value, dict) else {}
    said = str(problem.get("detail") or problem.get("title") or "without a reason")
    remedy = f". {problem['remedy']}" if "remedy" in problem else ""
    raise Refused(f"{reply.status}: {said}{remedy}")
