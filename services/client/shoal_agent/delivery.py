"""Carries envelopes from the vault's outbox to the Compute nodes.

Every attempt sends the outbox's bytes unchanged.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from shoal_agent.vault_link import VaultLink
from shoal_holder.messages import Done, Page, Pending, Receipt, Receipts
from shoal_holder.reporting import Report
from shoal_hosting.outcome import ACKNOWLEDGED
from shoal_hosting.peers.exchange import Unavailable
from shoal_hosting.peers.peer import TOO_LARGE, NotThere, Peer, outcomes
from shoal_protocol.sharing.envelope import frame
from shoal_protocol.wire.errors import MalformedDocument

MOST_ENVELOPES: Final = 256  # in one request
MOST_BYTES: Final = 1 << 20  # of one request, unless its first envelope alone is larger
_OCTETS: Final = "application/octet-stream"

Chunk = Sequence[tuple[int, bytes]]
"""(client, envelope), ascending by client."""


class Delivery:
    """Sends envelopes, several requests at once, and records each one's outcome."""

    def __init__(
        self,
        vault: VaultLink,
        report: Report,
        *,
        bulk: bool,
        concurrency: int,
        behind: Callable[[str, int], None],
    ) -> None:
        """`behind` is told of each round and node where the node does not know the round."""
        self._vault = vault
        self._report = report
        self._bulk = bulk
        self._concurrency = concurrency
        self._behind = behind
        self.open_slots()

    def open_slots(self) -> None:
        """Begin anew, possibly in another event loop; nothing may be under way."""
        self._slots = asyncio.Semaphore(self._concurrency)
        self._settled: dict[str, list[Receipt]] = {}  # by round
        self._settling = asyncio.Lock()

    async def send_pending(self, round_id: str, nodes: Sequence[Peer]) -> None:
        """Send what the outbox still holds for a round, to each node that may be asked now."""
        async with asyncio.TaskGroup() as group:
            for node, peer in enumerate(nodes):
                group.create_task(self._send_pages(group, round_id, node, peer))

    async def _send_pages(
        self, group: asyncio.TaskGroup, round_id: str, node: int, peer: Peer
    ) -> None:
        after = -1
        while peer.is_due:
            asked = Pending(
                what="envelopes",
                about=round_id,
                node=node,
                after=after,
                count=MOST_ENVELOPES,
                total_bytes=MOST_BYTES,
            )
            page = await self._vault.ask(asked, Page)
            if not page.clients:
                return
            after = page.clients[-1]
            chunk = list(zip(page.clients, page.parts, strict=True))
            await self._start(group, round_id, node, peer, chunk)

    async def _start(
        self, group: asyncio.TaskGroup, round_id: str, node: int, peer: Peer, chunk: Chunk
    ) -> None:
        """Send a chunk in tasks of `group`, each as soon as there is a slot for it."""
        size = len(chunk) if self._bulk else 1
        for first in range(0, len(chunk), size):
            await self._slots.acquire()
            part = chunk[first : first + size]
            group.create_task(self._send_and_release(round_id, node, peer, part))

    async def _send_and_release(self, round_id: str, node: int, peer: Peer, chunk: Chunk) -> None:
        try:
            if peer.is_due:
                await self._send(round_id, node, peer, chunk)
        except (Unavailable, MalformedDocument) as error:
            if isinstance(error, NotThere):
                self._behind(round_id, node)
            self._report("envelopes not sent", round=round_id, node=node, reason=str(error))
        finally:
            self._slots.release()

    async def _send(self, round_id: str, node: int, peer: Peer, chunk: Chunk) -> None:
        path = f"/v1/rounds/{round_id}/shares"
        if len(chunk) == 1:
            answer = await peer.post(path, chunk[0][1], _OCTETS)
            found: list[str | None] = [answer.outcome]
        else:
            answer = await peer.post(f"{path}/bulk", frame(each for _, each in chunk), _OCTETS)
            if answer.status == TOO_LARGE:
                await self._send_parts(round_id, node, peer, chunk, len(chunk) // 2)
                return
            found = outcomes(answer, len(chunk))
        settled = [
            Receipt(client=client, outcome=outcome, node=node)
            for (client, _), outcome in zip(chunk, found, strict=True)
            if outcome is not None
        ]
        await self._settle(round_id, settled)
        acknowledged = sum(each.outcome == ACKNOWLEDGED for each in settled)
        self._report(
            "envelopes settled",
            round=round_id,
            node=node,
            acknowledged=acknowledged,
            refused=len(settled) - acknowledged,
        )

    async def _settle(self, round_id: str, settled: Sequence[Receipt]) -> None:
        """Store outcomes durably; those that arrive during a write share the next one."""
        self._settled.setdefault(round_id, []).extend(settled)
        async with self._settling:
            batch = tuple(self._settled.pop(round_id, ()))
            if batch:
                await self._vault.ask(
                    Receipts(what="envelopes", about=round_id, receipts=batch), Done
                )

    async def _send_parts(
        self, round_id: str, node: int, peer: Peer, chunk: Chunk, size: int
    ) -> None:
        for start in range(0, len(chunk), size):
            await self._send(round_id, node, peer, chunk[start : start + size])
