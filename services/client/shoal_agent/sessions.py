"""Carries prekeys, openings and refusals of sessions between the vault and the Compute nodes."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from shoal_agent.directory import Directory
from shoal_agent.vault_link import VaultLink
from shoal_holder.messages import Done
from shoal_holder.reporting import Report
from shoal_holder.sessions.messages import (
    AskSessions,
    OpeningReceipt,
    OpenSession,
    SessionsDue,
    ShowRefusal,
)
from shoal_hosting.clock import Clock
from shoal_hosting.peers.exchange import Unavailable
from shoal_hosting.peers.peer import OK, Answer, Peer
from shoal_protocol.wire.errors import BadSignature, ProtocolError

PATIENCE: Final = timedelta(minutes=1)
"""How long a session waits for nodes that do not answer: it is opened once for all of them."""
_JSON: Final = "application/json"
_OCTETS: Final = "application/octet-stream"


class Sessions:
    """Opens sessions when the vault has them due, and shows it what nodes refused."""

    def __init__(
        self, vault: VaultLink, directory: Directory, clock: Clock, report: Report
    ) -> None:
        self._vault, self._directory, self._report = vault, directory, report
        self._clock = clock
        self._due_since: datetime | None = None

    async def step(self) -> None:
        """Fetch prekeys, and send an opening, where there is need."""
        if not self._vault.opened.takes_sessions:
            return
        due = await self._vault.ask(AskSessions(), SessionsDue)
        if due.prekeys_of:
            due = await self._open(due.prekeys_of)
        if due.parts:
            opening = due.parts[0]
            await asyncio.gather(*(self._send(name, opening) for name in due.send_to))

    async def _open(self, names: Sequence[str]) -> SessionsDue:
        """Have a session opened with all nodes that have prekeys, once they have been asked."""
        answers = await asyncio.gather(*map(self._prekey, names))
        now = self._clock()
        self._due_since = self._due_since or now
        if None in answers and now - self._due_since < PATIENCE:
            return SessionsDue()
        self._due_since = None
        prekeys = (each.body for each in answers if each is not None and each.status == OK)
        try:
            return await self._vault.ask(OpenSession(parts=tuple(prekeys)), SessionsDue)
        except ProtocolError as error:
            self._report("session not opened", reason=str(error))
            return SessionsDue()

    async def _prekey(self, name: str) -> Answer | None:
        try:
            return await self._directory.node_called(name).get("/v1/prekey")
        except Unavailable as error:
            self._report("no prekey", node=name, reason=str(error))
            return None

    async def _send(self, name: str, opening: bytes) -> None:
        peer = self._directory.node_called(name)
        try:
            answer = await peer.post("/v1/openings", opening, _JSON)
        except Unavailable as error:
            self._report("opening not sent", node=name, reason=str(error))
            return
        if answer.code == BadSignature.code:
            self._directory.note_other_key(peer)
            self._report("opening not sent", node=name, reason=answer.code)
            return
        await self._vault.ask(OpeningReceipt(node=name, outcome=answer.outcome), Done)

    async def show_refusal(self, round_id: str, node: int, peer: Peer, envelope: bytes) -> bool:
        """Show the vault the node's signed word that it lacks a session; tell if it believes it.

        Raises:
            Unavailable: the node does not give it.
        """
        answer = await peer.post("/v1/refusals", envelope, _OCTETS)
        if answer.status != OK:
            return False
        try:
            shown = ShowRefusal(round_id=round_id, node=node, parts=(answer.body,))
            await self._vault.ask(shown, Done)
        except ProtocolError as error:
            self._report("a refusal is not believed", node=node, reason=str(error))
            return False
        return True
