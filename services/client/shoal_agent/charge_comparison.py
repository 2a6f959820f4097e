"""Asks Compute nodes what they charged the slots here; the vault compares it with its ledger."""

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from shoal_agent.directory import Directory
from shoal_agent.vault_link import VaultLink
from shoal_holder.charge_comparison import BETWEEN_COMPARISONS
from shoal_holder.messages import (
    AskCharges,
    ChargesAsked,
    Heard,
    Hello,
    Opened,
    SettleCharges,
    ShowCharges,
)
from shoal_holder.reporting import Report
from shoal_hosting.clock import Clock
from shoal_hosting.marks import MemoryLost
from shoal_hosting.peers.exchange import Unavailable
from shoal_hosting.peers.peer import OK, NotThere
from shoal_protocol.wire.errors import (
    BadSignature,
    MalformedDocument,
    ProtocolError,
    RevokedHolder,
    UnknownManifest,
)

WAITING: Final = "nothing is joined or answered until a node says what it charged the slots here"
AFTER_NONSENSE: Final = timedelta(seconds=30)  # until a node is asked again that did not say it
PATIENCE_SECONDS: Final = 3.0  # with the other nodes, once one has answered


class ChargesCheck:
    """Asks every Compute node after each start, and again before a job is joined.

    One node's answer is enough to go on; the others are heard as soon as they answer. How many are
    enough to spend anything is the vault's to say.
    """

    def __init__(
        self, vault: VaultLink, directory: Directory, clock: Clock, report: Report
    ) -> None:
        """Begin before any node is asked."""
        self._vault = vault
        self._directory = directory
        self._clock = clock
        self._report = report
        self._compared_at: datetime | None = None
        self._behind: dict[str, int] = {}  # by node: versions of the manifest
        self._has_told = False  # that it waits for a node
        self._not_before: dict[str, datetime] = {}  # by node
        self._asking: dict[str, asyncio.Task[bool]] = {}  # by node
        self.unheard: dict[str, str] = {}
        """Why nodes did not say what they charged when they were asked last, by node."""

    async def begin(self) -> bool:
        """Tell whether to go on: the ledger was compared with a node's since the start.

        Raises:
            MemoryLost: it lacks what a node charged; the message says what to do.
        """
        opened = await self._vault.ask(Hello(), Opened)
        if self._compared_at is None:
            if not await self._compare(opened.charging_nodes) and not self._has_told:
                self._has_told = True
                self._report(WAITING, reason=self.why)
        else:
            if asked := self._ask(opened.waiting_for):
                await asyncio.wait(asked, timeout=PATIENCE_SECONDS)
            await self._settle()
        return self._compared_at is not None

    async def before_joining(self) -> None:
        """Return if the ledger holds all charges that nodes made by now.

        Raises:
            MemoryLost: it does.
            Unavailable: no node answers.
        """
        now, at = self._clock(), self._compared_at
        if at is not None and timedelta(0) <= now - at < BETWEEN_COMPARISONS:
            return
        if not await self._compare((await self._vault.ask(Hello(), Opened)).charging_nodes):
            raise Unavailable(f"no Compute node says what it charged the slots here: {self.why}")

    @property
    def why(self) -> str:
        """Return why nodes did not say what they charged."""
        return "; ".join(f"{node}: {why}" for node, why in sorted(self.unheard.items()))

    async def end(self) -> None:
        """Cancel open requests."""
        for asking in self._asking.values():
            asking.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)
        self._asking.clear()

    async def _compare(self, nodes: Iterable[str]) -> bool:
        """Ask these nodes; tell whether one answered, or no query or node is left to ask."""
        now, nodes = self._clock(), list(nodes)
        if nodes:
            self._ask(nodes)
            done, waiting = set[asyncio.Task[bool]](), set(self._asking.values())
            if waiting:
                done, waiting = await asyncio.wait(waiting, timeout=PATIENCE_SECONDS)
            while waiting and not any(asked.result() for asked in done):
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if not any(asked.result() for asked in done):
                await self._settle()
                return False
        await self._settle()
        self._compared_at = now
        return True

    def _ask(self, nodes: Iterable[str]) -> set[asyncio.Task[bool]]:
        """Begin to ask those of these nodes that are not being asked, and may be."""
        now, begun = self._clock(), set[asyncio.Task[bool]]()
        for node in nodes:
            before = self._not_before.get(node, now)
            is_due = not now < before <= now + AFTER_NONSENSE
            is_due = is_due and self._directory.node_called(node).is_due
            if node not in self._asking and is_due:
                self._asking[node] = asyncio.create_task(self._is_heard(node))
                begun.add(self._asking[node])
        return begun

    async def _is_heard(self, node: str) -> bool:
        """Fetch all new charges from a node; tell whether it answered."""
        try:
            while await self._hear(node):
                pass
        except (Unavailable, ProtocolError) as error:
            self.unheard[node] = str(error)
            self._report("charges not compared", node=node, reason=str(error))
            self._note_behind(node, error)
            if not isinstance(error, Unavailable):
                self._not_before[node] = self._clock() + AFTER_NONSENSE
            return False
        self.unheard.pop(node, None)
        return True

    def _note_behind(self, node: str, error: Exception) -> None:
        """Ask a node that does not know the manifest by an older one; then by the newest again."""
        is_behind = isinstance(error, NotThere) and error.code == UnknownManifest.code
        self._behind[node] = self._behind.get(node, 0) + 1 if is_behind else 0

    async def _hear(self, node: str) -> bool:
        """Fetch one node's next page of charges; tell whether there are more.

        Raises:
            Unavailable, ProtocolError: it does not say it, or it is not its word.
        """
        asked = await self._vault.ask(
            AskCharges(node=node, behind=self._behind.get(node, 0)), ChargesAsked
        )
        peer, path = self._directory.node_called(node), f"/v1/charges?after={asked.after}"
        answer = await peer.post(path, asked.parts[0], "application/json")
        if answer.code in (BadSignature.code, RevokedHolder.code):
            self._directory.note_other_key(peer)
            raise Unavailable(f"{node} knows another key of this holder, or has it revoked")
        if answer.status != OK:
            raise MalformedDocument(f"it refused to answer: {answer.reason}")
        return (await self._vault.ask(ShowCharges(node=node, parts=(answer.body,)), Heard)).more

    async def _settle(self) -> None:
        """Have the vault judge the nodes' answers.

        Raises:
            MemoryLost: its ledger lacks something, and the owner did not accept that loss.
        """
        for name, asking in list(self._asking.items()):
            if asking.done():
                del self._asking[name]
                asking.result()
        refusal = (await self._vault.ask(SettleCharges(), Opened)).refusal
        if refusal is not None:
            raise MemoryLost(refusal)
