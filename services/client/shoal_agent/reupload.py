"""Asks the Compute nodes what they still hold, and has the vault queue what they lost.

A node that lost its disk, or was restored from a backup, lacks shares that it acknowledged. As long
as the round takes shares, they can be sent again.
"""

import asyncio
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final

from shoal_agent.vault_link import VaultLink
from shoal_holder.messages import (
    Acknowledged,
    AskSpec,
    Bytes,
    Done,
    OpenRound,
    Receipt,
    RoundDocuments,
)
from shoal_holder.reporting import Report
from shoal_hosting.outcome import LOST
from shoal_hosting.peers.exchange import Unavailable
from shoal_hosting.peers.peer import OK, NotThere, Peer
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.wire.errors import MalformedDocument
from shoal_protocol.wire.receipt_query import decode_answer
from shoal_protocol.wire.service_errors import MissingRequest

WHEN: Final = (0.5, 0.85)  # to ask, as parts of the time from a round's opening to its deadline
SPREAD: Final = 0.1  # and up to so much later, lest all data holders ask at once
_OCTETS: Final = "application/octet-stream"
_JSON: Final = "application/json"


class Reupload:
    """Looks for a lost envelope twice in a round, and whenever a node was out of reach."""

    def __init__(self, vault: VaultLink, report: Report, random_bytes: RandomBytes) -> None:
        self._vault = vault
        self._report = report
        self._later = SPREAD * int.from_bytes(random_bytes(4), "little") / 2.0**32
        self._asked: dict[tuple[str, int], tuple[datetime, int]] = {}
        """By round and node: when, and after how many interruptions, it was last asked."""
        self._behind: set[tuple[str, int]] = set()
        """Rounds that nodes do not know any more."""

    async def look(self, known: OpenRound, nodes: Sequence[Peer], now: datetime) -> None:
        """Ask each node that is due, and queue what it lacks."""
        async with asyncio.TaskGroup() as group:
            for node, peer in enumerate(nodes):
                if peer.is_due and self._is_due(known, node, peer, now):
                    group.create_task(self._look(known.round_id, node, peer, now))

    def note_behind(self, round_id: str, node: int) -> None:
        """Note that a node does not know a round that it once accepted."""
        self._behind.add((round_id, node))

    def _is_due(self, known: OpenRound, node: int, peer: Peer, now: datetime) -> bool:
        if (known.round_id, node) in self._behind:
            return True
        asked, interruptions = self._asked.get((known.round_id, node), (known.opened_at, 0))
        window = known.deadline - known.opened_at
        times = (known.opened_at + window * (part + self._later) for part in WHEN)
        return peer.interruptions != interruptions or any(asked < time <= now for time in times)

    async def _look(self, round_id: str, node: int, peer: Peer, now: datetime) -> None:
        interruptions = peer.interruptions
        try:
            if (round_id, node) in self._behind:
                await self._announce(round_id, node, peer)
            await self._ask(round_id, node, peer)
        except NotThere:
            self.note_behind(round_id, node)
        except (Unavailable, MalformedDocument) as error:
            self._report("held not known", round=round_id, node=node, reason=str(error))
        else:
            self._asked[round_id, node] = (now, interruptions)

    async def _announce(self, round_id: str, node: int, peer: Peer) -> None:
        """Hand a node that lost a round the signed spec: the trainer did so once, long ago.

        A node that lost the job's signed request too is handed that before.
        """
        spec, request = (await self._vault.ask(AskSpec(round_id=round_id), RoundDocuments)).parts
        answer = await peer.post("/v1/rounds", spec, _JSON)
        if answer.code == MissingRequest.code:
            answer = await peer.post("/v1/jobs", request, _JSON)
            if not answer.is_refusal:
                answer = await peer.post("/v1/rounds", spec, _JSON)
        reason = answer.code if answer.is_refusal else None
        self._report("round handed on", round=round_id, node=node, reason=reason)
        self._behind.discard((round_id, node))

    async def _ask(self, round_id: str, node: int, peer: Peer) -> None:
        query = await self._vault.ask(Acknowledged(round_id=round_id, node=node), Bytes)
        if not query.parts:
            return
        path = f"/v1/rounds/{round_id}/shares/stored"
        answer = await peer.post(path, query.parts[0], _OCTETS)
        if answer.status != OK:
            raise Unavailable(f"{peer.name} answered {answer.code}")
        body = answer.json()
        stored = body.get("stored") if isinstance(body, dict) else None
        [is_stored] = decode_answer(stored, 1)
        if not is_stored:
            lost = Receipt(what="envelope", about=round_id, node=node, outcome=LOST)
            await self._vault.ask(lost, Done)
            self._report("envelope lost", round=round_id, node=node)

    def forget_others(self, rounds: Collection[str]) -> None:
        """Forget the rounds that are not among these."""
        self._asked = {key: what for key, what in self._asked.items() if key[0] in rounds}
        self._behind = {key for key in self._behind if key[0] in rounds}
