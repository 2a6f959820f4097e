"""Hands accepted manifest versions from one replica to the others.

A version from the database is verified like any other: by the authority's signature and chain.
"""

import structlog
from sqlalchemy import Column, Connection, Integer, MetaData, Table, func, select

from shoal_kit.manifest_book import ManifestBook
from shoal_protocol.wire.errors import ProtocolError
from shoal_protocol.wire.service_errors import StorageUnavailable
from shoal_service.storage.database import Bytes, insert_new

log = structlog.get_logger()


def manifest_table(metadata: MetaData) -> Table:
    """Add the table of the versions that any replica has accepted, each with its roster."""
    return Table(
        "manifests",
        metadata,
        Column("sequence", Integer, primary_key=True, autoincrement=False),
        Column("manifest", Bytes, nullable=False),  # signed
        Column("roster", Bytes, nullable=False),
    )


class SharedManifests:
    """The versions that a service's replicas have accepted between them."""

    def __init__(self, book: ManifestBook, table: Table) -> None:
        """Share what is in `book`, and add to it what others shared in `table`."""
        self._book = book
        self._table = table
        self._refused = 0  # the number of a version on file that does not follow ours

    def exchange(self, db: Connection) -> None:
        """Accept versions on file beyond the one in force here, or add those that are missing.

        Raises:
            StorageUnavailable: a version could not be stored in this replica's directory.
        """
        on_file: int = db.execute(
            select(func.coalesce(func.max(self._table.c.sequence), 0))
        ).scalar_one()
        if on_file > self._book.current.manifest.sequence:
            self._adopt(db)
        for version in self._book.versions:
            if (sequence := version.manifest.sequence) > on_file:
                signed, roster = version.signed_manifest.encode(), version.roster.encode()
                insert_new(db, self._table, sequence=sequence, manifest=signed, roster=roster)

    def _adopt(self, db: Connection) -> None:
        while True:
            sequence = self._book.current.manifest.sequence + 1
            columns = self._table.c
            following = db.execute(
                select(columns.manifest, columns.roster).where(columns.sequence == sequence)
            ).one_or_none()
            if following is None:
                return
            try:
                self._book.accept(*following)
            except OSError as error:
                raise StorageUnavailable("the manifest could not be stored") from error
            except ProtocolError as error:
                if self._refused != sequence:
                    log.error("a manifest on file does not follow ours", problem=error.code)
                self._refused = sequence
                return
            log.info("a manifest is adopted from another replica", sequence=sequence)
