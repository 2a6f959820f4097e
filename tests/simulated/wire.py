"""The network between the parties of a simulation: what it is told to lose, it loses.

It carries bytes by host name and knows no message; everything it ever carried is in its log.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

import httpx
from starlette.types import ASGIApp

from tests.simulated.lives import Life


class Fault(Enum):
    """What may happen to a message instead of being delivered and answered."""

    LOST = auto()
    ANSWER_LOST = auto()
    DUPLICATED = auto()  # delivered, and once more after others
    LATE = auto()  # its sender gives up waiting, and then it arrives, after others
    RECEIVER_DIES_BEFORE = auto()
    RECEIVER_DIES_AFTER = auto()  # acted upon, but the answer is never sent
    SENDER_DIES_BEFORE = auto()
    SENDER_DIES_AFTER = auto()  # delivered and answered, but nobody is there any more


_UNDELIVERED = {Fault.LOST, Fault.LATE, Fault.RECEIVER_DIES_BEFORE, Fault.SENDER_DIES_BEFORE}
_DELIVERED_TWICE = {Fault.DUPLICATED, Fault.LATE}


@dataclass(frozen=True)
class Rule:
    """A fault, and the messages it befalls: by sender, receiver and path (None is any).

    `nth` counts those that fit, from 0; empty is all of them.
    """

    fault: Fault
    sender: str | None = None
    receiver: str | None = None
    path: str = ""
    nth: Sequence[int] = ()
    after: int = 3  # so many messages later comes the copy

    def fits(self, message: "Message") -> bool:
        return (
            self.sender in (None, message.sender)
            and self.receiver in (None, message.receiver)
            and re.search(self.path, message.path) is not None
        )


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


@dataclass
class Wire:
    """All connections. `apps` and `lives` hold the parties that are up, by name."""

    party_of: Callable[[httpx.URL], str]
    apps: dict[str, ASGIApp] = field(default_factory=dict)
    lives: dict[str, Life] = field(default_factory=dict)
    rules: list[Rule] = field(default_factory=list)
    log: list[Message] = field(default_factory=list)
    crashes: list[Exception] = field(default_factory=list)
    """What applications raised: none may raise anything."""
    _fitted: dict[Rule, int] = field(default_factory=dict)
    _late: list[tuple[int, Message]] = field(default_factory=list)

    def of(self, life: Life) -> "Transport":
        """Return the transport for what a party sends."""
        return Transport(self, life)

    def cut(self, sender: str, receiver: str) -> Rule:
        """Let nothing through one way until `rules` no longer holds the rule returned."""
        rule = Rule(Fault.LOST, sender, receiver)
        self.rules.append(rule)
        return rule

    async def carry(self, sender: Life, request: httpx.Request) -> httpx.Response:
        """Deliver a request and return the answer, unless a rule will have it otherwise."""
        if sender.ended:
            raise httpx.ConnectError("the sender is gone")
        body = await request.aread()
        message = Message(sender.name, self.party_of(request.url), request, body)
        self.log.append(message)
        rule = self._rule(message)
        response = await self._befall(sender, message, rule)
        while self._late and len(self.log) > min(due for due, _ in self._late):
            late = min(self._late, key=lambda each: each[0])
            self._late.remove(late)
            await self._again(late[1])
        if response is None:
            raise httpx.ReadTimeout("nothing came back")
        return response

    def _rule(self, message: Message) -> Rule | None:
        chosen = None
        for rule in self.rules:
            if rule.fits(message):
                number = self._fitted.get(rule, 0)
                self._fitted[rule] = number + 1
                if chosen is None and (not rule.nth or number in rule.nth):
                    chosen = rule
        return chosen

    async def _befall(
        self, sender: Life, message: Message, rule: Rule | None
    ) -> httpx.Response | None:
        fault = message.fault = None if rule is None else rule.fault
        if rule is not None and fault in _DELIVERED_TWICE:
            self._late.append((len(self.log) + rule.after, message))
        response = None if fault in _UNDELIVERED else await self._deliver(message)
        if fault in (Fault.RECEIVER_DIES_BEFORE, Fault.RECEIVER_DIES_AFTER):
            if receiver := self.lives.get(message.receiver):
                receiver.kill()
            return None
        if fault in (Fault.SENDER_DIES_BEFORE, Fault.SENDER_DIES_AFTER):
            sender.kill()
            await asyncio.sleep(0)  # where this task, too, comes to its end
        return None if fault is Fault.ANSWER_LOST else response

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
        life = self.lives.get(message.receiver)
        if life is None or life.ended:
            raise httpx.ConnectError("nobody listens")
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


class Transport(httpx.AsyncBaseTransport):
    """One party's way onto the wire."""

    def __init__(self, wire: Wire, life: Life) -> None:
        self._wire, self._life = wire, life

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._wire.carry(self._life, request)
