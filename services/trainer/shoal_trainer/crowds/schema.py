"""The tables of crowd jobs; a log names no client, and a contributor is a count and no more."""

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

from shoal_hosting.storage.database import Bytes, only_changes, only_grows


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
