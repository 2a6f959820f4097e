"""Runs a service's transactions in one thread."""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine

from shoal_protocol.wire.service_errors import StorageUnavailable
from shoal_service.storage.database import translating_storage_errors

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


class StorageThread:
    """The one thread in which a service's SQL runs, so that the event loop never waits for a disk.

    One writer also means that SQLite never has two of this process's transactions in each
    other's way.
    """

    def __init__(self, engine: Engine) -> None:
        """Run transactions on `engine`."""
        self._engine = engine
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="storage")

    async def run(
        self,
        transaction: Callable[Concatenate[Connection, Arguments], Answer],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Answer:
        """Run `transaction(connection, ...)`; what it wrote is durable on return.

        It commits as a whole or not at all, also if the caller stops waiting for it.

        Raises:
            StorageUnavailable: nothing was stored; PostgreSQL may have broken it off in favour of
                another process's.
        """
        return await asyncio.get_running_loop().run_in_executor(
            self._executor, self._transact, transaction, arguments, named
        )

    def run_here(
        self,
        transaction: Callable[Concatenate[Connection, Arguments], Answer],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Answer:
        """Do what `run` does, in the calling thread: for start-up, before requests arrive."""
        return self._transact(transaction, arguments, named)

    def _transact(
        self, transaction: Callable[..., Answer], arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> Answer:
        with translating_storage_errors(), self._engine.begin() as db:
            return transaction(db, *arguments, **named)

    @property
    def is_shared(self) -> bool:
        """Tell whether other processes may use the database, too."""
        return self._engine.dialect.name == "postgresql"

    def truncate_log(self) -> None:
        """Write SQLite's log back and cut it off; elsewhere do nothing.

        SQLite overwrites what a transaction erases (secure_delete), but its write-ahead log still
        holds the pages as they were until then.

        Raises:
            StorageUnavailable: somebody else is using the database, or it cannot be written.
        """
        if self._engine.dialect.name != "sqlite":
            return
        try:
            with closing(self._engine.raw_connection()) as raw, closing(raw.cursor()) as cursor:
                busy, _, _ = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.DatabaseError as error:  # the driver's own: such as a full disk
            raise StorageUnavailable from error
        if busy:
            raise StorageUnavailable

    def let_go(self) -> None:
        """Let go of the database: no transaction runs any more, or none ever did."""
        self._engine.dispose()

    async def close(self) -> None:
        """Finish what was begun and let go of the database."""
        await asyncio.get_running_loop().run_in_executor(None, self._executor.shutdown)
        self.let_go()
