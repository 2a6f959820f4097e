"""The log's transactions: entries are appended, tiles read, and checkpoints kept."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, func, select

from shoal_aggregator import schema, store
from shoal_hosting.storage.database import insert_ignoring
from shoal_protocol.log.entries import EndEntry, Entry, ManifestEntry, RoundEntry, decode_entry
from shoal_protocol.log.notes import LogProof, read_note
from shoal_protocol.log.tiles import WIDTH, Tree, encode_bundle, leaf_hash, root_of
from shoal_protocol.rounds.attestations import PartialSum
from shoal_protocol.wire.documents import decode

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
    size, places = size_of(db), []
    for entry in entries:
        place = find(db, entry)
        if place is None:
            place, encoded = size, entry.encode()
            row = {"number": size, "kind": entry.kind, "digest": entry.digest, "entry": encoded}
            db.execute(schema.log_entries.insert().values(**row, hash=leaf_hash(encoded)))
            size += 1
            _close_tiles(db, size)
        places.append(place)
    return places


def find(db: Connection, entry: Entry) -> int | None:
    """Return where the entry of this kind and digest is."""
    columns = schema.log_entries.c
    here = (columns.kind == entry.kind) & (columns.digest == entry.digest)
    return db.execute(select(columns.number).where(here)).scalar()


def version(db: Connection, sequence: int) -> str | None:
    """Return the digest of the manifest version of this number, if the log has one."""
    columns = schema.log_entries.c
    entries = db.execute(select(columns.entry).where(columns.kind == "manifest")).scalars()
    found = [decode_entry(each) for each in entries]
    of_number = [e.digest for e in found if isinstance(e, ManifestEntry) and e.sequence == sequence]
    return of_number[0] if of_number else None


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


def root(db: Connection, size: int) -> bytes:
    """Return the root of the first `size` entries."""
    return tree(db).root(size)


def consistency(db: Connection, old: int, new: int) -> list[bytes]:
    """Return the proof that the first `old` entries begin the first `new`."""
    return tree(db).consistency(old, new)


def head(db: Connection, kind: str) -> Head | None:
    """Return the head of this kind, if there is one."""
    columns = schema.log_heads.c
    query = select(columns.size, columns.signed_at, columns.note).where(columns.kind == kind)
    row = db.execute(query).first()
    return None if row is None else Head(*row)


def keep(db: Connection, kind: str, new: Head) -> None:
    """Replace the head of this kind; one of fewer entries changes nothing."""
    table = schema.log_heads
    insert = insert_ignoring(db)(table).values(kind=kind, **new._asdict())
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
        EndEntry(kind="result", digest=row.digest, round=row.round, ledgers=_ledgers(db, row.round))
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


def _ledgers(db: Connection, round_id: str) -> dict[str, str]:
    found = [
        decode(each.document, PartialSum).body
        for each in store.find_partial_sums(db, round_id, store.Standing.USED)
    ]
    return {body.node: body.charge.digest for body in found}
