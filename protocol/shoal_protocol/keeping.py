"""What other services keep of a journal, so that a service that lost entries is told.

Keepers of a service's journal are the other Compute nodes, the aggregator and the trainer. A keeper
goes on to a newer head only along all entries between. Beside the head it shows the newest
statement of the service that it has on file. Whoever accepted a loss begins a higher epoch with a
statement of it, from which keepers go on.
"""

from typing import Annotated, Any, ClassVar, Final, Literal, Self

import pydantic
from pydantic import Field

from shoal_protocol.journal import (
    EMPTY,
    EntryPlace,
    Epoch,
    Head,
    Link,
    Statement,
    entry_hash,
    epoch_order,
)
from shoal_protocol.trust.manifest import Manifest, ServiceParty
from shoal_protocol.wire.documents import (
    Document,
    Embedded,
    Model,
    Role,
    Signed,
    describe,
)
from shoal_protocol.wire.encoding import (
    Count,
    Digest,
    Name,
    NonceHex,
    Place,
    Timestamp,
    canonical_json,
    parse_canonical_json,
)
from shoal_protocol.wire.errors import MalformedDocument

HEADS_PATH: Final = "/v1/journal/heads"
"""Where a service tells which heads it keeps, and takes newer ones."""

MOST_LINKS: Final = 2_000
"""Entries in one message."""

LARGEST_ADVANCE_BYTES: Final = 256 * MOST_LINKS

LARGEST_ANSWER_BYTES: Final = 16 << 20
"""Of a keeper's answer: heads and one statement, which may be a partial sum or a result."""


def keepers_of(manifest: Manifest, name: str) -> list[ServiceParty]:
    """Return who keeps the head of the service `name`: all others."""
    return [each for each in manifest.services if each.name != name]


def is_majority(count: int, manifest: Manifest, name: str) -> bool:
    """Tell whether so many are more than half of a service's keepers."""
    return 2 * count > len(keepers_of(manifest, name))


class JournalHead(EntryPlace, Document):
    """A service -> keepers, by its newest key: the last entry of its journal at a time."""

    signed_by: ClassVar[Role] = Role.SERVICE
    signer_field: ClassVar[str | None] = "service"
    kind: Literal["journal_head"] = "journal_head"
    service: Name
    hash: Digest
    sequence: Count  # the highest of a version of the manifest that the journal signed, or 0

    @property
    def head(self) -> Head:
        """Return number and hash."""
        return Head(self.number, self.hash)


class Loss(Statement):
    """A service's statement that its journal lacks what it once had, up to the place `lost`.

    A node signs no version of the manifest up to the number `sequence` then, and totals only of
    jobs whose rounds were all opened after `at`: it may have signed others.
    """

    signed_by: ClassVar[Role] = Role.SERVICE
    signer_field: ClassVar[str | None] = "service"
    kind: Literal["loss"] = "loss"
    service: Name
    lost: EntryPlace
    sequence: Place
    at: Timestamp

    @property
    def subject(self) -> str:
        """Return the lost place."""
        return f"{self.lost.epoch}/{self.lost.number}"


class Advance(Model):
    """A service -> keeper: its newest head, and all entries that lead to it from number `after`.

    After a loss they begin with the entry of its statement.
    """

    head: Embedded[JournalHead]
    after: Count
    entries: Annotated[tuple[tuple[Epoch, Digest], ...], Field(max_length=MOST_LINKS)]
    loss: Embedded[Loss] | None = None

    def leads_from(self, kept: JournalHead | None) -> bool:
        """Tell whether the entries lead from the head that is kept, if there is one, to this."""
        head, epoch = (EMPTY, None) if kept is None else (kept.head, kept.epoch)
        if self.loss is not None:
            loss = self.loss.body
            is_covered = kept is None or kept.order <= loss.lost.order
            if not is_covered or self.head.body.service != loss.service:
                return False
            head = Head(loss.entry.number - 1, loss.entry.previous)
        if self.after != head.number:
            return False
        for following, content in self.entries:
            if epoch is not None and epoch_order(following) < epoch_order(epoch):
                return False
            link = Link(epoch=following, number=head.number + 1, previous=head.hash)
            head, epoch = Head(link.number, entry_hash(link, content)), following
        return (head, epoch) == (self.head.body.head, self.head.body.epoch)


class HeadsAsked(Model):
    """A service -> keeper: which heads do you keep? A newer one may come with the question.

    A keeper that is new and `copies` the heads of others is answered by those that are new, too.
    Whoever names a service is shown its newest statement.
    """

    nonce: NonceHex
    copies: bool = False
    service: Name | None = None
    advance: Advance | None = None

    def encode(self) -> bytes:
        """Return the bytes."""
        return canonical_json(self.model_dump(mode="json"))

    @classmethod
    def decode(cls, encoded: bytes) -> Self:
        """Decode bytes; no signature is verified.

        Raises:
            MalformedDocument, UnsupportedVersion
        """
        value = parse_canonical_json(encoded)
        try:
            return cls.model_validate(value)
        except pydantic.ValidationError as error:
            raise MalformedDocument(describe(error, cls)) from None


class KeptHeads(Document):
    """A keeper -> who asked with a nonce: the newest head of each service that it keeps.

    `statement` is the newest signed one on file of the service that was asked about, if there is
    one. A keeper that is new has not copied yet what others keep, and its answer says nothing.
    """

    signed_by: ClassVar[Role] = Role.SERVICE
    signer_field: ClassVar[str | None] = "keeper"
    kind: Literal["kept_heads"] = "kept_heads"
    keeper: Name
    nonce: NonceHex
    is_new: bool
    heads: Annotated[tuple[Embedded[JournalHead], ...], Field(max_length=1_000)]
    statement: dict[str, Any] | None = None

    def of(self, service: str) -> Signed[JournalHead] | None:
        """Return the head of a service, if one is kept."""
        return next((each for each in self.heads if each.body.service == service), None)
