"""A service's journal in its database: hash-chained rows that only grow.

A head row is locked last in each transaction that appends, so that a place is given once, whichever
replica asks for it. The statement is signed within that transaction, over its place.
"""

import secrets
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    CheckConstraint,
    Column,
    Connection,
    Integer,
    MetaData,
    Row,
    String,
    Table,
    UniqueConstraint,
    event,
    select,
    update,
)

from shoal_protocol.journal import (
    EMPTY,
    PUBLIC,
    Chain,
    Head,
    Link,
    Shown,
    ShownStatement,
    Statement,
    content_hash,
    entry_hash,
)
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.encoding import canonical_json, parse_canonical_json
from shoal_protocol.wire.errors import LedgerBroken, ProtocolError
from shoal_service.storage.database import Bytes, only_changes, only_grows
from shoal_service.storage.database_memory import StorageThread

LARGEST_PAGE_BYTES: Final = 1 << 20
"""Of one page, which has one entry at least."""

Attest = Callable[[Link], Signed[Statement]]
"""Signs a statement over its place."""


class Kept(NamedTuple):
    """A signed statement on file, and the last entry of the journal after it was kept."""

    document: bytes
    head: Head


class JournalTables:
    """The two tables of a journal, and the transactions on them."""

    def __init__(self, metadata: MetaData) -> None:
        """Add the tables to `metadata`."""
        self.entries = Table(
            "journal",
            metadata,
            Column("number", Integer, primary_key=True, autoincrement=False),  # without gaps
            Column("epoch", String(48), nullable=False),
            Column("previous", String(64), nullable=False),
            Column("kind", String(32), nullable=False),
            Column("subject", String(200), nullable=False),
            Column("salt", String(32), nullable=False),
            Column("body", Bytes, nullable=False),  # the signed document
            Column("hash", String(64), nullable=False),  # of all of the above
            UniqueConstraint("kind", "subject"),
        )
        self.head = Table(
            "journal_head",
            metadata,
            Column("one", Integer, CheckConstraint("one = 1"), primary_key=True),
            Column("epoch", String(48), nullable=False),  # of the entries that are appended
            Column("number", Integer, nullable=False),
            Column("hash", String(64), nullable=False),
        )
        only_grows(self.entries)
        only_changes(self.head)
        event.listen(self.head, "after_create", _begin)

    def append(self, db: Connection, after: Head, kind: str, subject: str, attest: Attest) -> Kept:
        """Keep the statement that `attest` signs over its place; return it, or the one on file.

        There is one of each kind about each subject, for ever. The entry `after`, which this
        process saw, must still be there. `db` locks nothing else afterwards.

        Raises:
            LedgerBroken: `after` is gone: the database was set back.
        """
        epoch, head = self._locked_head(db)
        if not self.holds(db, after):
            raise LedgerBroken("an entry of the journal is gone: the database was set back")
        if (on_file := self.find(db, kind, subject)) is not None:
            return Kept(on_file, head)
        link = Link(epoch=epoch, number=head.number + 1, previous=head.hash)
        signed = attest(link)
        if (signed.body.kind, signed.body.subject, signed.body.entry) != (kind, subject, link):
            raise ValueError("the statement is of another kind, subject or place")
        salt, body = secrets.token_hex(16), signed.encode()
        newest = entry_hash(link, content_hash(salt, kind, subject, body))
        row = {"kind": kind, "subject": subject, "salt": salt, "body": body, "hash": newest}
        db.execute(self.entries.insert().values(**link.model_dump(), **row))
        db.execute(update(self.head).values(number=link.number, hash=newest))
        return Kept(body, Head(link.number, newest))

    def _locked_head(self, db: Connection) -> tuple[str, Head]:
        columns = self.head.c
        query = select(columns.epoch, columns.number, columns.hash).with_for_update()
        row = db.execute(query).one_or_none()
        if row is None:
            raise LedgerBroken("the journal's head is gone")
        return row.epoch, Head(row.number, row.hash)

    def holds(self, db: Connection, head: Head) -> bool:
        """Tell whether `head` is or was the journal's last entry."""
        columns = self.entries.c
        query = select(columns.hash).where(columns.number == head.number)
        return head == EMPTY or db.execute(query).scalar_one_or_none() == head.hash

    def find(self, db: Connection, kind: str, subject: str) -> bytes | None:
        """Return the signed statement of a kind about a subject, or None."""
        columns = self.entries.c
        query = select(columns.body).where(columns.kind == kind, columns.subject == subject)
        body: bytes | None = db.execute(query).scalar_one_or_none()
        return body

    def of_kind(self, db: Connection, kind: str) -> Iterator[bytes]:
        """Return all signed statements of a kind, in order."""
        columns = self.entries.c
        query = select(columns.body).where(columns.kind == kind).order_by(columns.number)
        return iter(db.execute(query).scalars())

    def page(self, db: Connection, after: int, count: int) -> list[Shown]:
        """Return at most `count` entries beyond number `after`, as everybody may read them.

        There are fewer if they are large.

        Raises:
            LedgerBroken: a row is not one that this program wrote.
        """
        columns, size = self.entries.c, 0
        found: list[Shown] = []
        query = select(self.entries).where(columns.number > after).order_by(columns.number)
        for row in db.execute(query.limit(count)):
            size += len(row.body)
            if found and size > LARGEST_PAGE_BYTES:
                break
            found.append(_read(row))
        return found

    def verify(self, db: Connection, *kinds: type[Statement]) -> Head:
        """Check the whole journal, which has statements of these kinds; return its last entry.

        Raises:
            LedgerBroken: it is not whole.
        """
        _, head = self._locked_head(db)
        chain = Chain(*kinds)
        for row in db.execute(select(self.entries).order_by(self.entries.c.number)):
            try:
                chain.follow(_read(row))
            except ProtocolError as error:
                raise LedgerBroken(f"the journal is broken: {error}") from error
        if chain.head != head:
            raise LedgerBroken("the journal does not end where it did: entries were removed")
        return head


def _begin(head: Table, connection: Connection, **_: object) -> None:
    epoch = f"1-{secrets.token_hex(16)}"
    row = {"one": 1, "epoch": epoch, "number": EMPTY.number, "hash": EMPTY.hash}
    connection.execute(head.insert().values(**row))


def _read(row: Row[Any]) -> Shown:
    """Build an entry from all columns of its row, so that any that was changed shows.

    Raises:
        LedgerBroken
    """
    try:
        shown = Shown(
            epoch=row.epoch,
            number=row.number,
            previous=row.previous,
            content=content_hash(row.salt, row.kind, row.subject, row.body),
            statement=ShownStatement(
                salt=row.salt,
                kind=row.kind,
                subject=row.subject,
                document=parse_canonical_json(row.body),
            ),
        )
        if shown.hash != row.hash:
            raise ValueError("the row is not the entry of which it has the hash")
    except (ProtocolError, ValueError, TypeError):  # of a field
        raise LedgerBroken(
            f"entry {row.number} of the journal is not one that this program wrote"
        ) from None
    return shown if row.kind in PUBLIC else shown.model_copy(update={"statement": None})


class Journal:
    """A service's journal as this process knows it."""

    def __init__(
        self, tables: JournalTables, storage: StorageThread, *kinds: type[Statement]
    ) -> None:
        """Check the whole journal in `storage`, which has statements of these kinds.

        Raises:
            LedgerBroken: it is not whole.
        """
        self.tables, self._storage = tables, storage
        self._seen = storage.run_here(tables.verify, *kinds)

    async def keep(self, transaction: Callable[[Connection, Head], Kept]) -> bytes:
        """Run a transaction that appends behind the newest entry seen; return its statement.

        The statement is durable then.

        Raises:
            LedgerBroken: the database was set back.
            StorageUnavailable
            ProtocolError: as the transaction.
        """
        kept = await self._storage.run(transaction, self._seen)
        self._seen = max(self._seen, kept.head)
        return kept.document

    async def shown(self, after: int, count: int) -> bytes:
        """Return a page of entries as everybody may read them, and the number to ask after next."""
        entries = await self._storage.run(self.tables.page, after, count)
        following = entries[-1].number if entries else None
        values = [each.model_dump(mode="json") for each in entries]
        return canonical_json({"entries": values, "next": following})
