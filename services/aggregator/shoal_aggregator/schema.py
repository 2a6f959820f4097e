"""The aggregator's tables, for SQLite and PostgreSQL; documents are kept as they were signed."""

from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    UniqueConstraint,
)

from shoal_service.keeping import kept_table, place_column
from shoal_service.storage.database import Bytes
from shoal_service.storage.journal import JournalTables
from shoal_service.storage.shared_manifests import manifest_table

VERSION: Final = 15

metadata = MetaData()

kept = kept_table(metadata)
manifests = manifest_table(metadata)

rounds = Table(
    "rounds",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("job", String(64), nullable=False),
    Column("number", Integer, nullable=False),  # in its job
    Column("spec", Bytes, nullable=False),
    Column("phase", String(16), nullable=False, index=True),
    Column("nodes", Integer, nullable=False),
    Column("threshold", Integer, nullable=False),  # how many of the nodes are enough
    Column("proceed_at", BigInteger, nullable=False),  # milliseconds since 1970, UTC, like the next
    Column("give_up_at", BigInteger, nullable=False),
    UniqueConstraint("job", "number"),
)


# What Compute nodes signed of a round: each one's word, which is its first document, and what
# contradicts it as evidence. Evidence is never served, for a second sum may say too much; one of a
# kind convicts its signer: by more, one key could fill the disk.
received = Table(
    "received",
    metadata,
    Column("round", String(64), ForeignKey("rounds.id"), primary_key=True),
    Column("node", String(64), primary_key=True),
    Column("slot", String(16), primary_key=True),  # `WORD`, or the kind of the evidence
    Column("standing", String(8), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("over", String, nullable=False),  # a sum's cohort and, if it names them, its nodes
    place_column(),
    Column("document", Bytes, nullable=False),
    Index("received_newest", "node", "place"),
)
WORD: Final = "word"

# The aggregator's word on each round: the result, or its abandonment, and never both.
journal = JournalTables(metadata, forgets=True)
