"""Keeps the consortium's log: appends in batches, signs, and collects the nodes' cosignatures.

An entry is durable before a checkpoint with it is signed, and a checkpoint is before anybody gets
it, so that no crash can leave two histories. A restored backup can: after each start nothing is
signed until so many nodes said what they signed last that no quorum could have signed more.
No round waits for any of this.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import Final

import structlog
from prometheus_client import Gauge

from shoal_aggregator import log_store
from shoal_aggregator.log_store import COSIGNED, NEWEST, Head
from shoal_hosting.operators.view import in_words
from shoal_hosting.peers.exchange import Unavailable
from shoal_hosting.service import Resources
from shoal_hosting.storage.ledger import RESTORE
from shoal_hosting.work import Pace, Work
from shoal_protocol.log.entries import Entry, LogRequest, decode_entry
from shoal_protocol.log.notes import (
    ADD_CHECKPOINT,
    LARGEST_NOTE_BYTES,
    Checkpoint,
    LogProof,
    Submission,
    cosigners,
    decimal,
    origin_of,
    read_note,
    sign_note,
    signed_checkpoint,
)
from shoal_protocol.log.tiles import tile_at
from shoal_protocol.trust.manifest import ComputeParty, decode_manifest
from shoal_protocol.trust.succession import check_successor, log_entry
from shoal_protocol.wire.errors import ProtocolError
from shoal_protocol.wire.service_errors import ConflictingDocument, StorageUnavailable

BATCH: Final = timedelta(seconds=5)  # longest that an entry waits for others
PATIENCE: Final = timedelta(seconds=10)  # with the quorum, before a newer checkpoint is signed
LOG: Final = "log"  # what changes when there is a newer cosigned checkpoint
_LONGEST_PAUSE: Final = timedelta(minutes=1)

log = structlog.get_logger()


class Log:
    """The log of one consortium, under the aggregator's key."""

    def __init__(self, resources: Resources) -> None:
        """Go on from what the storage holds."""
        self._own = resources
        self._pending: list[Entry] = []
        self._due_at: datetime | None = None
        self._versions = 0  # of the manifest, in the log or pending
        self._has_begun = False
        self._sizes: dict[str, int] = {}  # that each node signed last, once it said so
        self._newest: Head | None = None
        self._cosigned: Head | None = None
        self._signed: set[str] = set()  # nodes that signed the newest
        self._broken: str | None = None
        self._work = Work(resources.clock, partial(Pace, longest=_LONGEST_PAUSE))
        self._appending = asyncio.Lock()
        self._size = 0
        name, registry = "shoal_log_entries", resources.registry
        gauge = Gauge(name, "Entries of the log: in it, and cosigned", ["state"], registry=registry)
        gauge.labels("appended").set_function(lambda: self._size)
        gauge.labels("cosigned").set_function(lambda: self._cosigned.size if self._cosigned else 0)
        name = "shoal_log_cosigners"
        gauge = Gauge(name, "Nodes that signed the cosigned head of the log", registry=registry)
        gauge.set_function(self._cosigners)
        name = "shoal_log_head_age_seconds"
        age = Gauge(name, "Time since the cosigned head of the log was signed", registry=registry)
        age.set_function(self._age)

    def _age(self) -> float:
        head = self._cosigned
        if head is None:
            return float("inf")
        return self._own.clock().timestamp() - head.signed_at / 1000

    def _cosigners(self) -> int:
        own, head = self._own, self._cosigned
        return (
            0 if head is None else len(cosigners(read_note(head.note), own.book.current.manifest))
        )

    def facts(self) -> dict[str, str]:
        """Return how long the log is and who signed its head, for whoever runs the aggregator."""
        head, manifest = self._cosigned, self._own.book.current.manifest
        if head is None:
            return {"Log": f"{self._size:,} entries, none cosigned yet"}
        signed_at = in_words(datetime.fromtimestamp(head.signed_at / 1000, UTC))
        signed = cosigners(read_note(head.note), manifest)
        missing = [each.name for each in manifest.compute_nodes if each.name not in signed]
        how_far = "all" if head.size == self._size else f"the first {head.size:,}"
        return {
            "Log": f"{self._size:,} entries, {how_far} cosigned by {len(signed)} of "
            f"{len(manifest.compute_nodes)} nodes ({manifest.quorum} must"
            f"{'; not ' if missing else ''}{', '.join(missing)}), signed {signed_at}"
        }

    def note(self, entry: Entry) -> None:
        """Log an entry with the next batch; it is on file here."""
        self._pending.append(entry)
        self._due_at = self._due_at or self._own.clock() + BATCH

    async def add(self, entry: Entry) -> int:
        """Log an entry now, durably, behind what waits to be logged; return where it is.

        Raises:
            StorageUnavailable
        """
        await self._append_pending()
        [place] = await self._append([entry])
        self._own.wake.set()
        return place

    async def _append_pending(self) -> None:
        most = log_store.MOST_AT_ONCE
        batch, self._pending = self._pending[:most], self._pending[most:]
        try:
            if batch:
                await self._append(batch)
        except StorageUnavailable:
            self._pending = batch + self._pending
            raise
        self._due_at = self._own.clock() if self._pending else None

    async def take(self, encoded: bytes) -> int:
        """Log what a party asks for; return where it is.

        Raises:
            MalformedDocument, UnknownSigner, WrongSigner, BadSignature, UnknownManifest
            StorageUnavailable
        """
        signed = await self._own.read(encoded, LogRequest)
        self._own.book.get(signed.body.manifest).verify(signed)
        return await self.add(signed.body.entry)

    async def take_manifest(self, encoded: bytes) -> int:
        """Log the next version of the manifest, before anybody believes it; return where it is.

        Raises:
            MalformedDocument, WrongManifest, BadSignature: it does not follow the one in force.
            ConflictingDocument: the log has another version of this number.
            StorageUnavailable
        """
        reading = self._own.worker("reading")
        signed = await reading.run_sized(len(encoded), decode_manifest, encoded)
        if signed.digest not in {each.digest for each in self._own.book.versions}:
            check_successor(self._own.book.current, signed)
        entry = decode_entry(log_entry(signed.body))
        logged = await self._own.storage.run(log_store.version, signed.body.sequence)
        if logged not in (None, entry.digest):
            raise ConflictingDocument("the log has another version of the manifest of this number")
        return await self.add(entry)

    async def _append(self, entries: Sequence[Entry]) -> list[int]:
        async with self._appending:
            places = await self._own.storage.run(log_store.append, entries)
            self._size = max(self._size, *(place + 1 for place in places))
        return places

    async def step(self) -> None:
        """Append what is due, sign what is new, and begin to ask nodes for what they lack.

        Raises:
            StorageUnavailable
        """
        if not self._has_begun:
            await self._begin()
        self._note_manifests()
        if self._pending and self._due_at is not None and self._own.clock() >= self._due_at:
            await self._append_pending()
        await self._sign()
        for node in self._own.book.current.manifest.compute_nodes:
            if node.name not in self._sizes:
                self._work.begin(f"log head of {node.name}", self._ask, node)
            elif self._newest is not None and node.name not in self._signed:
                self._work.begin(f"cosignature of {node.name}", self._collect, node)

    async def _begin(self) -> None:
        self._size = await self._own.storage.run(log_store.size_of)
        self._newest = await self._own.storage.run(log_store.head, NEWEST)
        self._cosigned = await self._own.storage.run(log_store.head, COSIGNED)
        missed = await self._own.storage.run(log_store.unlogged, self._own.name)
        came, self._pending = self._pending, []
        self._note_manifests()
        self._pending += [*missed, *came]
        self._has_begun = True

    def _note_manifests(self) -> None:
        for version in self._own.book.versions[self._versions :]:
            body = version.manifest
            self.note(decode_entry(log_entry(body)))
            self._due_at = self._own.clock()
            self._versions += 1

    @property
    def _may_sign(self) -> bool:
        manifest = self._own.book.current.manifest
        nodes = {node.name for node in manifest.compute_nodes}
        silent = len(nodes - self._sizes.keys())
        return self._broken is None and silent < manifest.quorum

    async def _sign(self) -> None:
        """Sign the tree if it has grown, and the newest checkpoint has its quorum or waits long."""
        newest, now = self._newest, round(self._own.clock().timestamp() * 1000)
        if not self._may_sign or self._size <= (newest.size if newest else 0):
            return
        if newest is not None and (self._cosigned is None or self._cosigned.size < newest.size):
            if now < newest.signed_at + PATIENCE / timedelta(milliseconds=1):
                return
        size = self._size
        root = await self._own.storage.run(log_store.root, size)
        text = Checkpoint(origin_of(self._own.book.current.manifest), size, root).text
        origin = text.partition("\n")[0]
        note = f"{text}\n{sign_note(text, origin, self._own.key_in())}"
        head = Head(size, now, note)
        await self._own.storage.run(log_store.keep, NEWEST, head)
        self._newest, self._signed = head, set()

    async def _ask(self, node: ComputeParty) -> None:
        """Hear what a node signed last, and whether it is of this log.

        Raises:
            Unavailable
        """
        origin = origin_of(self._own.book.current.manifest)
        path = f"/witness/{sha256(origin.encode()).hexdigest()}/checkpoint"
        reply = await self._own.peers.to(node).ask("GET", path, limit_bytes=LARGEST_NOTE_BYTES)
        if reply.status == 404:
            self._sizes[node.name] = 0
            return
        if reply.status != 200:
            raise Unavailable("the node does not say what it signed")
        seen = self._own_checkpoint(reply.body)
        if seen is None:  # nothing that could be held against this log
            log.warning("a node shows a checkpoint that is not ours", party=node.name)
            self._sizes[node.name] = 0
            return
        if seen.size > self._size:
            self._stop(node.name, "the log here is shorter than one that was signed")
        elif await self._own.storage.run(log_store.root, seen.size) != seen.root:
            self._stop(node.name, "the log here has another history than one that was signed")
        self._sizes[node.name] = seen.size
        self._own.wake.set()

    def _own_checkpoint(self, body: bytes) -> Checkpoint | None:
        """Return the checkpoint in an answer if this aggregator signed it, under any version."""
        for version in reversed(self._own.book.versions):
            with suppress(ProtocolError, UnicodeDecodeError):
                return signed_checkpoint(read_note(body.decode()), version.manifest)
        return None

    def _stop(self, node: str, why: str) -> None:
        if self._broken is None:
            log.error(
                f"{why}: nothing of it is signed any more. Rounds go on. Stop, and {RESTORE}; if "
                "that is lost for good, another aggregator of another name begins another log: see "
                "'The key or the log of the aggregator is lost' in docs/handbook.md",
                party=node,
            )
        self._broken = why

    async def _collect(self, node: ComputeParty) -> None:
        """Have a node sign the newest checkpoint.

        Raises:
            Unavailable
        """
        head = self._newest
        if head is None or self._broken is not None:
            return
        old = min(self._sizes[node.name], head.size)
        proof = await self._own.storage.run(log_store.consistency, old, head.size)
        body = str(Submission(old, proof, read_note(head.note))).encode()
        reply = await self._own.peers.to(node).ask(
            "POST", ADD_CHECKPOINT, body, media_type="text/plain", limit_bytes=LARGEST_NOTE_BYTES
        )
        if reply.status == 409:
            size = decimal(reply.body.decode("ascii", "replace").strip())
            self._sizes[node.name] = size
            if size > head.size:
                del self._sizes[node.name]  # it must show what it signed
            raise Unavailable("the node signed another checkpoint last")
        if reply.status != 200:
            log.warning("a node does not sign the log", party=node.name, status=reply.status)
            raise Unavailable("the node does not sign")
        self._sizes[node.name] = head.size
        await self._take(node.name, head, reply.body.decode())

    async def _take(self, node: str, asked: Head, lines: str) -> None:
        """Add a node's signature to the newest checkpoint, which may have its quorum then."""
        head, manifest = self._newest, self._own.book.current.manifest
        if head is None or head.size != asked.size:
            return
        note = read_note(head.note).with_lines(lines)
        signed = cosigners(note, manifest)
        if node not in signed:
            raise Unavailable("the node did not sign")
        head = head._replace(note=str(note))
        self._newest, self._signed = head, set(signed)
        if len(signed) >= manifest.quorum:
            await self._own.storage.run(log_store.keep, COSIGNED, head)
            self._cosigned = head
            self._own.changes.tell(LOG)
        self._own.wake.set()

    async def checkpoint(self) -> str | None:
        """Return the newest checkpoint with a quorum; None if there was none yet."""
        found = await self._own.storage.run(log_store.head, COSIGNED)
        return found.note if found else None

    async def tile(self, path: str) -> bytes | None:
        """Return the tile or bundle at a path; None if the log is too small for it.

        Raises:
            MalformedDocument: nothing is ever there.
        """
        level, index, width = tile_at(path)
        if isinstance(level, int):
            return await self._own.storage.run(log_store.tile, level, index, width)
        return await self._own.storage.run(log_store.bundle, index, width)

    async def proof(self, place: int) -> LogProof | None:
        """Return that the cosigned log has the entry at a place; None if it does not yet."""
        return await self._own.storage.run(log_store.proof, place)

    async def close(self) -> None:
        """End what is under way."""
        await self._work.close()
