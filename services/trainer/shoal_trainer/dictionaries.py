"""Keeps the consortium's data dictionary, and refuses jobs that read what it does not have."""

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, select

from shoal_kit.manifest_book import HISTORY
from shoal_kit.startup import StartupRefused
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.trust.dictionary import (
    DataDictionary,
    event_fault_of,
    fault_of,
    open_dictionary,
    read_dictionary,
)
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.documents import decode
from shoal_protocol.wire.errors import ProtocolError, RefusedJob, WrongManifest
from shoal_trainer.resources import Resources
from shoal_trainer.schema import dictionaries

LIMIT_BYTES: Final = 16 << 20  # of a version: 10,000 variables


class UnknownDictionary(ProtocolError):
    """The consortium has no data dictionary, or none that was published here."""

    title = "No data dictionary was published here"
    status = 404
    remedy = "Let the consortium's authority run `shoal consortium publish`."


class Dictionaries:
    """All versions that were published; jobs are judged by the newest when they are submitted."""

    def __init__(self, resources: Resources) -> None:
        """Begin with what is on file; see `follow` for what the consortium's directory has."""
        self._own = resources

    def follow(self, directory: Path) -> None:
        """Take the versions of a consortium's directory that follow, in the calling thread.

        Raises:
            StartupRefused: one of them is broken or forged, or does not follow.
            StorageUnavailable
        """
        for path in sorted((directory / HISTORY).glob("??????-dictionary.json")):
            try:
                self._own.storage.run_here(
                    partial(_keep, encoded=path.read_bytes(), consortium=self._own.book.current)
                )
            except (ProtocolError, OSError) as error:
                raise StartupRefused(f"{path}: {error}") from error

    async def take(self, encoded: bytes) -> tuple[str, bool]:
        """Take the next version; return its digest, and whether it is new.

        Raises:
            MalformedDocument, UnsupportedVersion, WrongSigner, BadSignature: as `open_dictionary`.
            WrongManifest: another version of this number is on file.
            StorageUnavailable
        """
        signed = await self._own.read(encoded, DataDictionary)
        is_new = await self._own.storage.run(_keep, encoded, self._own.book.current)
        if is_new is None:
            raise WrongManifest("another version of the data dictionary has this number")
        return signed.digest, is_new

    async def newest(self) -> bytes:
        """Return the newest version, as the authority signed it.

        Raises:
            UnknownDictionary: there is none.
            StorageUnavailable
        """
        found = await self._own.storage.run(_version, None)
        if found is None:
            raise UnknownDictionary
        return found

    async def check(
        self, columns: Sequence[ColumnBounds], *, as_levels: bool = False, event: str | None = None
    ) -> None:
        """Refuse a job that reads these columns, unless no dictionary is there.

        `event` is that of them which is to be 0 or 1, if one is.

        Raises:
            RefusedJob: one of them is not in the dictionary, is retired, is no quantity, is
                not coded as an event is, or has bounds between which no value lies.
            StorageUnavailable
        """
        found = await self._own.storage.run(_version, None)
        if found is None:
            return
        dictionary = (await asyncio.to_thread(decode, found, DataDictionary)).body
        fault = fault_of(dictionary.named(), columns, as_levels=as_levels)
        if event is not None:
            fault = fault or event_fault_of(dictionary.named().get(event))
        if fault := fault or dictionary.bounds_fault_of(columns):
            raise RefusedJob(fault)


def _body(encoded: bytes | None) -> DataDictionary | None:
    return None if encoded is None else decode(encoded, DataDictionary).body


def _version(db: Connection, sequence: int | None) -> bytes | None:
    """Return the version of that number, or the newest."""
    query = select(dictionaries.c.encoded).order_by(dictionaries.c.sequence.desc()).limit(1)
    if sequence is not None:
        query = query.where(dictionaries.c.sequence == sequence)
    return db.execute(query).scalar_one_or_none()


def _keep(db: Connection, encoded: bytes, consortium: Consortium) -> bool | None:
    """Store the next version; tell whether it is new. None: another one has its number.

    A version on file is replaced by the same one under a signature of the authority in force, whose
    key moved to another since.

    Raises:
        ProtocolError: as `open_dictionary`, or the authority did not sign it.
    """
    body = decode(encoded, DataDictionary).body
    row = {"sequence": body.sequence, "encoded": encoded}
    known = _version(db, body.sequence)
    if known is None:
        open_dictionary(encoded, consortium, _body(_version(db, body.sequence - 1)))
        db.execute(dictionaries.insert(), row)
        return True
    if _body(known) != body:
        return None
    if known != encoded:
        read_dictionary(encoded, consortium)
        here = dictionaries.c.sequence == body.sequence
        db.execute(dictionaries.update().where(here).values(row))
    return False
