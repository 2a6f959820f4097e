"""Carries a round's envelopes from the vault's outbox to the Compute nodes.

Every attempt sends the same bytes, but for the signature, which is made by the key in force.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from shoal_agent.vault_link import VaultLink
from shoal_holder.messages import Bytes, Done, Pending, Receipt
from shoal_holder.reporting import Report
from shoal_hosting.peers.exchange import Unavailable
from shoal_hosting.peers.peer import NotThere, Peer
from shoal_protocol.wire.errors import BadSignature

SETTLED: Final = "envelope settled"
_OCTETS: Final = "application/octet-stream"


class Delivery:
    """Sends one envelope to each node, to all nodes at once, and records each one's outcome."""

    def __init__(
        self,
        vault: VaultLink,
        report: Report,
        *,
        behind: Callable[[str, int], None],
        other_key: Callable[[Peer], None],
    ) -> None:
        """`behind` is told of each round and node where the node does not know the round.

        `other_key` is told of each node that knows another key of this holder.
        """
        self._vault = vault
        self._report = report
        self._behind = behind
        self._other_key = other_key

    async def send_pending(self, round_id: str, nodes: Sequence[Peer]) -> None:
        """Send what the outbox still holds for a round, to each node that may be asked now."""
        async with asyncio.TaskGroup() as group:
            for node, peer in enumerate(nodes):
                if peer.is_due:
                    group.create_task(self._send(round_id, node, peer))

    async def _send(self, round_id: str, node: int, peer: Peer) -> None:
        pending = await self._vault.ask(Pending(what="envelope", about=round_id, node=node), Bytes)
        if not pending.parts:
            return
        path = f"/v1/rounds/{round_id}/shares"
        try:
            answer = await peer.post(path, pending.parts[0], _OCTETS)
        except Unavailable as error:
            if isinstance(error, NotThere):
                self._behind(round_id, node)
            self._report("envelope not sent", round=round_id, node=node, reason=str(error))
            return
        if answer.code == BadSignature.code:
            self._other_key(peer)
            self._report("envelope not sent", round=round_id, node=node, reason=answer.code)
            return
        receipt = Receipt(what="envelope", about=round_id, node=node, outcome=answer.outcome)
        await self._vault.ask(receipt, Done)
        self._report(SETTLED, round=round_id, node=node, outcome=answer.outcome)
