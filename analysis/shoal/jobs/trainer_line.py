"""Asks the trainer, again and again where it does not answer, from programs without an event loop.

Notebooks run a loop of their own, so each conversation has its own loop in a thread of its own.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Final, TypeVar

import httpx
import pydantic
from anyio.from_thread import start_blocking_portal

from shoal.jobs.job_failures import failure
from shoal.jobs.round_documents import Notice, newest_first
from shoal_kit.clock import Clock
from shoal_kit.manifest_book import ManifestBook
from shoal_kit.outcome import OK
from shoal_kit.peers.exchange import JSON, Reply, Unavailable
from shoal_kit.peers.peer import Peer, of_former_trainers
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.trust.manifest import ServiceParty
from shoal_protocol.wire.documents import describe
from shoal_protocol.wire.errors import MalformedDocument, UnknownManifest

TRIES: Final = 6  # over about 20 seconds
PATIENT_TRIES: Final = 8  # over a minute and more: a trainer may start anew while a job runs

T = TypeVar("T")
Shape = TypeVar("Shape", bound=pydantic.BaseModel)


def no_notice(text: str) -> None:
    """Say nothing."""


def run(work: Callable[[], Awaitable[T]]) -> T:
    """Return what `work` does, in an event loop of its own; an interruption here ends it there."""
    with start_blocking_portal() as portal:
        return portal.call(work)


class TrainerLine:
    """Conversations with the trainer that the newest known manifest names."""

    def __init__(
        self,
        book: ManifestBook,
        *,
        clock: Clock,
        random_bytes: RandomBytes,
        transport: httpx.AsyncBaseTransport | None,
        notice: Notice,
    ) -> None:
        """`notice` is told, once a conversation, that the trainer does not answer."""
        self._book = book
        self._connect = partial(
            Peer, clock=clock, random_bytes=random_bytes, transport=transport, book=book
        )
        self._notice = notice

    def ask(
        self, path: str, content: bytes | None = None, *, tries: int = TRIES, **how: int
    ) -> Reply:
        """Return the trainer's answer; on a job that it does not know, one of a former trainer.

        It is asked by POST with JSON `content`, or else by GET, as `Peer.get` has it.

        Raises:
            Unavailable: the trainer did not answer, several times, or is behind; or nobody who
                answers knows the job, and a former trainer does not answer.
        """

        async def request(peer: Peer) -> Reply:
            if content is None:
                return await peer.get(path, **how)
            answer = await peer.post(path, content, JSON)
            if answer.code == UnknownManifest.code:  # it follows soon
                raise Unavailable(f"{peer.name} answered {answer.reason}")
            return answer

        async def ask_all() -> Reply:
            now = self._book.current.manifest.trainer
            trainers = newest_first(version.manifest.trainer for version in self._book.versions)
            former = [each for each in trainers if each.name != now.name]
            answer = await self._converse(now, request, tries)
            return await of_former_trainers(
                answer, former, lambda party: self._converse(party, request)
            )

        return run(ask_all)

    def catch_up(self, tries: int = TRIES) -> None:
        """Follow the manifest to the version that the trainer has.

        Raises:
            Unavailable: the trainer did not answer, several times.
            ProtocolError: what it shows is no version that follows.
        """
        run(lambda: self._converse(self._book.current.manifest.trainer, Peer.catch_up, tries))

    def post_to_nodes(self, path: str, content: bytes) -> None:
        """Send JSON to every Compute node once; those that do not answer miss it."""

        async def send(node: ServiceParty) -> None:
            with suppress(Unavailable):
                await self._converse(node, lambda peer: peer.post(path, content, JSON))

        async def send_to_all() -> None:
            await asyncio.gather(*map(send, self._book.current.manifest.compute_nodes))

        run(send_to_all)

    async def _converse(
        self, party: ServiceParty, conversation: Callable[[Peer], Awaitable[T]], tries: int = 1
    ) -> T:
        """Return what comes of `conversation`; give up after `tries` without an answer."""
        peer = self._connect(party)
        try:
            for attempt in count(1):
                try:
                    return await conversation(peer)
                except Unavailable as error:
                    silence = f"{party.name} at {peer.party.url} does not answer: {error}"
                    if attempt == tries:
                        raise Unavailable(silence) from None
                    if attempt == 1:
                        self._notice(f"{silence}; trying again")
                    await asyncio.sleep(peer.seconds_until_due)
            raise AssertionError("the attempts are counted without end")
        finally:
            await peer.close()

    def read(self, shape: type[Shape], path: str, tries: int = TRIES) -> Shape:
        """Return what the trainer says, in the shape it must have.

        Raises:
            JobRefused: the trainer does not know the job.
            JobFailed: it refuses for another reason.
            Unavailable: the trainer did not answer, several times.
            MalformedDocument: the answer has another shape.
        """
        answer = self.ask(path, tries=tries)
        if answer.status != OK:
            raise failure(answer.code, answer.reason)
        return shaped(answer, shape)


def shaped(answer: Reply, shape: type[Shape]) -> Shape:
    """Return what an answer says, in the shape it must have.

    Raises:
        MalformedDocument: it has another one.
    """
    try:
        return shape.model_validate(answer.json())
    except pydantic.ValidationError as error:
        raise MalformedDocument(describe(error, shape)) from None
