"""A service's journal in its database: hash-chained rows that only grow.

A head row is locked last in each transaction that appends, so that a place is given once, whichever
replica asks for it. The statement is signed within that transaction, over its place.
"""

import secrets
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from sqlalchemy import (
    CheckConstraint,
    Column,
    Connection,
    Index,
    Integer,
    MetaData,
    Row,
    Select,
    String,
    Table,
    UniqueConstraint,
    case,
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
from shoal_service.storage.thread import StorageThread

LARGEST_PAGE_BYTES: Final = 1 << 20
"""Of one page, which has one entry at least."""

_READ_AT_ONCE: Final = 100

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")
StatementT = TypeVar("StatementT", bound=Statement)
Attest = Callable[[Link], Signed[Statement]]
"""Signs a statement over its place."""


class JournalTables:
    """The two tables of a journal, and the transactions on them."""

    def __init__(self, metadata: MetaData, *, forgets: bool = False) -> None:
        """Add the tables to `metadata`; unless it `forgets`, the database refuses any change."""
        self.entries = Table(
            "journal",
            metadata,
            Column("number", Integer, primary_key=True, autoincrement=False),  # without gaps
            Column("epoch", String(48), nullable=False),
            Column("previous", String(64), nullable=False),
            Column("kind", String(32), nullable=False),
            Column("subject", String(200), nullable=False),
            Column("salt", String(32)),  # NULL once the statement is forgotten, as its body
            Column("body", Bytes),  # the signed document, or what an unsigned entry says
            Column("content", String(64), nullable=False),  # the hash of the statement
            Column("hash", String(64), nullable=False),  # of place and content
            UniqueConstraint("kind", "subject"),
            Index("journal_by_kind", "kind", "number"),
        )
        self.head = Table(
            "journal_head",
            metadata,
            Column("one", Integer, CheckConstraint("one = 1"), primary_key=True),
            Column("epoch", String(48), nullable=False),  # of the entries that are appended
            Column("number", Integer, nullable=False),
            Column("hash", String(64), nullable=False),
        )
        (only_changes if forgets else only_grows)(self.entries)
        only_changes(self.head)
        event.listen(self.head, "after_create", _begin)

    def lock(self, db: Connection) -> tuple[str, Head]:
        """Lock the journal against new entries until `db` is done; return its epoch and last entry.

        Raises:
            LedgerBroken: the head row is missing.
        """
        return self._head(db, lock=True)

    def newest(self, db: Connection) -> Head:
        """Return the last entry, which others may append to at any time.

        Raises:
            LedgerBroken: the head row is missing.
        """
        return self._head(db)[1]

    def _head(self, db: Connection, *, lock: bool = False) -> tuple[str, Head]:
        query = select(self.head)
        row = db.execute(query.with_for_update() if lock else query).one_or_none()
        if row is None:
            raise LedgerBroken("the journal's head is gone")
        return row.epoch, Head(row.number, row.hash)

    def holds(self, db: Connection, head: Head) -> bool:
        """Tell whether `head` is or was the journal's last entry."""
        here = self.entries.c
        found = db.execute(select(here.hash).where(here.number == head.number))
        return head == EMPTY or found.scalar_one_or_none() == head.hash

    def find(self, db: Connection, kind: str, subject: str) -> bytes | None:
        """Return the signed statement of a kind about a subject, or None."""
        body: bytes | None = db.execute(self._on_file(kind, subject)).scalar_one_or_none()
        return body

    def knows(self, db: Connection, kind: str, subject: str) -> bool:
        """Tell whether there is a statement of a kind about a subject, or was one."""
        return db.execute(self._on_file(kind, subject)).one_or_none() is not None

    def _on_file(self, kind: str, subject: str) -> Select[bytes | None]:
        here = self.entries.c
        return select(here.body).where(here.kind == kind, here.subject == subject)

    def of_kind(self, db: Connection, kind: str) -> Iterator[bytes]:
        """Return all signed statements of a kind, in order."""
        columns = self.entries.c
        query = select(columns.body).where(columns.kind == kind).order_by(columns.number)
        return iter(db.execute(query).scalars())

    def page(self, db: Connection, after: int, count: int, *, checked: bool = False) -> list[Shown]:
        """Return at most `count` entries beyond number `after`, as everybody may read them.

        There are fewer if they are large. Private statements are read only to be `checked`.

        Raises:
            LedgerBroken: a row is not one that this program wrote.
        """
        size, found, here = 0, list[Shown](), self.entries.c
        query = select(self.entries).where(here.number > after).order_by(here.number)
        if not checked:  # private statements may be megabytes each
            public = case((here.kind.in_(PUBLIC), here.body)).label("body")
            query = query.with_only_columns(*(e for e in here if e is not here.body), public)
        for row in db.execute(query.limit(count)):
            shown = read_entry(row)
            size += 0 if shown.statement is None else len(row.body)
            if found and size > LARGEST_PAGE_BYTES:
                break
            found.append(shown)
        return found

    def forget(self, db: Connection, kind: str, subjects: Any, *, most: int) -> bool:
        """Forget up to `most` statements about `subjects`, a selection; tell if there may be more.

        Their entries stay: the chain can still be checked.
        """
        here = self.entries.c
        found = select(here.number).where(
            here.kind == kind, here.subject.in_(subjects), here.body.is_not(None)
        )
        numbers = db.execute(found.limit(most)).scalars().all()
        forgotten = update(self.entries).where(here.number.in_(numbers))
        db.execute(forgotten.values(salt=None, body=None))
        return len(numbers) == most

    def verify(self, db: Connection, *kinds: type[Statement]) -> Head:
        """Check the whole journal, which has statements of these kinds; return its last entry.

        The head is locked only once all that was there has been read, for what came meanwhile.

        Raises:
            LedgerBroken: it is not whole.
        """
        chain = Chain(*kinds)
        while chain.head != self.newest(db):
            page = self.page(db, chain.head.number, _READ_AT_ONCE, checked=True)
            if not page:
                raise LedgerBroken("the journal does not end where it did: entries were removed")
            for shown in page:
                try:
                    chain.follow(shown)
                except ProtocolError as error:
                    raise LedgerBroken(f"the journal is broken: {error}") from error
        return chain.head


def _begin(head: Table, connection: Connection, **_: object) -> None:
    epoch = f"1-{secrets.token_hex(16)}"
    row = {"one": 1, "epoch": epoch, "number": EMPTY.number, "hash": EMPTY.hash}
    connection.execute(head.insert().values(**row))


def read_entry(row: Row[Any]) -> Shown:
    """Build an entry from all columns of its row, so that any that was changed shows.

    Raises:
        LedgerBroken
    """
    try:
        place = {"epoch": row.epoch, "number": row.number, "previous": row.previous}
        shown = Shown(**place, content=row.content)
        is_whole = row.body is None or row.content == content_hash(
            row.salt, row.kind, row.subject, row.body
        )
        if shown.hash != row.hash or not is_whole:
            raise ValueError("the row is not the entry of which it has the hash")
        if row.kind not in PUBLIC or row.body is None:
            return shown
        statement = ShownStatement(
            salt=row.salt,
            kind=row.kind,
            subject=row.subject,
            document=parse_canonical_json(row.body),
        )
    except (ProtocolError, ValueError, TypeError):  # of a field
        raise LedgerBroken(
            f"entry {row.number} of the journal is not one that this program wrote"
        ) from None
    return shown.model_copy(update={"statement": statement})


class JournalWriter:
    """Appends to a journal within one transaction, behind the newest entry that the process saw."""

    def __init__(self, tables: JournalTables, db: Connection, seen: Head) -> None:
        """Append in `db`."""
        self.db = db
        self.tables = tables
        self.head = seen
        """The newest entry that is known here."""
        self._epoch: str | None = None

    def lock(self) -> None:
        """Keep others from appending until the transaction is done, which locks nothing else then.

        Raises:
            LedgerBroken: the newest entry that this process saw is gone: the database was set back.
        """
        if self._epoch is None:
            self._epoch, head = self.tables.lock(self.db)
            if not self.tables.holds(self.db, self.head):
                raise LedgerBroken("an entry of the journal is gone: the database was set back")
            self.head = head

    def find(self, kind: str, subject: str) -> bytes | None:
        """Return the signed statement of a kind about a subject, or None."""
        return self.tables.find(self.db, kind, subject)

    def append(self, kind: str, subject: str, attest: Attest) -> bytes:
        """Do what `append_new` does; return the statement, or the one on file.

        Raises:
            LedgerBroken: as `lock`, or the one on file is forgotten.
        """
        if (new := self.append_new(kind, subject, attest)) is not None:
            return new.encode()
        if (on_file := self.find(kind, subject)) is None:
            raise LedgerBroken("a statement about this was signed, and is forgotten")
        return on_file

    def append_new(
        self, kind: str, subject: str, attest: Callable[[Link], Signed[StatementT]]
    ) -> Signed[StatementT] | None:
        """Keep the statement that `attest` signs over its place; None: there is one on file.

        There is one of each kind about each subject, for ever.

        Raises:
            LedgerBroken: as `lock`.
        """
        self.lock()
        if self.tables.knows(self.db, kind, subject):
            return None
        signed = attest(link := self._next())
        if (signed.body.slot, signed.body.subject, signed.body.entry) != (kind, subject, link):
            raise ValueError("the statement is of another kind, subject or place")
        self._add(link, kind, subject, signed.encode())
        return signed

    def note(self, kind: str, subject: str, body: bytes) -> None:
        """Append what nobody signs; every later statement is signed over a place behind it.

        There must be none of this kind about this subject.

        Raises:
            LedgerBroken: as `lock`.
        """
        self.lock()
        self._add(self._next(), kind, subject, body)

    def _next(self) -> Link:
        return Link(epoch=str(self._epoch), number=self.head.number + 1, previous=self.head.hash)

    def _add(self, link: Link, kind: str, subject: str, body: bytes) -> None:
        salt = secrets.token_hex(16)
        content = content_hash(salt, kind, subject, body)
        newest = entry_hash(link, content)
        row = {"kind": kind, "subject": subject, "salt": salt, "body": body}
        row |= {"content": content, "hash": newest}
        self.db.execute(self.tables.entries.insert(), link.model_dump() | row)
        self.db.execute(update(self.tables.head).values(number=link.number, hash=newest))
        self.head = Head(link.number, newest)


class Journal:
    """A service's journal as this process knows it."""

    def __init__(
        self, tables: JournalTables, storage: StorageThread, *kinds: type[Statement]
    ) -> None:
        """Check the whole journal in `storage`, which has statements of these kinds.

        Raises:
            LedgerBroken: it is not whole.
        """
        self.tables, self.kinds, self._storage = tables, kinds, storage
        self._seen = storage.run_here(tables.verify, *kinds)

    async def run(
        self,
        transaction: Callable[Concatenate[JournalWriter, Arguments], Answer],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Answer:
        """Run a transaction that may append; what it wrote is durable on return.

        Raises:
            LedgerBroken: the database was set back.
            StorageUnavailable
            ProtocolError: as the transaction.
        """

        @wraps(transaction)
        def appending(db: Connection) -> tuple[Answer, Head]:
            writer = JournalWriter(self.tables, db, self._seen)
            return transaction(writer, *arguments, **named), writer.head

        answer, head = await self._storage.run(appending)
        self._seen = max(self._seen, head)
        return answer

    async def shown(self, after: int, count: int) -> bytes:
        """Return a page of entries as everybody may read them, and the number to ask after next."""
        entries = await self._storage.run(self.tables.page, after, count)
        following = entries[-1].number if entries else None
        values = [each.model_dump(mode="json") for each in entries]
        return canonical_json({"entries": values, "next": following})
