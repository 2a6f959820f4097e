"""The aggregator's tables, for SQLite and PostgreSQL; documents are kept as they were signed."""

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    UniqueConstraint,
)

from shoal_service.storage.database import Bytes, only_grows
from shoal_service.storage.database_memory import memory_table
from shoal_service.storage.journal import JournalTables

VERSION: Final = 10

metadata = MetaData()

memory = memory_table(metadata)
ledger = None  # it charges nobody

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
    Column("awaited", Integer, nullable=False),  # how many of such sums are enough for a total
    Column("document", Bytes, nullable=False),
)
WORD: Final = "word"

# The aggregator's word on each round: the result, or its abandonment, and never both.
journal = JournalTables(metadata, forgets=True)

# The consortium's log, an entry each. What is here is never changed, and signed once it is durable.
log_entries = Table(
    "log_entries",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),  # from 0, without gaps
    Column("kind", String(16), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("entry", Bytes, nullable=False),
    Column("head", String(64), nullable=False),  # after this entry
    UniqueConstraint("kind", "digest"),
)
only_grows(log_entries)

# Every checkpoint that was signed here, with the signatures of Compute nodes that came.
log_checkpoints = Table(
    "log_checkpoints",
    metadata,
    Column("size", BigInteger, primary_key=True, autoincrement=False),
    Column("signed_at", BigInteger, nullable=False),  # milliseconds since 1970, UTC
    Column("document", Bytes, nullable=False),
    Column("is_cosigned", Boolean, nullable=False),  # by a quorum
)
