"""What Shoal logs: one small entry for each document, which names it by its digest.

An entry is canonical JSON. It may be of a document that only the parties have.
"""

from typing import Annotated, Any, ClassVar, Final, Literal

import pydantic
from pydantic import Field

from shoal_protocol.wire.documents import BoundDocument, Model, Role, describe
from shoal_protocol.wire.encoding import Digest, Name, canonical_json, parse_canonical_json
from shoal_protocol.wire.errors import MalformedDocument
from shoal_protocol.wire.numbers import Count, Place


class Entry(Model):
    """An entry; `digest` is that of the signed document's body."""

    kind: str
    digest: Digest

    def encode(self) -> bytes:
        """Return the bytes that are hashed into the tree."""
        return canonical_json(self.model_dump(mode="json"))


class ManifestEntry(Entry):
    """A version of the manifest."""

    kind: Literal["manifest"] = "manifest"
    consortium: Name
    sequence: Place
    previous: Digest | None
    emergency: str | None = Field(default=None, exclude_if=lambda value: value is None)


class RoundEntry(Entry):
    """A round spec, which is the round's name."""

    kind: Literal["round"] = "round"
    job: Digest
    number: Count


class EndEntry(Entry):
    """A round's end: the aggregator's result, or its abandonment.

    `ledgers` has the newest entry of each Compute node's ledger that the result rests on.
    """

    kind: Literal["result", "abandonment"]
    round: Digest
    ledgers: dict[Name, Digest]


class CertificateEntry(Entry):
    """A job's certificate, of so many rounds, lost ones included.

    `ledger` is the newest entry of the trainer's ledger in it.
    """

    kind: Literal["certificate"] = "certificate"
    job: Digest
    rounds: Place
    ledger: Digest


AnyEntry = Annotated[
    ManifestEntry | RoundEntry | EndEntry | CertificateEntry,
    Field(discriminator="kind"),
]
_READER: Final[pydantic.TypeAdapter[Any]] = pydantic.TypeAdapter(AnyEntry)


def decode_entry(encoded: bytes) -> Entry:
    """Decode an entry.

    Raises:
        MalformedDocument
    """
    value = parse_canonical_json(encoded)
    try:
        entry: Entry = _READER.validate_python(value)
    except pydantic.ValidationError as error:
        raise MalformedDocument(describe(error)) from None
    if entry.encode() != encoded:
        raise MalformedDocument("an entry of the log is not written in its one form")
    return entry


class LogRequest(BoundDocument):
    """Trainer -> aggregator: log a certificate, which the trainer signed."""

    signed_by: ClassVar[Role] = Role.TRAINER

    kind: Literal["log_request"] = "log_request"
    entry: CertificateEntry
