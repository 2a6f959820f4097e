"""Sends an answer in one message to one Compute node, which hands the other nodes their envelopes.

What no signed receipt came for is found and sent another way: by another node as soon as one is out
of reach, or a quarter of the round's window after it opened; from half of it on to each node
directly, by `delivery`.
"""

import asyncio
import base64
import binascii
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nacl.signing import VerifyKey

from shoal_agent.vault_link import VaultLink
from shoal_holder.messages import AskBundle, Bundle, Done, OpenRound, Receipt
from shoal_holder.reporting import Report
from shoal_hosting.clock import Clock
from shoal_hosting.outcome import ACKNOWLEDGED
from shoal_hosting.peers.exchange import Unavailable
from shoal_hosting.peers.peer import Answer, Peer
from shoal_protocol.sharing.envelope import frame
from shoal_protocol.sharing.received import parse_any, receipt_digest
from shoal_protocol.wire.errors import BadSignature, MalformedDocument
from shoal_protocol.wire.share_receipts import check_receipt

ANOTHER, DIRECTLY = 0.25, 0.5
"""From when on in a round's window another node is tried, and each node by itself."""


@dataclass
class _Tried:
    nodes: set[int] = field(default_factory=set)
    relayed: bool = False  # a node answered: its receipts are waited for
    relayed_again: bool = False


@dataclass(frozen=True)
class _Entry:
    """A node that is to relay, and how long its answer is waited for."""

    node: int
    peer: Peer
    seconds: float


class Relaying:
    """Sends bundles, and believes only receipts that the nodes themselves signed."""

    def __init__(
        self,
        vault: VaultLink,
        report: Report,
        clock: Clock,
        *,
        other_key: Callable[[Peer], None],
    ) -> None:
        """`other_key` is told of each node that knows another key of this holder."""
        self._vault = vault
        self._report = report
        self._clock = clock
        self._other_key = other_key
        self._tried: dict[str, _Tried] = {}

    def is_direct(self, known: OpenRound) -> bool:
        """Tell whether it is time to send each node its envelope directly."""
        return self._clock() >= known.opened_at + (known.deadline - known.opened_at) * DIRECTLY

    def forget_others(self, rounds: Collection[str]) -> None:
        """Forget the rounds that are not among these."""
        self._tried = {key: what for key, what in self._tried.items() if key in rounds}

    async def send(
        self, known: OpenRound, nodes: Sequence[Peer], keys: Sequence[VerifyKey]
    ) -> bool:
        """Send the answer to a node that was not tried yet, if it is time for one.

        Tell whether there is anything to be relayed.
        """
        bundle = await self._vault.ask(AskBundle(round_id=known.round_id), Bundle)
        if not bundle.pending:
            return False
        tried = self._tried.setdefault(known.round_id, _Tried())
        window = known.deadline - known.opened_at
        is_late = self._clock() >= known.opened_at + window * ANOTHER
        if tried.relayed_again or (tried.relayed and not is_late):
            return True
        latest = known.opened_at + window * (DIRECTLY if is_late else ANOTHER)
        by_node = {parse_any(each).header.node: each for each in bundle.parts}
        first = parse_any(bundle.parts[0]).header.answer[0]  # by chance, so that all nodes relay
        order = sorted(by_node, key=lambda node: (node - first) % len(nodes))
        for node in order:
            left = (latest - self._clock()).total_seconds()
            if left > 0 and node not in tried.nodes and nodes[node].is_due:
                tried.nodes.add(node)
                entry = _Entry(node, nodes[node], left)
                if await self._send(known.round_id, entry, by_node, keys, bundle.pending):
                    tried.relayed, tried.relayed_again = True, is_late
                    return True
        return True

    async def _send(
        self,
        round_id: str,
        entry: _Entry,
        by_node: Mapping[int, bytes],
        keys: Sequence[VerifyKey],
        pending: Collection[int],
    ) -> bool:
        """Send a bundle to a node, and hand the vault the receipts; tell whether it answered."""
        path, body = f"/v1/rounds/{round_id}/shares/relayed", frame(by_node.values())
        try:
            async with asyncio.timeout(entry.seconds):
                answer = await entry.peer.post(path, body, "application/octet-stream")
            if answer.code == BadSignature.code:
                self._other_key(entry.peer)
                self._tried[round_id].nodes.discard(entry.node)
            receipts = _receipts(answer, len(keys))
        except (Unavailable, TimeoutError, MalformedDocument) as error:
            reason = str(error) or "it takes too long"
            self._report("answer not relayed", round=round_id, node=entry.node, reason=reason)
            return False
        for node, receipt in enumerate(receipts):
            if receipt is None or node not in pending or node not in by_node:
                continue
            try:
                check_receipt(receipt, receipt_digest(by_node[node]), keys[node])
            except BadSignature:
                self._report("receipt not believed", round=round_id, node=node)
                continue
            told = Receipt(what="envelope", about=round_id, node=node, outcome=ACKNOWLEDGED)
            await self._vault.ask(told, Done)
            self._report("envelope settled", round=round_id, node=node, outcome=ACKNOWLEDGED)
        return True


def _receipts(answer: Answer, nodes: int) -> list[bytes | None]:
    """Return the receipts that a node passes on, in the manifest's order.

    Raises:
        MalformedDocument: it refused the bundle, or its answer is none.
    """
    if answer.is_refusal:
        raise MalformedDocument(answer.code)
    body: Any = answer.json()
    listed = body.get("receipts") if isinstance(body, dict) else None
    if not isinstance(listed, list) or len(listed) != nodes:
        raise MalformedDocument("there must be a receipt, or nothing, for each node")
    try:
        return [None if each is None else base64.b64decode(each, validate=True) for each in listed]
    except (TypeError, ValueError, binascii.Error):
        raise MalformedDocument("a receipt is not in base64") from None
