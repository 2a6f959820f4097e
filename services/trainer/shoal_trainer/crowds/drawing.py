"""Answers requests for draws: seed and nonce determine which instance a client gets."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter

from shoal_kit.web.openapi import ID_PATTERN
from shoal_protocol.crowds.draws import CrowdClosed, Draw, InstanceHead, drawn_instance
from shoal_protocol.wire.errors import MalformedDocument, ProtocolError
from shoal_service.storage.group_commit import Batches
from shoal_trainer.crowds import store
from shoal_trainer.crowds.store import CrowdBook, CrowdRecord
from shoal_trainer.resources import Resources

LONGEST_WAIT_SECONDS: Final = 8.0


class TooManyDraws(ProtocolError):
    """More draws are asked for than the process answers beside submissions."""

    title = "Too many draws are asked for at the moment"
    status = 503
    remedy = "Ask again, with the same nonce, after the time in Retry-After and a random part more."
    retry_after_seconds = 5


class DrawLimit:
    """Limits concurrent draws. A request waits for its turn, and is refused after some time.

    So draws take what submissions leave and little more, however fast the machine is. Refusal
    comes only after a wait, so a client gains nothing by asking again at once.
    """

    def __init__(self, at_once: int, registry: CollectorRegistry) -> None:
        """Begin with `at_once` free places."""
        self._free = asyncio.Semaphore(at_once)
        self._answered = Counter(
            "shoal_trainer_crowd_draws", "Draws that were answered", registry=registry
        )
        self._refused = Counter(
            "shoal_trainer_crowd_draw_requests_refused",
            "Requests for draws refused because too many were waiting",
            registry=registry,
        )

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Hold a place; they are given in the order that they were asked for.

        Raises:
            TooManyDraws: others left none in time.
        """
        try:
            async with asyncio.timeout(LONGEST_WAIT_SECONDS):
                await self._free.acquire()
        except TimeoutError:
            self._refused.inc()
            raise TooManyDraws from None
        try:
            yield
            self._answered.inc()
        finally:
            self._free.release()


_LARGEST_READ: Final = 1_000


@dataclass(frozen=True, slots=True)
class _Asked:
    crowd: CrowdRecord
    nonce: str
    instance: int


class Draws:
    """Makes signed draws; reads the instances of concurrent requests from the store together."""

    def __init__(self, resources: Resources, book: CrowdBook, limit: DrawLimit) -> None:
        """Begin without draws."""
        self.limit = limit
        self._resources = resources
        self._book = book
        self._reads = Batches(self._read, largest=_LARGEST_READ)

    async def draw(self, job: str, asked: Any) -> bytes:
        """Answer `{"nonce": ...}` by a signed draw.

        Raises:
            UnknownJob, CrowdClosed
            MalformedDocument: it asks for something else.
            TooManyDraws: others ask for more than this process answers.
        """
        crowd = await self._book.find(job)
        nonce = asked["nonce"] if isinstance(asked, dict) and asked.keys() == {"nonce"} else None
        if not isinstance(nonce, str) or not re.fullmatch(ID_PATTERN, nonce):
            raise MalformedDocument("a draw is asked for by a nonce of 64 lower-case hex digits")
        request = crowd.request.body
        if self._resources.clock() >= request.closes_at:
            raise CrowdClosed
        instance = drawn_instance(crowd.seed, nonce, request.task.instances)
        async with self.limit.place():
            drawn = await self._reads.submit(_Asked(crowd, nonce, instance))
        if drawn is None:
            raise CrowdClosed
        return drawn

    async def _read(self, batch: list[_Asked]) -> list[bytes | None]:
        wanted = {(each.crowd.number, each.instance) for each in batch}
        instances = await self._resources.storage.run(store.open_instances, wanted)
        heads = [instances.get((each.crowd.number, each.instance)) for each in batch]
        return await asyncio.to_thread(
            lambda: [
                None if head is None else self._signed(asked, head)
                for asked, head in zip(batch, heads, strict=True)
            ]
        )

    def _signed(self, asked: _Asked, instance: InstanceHead) -> bytes:
        own, request = self._resources, asked.crowd.request.body
        expires_at = own.clock() + timedelta(seconds=request.session_seconds)
        draw = Draw(
            manifest=request.manifest,
            job=request.digest,
            nonce=asked.nonce,
            instance=asked.instance,
            revision=instance.revision,
            weights=instance.weights,
            expires_at=min(expires_at, request.closes_at),
        )
        return own.sign(draw).encode()
