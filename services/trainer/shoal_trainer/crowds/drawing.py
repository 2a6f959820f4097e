"""Answers requests for draws: seed and nonce determine which instance a client gets."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
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
        self.at_once = at_once
        self._free = asyncio.Semaphore(at_once)
        self._turn = asyncio.Lock()  # so that no request waits with a part of its places
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


MOST_NONCES: Final = 1_000
MOST_WEIGHTS: Final = 1 << 17  # in one answer: the client is unknown, and may read slowly
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

    async def draw(self, job: str, asked: Any) -> bytes | list[bytes]:
        """Answer `{"nonce": ...}`, or `{"nonces": [...]}` in order, by signed draws.

        Of many nonces perhaps only the first ones, at least one: those that had their turn in time.

        Raises:
            UnknownJob, CrowdClosed
            MalformedDocument: it asks for something else.
            TooManyDraws: others ask for more than this process answers, and no draw is ready.
        """
        crowd = await self._book.find(job)
        one = isinstance(asked, dict) and asked.keys() == {"nonce"}
        if not one and not (isinstance(asked, dict) and asked.keys() == {"nonces"}):
            raise MalformedDocument("a draw is asked for by a nonce, or a list of nonces")
        nonces = [asked["nonce"]] if one else asked["nonces"]
        most = min(MOST_NONCES, MOST_WEIGHTS // crowd.request.body.task.dimension)
        if not isinstance(nonces, list) or not 0 < len(nonces) <= most:
            raise MalformedDocument(f"nonces must be a list of 1 to {most}")
        if not all(isinstance(each, str) and re.fullmatch(ID_PATTERN, each) for each in nonces):
            raise MalformedDocument("a nonce is 64 lower-case hexadecimal digits")
        if self._resources.clock() >= crowd.request.body.closes_at:
            raise CrowdClosed
        found, portion, until = list[bytes](), self.limit.at_once, self.limit.latest()
        for start in range(0, len(nonces), portion):  # so that others have their turn between
            try:
                found += await self._draw(crowd, nonces[start : start + portion], until)
            except TooManyDraws:
                if not found:
                    raise
                break  # finished draws are answered: dropped, they would cost another wait
        return found[0] if one else found

    async def _draw(self, crowd: CrowdRecord, nonces: Sequence[str], until: float) -> list[bytes]:
        instances = crowd.request.body.task.instances
        async with self.limit.places(len(nonces), until=until):
            drawn = await self._reads.submit_all(
                [
                    _Asked(crowd, nonce, drawn_instance(crowd.seed, nonce, instances))
                    for nonce in nonces
                ]
            )
        for each in drawn:
            if isinstance(each, ProtocolError):
                raise each
        return [each for each in drawn if isinstance(each, bytes)]

    async def _read(self, batch: list[_Asked]) -> list[bytes | ProtocolError]:
        wanted = {(each.crowd.number, each.instance) for each in batch}
        instances = await self._resources.storage.run(store.open_instances, wanted)
        heads = [instances.get((each.crowd.number, each.instance)) for each in batch]
        return await asyncio.to_thread(
            lambda: [
                CrowdClosed() if head is None else self._signed(asked, head)
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
