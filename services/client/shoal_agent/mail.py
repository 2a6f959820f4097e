"""Carries the vault's mail: sends and asks for what is due, and brings back the answers.

What a letter is about is the vault's business.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from shoal_agent.directory import Directory
from shoal_agent.vault_link import VaultLink
from shoal_holder.messages import Letter
from shoal_holder.status import Report
from shoal_holder.vault import Vault
from shoal_kit.clock import Clock
from shoal_kit.peers.exchange import ANSWER_SECONDS, JSON, OCTETS, Reply, Unavailable
from shoal_kit.peers.peer import Peer
from shoal_protocol.wire.errors import ProtocolError, UnknownManifest, UnknownSigner

BETWEEN_TRIES_SECONDS: Final = 0.5  # of one letter, however often the holder is woken
LONG_POLL_SECONDS: Final = int(ANSWER_SECONDS * 3 / 4)  # an answer is waited for no longer
MOST_PASSES: Final = 100  # in one step; what remains is carried in the next
CONFLICT: Final = 409
NO_SUCH_VERSION: Final = f'{{"type":"urn:shoal:problem:{UnknownManifest.code}"}}'.encode()
STEP_SECONDS: Final = 10.0  # of a step that a wake follows: one party delays no other's next try
REFUSAL_COUNTS: Final = timedelta(minutes=1)  # until its letter is given up, or sent again
PATIENCE_SECONDS: Final = 3.0  # with slow parties, until other letters are carried


@dataclass(eq=False)
class Mail:
    """The letters that are on their way.

    With a `_wake` what the vault asks for is waited for by long polls, which wake the data holder
    when they end; without one it is asked for once in a step.
    """

    _vault: VaultLink
    _directory: Directory
    _clock: Clock
    _report: Report
    _wake: asyncio.Event | None
    _unheard: dict[tuple[str, str], tuple[datetime, str]] = field(default_factory=dict)
    """When and why parties did not answer, by name and kind of letter; "": they answered none."""
    _under_way: dict[str, asyncio.Task[None]] = field(default_factory=dict)  # by letter
    _tried: dict[str, float] = field(default_factory=dict)  # when, by the event loop's time
    _paused: dict[str, Peer] = field(default_factory=dict)  # letters to who is left in peace

    async def step(self) -> None:
        """Carry each letter that is due once, and each that becomes due by that."""
        now = asyncio.get_running_loop().time
        began = now()
        self._tried = {
            letter: at
            for letter, at in self._tried.items()
            if self._wake and at > began - BETWEEN_TRIES_SECONDS
        }
        for _ in range(MOST_PASSES):
            if not await self._pass():
                break
            if self._wake and now() >= began + STEP_SECONDS:
                self._wake.set()
                break

    async def end(self) -> None:
        """Give up on answers that did not come."""
        tasks = [*self._under_way.values()]
        self._under_way.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _pass(self) -> bool:
        """Carry what is due and was not tried; tell whether more may be due since."""
        await self._directory.bring_vault_up()  # a refusal may have told of a newer version
        self._paused = {letter: peer for letter, peer in self._paused.items() if not peer.is_due}
        without = self._tried.keys() | self._under_way.keys() | self._paused.keys()
        due = await self._vault.ask(Vault.due, without=tuple(sorted(without)))
        begun = [each for each in due or () if self._begin(each)]
        # a long poll is answered when there is something
        waited = [self._under_way[each.id] for each in begun if each.body or self._wake is None]
        if waited:
            await asyncio.wait(waited, timeout=PATIENCE_SECONDS)
        for letter in [each for each, task in self._under_way.items() if task.done()]:
            self._under_way.pop(letter).result()
        return due != ()

    def _begin(self, letter: Letter) -> bool:
        """Begin to carry a letter; tell whether it is under way since."""
        try:
            peer = self._directory.party(letter.party, letter.path)
        except UnknownSigner:  # a version that the vault has is missing here
            self._directory.may_be_behind = True
            self._tried[letter.id] = asyncio.get_running_loop().time()
            return False
        if not peer.is_due:
            self._paused[letter.id] = peer
            return False
        self._tried[letter.id] = asyncio.get_running_loop().time()
        self._under_way[letter.id] = asyncio.create_task(self._carry(letter, peer))
        return True

    async def _carry(self, letter: Letter, peer: Peer) -> None:
        """Bring a letter to its party, and the answer to the vault."""
        kind, status, body, reason = letter.id.partition("/")[0], 0, b"", ""
        try:
            reply = await self._exchange(letter, peer)
            status, body = reply.status, reply.body
            if reply.is_refusal:
                reason = reply.reason
                self._directory.note_refusal(peer, reply.code)
        except Unavailable as error:
            reason = str(error)
        if reason:
            self._report(
                f"{kind} {'refused' if status else 'not sent'}", letter=letter.id, reason=reason
            )
        try:
            is_answer = await self._settle(letter, status, body)
        except (Unavailable, ProtocolError) as error:
            is_answer, reason = False, str(error)
            self._report(f"{kind} not answered", letter=letter.id, reason=reason)
        self._note(letter.party, kind if status else "", "" if is_answer and status else reason)
        if self._wake is not None and not letter.body and status:
            self._wake.set()  # also after a long poll that ended without news, to begin the next

    def _note(self, party: str, kind: str, reason: str) -> None:
        """Note why a party did not answer, a kind of letter or any ("" is any); or that it did."""
        said = {(party, kind): (self._clock(), reason)} if reason else {}
        done = {(party, ""), (party, kind)}
        self._unheard = {key: each for key, each in self._unheard.items() if key not in done} | said

    @property
    def unheard(self) -> dict[str, str]:
        """Return why parties did not answer what they were asked last, by name."""
        recently = self._clock() - REFUSAL_COUNTS
        return {
            party: reason
            for (party, kind), (at, reason) in self._unheard.items()
            if not kind or at > recently
        }

    async def _exchange(self, letter: Letter, peer: Peer) -> Reply:
        """Return the answer to a letter.

        Raises:
            Unavailable: there is none, or one that says to come back later.
        """
        if letter.body:
            return await peer.post(letter.path, letter.body, JSON if letter.is_json else OCTETS)
        waits = {} if self._wake is None else {"wait": LONG_POLL_SECONDS}
        return await self._directory.ask(peer, letter.path, **waits)

    async def _settle(self, letter: Letter, status: int, body: bytes) -> bool:
        """Bring the vault an answer; tell whether it is one to what was asked.

        Raises:
            ProtocolError: it is not what it should be.
        """
        for has_followed in (False, True):
            try:
                return await self._told(letter, status, body)
            except UnknownManifest:  # it is bound to a version that has to be fetched first
                if has_followed:
                    break
            with suppress(ProtocolError):  # what was sent follows no version here
                await self._directory.catch_up()
            await self._directory.bring_vault_up()
        # there is no such version: it was not answered as it should be
        kind = letter.id.partition("/")[0]
        self._report(f"{kind} not answered", letter=letter.id, reason=UnknownManifest.title)
        return await self._told(letter, CONFLICT, NO_SUCH_VERSION)

    async def _told(self, letter: Letter, status: int, body: bytes) -> bool:
        return await self._vault.ask(Vault.settle, letter=letter.id, status=status, body=body)
