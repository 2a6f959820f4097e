"""Asks the Compute nodes what they still hold, and queues what they lost; it sends no envelope.

A node that lost its disk, or came back from a backup, has forgotten what it acknowledged. As long
as the round takes shares, whoever sent them can mend that.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from shoal_client import outbox
from shoal_client.background import Background
from shoal_client.peer import OK, NotThere, Peer
from shoal_client.reporting import Report
from shoal_hosting.exchange import Unavailable
from shoal_protocol.errors import MalformedDocument
from shoal_protocol.held import MOST_ENTRIES, decode_answer, encode_query
from shoal_protocol.rounds import RoundSpec
from shoal_protocol.sharing import RandomBytes

WHEN: Final = (0.5, 0.85)  # to ask, as parts of the time from a round's opening to its deadline
SPREAD: Final = 0.1  # and up to so much later, lest all data holders ask at once
_OCTETS: Final = "application/octet-stream"
_JSON: Final = "application/json"


class Repair:
    """Looks twice in a round, and whenever a node was out of reach, for what a node lost."""

    def __init__(self, background: Background, report: Report, random_bytes: RandomBytes) -> None:
        self._background = background
        self._report = report
        self._later = SPREAD * int.from_bytes(random_bytes(4), "little") / 2.0**32
        self._asked: dict[tuple[str, int], tuple[datetime, int]] = {}
        """By round and node: when, and after how many interruptions, it was last asked."""
        self._behind: set[tuple[str, int]] = set()
        """Rounds that nodes do not know any more."""

    async def look(
        self, round_id: str, spec: RoundSpec, encoded: bytes, nodes: Sequence[Peer], now: datetime
    ) -> None:
        """Ask each node that is due, and queue what it lacks; `encoded` is the signed spec."""
        async with asyncio.TaskGroup() as group:
            for node, peer in enumerate(nodes):
                if peer.is_due and self._is_due(round_id, spec, node, peer, now):
                    group.create_task(self._look(round_id, encoded, node, peer, now))

    def note_behind(self, round_id: str, node: int) -> None:
        """Note that a node does not know a round that it once accepted."""
        self._behind.add((round_id, node))

    def _is_due(self, round_id: str, spec: RoundSpec, node: int, peer: Peer, now: datetime) -> bool:
        if (round_id, node) in self._behind:
            return True
        asked, interruptions = self._asked.get((round_id, node), (spec.opened_at, 0))
        window = spec.deadline - spec.opened_at
        times = (spec.opened_at + window * (part + self._later) for part in WHEN)
        return peer.interruptions != interruptions or any(asked < time <= now for time in times)

    async def _look(
        self, round_id: str, encoded: bytes, node: int, peer: Peer, now: datetime
    ) -> None:
        interruptions = peer.interruptions
        try:
            if (round_id, node) in self._behind:
                await self._announce(round_id, encoded, node, peer)
            await self._ask(round_id, node, peer)
        except NotThere:
            self.note_behind(round_id, node)
        except (Unavailable, MalformedDocument) as error:
            self._report("held not known", round=round_id, node=node, reason=str(error))
        else:
            self._asked[round_id, node] = (now, interruptions)

    async def _announce(self, round_id: str, encoded: bytes, node: int, peer: Peer) -> None:
        """Hand a node that lost a round the signed spec: the trainer did so once, long ago."""
        answer = await peer.post("/v1/rounds", encoded, _JSON)
        reason = answer.code if answer.is_refusal else None
        self._report("round handed on", round=round_id, node=node, reason=reason)
        self._behind.discard((round_id, node))

    async def _ask(self, round_id: str, node: int, peer: Peer) -> None:
        after = -1
        while page := await self._background.disk(
            outbox.acknowledged_envelopes, round_id, node, after=after, count=MOST_ENTRIES
        ):
            after = page[-1][0]
            path = f"/v1/rounds/{round_id}/shares/held"
            answer = await peer.post(path, encode_query(page), _OCTETS)
            if answer.status != OK:
                raise Unavailable(f"{peer.name} answered {answer.code}")
            body = answer.json()
            held = decode_answer(body.get("held") if isinstance(body, dict) else None, len(page))
            lost = [client for (client, _), here in zip(page, held, strict=True) if not here]
            if lost:
                await self._background.disk(outbox.send_again, round_id, node, lost)
                self._report("envelopes lost", round=round_id, node=node, count=len(lost))

    def forget(self, round_id: str) -> None:
        """Forget a round that is over."""
        for key in [key for key in self._asked if key[0] == round_id]:
            del self._asked[key]
        self._behind = {key for key in self._behind if key[0] != round_id}
