"""Keeps the consortium's data dictionary, and refuses jobs that read what it does not have."""

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, select

from shoal_hosting.manifests.manifest_book import HISTORY
from shoal_hosting.startup import StartupRefused
from shoal_hosting.storage.database import insert_new
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.trust.dictionary import (
    DataDictionary,
    event_fault_of,
    open_dictionary,
    read_dictionary,
)
from shoal_protocol.wire.documents import decode
from shoal_protocol.wire.errors import ProtocolError, RefusedJob, WrongManifest
from shoal_trainer.resources import Resources
from shoal_trainer.schema import dictionaries

LIMIT_BYTES: Final = 16 << 20  # of a version: 10,000 variables


class UnknownDictionary(ProtocolError):
    """The consortium has no data dictionary, or none that was published here."""

    code = "unknown-dictionary"
    title = "No data dictionary was published here"
    status = 404
    remedy = "Let the consortium's authority run `shoal dictionary publish`."


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
                encoded = path.read_bytes()
                place = decode(encoded, DataDictionary).body.sequence
                known = self._own.storage.run_here(partial(_version, sequence=place))
                if known is None:
                    before = self._own.storage.run_here(partial(_version, sequence=place - 1))
                    open_dictionary(encoded, self._own.book.current, _body(before))
                    self._own.storage.run_here(partial(_add, sequence=place, encoded=encoded))
                elif self._is_signed_again(known, encoded):
                    self._own.storage.run_here(partial(_replace, sequence=place, encoded=encoded))
            except (ProtocolError, OSError) as error:
                raise StartupRefused(f"{path}: {error}") from error

    async def take(self, encoded: bytes) -> tuple[str, bool]:
        """Take the next version; return its digest, and whether it is new.

        Raises:
            MalformedDocument, UnsupportedVersion, WrongSigner, BadSignature: as `open_dictionary`.
            WrongManifest: another version of this number is on file, or was meanwhile.
            StorageUnavailable
        """
        signed = await self._own.read(encoded, DataDictionary)
        place = signed.body.sequence
        known = await self._own.storage.run(_version, place)
        if known is None:
            earlier = await self._own.storage.run(_version, place - 1)
            current = self._own.book.current
            await asyncio.to_thread(open_dictionary, encoded, current, _body(earlier))
            known = await self._own.storage.run(_add, place, encoded)
            if known is None:
                return signed.digest, True
        if await asyncio.to_thread(self._is_signed_again, known, encoded):
            await self._own.storage.run(_replace, place, encoded)
        elif known != encoded:
            raise WrongManifest("another version of the data dictionary has this number")
        return signed.digest, False

    def _is_signed_again(self, known: bytes, encoded: bytes) -> bool:
        """Tell whether this is a version on file under the signature of the authority in force.

        Its key moved to another since.

        Raises:
            WrongSigner, BadSignature, MalformedDocument: the authority did not sign it.
        """
        if known == encoded or _body(known) != decode(encoded, DataDictionary).body:
            return False
        read_dictionary(encoded, self._own.book.current)
        return True

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
        fault = dictionary.fault_of(columns, as_levels=as_levels)
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


def _replace(db: Connection, sequence: int, encoded: bytes) -> None:
    table = dictionaries
    db.execute(table.update().where(table.c.sequence == sequence).values(encoded=encoded))


def _add(db: Connection, sequence: int, encoded: bytes) -> bytes | None:
    """Store a version; return the one that was there instead, if any."""
    is_new = insert_new(db, dictionaries, sequence=sequence, encoded=encoded)
    return None if is_new else _version(db, sequence)
