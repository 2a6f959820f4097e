"""Keeps the consortium's log: appends in batches, signs, and collects the nodes' cosignatures.

An entry is durable before a checkpoint with it is signed, and a checkpoint is before anybody gets
it, so that no crash can leave two histories. A restored backup can: after each start nothing is
signed until so many nodes said what they signed last that no quorum could have signed more.
No round waits for any of this.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple

import structlog
from prometheus_client import Gauge
from sqlalchemy import Connection, Row, select

from shoal_aggregator import schema
from shoal_kit.pace import Pace
from shoal_kit.peers.exchange import Unavailable
from shoal_protocol.log.checkpoints import (
    GENESIS,
    MOST_BETWEEN,
    Checkpoint,
    Cosignature,
    Entry,
    LogProof,
    ManifestEntry,
    Witnessed,
    entry_hash,
    followed,
)
from shoal_protocol.log.entries import (
    CHECKPOINTS,
    LogRequest,
    Submission,
    WrongStart,
)
from shoal_protocol.log.succession import check_successor
from shoal_protocol.trust.manifest import ComputeParty, Manifest
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.errors import ProtocolError
from shoal_protocol.wire.service_errors import ConflictingDocument, StorageUnavailable
from shoal_service.service import Resources
from shoal_service.storage.database import insert_ignoring
from shoal_service.storage.ledger import RESTORE
from shoal_service.work import Work

log = structlog.get_logger()

MOST_AT_ONCE = 1000  # entries in one transaction


class SignedHead(NamedTuple):
    """A checkpoint that was signed here, when, and whether a quorum of nodes signed it, too."""

    signed_at: int  # milliseconds since 1970
    witnessed: Witnessed
    is_cosigned: bool = False

    @property
    def size(self) -> int:
        """How many entries it is of."""
        return self.witnessed.checkpoint.body.size


def size_of(db: Connection) -> int:
    """Return how many entries there are."""
    numbers = schema.log_entries.c.number
    newest = db.execute(select(numbers).order_by(numbers.desc()).limit(1)).scalar()
    return 0 if newest is None else newest + 1


def head_at(db: Connection, size: int) -> str:
    """Return the head after the first `size` entries, of which there are as many."""
    columns = schema.log_entries.c
    query = select(columns.head).where(columns.number == size - 1)
    return GENESIS if size == 0 else db.execute(query).scalar_one()


def hashes(db: Connection, start: int, end: int) -> tuple[str, ...]:
    """Return the hashes of the entries from `start` on, up to `end`."""
    return tuple(map(entry_hash, page(db, start, end - start)))


def page(db: Connection, after: int, count: int) -> Sequence[bytes]:
    """Return at most `count` entries without the `after` first ones."""
    columns = schema.log_entries.c
    query = select(columns.entry).where(columns.number >= after).order_by(columns.number)
    return db.execute(query.limit(count)).scalars().all()


def append(db: Connection, entries: Sequence[Entry]) -> list[int]:
    """Append what is not in the log yet; return where each entry is."""
    size, places, columns = size_of(db), [], schema.log_entries.c
    head = head_at(db, size)
    for entry in entries:
        here = (columns.kind == entry.kind) & (columns.digest == entry.digest)
        place = db.execute(select(columns.number).where(here)).scalar()
        if place is None:
            place, encoded = size, entry.encode()
            head, size = followed(head, [entry_hash(encoded)]), size + 1
            row = {"number": place, "kind": entry.kind, "digest": entry.digest, "head": head}
            db.execute(schema.log_entries.insert().values(**row, entry=encoded))
        places.append(place)
    return places


def version(db: Connection, sequence: int) -> str | None:
    """Return the digest of the manifest version of this number, if the log has one."""
    columns = schema.log_entries.c
    entries = db.execute(select(columns.entry).where(columns.kind == "manifest")).scalars()
    versions = map(ManifestEntry.decode, entries)
    return next((each.digest for each in versions if each.sequence == sequence), None)


def newest_head(db: Connection) -> SignedHead | None:
    """Return the newest checkpoint that was signed here."""
    columns = schema.log_checkpoints.c
    newest = select(schema.log_checkpoints).order_by(columns.size.desc()).limit(1)
    return _head(db.execute(newest).first())


def cosigned_head(db: Connection, *, above: int | None = None) -> SignedHead | None:
    """Return the newest cosigned checkpoint, or the first one of more than `above` entries."""
    columns = schema.log_checkpoints.c
    cosigned = select(schema.log_checkpoints).where(columns.is_cosigned).limit(1)
    if above is None:
        return _head(db.execute(cosigned.order_by(columns.size.desc())).first())
    return _head(db.execute(cosigned.where(columns.size > above).order_by(columns.size)).first())


def _head(row: Row[Any] | None) -> SignedHead | None:
    if row is None:
        return None
    return SignedHead(row.signed_at, Witnessed.decode(row.document), row.is_cosigned)


def keep(db: Connection, head: SignedHead) -> None:
    """Keep a checkpoint, in place of the same one with fewer signatures."""
    row = {
        "signed_at": head.signed_at,
        "document": head.witnessed.encode(),
        "is_cosigned": head.is_cosigned,
    }
    insert = insert_ignoring(db.dialect.name)(schema.log_checkpoints)
    new = insert.values(size=head.size, **row)
    db.execute(new.on_conflict_do_update(index_elements=["size"], set_=row))


def proof(db: Connection, place: int) -> LogProof | None:
    """Return that a cosigned checkpoint has an entry; None if there is none that does."""
    found = cosigned_head(db, above=place) if 0 <= place < size_of(db) else None
    if found is None or found.size - 1 - place > MOST_BETWEEN:
        return None
    after = hashes(db, place + 1, found.size)
    return LogProof(before=head_at(db, place), after=after, witnessed=found.witnessed)


BATCH: Final = timedelta(seconds=5)  # longest that an entry waits for others
PATIENCE: Final = timedelta(seconds=10)  # with the quorum, before a newer checkpoint is signed
LOG: Final = "log"  # what changes when there is a newer cosigned checkpoint
_LONGEST_PAUSE: Final = timedelta(minutes=1)


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
        self._newest: SignedHead | None = None
        self._cosigned: SignedHead | None = None
        self._signed: set[str] = set()  # nodes that signed the newest
        self._broken: str | None = None
        self._work = Work(resources.clock, partial(Pace, longest=_LONGEST_PAUSE))
        self._appending = asyncio.Lock()
        self._size = 0
        registry = resources.registry
        entries = Gauge(
            "shoal_log_entries",
            "Entries of the log: in it, and cosigned",
            ["state"],
            registry=registry,
        )
        entries.labels("appended").set_function(lambda: self._size)
        entries.labels("cosigned").set_function(
            lambda: self._cosigned.size if self._cosigned else 0
        )
        Gauge(
            "shoal_log_cosigners",
            "Nodes that signed the cosigned head of the log",
            registry=registry,
        ).set_function(
            lambda: (
                len(self._cosigned.witnessed.cosigners(resources.book.current))
                if self._cosigned
                else 0
            )
        )
        Gauge(
            "shoal_log_head_age_seconds",
            "Time since the cosigned head of the log was signed",
            registry=registry,
        ).set_function(
            lambda: (
                resources.clock().timestamp() - self._cosigned.signed_at / 1000
                if self._cosigned
                else float("inf")
            )
        )

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
        most = MOST_AT_ONCE
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
        signed = await reading.run_sized(len(encoded), decode, encoded, Manifest)
        if signed.digest not in {each.digest for each in self._own.book.versions}:
            check_successor(self._own.book.current, signed)
        entry = ManifestEntry.of(signed.body)
        logged = await self._own.storage.run(version, signed.body.sequence)
        if logged not in (None, entry.digest):
            raise ConflictingDocument("the log has another version of the manifest of this number")
        return await self.add(entry)

    async def _append(self, entries: Sequence[Entry]) -> list[int]:
        async with self._appending:
            places = await self._own.storage.run(append, entries)
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
        self._size = await self._own.storage.run(size_of)
        self._newest = await self._own.storage.run(newest_head)
        self._cosigned = await self._own.storage.run(cosigned_head)
        came, self._pending = self._pending, []
        self._note_manifests()
        self._pending += came
        self._has_begun = True

    def _note_manifests(self) -> None:
        for version in self._own.book.versions[self._versions :]:
            self.note(ManifestEntry.of(version.manifest))
            self._due_at = self._own.clock()
            self._versions += 1

    async def _sign(self) -> None:
        """Sign the head if there is more, and the newest checkpoint has its quorum or waits long.

        So far beyond the newest cosigned one that a proof has room for the hashes in between.
        """
        newest, now = self._newest, round(self._own.clock().timestamp() * 1000)
        manifest = self._own.book.current.manifest
        silent = {node.name for node in manifest.compute_nodes} - self._sizes.keys()
        if self._broken is not None or len(silent) >= manifest.quorum:
            return
        cosigned = self._cosigned.size if self._cosigned else 0
        size = min(self._size, max(cosigned + MOST_BETWEEN, *self._sizes.values()))
        if newest is not None and size <= newest.size:
            return
        if newest is not None and cosigned < newest.size:
            if now < newest.signed_at + PATIENCE / timedelta(milliseconds=1):
                return
        head = SignedHead(now, Witnessed(checkpoint=await self._checkpoint(size)))
        await self._own.storage.run(keep, head)
        self._newest, self._signed = head, set()

    async def _checkpoint(self, size: int) -> Signed[Checkpoint]:
        """Sign the head of the first `size` entries, which are durable."""
        head = await self._own.storage.run(head_at, size)
        consortium, name = self._own.book.current.manifest.consortium, self._own.name
        return self._own.sign(
            Checkpoint(consortium=consortium, aggregator=name, size=size, head=head)
        )

    async def _ask(self, node: ComputeParty) -> None:
        """Hear what a node signed last, and whether it is of this log.

        Raises:
            Unavailable
        """
        reply = await self._own.peers.to(node).ask("GET", CHECKPOINTS)
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
        elif await self._own.storage.run(head_at, seen.size) != seen.head:
            self._stop(node.name, "the log here has another history than one that was signed")
        self._sizes[node.name] = seen.size
        self._own.wake.set()

    def _own_checkpoint(self, body: bytes) -> Checkpoint | None:
        """Return the checkpoint in an answer if this aggregator signed it, under any version."""
        for version in reversed(self._own.book.versions):
            with suppress(ProtocolError):
                found = Witnessed.decode(body).checked(version)
                return found if found.aggregator == self._own.name else None
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
        """Have a node sign the newest checkpoint, which may have its quorum then.

        Raises:
            Unavailable
        """
        newest, old = self._newest, self._sizes[node.name]
        if newest is None or self._broken is not None or old > newest.size:
            return
        size = min(newest.size, old + MOST_BETWEEN)  # of a node that was away, part by part
        checkpoint = newest.witnessed.checkpoint
        if size < newest.size:
            checkpoint = await self._checkpoint(size)
        after = await self._own.storage.run(hashes, old, size)
        body = Submission(after=after, checkpoint=checkpoint).encode()
        reply = await self._own.peers.to(node).ask("POST", CHECKPOINTS, body)
        if reply.status != 200:
            log.warning("a node does not sign the log", party=node.name, reason=reply.reason)
            if reply.code == WrongStart.code:
                del self._sizes[node.name]  # it must show what it signed
            raise Unavailable("the node does not sign")
        self._sizes[node.name] = size
        if self._newest is not None and self._newest.size == size:
            await self._take_cosignature(decode(reply.body, Cosignature), self._newest)
        self._own.wake.set()

    async def _take_cosignature(self, signed: Signed[Cosignature], newest: SignedHead) -> None:
        """Add a signature to the newest checkpoint, in place of an earlier one of this node.

        Raises:
            Unavailable: it is not the node's, or of another checkpoint.
        """
        checkpoint, before = newest.witnessed.checkpoint, newest.witnessed.cosignatures
        others = [each for each in before if each.signer != signed.signer]
        witnessed = Witnessed(checkpoint=checkpoint, cosignatures=(*others, signed))
        consortium = self._own.book.current
        self._signed = set(witnessed.cosigners(consortium))
        if signed.signer not in self._signed:
            raise Unavailable("the node did not sign")
        is_cosigned = len(self._signed) >= consortium.manifest.quorum
        self._newest = newest = newest._replace(witnessed=witnessed, is_cosigned=is_cosigned)
        if is_cosigned:
            await self._own.storage.run(keep, newest)
            self._cosigned = newest
            self._own.changes.tell(LOG)

    async def close(self) -> None:
        """End what is under way."""
        await self._work.close()
