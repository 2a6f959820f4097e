"""Takes all envelopes of an answer in one message, and hands the other nodes theirs.

Nothing is remembered but counts: a node's own signed receipt tells the data holder that it has its
envelope, and what no receipt came for the holder sends again.
"""

import asyncio
import base64
import binascii
import json
from collections.abc import Sequence
from typing import Final

from shoal_compute.round_book import RoundBook
from shoal_compute.rounds import Round
from shoal_compute.uploading import Uploads
from shoal_hosting.manifests.present import at_present
from shoal_hosting.peers.exchange import Unavailable, json_in
from shoal_hosting.service import Resources
from shoal_hosting.storage.group_commit import Batches
from shoal_protocol.sharing.envelope import frame
from shoal_protocol.sharing.received import Envelope, parse_any, receipt_digest, unframe
from shoal_protocol.sharing.session_envelope import SessionEnvelope
from shoal_protocol.trust.manifest import ServiceParty
from shoal_protocol.wire.errors import MalformedDocument, NotReady, ProtocolError
from shoal_protocol.wire.service_errors import MalformedEnvelope
from shoal_protocol.wire.share_receipts import sign_receipt

MOST_BUNDLES: Final = 8  # of one data holder in a round
PATIENCE_SECONDS: Final = 8.0  # for the other nodes' receipts
_LARGEST_PORTION: Final = 1_000  # envelopes that are handed on together,
_PORTION_BYTES: Final = 8 << 20  # and about how many bytes

AnyEnvelope = Envelope | SessionEnvelope
Handed = tuple[Round, AnyEnvelope]


class Relays:
    """Relays data holders' bundles to the other nodes."""

    def __init__(self, resources: Resources, rounds: RoundBook, uploads: Uploads) -> None:
        """Begin without bundles."""
        self._own, self._rounds, self._uploads = resources, rounds, uploads
        self._signing = resources.worker("receipts")
        self._lines: dict[ServiceParty, Batches[Handed, bytes | None]] = {}

    async def take(self, round_id: str, body: bytes) -> list[bytes | None]:
        """Store this node's envelope and hand on the others; return each node's receipt.

        Receipts are in the manifest's order, None where there is none. Nothing is handed on for a
        data holder whose own envelope here does not pass every check.

        Raises:
            MalformedEnvelope: these are not envelopes of one answer, one for this node.
            NotReady: too many bundles of the data holder came in this round.
            ProtocolError: why this node refuses its own envelope.
        """
        known = await self._rounds.find(round_id)
        by_node = _bundle(known, body)
        own = by_node.pop(known.intake.node)
        await self._uploads.take(round_id, own.encoded)
        known.bundles[own.header.holder] += 1
        if known.bundles[own.header.holder] > MOST_BUNDLES:
            raise NotReady("too many bundles of this data holder in this round")
        parties = [
            at_present(self._own.book, each) for each in known.consortium.manifest.compute_nodes
        ]
        handed = {
            node: asyncio.ensure_future(self._line(parties[node]).submit((known, each)))
            for node, each in by_node.items()
        }
        receipts: list[bytes | None] = [None] * len(parties)
        [receipts[known.intake.node]] = await self._receipts(known, [own.encoded], [200])
        if handed:
            await asyncio.wait(handed.values(), timeout=PATIENCE_SECONDS)
        for node, future in handed.items():
            receipts[node] = future.result() if future.done() else None
        return receipts

    async def receipts(
        self, round_id: str, envelopes: Sequence[bytes], statuses: Sequence[int | ProtocolError]
    ) -> list[bytes | None]:
        """Return this node's receipt for each envelope that it holds, None for the others.

        Raises:
            UnknownRound, StorageUnavailable
        """
        return await self._receipts(await self._rounds.find(round_id), envelopes, statuses)

    async def _receipts(
        self, known: Round, envelopes: Sequence[bytes], statuses: Sequence[int | ProtocolError]
    ) -> list[bytes | None]:
        key = self._own.party.signing_key_in(known.consortium)

        def sign() -> list[bytes | None]:
            return [
                sign_receipt(receipt_digest(each), key) if isinstance(status, int) else None
                for each, status in zip(envelopes, statuses, strict=True)
            ]

        return await self._signing.run(sign)

    def _line(self, party: ServiceParty) -> Batches[Handed, bytes | None]:
        if party not in self._lines:

            async def hand_on(batch: list[Handed]) -> list[bytes | None]:
                return await self._hand_on(party, batch)

            self._lines[party] = Batches(hand_on, largest=_LARGEST_PORTION)
        return self._lines[party]

    async def _hand_on(self, party: ServiceParty, batch: list[Handed]) -> list[bytes | None]:
        receipts: list[bytes | None] = [None] * len(batch)
        for round_id in {known.id for known, _ in batch}:
            portion: list[int] = []
            size = 0
            for place, (known, envelope) in enumerate(batch):
                if known.id == round_id:
                    portion.append(place)
                    size += len(envelope.encoded)
                if size > _PORTION_BYTES or place == len(batch) - 1:
                    envelopes = [batch[each][1].encoded for each in portion]
                    came = await self._send(party, round_id, envelopes)
                    for each, receipt in zip(portion, came, strict=True):
                        receipts[each] = receipt
                    portion, size = [], 0
        return receipts

    async def _send(
        self, party: ServiceParty, round_id: str, envelopes: Sequence[bytes]
    ) -> list[bytes | None]:
        """Return the receipts of a node for envelopes, None for those that it gives none for."""
        nothing: list[bytes | None] = [None] * len(envelopes)
        if not envelopes:
            return nothing
        path = f"/v1/rounds/{round_id}/shares/bulk?receipts=1"
        try:
            reply = await self._own.peers.to(party).ask(
                "POST", path, frame(envelopes), media_type="application/octet-stream"
            )
            listed = json_in(reply.body)["outcomes"]
            receipts = [_receipt(each.get("receipt")) for each in listed]
        except (Unavailable, MalformedDocument, KeyError, TypeError, AttributeError):
            return nothing  # the data holder finds another way
        return receipts if len(receipts) == len(envelopes) else nothing


def encode_receipts(receipts: Sequence[bytes | None]) -> bytes:
    """Return the answer to a bundle."""
    listed = [None if each is None else base64.b64encode(each).decode() for each in receipts]
    return json.dumps({"receipts": listed}, separators=(",", ":")).encode()


def _receipt(listed: object) -> bytes | None:
    try:
        return base64.b64decode(listed, validate=True) if isinstance(listed, str) else None
    except binascii.Error:
        return None


def _bundle(known: Round, body: bytes) -> dict[int, AnyEnvelope]:
    """Return the envelopes of one answer by their nodes, this node's among them.

    Raises:
        MalformedEnvelope, UnsupportedVersion
    """
    by_node: dict[int, AnyEnvelope] = {}
    count = 0
    for encoded in unframe(body):
        count += 1
        envelope = parse_any(encoded)
        by_node[envelope.header.node] = envelope
        if len(encoded) > known.intake.largest_envelope or len(by_node) < count:
            raise MalformedEnvelope("a bundle has one envelope of a round for each node")
    if known.intake.node not in by_node or max(by_node) >= known.intake.nodes:
        raise MalformedEnvelope("a bundle has an envelope for the node that it is sent to")
    headers = [each.header for each in by_node.values()]
    if len({(each.holder, each.round_id, each.answer) for each in headers}) > 1:
        raise MalformedEnvelope("the envelopes of a bundle are of one answer")
    return by_node
