"""The trainer's tables, for SQLite and PostgreSQL; documents are kept as they were signed."""

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from shoal_service.keeping import kept_table, place_column
from shoal_service.storage.charges import Charges
from shoal_service.storage.database import Bytes, only_changes, only_grows
from shoal_service.storage.journal import JournalTables
from shoal_service.storage.shared_manifests import manifest_table


class CrowdTables:
    """Jobs, their instances as they are now, how they became so, and who contributed how often.

    Digests of the log are kept as bytes: there is a row of it for every contribution.
    """

    def __init__(self, metadata: MetaData) -> None:
        """Add the tables to `metadata`."""
        self.jobs = Table(
            "crowd_jobs",
            metadata,
            Column("number", Integer, primary_key=True),
            Column("id", String(64), nullable=False, unique=True),
            Column("request", Bytes, nullable=False),  # signed, as the opening
            Column("opening", Bytes, nullable=False),
            Column("seed", Bytes, nullable=False),  # secret until the job is closed
            Column("phase", String(16), nullable=False, index=True),
            Column("contributions", BigInteger, nullable=False),
            Column("contributors", BigInteger, nullable=False),  # different ones
            Column("closing", Bytes),  # signed, once it is closed
            Column("erased", Boolean, nullable=False),  # are its rows of contributors gone?
        )

        def job() -> Column[int]:
            return Column("job", Integer, ForeignKey("crowd_jobs.number"), primary_key=True)

        self.instances = Table(
            "crowd_instances",
            metadata,
            job(),
            Column("instance", Integer, primary_key=True),
            Column("revision", BigInteger, nullable=False),
            Column("digest", Bytes, nullable=False),  # of its last entry in the log
            Column("weights", Bytes, nullable=False),  # little-endian int64
        )
        self.log = Table(
            "crowd_log",
            metadata,
            job(),
            Column("instance", Integer, primary_key=True),
            Column("revision", BigInteger, primary_key=True),
            Column("previous", Bytes, nullable=False),
            Column("nonce", Bytes, nullable=False),
            Column("weights", Bytes, nullable=False),  # their digest: they are not kept
            Column("submission", Bytes, nullable=False),  # its digest, to tell a retry
            UniqueConstraint("job", "nonce"),  # a draw is answered once
        )
        # only while the job is open: counts by client are erased afterwards
        self.contributors = Table(
            "crowd_contributors",
            metadata,
            job(),
            Column("client", BigInteger, primary_key=True),
            Column("contributions", Integer, nullable=False),
        )
        only_grows(self.log)
        only_changes(self.instances)


VERSION: Final = 24

metadata = MetaData()


def _job(*, primary_key: bool = False) -> Column[str]:
    return Column("job", String(64), ForeignKey("jobs.id"), primary_key=primary_key, nullable=False)


jobs = Table(
    "jobs",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("request", Bytes, nullable=False),
    Column("phase", String(16), nullable=False, index=True),
    Column("submitted_at", String(24), nullable=False, index=True),
    Column("ends_by", Double, nullable=False),  # seconds since 1970; it is over then at the latest
    Column("erased", Boolean, nullable=False),  # its documents are no longer kept
    Column("emptied", Boolean, nullable=False, index=True),  # and none of them is left
    Column("joined", Integer, nullable=False),
    Column("population", Text),  # a bitmap in base64, once it is fixed
    Column("reason", Text),  # why it failed
)

# versions of the consortium's data dictionary, as its authority signed them
dictionaries = Table(
    "dictionaries",
    metadata,
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    Column("encoded", Bytes, nullable=False),
)

# where data holders stand with a job of either kind, as each signed last
memberships = Table(
    "memberships",
    metadata,
    Column("job", String(64), primary_key=True),
    Column("holder", BigInteger, primary_key=True),
    Column("state", String(16), nullable=False),
    Column("slots", Text),  # of who joined, a bitmap in base64: those that had budget left
    Column("document", Bytes, nullable=False),
)

rounds = Table(
    "rounds",
    metadata,
    Column("id", String(64), primary_key=True),
    _job(),
    Column("number", Integer, nullable=False),
    Column("spec", Bytes, nullable=False),
    Column("deadline", String(24), nullable=False),
    Column("asked", Integer, nullable=False),  # how many clients
    Column("phase", String(16), nullable=False),
    Column("outcome", Bytes),  # the aggregator's signed result or abandonment
    Column("decided_by", String(63)),  # who signed that
    place_column(),
    Column("failure", Text),  # why it was lost, in JSON
    Column("cohort", Integer),  # how many clients a result is of
    UniqueConstraint("job", "number"),
    Index("rounds_by_phase", "job", "phase"),  # a row is large: counting must not read any
    Index("rounds_newest", "decided_by", "place"),
)

# what a published round's result is the sum of
partial_sums = Table(
    "partial_sums",
    metadata,
    Column("round", String(64), ForeignKey("rounds.id"), primary_key=True),
    Column("node", String(64), primary_key=True),
    place_column(),
    Column("document", Bytes, nullable=False),
    Index("partial_sums_newest", "node", "place"),
)

# the report of each finished job, and what each round may cost each client of its population;
# given back if it never began
journal = JournalTables(metadata, forgets=True)
charges = Charges(journal, rounds)

# what each Compute node of a finished job signed that it charged
totals = Table(
    "totals",
    metadata,
    _job(primary_key=True),
    Column("node", String(64), primary_key=True),
    Column("document", Bytes, nullable=False),
)

# what a finished job hands out: made once, so that it stays the same to the last byte
certificates = Table(
    "certificates",
    metadata,
    _job(primary_key=True),
    Column("document", Bytes, nullable=False),
)

# the newest of each data holder
declarations = Table(
    "declarations",
    metadata,
    Column("holder", BigInteger, primary_key=True, autoincrement=False),
    Column("document", Bytes, nullable=False),
)

# jobs that a crowd learns without rounds; several processes may serve them
crowds = CrowdTables(metadata)

manifests = manifest_table(metadata)
kept = kept_table(metadata)
