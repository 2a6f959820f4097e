"""The tables of a Compute node."""

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    String,
    Table,
    UniqueConstraint,
)

from shoal_service.keeping import kept_table, place_column
from shoal_service.storage.charges import Charges
from shoal_service.storage.database import Bytes
from shoal_service.storage.journal import JournalTables
from shoal_service.storage.shared_manifests import manifest_table

VERSION: Final = 18

metadata = MetaData()

rounds = Table(
    "rounds",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),  # short name in other tables
    Column("id", String(64), nullable=False, unique=True),
    Column("job", String(64), nullable=False),
    Column("place", Integer, nullable=False),  # in its job, from 0: the number in its spec
    Column("spec", Bytes, nullable=False),  # the signed spec as it came
    Column("phase", String(16), nullable=False, index=True),
    Column("reported", Boolean, nullable=False),  # the aggregator knows this node's last word
    Column("erased", Boolean, nullable=False),  # no share's payload is left
    UniqueConstraint("job", "place"),
)

# What this node signs once and for ever: its words on rounds, versions of the manifest, one of each
# number, and totals of jobs that are over, of which it takes no further round. Also what each round
# may cost each client of its population; one that was abandoned before it held a share is given
# back.
journal = JournalTables(metadata)
charges = Charges(journal, rounds)

# What analysts signed of jobs: the request, whose terms rounds are held to, and the withdrawal, if
# there is one: no round is taken then.
jobs = Table(
    "jobs",
    metadata,
    Column("job", String(64), primary_key=True),
    Column("analyst", String(63), nullable=False, index=True),
    Column("ends_by", Double, nullable=False),  # seconds since 1970; no round outlasts it
    Column("request", Bytes, nullable=False),
    Column("withdrawal", Bytes),
)

shares = Table(
    "shares",
    metadata,
    Column("round", ForeignKey(rounds.c.number), nullable=False),
    Column("holder", BigInteger, nullable=False),
    Column("answer", Bytes, nullable=False),  # tells one answer of the holder from another
    Column("digest", Bytes, nullable=False),  # of the envelope
    Column("signature", Bytes, nullable=False),  # the holder's, over the envelope
    Column("kind", SmallInteger, nullable=False),
    Column("payload", Bytes),  # NULL once erased
    PrimaryKeyConstraint("round", "holder"),
)

# Each data holder's machine of the highest epoch. It answers no round from before a restore.
machines = Table(
    "machines",
    metadata,
    Column("holder", BigInteger, primary_key=True, autoincrement=False),
    Column("epoch", BigInteger, nullable=False),
    Column("instance", String(32), nullable=False),
    Column("rounds", Integer, nullable=False),  # the last one here when its epoch became known
    Column("query", Bytes, nullable=False),  # by which it is known, as the holder signed it
)

# `occurrence` 0 is a party's document of its kind for the round, the only one that counts and,
# for this node's own, the only one it may ever sign. A second, different one is kept as
# evidence with `occurrence` 1; more would show nothing new.
received = Table(
    "received",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("round", ForeignKey(rounds.c.number), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("signer", String(63), nullable=False),
    Column("occurrence", SmallInteger, nullable=False),
    place_column(),
    Column("encoded", Bytes, nullable=False),
    UniqueConstraint("round", "kind", "signer", "occurrence"),
    Index("received_newest", "signer", "place"),
)

# One row: the replica that takes the rounds' steps, and until when by the database's clock.
lease = Table(
    "lease",
    metadata,
    Column("one", Integer, CheckConstraint("one = 1"), primary_key=True, autoincrement=False),
    Column("holder", String(32), nullable=False),
    Column("until", Double, nullable=False),  # seconds since 1970
)

manifests = manifest_table(metadata)
kept = kept_table(metadata)
