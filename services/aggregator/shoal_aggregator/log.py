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
from hashlib import sha256
from typing import Final, NamedTuple

import structlog
from prometheus_client import Gauge
from sqlalchemy import ColumnElement, Connection, func, select

from shoal_aggregator import schema, store
from shoal_hosting.pace import Pace
from shoal_hosting.peers.exchange import Unavailable
from shoal_hosting.service import Resources
from shoal_hosting.storage.database import insert_ignoring
from shoal_hosting.storage.ledger import RESTORE
from shoal_hosting.work import Work
from shoal_protocol.log.entries import (
    EndEntry,
    Entry,
    LogRequest,
    ManifestEntry,
    RoundEntry,
    decode_entry,
)
from shoal_protocol.log.notes import (
    ADD_CHECKPOINT,
    LARGEST_NOTE_BYTES,
    Checkpoint,
    LogProof,
    Submission,
    cosigners,
    decimal,
    read_note,
    sign_note,
    signed_checkpoint,
)
from shoal_protocol.log.tiles import WIDTH, Tree, encode_bundle, leaf_hash, root_of
from shoal_protocol.rounds.attestations import PartialSum
from shoal_protocol.trust.manifest import ComputeParty, Manifest
from shoal_protocol.trust.succession import check_successor, log_entry, origin_of
from shoal_protocol.wire.documents import decode
from shoal_protocol.wire.errors import ProtocolError
from shoal_protocol.wire.service_errors import ConflictingDocument, StorageUnavailable

log = structlog.get_logger()

NEWEST, COSIGNED = "newest", "cosigned"
MOST_AT_ONCE = 1000  # entries in one transaction


class Head(NamedTuple):
    """A signed checkpoint of `size` entries, as it is written, and when it was signed."""

    size: int
    signed_at: int  # milliseconds since 1970
    note: str


def size_of(db: Connection) -> int:
    """Return how many entries there are."""
    newest = db.execute(select(func.max(schema.log_entries.c.number))).scalar()
    return 0 if newest is None else int(newest) + 1


def append(db: Connection, entries: Sequence[Entry]) -> list[int]:
    """Append what is not in the log yet; return where each entry is."""
    size, places, columns = size_of(db), [], schema.log_entries.c
    for entry in entries:
        here = (columns.kind == entry.kind) & (columns.digest == entry.digest)
        place = db.execute(select(columns.number).where(here)).scalar()
        if place is None:
            place, encoded = size, entry.encode()
            row = {"number": size, "kind": entry.kind, "digest": entry.digest, "entry": encoded}
            db.execute(schema.log_entries.insert().values(**row, hash=leaf_hash(encoded)))
            size += 1
            _close_tiles(db, size)
        places.append(place)
    return places


def version(db: Connection, sequence: int) -> str | None:
    """Return the digest of the manifest version of this number, if the log has one."""
    columns = schema.log_entries.c
    entries = db.execute(select(columns.entry).where(columns.kind == "manifest")).scalars()
    versions = (each for each in map(decode_entry, entries) if isinstance(each, ManifestEntry))
    return next((each.digest for each in versions if each.sequence == sequence), None)


def _close_tiles(db: Connection, size: int) -> None:
    """Keep the roots of the tiles that became full with entry `size`."""
    level = 0
    while size % WIDTH == 0:
        size //= WIDTH
        tile = _hashes(db, level, size - 1, WIDTH)
        level += 1
        row = {"level": level, "number": size - 1, "hash": root_of(tile)}
        db.execute(schema.log_nodes.insert().values(**row))


def _hashes(db: Connection, level: int, index: int, width: int) -> list[bytes]:
    table = schema.log_nodes if level else schema.log_entries
    number = table.c.number
    query = select(table.c.hash).where(number.between(index * WIDTH, index * WIDTH + width - 1))
    if level:
        query = query.where(schema.log_nodes.c.level == level)
    return list(db.execute(query.order_by(number)).scalars())


def tile(db: Connection, level: int, index: int, width: int) -> bytes | None:
    """Return a tile; None if the log is too small for it."""
    hashes = _hashes(db, level, index, width)
    return b"".join(hashes) if len(hashes) == width else None


def bundle(db: Connection, index: int, width: int) -> bytes | None:
    """Return a bundle of entries; None if the log is too small for it."""
    columns = schema.log_entries.c
    here = columns.number.between(index * WIDTH, index * WIDTH + width - 1)
    query = select(columns.entry).where(here).order_by(columns.number)
    entries = db.execute(query).scalars().all()
    return encode_bundle(entries) if len(entries) == width else None


def tree(db: Connection) -> Tree:
    """Return the tree, to be read within this transaction."""
    return Tree(size_of(db), lambda *where: tile(db, *where) or b"")


def head(db: Connection, kind: str) -> Head | None:
    """Return the head of this kind, if there is one."""
    columns = schema.log_heads.c
    query = select(columns.size, columns.signed_at, columns.note).where(columns.kind == kind)
    row = db.execute(query).first()
    return None if row is None else Head(*row)


def keep(db: Connection, kind: str, new: Head) -> None:
    """Replace the head of this kind; one of fewer entries changes nothing."""
    table = schema.log_heads
    insert = insert_ignoring(db.dialect.name)(table).values(kind=kind, **new._asdict())
    replaced = insert.on_conflict_do_update(
        index_elements=["kind"], set_=new._asdict(), where=table.c.size <= new.size
    )
    db.execute(replaced)


def proof(db: Connection, index: int) -> LogProof | None:
    """Return that the newest cosigned checkpoint has an entry; None if it does not reach so far."""
    found = head(db, COSIGNED)
    if found is None or not 0 <= index < found.size:
        return None
    return LogProof(index, tree(db).inclusion(index, found.size), read_note(found.note))


def unlogged(db: Connection, aggregator: str) -> list[Entry]:
    """Return the entries of all rounds and their ends that are not in the log, in order."""
    own, logged = schema.rounds.c, schema.log_entries.c

    def missing(kind: str, digest: ColumnElement[str]) -> ColumnElement[bool]:
        return ~select(logged.number).where(logged.kind == kind, logged.digest == digest).exists()

    query = select(own.id, own.job, own.number).where(missing("round", own.id))
    entries: list[Entry] = [
        RoundEntry(digest=row.id, job=row.job, number=row.number)
        for row in db.execute(query.order_by(own.job, own.number))
    ]
    results, ends = schema.results.c, schema.abandonments.c
    published = select(results.round, results.digest).where(missing("result", results.digest))
    entries += [
        EndEntry(
            kind="result",
            digest=row.digest,
            round=row.round,
            ledgers={
                body.node: body.charge.digest
                for encoded in store.find_partial_sums(db, row.round, store.Standing.USED)
                for body in [decode(encoded, PartialSum).body]
            },
        )
        for row in db.execute(published.order_by(results.round)).all()
    ]
    abandoned = select(ends.round, ends.digest).where(
        missing("abandonment", ends.digest), ends.party == aggregator
    )
    entries += [
        EndEntry(kind="abandonment", digest=row.digest, round=row.round, ledgers={})
        for row in db.execute(abandoned.order_by(ends.round))
    ]
    return entries


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
        self._newest: Head | None = None
        self._cosigned: Head | None = None
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
                len(cosigners(read_note(self._cosigned.note), resources.book.current.manifest))
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
        entry = decode_entry(log_entry(signed.body))
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
        self._newest = await self._own.storage.run(head, NEWEST)
        self._cosigned = await self._own.storage.run(head, COSIGNED)
        missed = await self._own.storage.run(unlogged, self._own.name)
        came, self._pending = self._pending, []
        self._note_manifests()
        self._pending += [*missed, *came]
        self._has_begun = True

    def _note_manifests(self) -> None:
        for version in self._own.book.versions[self._versions :]:
            self.note(decode_entry(log_entry(version.manifest)))
            self._due_at = self._own.clock()
            self._versions += 1

    async def _sign(self) -> None:
        """Sign the tree if it has grown, and the newest checkpoint has its quorum or waits long."""
        newest, now = self._newest, round(self._own.clock().timestamp() * 1000)
        manifest = self._own.book.current.manifest
        silent = {node.name for node in manifest.compute_nodes} - self._sizes.keys()
        if self._broken is not None or len(silent) >= manifest.quorum:
            return
        if self._size <= (newest.size if newest else 0):
            return
        if newest is not None and (self._cosigned is None or self._cosigned.size < newest.size):
            if now < newest.signed_at + PATIENCE / timedelta(milliseconds=1):
                return
        size = self._size
        root_hash = await self._own.storage.run(lambda db: tree(db).root(size))
        text = Checkpoint(origin_of(manifest), size, root_hash).text
        origin = text.partition("\n")[0]
        note = f"{text}\n{sign_note(text, origin, self._own.key_in())}"
        head = Head(size, now, note)
        await self._own.storage.run(keep, NEWEST, head)
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
        elif await self._own.storage.run(lambda db: tree(db).root(seen.size)) != seen.root:
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
        """Have a node sign the newest checkpoint, which may have its quorum then.

        Raises:
            Unavailable
        """
        head = self._newest
        if head is None or self._broken is not None:
            return
        old = min(self._sizes[node.name], head.size)
        proof = await self._own.storage.run(lambda db: tree(db).consistency(old, head.size))
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
        newest, manifest = self._newest, self._own.book.current.manifest
        if newest is None or newest.size != head.size:
            return
        note = read_note(newest.note).with_lines(reply.body.decode())
        signed = cosigners(note, manifest)
        if node.name not in signed:
            raise Unavailable("the node did not sign")
        newest = newest._replace(note=str(note))
        self._newest, self._signed = newest, set(signed)
        if len(signed) >= manifest.quorum:
            await self._own.storage.run(keep, COSIGNED, newest)
            self._cosigned = newest
            self._own.changes.tell(LOG)
        self._own.wake.set()

    async def close(self) -> None:
        """End what is under way."""
        await self._work.close()
