"""Takes withdrawals of jobs, from whoever shows them, and refuses these jobs' rounds from then on.

A node knows no jobs: a withdrawal comes with the request that it withdraws.
"""

import asyncio
from concurrent.futures import Executor

from sqlalchemy import Connection, select

from shoal_compute import schema
from shoal_hosting.manifest_book import ManifestBook
from shoal_hosting.storage import StorageThread, insert_ignoring
from shoal_protocol.documents import Signed, from_json
from shoal_protocol.encoding import parse_canonical_json
from shoal_protocol.errors import MalformedDocument, RefusedSpec, UnknownJob
from shoal_protocol.jobs import JobRequest
from shoal_protocol.membership import JobWithdrawal, check_withdrawal


class Withdrawals:
    """The jobs that are known here to be withdrawn; whoever tells of one need not be trusted."""

    def __init__(self, storage: StorageThread, book: ManifestBook, executor: Executor) -> None:
        """Read what is sent in `executor`."""
        self._storage = storage
        self._book = book
        self._executor = executor

    async def take(self, encoded: bytes) -> tuple[str, bool]:
        """Take `{"request", "withdrawal"}`, both signed; return the job, and whether it is new.

        Raises:
            MalformedDocument, UnknownSigner, WrongSigner, BadSignature
            UnknownManifest: they are bound to a manifest that is not known here.
            StorageUnavailable: nothing was stored.
        """
        loop = asyncio.get_running_loop()
        signed = await loop.run_in_executor(self._executor, self._read, encoded)
        return signed.body.job, await self._storage.run(_add, signed)

    def _read(self, encoded: bytes) -> Signed[JobWithdrawal]:
        value = parse_canonical_json(encoded)
        if not isinstance(value, dict) or value.keys() != {"request", "withdrawal"}:
            raise MalformedDocument("a withdrawal comes with the request that it withdraws")
        request = from_json(value["request"], JobRequest)
        signed = from_json(value["withdrawal"], JobWithdrawal)
        consortium = self._book.get(request.body.manifest)
        consortium.verify(request)
        check_withdrawal(signed, request.body, consortium)
        return signed

    async def show(self, job: str) -> bytes:
        """Return the wire form of a job's withdrawal.

        Raises:
            UnknownJob: none is known here.
        """
        found = await self._storage.run(_find, job)
        if found is None:
            raise UnknownJob("no withdrawal of such a job is known here")
        return found


def refuse_withdrawn(db: Connection, job: str) -> None:
    """Refuse a round of a job that is known to be withdrawn.

    Raises:
        RefusedSpec
    """
    if _find(db, job) is not None:
        raise RefusedSpec("the analyst has withdrawn the job")


def _add(db: Connection, signed: Signed[JobWithdrawal]) -> bool:
    columns = schema.withdrawals.c
    row = {"job": signed.body.job, "document": signed.encode()}
    statement = insert_ignoring(db)(schema.withdrawals).values(row)
    new = statement.on_conflict_do_nothing().returning(columns.job)
    return db.execute(new).first() is not None


def _find(db: Connection, job: str) -> bytes | None:
    columns = schema.withdrawals.c
    query = select(columns.document).where(columns.job == job)
    found: bytes | None = db.execute(query).scalar_one_or_none()
    return found
