"""A service's journal: a hash chain of what it signed, one statement of each kind about a subject.

A statement is a signed document that names its place in the journal, its `Link`. Everybody may read
the hash of every entry, so that nothing can be changed, dropped or put in between unseen; the
statements of public kinds may be read, too. Two statements with one place, or of one kind about one
subject, convict their signer.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Final, NamedTuple

from pydantic import Field, StringConstraints

from shoal_protocol.wire.documents import BoundDocument, Model, Signed, from_json
from shoal_protocol.wire.encoding import Digest, NonceHex, Place, canonical_json, sha256
from shoal_protocol.wire.errors import MalformedDocument

GENESIS: Final = "0" * 64
"""What the first entry names as the one before it."""

PUBLIC: Final = frozenset({"manifest_statement", "job_total", "loss"})
"""The kinds of statements that everybody may read."""

Epoch = Annotated[str, StringConstraints(pattern=r"^(0|[1-9][0-9]{0,14})-[0-9a-f]{32}$")]
"""A counter and 16 random bytes. A journal that goes on after a loss begins a higher one."""


def epoch_order(epoch: str) -> tuple[int, str]:
    """Return what epochs are ordered by: their counters, then their random bytes."""
    counter, _, random = epoch.partition("-")
    return int(counter), random


class Head(NamedTuple):
    """The last entry of a journal, or none yet."""

    number: int
    hash: str


EMPTY: Final = Head(0, GENESIS)


def counted(entries: int) -> str:
    """Say how many entries these are."""
    return f"{entries:,} entry" if entries == 1 else f"{entries:,} entries"


class EntryPlace(Model):
    """The place of an entry in its journal."""

    epoch: Epoch
    number: Place

    @property
    def order(self) -> tuple[tuple[int, str], int]:
        """Return what places in one journal are ordered by: their epochs, then their numbers."""
        return epoch_order(self.epoch), self.number


class Link(EntryPlace):
    """The place of a statement in its signer's journal, and what it follows."""

    previous: Digest  # hash of the entry before it


UNPLACED: Final = Link(epoch="0-" + "0" * 32, number=1, previous=GENESIS)
"""What stands for the place of a statement that is prepared before it is appended."""


class Statement(BoundDocument):
    """A document of which its signer's journal has one of each slot about each subject, ever."""

    entry: Link

    @property
    def slot(self) -> str:
        """Return the journal's kind of it: its own, or one that it shares with what excludes it."""
        return str(getattr(self, "kind"))  # noqa: B009 -- of its own class

    @property
    def subject(self) -> str:
        """Return what the statement is about."""
        raise NotImplementedError


def content_hash(salt: str, kind: str, subject: str, body: bytes) -> str:
    """Return the hash that stands for a statement; `body` is the signed document as it is sent."""
    return _hash("journal_content", bytes.fromhex(salt), kind.encode(), subject.encode(), body)


def entry_hash(link: Link, content: str) -> str:
    """Return the hash of an entry, which the next one names."""
    number = str(link.number).encode()
    parts = (link.epoch.encode(), number, bytes.fromhex(link.previous), bytes.fromhex(content))
    return _hash("journal_entry", *parts)


def _hash(name: str, *parts: bytes) -> str:
    """Hash parts, each behind its length, so that other parts never have the same bytes."""
    return sha256(name, b"".join(len(part).to_bytes(8, "big") + part for part in parts))


class ShownStatement(Model):
    """A statement of a public kind, as its journal shows it."""

    salt: NonceHex
    kind: Annotated[str, Field(max_length=32)]
    subject: Annotated[str, Field(max_length=200)]
    document: dict[str, Any]


class Shown(Link):
    """What anybody may read of an entry; the statement is there if its kind is public."""

    content: Digest
    statement: ShownStatement | None = None

    @property
    def link(self) -> Link:
        """Return the entry's place."""
        return Link(epoch=self.epoch, number=self.number, previous=self.previous)

    @property
    def hash(self) -> str:
        """Return the hash of the entry."""
        return entry_hash(self.link, self.content)


class Chain:
    """Follows one journal entry by entry, from its beginning."""

    def __init__(self, *kinds: type[Statement]) -> None:
        """Begin before the first entry; `kinds` are those of statements that may be shown."""
        self.head = EMPTY
        self._kinds = kinds
        self._epoch: str | None = None
        self._subjects: set[tuple[str, str]] = set()

    def follow(self, shown: Shown) -> Signed[Statement] | None:
        """Take the next entry; return its statement if it is shown, with its signature unchecked.

        Raises:
            MalformedDocument: it does not follow; nothing was taken.
        """
        number = self.head.number + 1
        if (shown.number, shown.previous) != (number, self.head.hash):
            raise MalformedDocument(f"journal entry {number} does not follow the one before it")
        if self._epoch is not None and epoch_order(shown.epoch) < epoch_order(self._epoch):
            raise MalformedDocument(f"journal entry {number} is of an epoch that is over")
        signed = None
        if shown.statement is not None:
            signed = _opened(shown, shown.statement, self._kinds)
            key = (signed.body.slot, signed.body.subject)
            if key in self._subjects:
                raise MalformedDocument(f"journal entry {number} is of a subject that had one")
            self._subjects.add(key)
        self.head, self._epoch = Head(number, shown.hash), shown.epoch
        return signed


def _opened(
    shown: Shown, statement: ShownStatement, kinds: Iterable[type[Statement]]
) -> Signed[Statement]:
    """Return a shown statement that is the one which the entry's hash stands for.

    Raises:
        MalformedDocument
    """
    signed = from_json(statement.document, *kinds)
    body, encoded = signed.body, canonical_json(statement.document)
    content = content_hash(statement.salt, statement.kind, statement.subject, encoded)
    if content != shown.content or body.entry != shown.link:
        raise MalformedDocument(f"journal entry {shown.number} shows a statement of another place")
    if (statement.kind, statement.subject) != (body.slot, body.subject):
        raise MalformedDocument(f"journal entry {shown.number} is filed under another subject")
    return signed
