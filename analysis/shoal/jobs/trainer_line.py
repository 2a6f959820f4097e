"""Asks the trainer, again and again where it does not answer, from programs without an event loop.

Notebooks run a loop of their own, so each conversation has its own loop in a thread of its own.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Final, TypeVar

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
from shoal_protocol.wire.documents import Signed, describe
from shoal_protocol.wire.errors import MalformedDocument

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

    def talk(self, conversation: Callable[[Peer], Awaitable[T]], tries: int = TRIES) -> T:
        """Return what comes of `conversation`; give up after `tries` without an answer.

        Raises:
            Unavailable: the trainer did not answer, several times.
        """
        return run(lambda: self._with_trainer(conversation, tries))

    async def _with_trainer(self, conversation: Callable[[Peer], Awaitable[T]], tries: int) -> T:
        trainer = self._connect(self._book.current.manifest.trainer)
        try:
            for attempt in count(1):
                try:
                    return await conversation(trainer)
                except Unavailable as error:
                    silence = f"the trainer at {trainer.party.url} does not answer: {error}"
                    if attempt == tries:
                        raise Unavailable(silence) from error
                    if attempt == 1:
                        self._notice(f"{silence}; trying again")
                    await asyncio.sleep(trainer.seconds_until_due)
            raise AssertionError("the attempts are counted without end")
        finally:
            await trainer.close()

    def ask(self, request: Callable[[Peer], Awaitable[Reply]], tries: int = TRIES) -> Reply:
        """Return the trainer's answer; on a job that it does not know, one of a former trainer.

        Raises:
            Unavailable: the trainer did not answer, several times; or nobody who answers knows the
                job, and a former trainer does not answer.
        """
        answer = self.talk(request, tries)
        trainers = newest_first(version.manifest.trainer for version in self._book.versions)
        now = self._book.current.manifest.trainer.name

        async def ask(party: ServiceParty) -> Reply:
            peer = self._connect(party)
            try:
                return await request(peer)
            finally:
                await peer.close()

        former = [each for each in trainers if each.name != now]
        return run(lambda: of_former_trainers(answer, former, ask)) if former else answer

    def read(self, shape: type[Shape], path: str, tries: int = TRIES) -> Shape:
        """Return what the trainer says, in the shape it must have.

        Raises:
            JobRefused: the trainer does not know the job.
            JobFailed: it refuses for another reason.
            Unavailable: the trainer did not answer, several times.
            MalformedDocument: the answer has another shape.
        """
        answer = self.ask(lambda trainer: trainer.get(path), tries)
        if answer.status != OK:
            raise failure(answer.code, answer.reason)
        return shaped(answer, shape)

    def post(self, path: str, document: Signed[Any]) -> Reply:
        """Send a document.

        Raises:
            Unavailable: the trainer did not answer, several times.
        """
        encoded = document.encode()
        return self.talk(lambda trainer: trainer.post(path, encoded, JSON))

    def post_of_job(self, job: str, what: str, document: Signed[Any]) -> Reply:
        """Send a document below a job's path to the trainer that has the job, as `ask`.

        Raises:
            Unavailable: the trainer did not answer, several times.
        """
        encoded = document.encode()

        async def send(trainer: Peer) -> Reply:
            looked_up = await trainer.get(job)  # a peer takes a 404 to a POST for "try later"
            if looked_up.is_refusal:
                return looked_up
            return await trainer.post(f"{job}/{what}", encoded, JSON)

        return self.ask(send)

    def post_to_nodes(self, path: str, content: bytes) -> None:
        """Send JSON to every Compute node once; those that do not answer miss it."""

        async def send(node: ServiceParty) -> None:
            peer = self._connect(node)
            try:
                with suppress(Unavailable):
                    await peer.post(path, content, JSON)
            finally:
                await peer.close()

        async def send_to_all() -> None:
            nodes = self._book.current.manifest.compute_nodes
            await asyncio.gather(*(send(node) for node in nodes))

        run(send_to_all)


def shaped(answer: Reply, shape: type[Shape]) -> Shape:
    """Return what an answer says, in the shape it must have.

    Raises:
        MalformedDocument: it has another one.
    """
    try:
        return shape.model_validate(answer.json())
    except pydantic.ValidationError as error:
        raise MalformedDocument(describe(error, shape)) from None
