"""The consortium's log is a chain of hashes: its checkpoints, who signed them, and proofs.

The head after entry i is H_i = SHA-256(H_(i-1), h_i), where h_i is the entry's hash and H_0 is
`GENESIS`, 32 zero bytes: a head stands for all entries before it, in their order. The aggregator
signs a checkpoint, which is the head of so many entries. Every Compute node is a witness: it signs
a checkpoint whose entries begin with those of the one that it signed last. Entries count once a
quorum q of the M nodes signed a checkpoint that has them: to show two histories, 2q - M nodes must
lie.
"""

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import Annotated, ClassVar, Final, Literal, Self

import pydantic
from pydantic import Field

from shoal_protocol.privacy.ledger import GENESIS as GENESIS
from shoal_protocol.trust.manifest import Manifest, Parties
from shoal_protocol.wire.documents import Document, Embedded, Model, Role, describe
from shoal_protocol.wire.encoding import (
    Count,
    Digest,
    Name,
    Place,
    Timestamp,
    canonical_json,
    parse_canonical_json,
    sha256,
)
from shoal_protocol.wire.errors import MalformedDocument, ProtocolError

MOST_BETWEEN: Final = 1000
"""Entries between two checkpoints of which one follows the other, and so hashes in a proof."""

LARGEST_SUBMISSION_BYTES: Final = 128 * MOST_BETWEEN
"""Most bytes of a checkpoint with the hashes before it."""

Hashes = Annotated[tuple[Digest, ...], Field(max_length=MOST_BETWEEN)]


class WrongProof(ProtocolError):
    title = "The proof does not hold for this log"
    status = 422
    remedy = "Ask for a new proof; if it fails again, keep both checkpoints: the log may be forked."


class TooFewWitnesses(ProtocolError):
    title = "Too few Compute nodes signed the log's checkpoint"
    status = 409
    remedy = "Wait until more Compute nodes have signed a checkpoint of the log, and try again."


class Written(Model):
    """What parties show each other of the log, in canonical JSON."""

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
            raise MalformedDocument(describe(error)) from None


class Entry(Written):
    """An entry; `digest` is that of the signed document's body."""

    kind: str
    digest: Digest


class ManifestEntry(Entry):
    """A version of the manifest."""

    kind: Literal["manifest"] = "manifest"
    consortium: Name
    sequence: Place
    previous: Digest | None
    emergency: str | None = Field(default=None, exclude_if=lambda value: value is None)

    @classmethod
    def of(cls, manifest: Manifest) -> Self:
        """Return the entry of a version."""
        named = ("digest", "consortium", "sequence", "previous", "emergency")
        return cls(**{name: getattr(manifest, name) for name in named})


def entry_hash(encoded: bytes) -> str:
    """Return the hash of an entry."""
    return sha256("log_entry", encoded)


def followed(head: str, hashes: Iterable[str]) -> str:
    """Return the head after entries with these hashes that follow `head`."""
    for each in hashes:
        head = sha256("log_head", bytes.fromhex(head + each))
    return head


class Checkpoint(Document):
    """The `head` of the first `size` entries of the aggregator's log.

    It is bound to no version of the manifest: an aggregator of another name begins another log.
    """

    signed_by: ClassVar[Role] = Role.AGGREGATOR
    signer_field: ClassVar[str | None] = "aggregator"
    kind: Literal["log_checkpoint"] = "log_checkpoint"
    consortium: Name
    aggregator: Name
    size: Count
    head: Digest


class Cosignature(Document):
    """A Compute node's statement, made `at` a time, that it saw a checkpoint and no other log."""

    signed_by: ClassVar[Role] = Role.COMPUTE
    signer_field: ClassVar[str | None] = "node"
    kind: Literal["log_cosignature"] = "log_cosignature"
    checkpoint: Digest
    node: Name
    at: Timestamp


class Witnessed(Written):
    """A checkpoint, and the signatures of Compute nodes that there are; nothing is verified yet."""

    checkpoint: Embedded[Checkpoint]
    cosignatures: Annotated[tuple[Embedded[Cosignature], ...], Field(max_length=255)] = ()

    def checked(self, parties: Parties) -> Checkpoint:
        """Return the checkpoint, which the aggregator of this version of the manifest signed.

        Raises:
            MalformedDocument: it is of another consortium's log.
            UnknownSigner, WrongSigner, BadSignature
        """
        if self.checkpoint.body.consortium != parties.manifest.consortium:
            raise MalformedDocument("the checkpoint is of another log")
        parties.verify(self.checkpoint)
        return self.checkpoint.body

    def cosigners(self, parties: Parties) -> dict[str, datetime]:
        """Return which Compute nodes of this version signed, and when."""
        found = {}
        for each in self.cosignatures:
            with suppress(ProtocolError):
                parties.verify(each)
                if each.body.checkpoint == self.checkpoint.digest:
                    found[each.body.node] = each.body.at
        return found

    def cosigned(self, parties: Parties) -> Checkpoint:
        """Return the checkpoint, which a quorum of this version's nodes signed, too.

        Raises:
            MalformedDocument, UnknownSigner, WrongSigner, BadSignature: as `checked`.
            TooFewWitnesses
        """
        found = self.checked(parties)
        signed, needed = len(self.cosigners(parties)), parties.manifest.quorum
        if signed < needed:
            raise TooFewWitnesses(f"{signed} of the Compute nodes signed; {needed} are needed")
        return found


class LogProof(Written):
    """That the log has an entry: the head `before` it, and hashes of those that come `after` it.

    The last of these is the last entry of the checkpoint.
    """

    before: Digest
    after: Hashes
    witnessed: Witnessed

    @property
    def place(self) -> int:
        """Where in the log the entry is, from 0."""
        return self.witnessed.checkpoint.body.size - 1 - len(self.after)

    def check(self, entry: Entry, parties: Parties) -> None:
        """Check that a checkpoint has this entry, which a quorum of this version's nodes signed.

        Raises:
            MalformedDocument, UnknownSigner, WrongSigner, BadSignature: as `Witnessed.checked`.
            TooFewWitnesses, WrongProof
        """
        checkpoint = self.witnessed.cosigned(parties)
        if followed(self.before, [entry_hash(entry.encode()), *self.after]) != checkpoint.head:
            raise WrongProof("the proof does not lead from the entry to the checkpoint")


def lying_witnesses(manifest: Manifest) -> int:
    """Return how many Compute nodes must lie for two parties to be shown two histories."""
    return 2 * manifest.quorum - len(manifest.compute_nodes)
