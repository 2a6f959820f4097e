"""The network between the parties of a simulation: what it is told to lose, it loses.

It carries bytes by host name and knows no message; everything it ever carried is in its log.
"""

import asyncio
import hashlib
import json
import math
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, TypeVar

import httpx
from starlette.types import ASGIApp

from tests.world.lives import Life

T = TypeVar("T")


class Fault(Enum):
    """What may happen to a message instead of being delivered and answered."""

    LOST = auto()
    ANSWER_LOST = auto()
    DUPLICATED = auto()  # delivered, and once more after others
    LATE = auto()  # its sender gives up waiting, and then it arrives, after others
    RECEIVER_DIES_BEFORE = auto()
    RECEIVER_DIES_AFTER = auto()  # acted upon, but the answer is never sent
    HANGS = auto()  # arrives after so many seconds; its sender waits no longer than it ever does
    SLOW = auto()  # acted upon at once, answered after so many seconds
    DRIPS = auto()  # the answer's body comes a byte at a time, each after so many seconds
    SENDER_DIES_BEFORE = auto()
    SENDER_DIES_AFTER = auto()  # delivered and answered, but nobody is there any more
    LIES = auto()  # delivered, and answered by what the rule makes of the answer


_UNDELIVERED = {Fault.LOST, Fault.LATE, Fault.RECEIVER_DIES_BEFORE, Fault.SENDER_DIES_BEFORE}
_DELIVERED_TWICE = {Fault.DUPLICATED, Fault.LATE}


@dataclass(frozen=True)
class Rule:
    """A fault, and the messages it befalls: by sender, receiver and path (None is any).

    `nth` counts those that fit, from 0; empty is all of them. `chance` is the share of these that
    the fault befalls; which they are follows from `seed`.
    """

    fault: Fault
    sender: str | None = None
    receiver: str | None = None
    path: str = ""
    nth: Sequence[int] = ()
    after: int = 3  # so many messages later comes the copy
    seconds: float = math.inf  # of a message that hangs, is slow or drips
    chance: float = 1.0
    seed: int = 0
    lie: Callable[[bytes], bytes] = bytes  # what a liar makes of its answer

    def fits(self, message: "Message") -> bool:
        return (
            self.sender in (None, message.sender)
            and self.receiver in (None, message.receiver)
            and re.search(self.path, message.path) is not None
        )

    def strikes(self, number: int) -> bool:
        """Tell whether the fault befalls this one of the messages that fit."""
        if self.nth and number not in self.nth:
            return False
        drawn = hashlib.sha256(f"{self.seed}/{number}".encode()).digest()
        return int.from_bytes(drawn[:6], "little") < self.chance * 2.0**48


@dataclass
class Message:
    """One request, and what it was answered, if it was."""

    sender: str
    receiver: str
    request: httpx.Request = field(repr=False)
    body: bytes = field(repr=False)
    fault: Fault | None = None
    status: int | None = None
    answer: bytes = field(default=b"", repr=False)
    answer_headers: httpx.Headers = field(default_factory=httpx.Headers, repr=False)

    @property
    def method(self) -> str:
        return self.request.method

    @property
    def path(self) -> str:
        return self.request.url.path

    def json(self) -> Any:
        """Return the JSON in the answer."""
        return json.loads(self.answer)


Script = Callable[[httpx.Request], Any]
"""What a played party answers, or a coroutine of it; None: it does not answer in its place."""


@dataclass
class Wire:
    """All connections. `apps` and `lives` hold the parties that are up, by name.

    `played` answer in the place of parties that a test has not started, and `scripts` before
    anybody else does, also before a party that is up.
    """

    party_of: Callable[[httpx.URL], str]
    apps: dict[str, ASGIApp] = field(default_factory=dict)
    lives: dict[str, Life] = field(default_factory=dict)
    rules: list[Rule] = field(default_factory=list)
    log: list[Message] = field(default_factory=list)
    crashes: list[Exception] = field(default_factory=list)
    """What applications raised: none may raise anything."""
    played: dict[str, Script] = field(default_factory=dict)
    scripts: dict[str, Script] = field(default_factory=dict)
    watch: Callable[[Message], None] = lambda message: None
    """Sees each message before it is delivered."""
    _fitted: dict[Rule, int] = field(default_factory=dict)
    _late: list[tuple[int, Message]] = field(default_factory=list)
    _under_way: set[asyncio.Task[Any]] = field(default_factory=set)

    def of(self, life: Life) -> "Transport":
        """Return the transport for what a party sends."""
        return Transport(self, life)

    def cut(self, sender: str, receiver: str, path: str = "") -> Rule:
        """Let nothing through one way until `rules` no longer holds the rule returned.

        With `path`, nothing that is sent there.
        """
        rule = Rule(Fault.LOST, sender, receiver, path)
        self.rules.append(rule)
        return rule

    async def carry(self, sender: Life, request: httpx.Request) -> httpx.Response:
        """Deliver a request and return the answer, unless a rule will have it otherwise."""
        if sender.ended:
            raise httpx.ConnectError("the sender is gone")
        body = await request.aread()
        message = Message(sender.name, self.party_of(request.url), request, body)
        self.log.append(message)
        self.watch(message)
        rule = self._rule(message)
        response = await self._befall(sender, message, rule)
        while self._late and len(self.log) > min(due for due, _ in self._late):
            late = min(self._late, key=lambda each: each[0])
            self._late.remove(late)
            self._begin(self._again(late[1]))  # its receiver may wait for what is carried here
        if response is None:
            raise httpx.ReadTimeout("nothing came back")
        return response

    def _rule(self, message: Message) -> Rule | None:
        chosen = None
        for rule in self.rules:
            if rule.fits(message):
                number = self._fitted.get(rule, 0)
                self._fitted[rule] = number + 1
                if chosen is None and rule.strikes(number):
                    chosen = rule
        return chosen

    async def _befall(
        self, sender: Life, message: Message, rule: Rule | None
    ) -> httpx.Response | None:
        fault = message.fault = None if rule is None else rule.fault
        if rule is not None and fault in _DELIVERED_TWICE:
            self._late.append((len(self.log) + rule.after, message))
        if rule is not None and fault in (Fault.HANGS, Fault.SLOW):
            return await self._wait(message, self._crawl(message, rule))
        response = None if fault in _UNDELIVERED else await self._deliver(message)
        if rule is not None and response is not None and fault is Fault.DRIPS:
            patience = message.request.extensions["timeout"]["read"]
            drops = Drops(response.content, rule.seconds, patience)
            return httpx.Response(response.status_code, headers=response.headers, stream=drops)
        if rule is not None and response is not None and fault is Fault.LIES:
            content = rule.lie(response.content)
            return httpx.Response(
                response.status_code,
                headers={"content-type": response.headers["content-type"]},
                content=content,
            )
        if fault in (Fault.RECEIVER_DIES_BEFORE, Fault.RECEIVER_DIES_AFTER):
            if receiver := self.lives.get(message.receiver):
                receiver.kill()
            return None
        if fault in (Fault.SENDER_DIES_BEFORE, Fault.SENDER_DIES_AFTER):
            sender.kill()
            await asyncio.sleep(0)  # where this task, too, comes to its end
        return None if fault is Fault.ANSWER_LOST else response

    async def _crawl(self, message: Message, rule: Rule) -> httpx.Response:
        if rule.fault is Fault.SLOW:
            response = await self._deliver(message)
            await _pass(rule.seconds)
            return response
        await _pass(rule.seconds)
        return await self._deliver(message)

    async def _wait(
        self, message: Message, work: Coroutine[Any, Any, httpx.Response]
    ) -> httpx.Response | None:
        """Wait for what is under way as long as the sender does; it goes on without the sender."""
        task = self._begin(work)
        patience = message.request.extensions["timeout"]["read"]
        await asyncio.wait({task}, timeout=patience)
        return task.result() if task.done() else None

    def _begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        # in a context of its own, lest it end when its sender is killed
        task = asyncio.get_running_loop().create_task(work, context=Context())
        self._under_way.add(task)
        task.add_done_callback(self._arrived)
        return task

    def _arrived(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # the receiver may be gone by now, and its sender need not hear it

    async def close(self) -> None:
        """Lose all that is still under way."""
        for task in list(self._under_way):
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def deliver_late(self) -> None:
        """Deliver all that is still on its way, the last first."""
        while self._late:
            _, message = self._late.pop()
            await self._again(message)

    async def _again(self, message: Message) -> None:
        copy = Message(message.sender, message.receiver, message.request, message.body)
        self.log.append(copy)
        try:
            await self._deliver(copy)
        except httpx.TransportError:
            copy.fault = Fault.LOST

    async def _deliver(self, message: Message) -> httpx.Response:
        for scripts in (self.scripts, self.played):
            script = scripts.get(message.receiver)
            answer = script(message.request) if script else None
            if isinstance(answer, Coroutine):
                answer = await answer
            if answer is not None:
                message.status = answer.status_code
                return answer  # type: ignore[no-any-return]
        life = self.lives.get(message.receiver)
        if life is None or life.ended:
            raise httpx.ConnectError("nobody listens") from ConnectionRefusedError()
        work = life.spawn(self._handle(self.apps[message.receiver], message))
        await asyncio.wait({work})  # goes on to its end, also when its sender is gone
        if work.cancelled():
            raise httpx.ReadError("the receiver is gone")
        return work.result()

    async def _handle(self, app: ASGIApp, message: Message) -> httpx.Response:
        sent = message.request
        request = httpx.Request(sent.method, sent.url, headers=sent.headers, content=message.body)
        try:
            response = await httpx.ASGITransport(app).handle_async_request(request)
            content = await response.aread()
        except Exception as error:
            self.crashes.append(error)
            raise httpx.ReadError("the application failed") from error
        message.status, message.answer = response.status_code, content
        message.answer_headers = response.headers
        return httpx.Response(response.status_code, headers=response.headers, content=content)


async def _pass(seconds: float) -> None:
    """Let time pass, by the simulation's clock; infinitely many seconds never do."""
    await (
        asyncio.get_running_loop().create_future()
        if math.isinf(seconds)
        else asyncio.sleep(seconds)
    )


class Drops(httpx.AsyncByteStream):
    """A body that comes a byte at a time; a reader waits so long for each."""

    def __init__(self, content: bytes, seconds: float, patience: float) -> None:
        self._content, self._seconds, self._patience = content, seconds, patience

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for place in range(len(self._content)):
            await _pass(min(self._seconds, self._patience))
            if self._seconds >= self._patience:
                raise httpx.ReadTimeout("nothing came")
            yield self._content[place : place + 1]


class Transport(httpx.AsyncBaseTransport):
    """One party's way onto the wire."""

    def __init__(self, wire: Wire, life: Life) -> None:
        self._wire, self._life = wire, life

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._wire.carry(self._life, request)
