"""Runs a service's transactions; counts its commits in the database and marks them outside it.

Each process counts under a name of its own, so that replicas over one PostgreSQL do not wait for
each other's commits, and each one's mark is of what that process acknowledged.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import structlog
from sqlalchemy import (
    URL,
    BigInteger,
    Column,
    Connection,
    Engine,
    MetaData,
    String,
    Table,
    event,
    literal,
    make_url,
    select,
    text,
    update,
)

from shoal_kit.marks import (
    DAMAGED,
    LOSSES_ACCEPTED,
    Mark,
    Marking,
    MemoryLost,
    Stored,
    check_beginning,
    check_file,
    open_marking,
    pages_are_whole,
)
from shoal_kit.startup import StartupRefused
from shoal_protocol.privacy.ledger import EMPTY
from shoal_protocol.wire.errors import LedgerBroken
from shoal_protocol.wire.service_errors import StorageUnavailable
from shoal_service.storage.database import (
    OTHERS_COMPARED,
    RESTORE,
    only_changes,
    sqlstate,
    tell_compared,
    translating_storage_errors,
)

log = structlog.get_logger()

MARK: Final = "memory"  # the file beside the database
_WRITTEN: Final = "rows_written"
_ATTEMPTS: Final = 5  # at a transaction that others were in the way of
_IN_THE_WAY: Final = ("40001", "40P01")  # SQLSTATE: serialisation failure, deadlock

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


def memory_table(metadata: MetaData) -> Table:
    """Add the table in which commits are counted to `metadata`."""
    table = Table(
        "memory",
        metadata,
        Column("database", String(32), primary_key=True),  # as a mark names it
        Column("commits", BigInteger, nullable=False),  # that wrote something
    )
    only_changes(table)
    return table


class Memory:
    """Counts commits and marks them: for `StorageThread`, which calls it around each transaction.

    A read is not counted; nothing is marked before it is durable, or told before it is marked.
    """

    def __init__(self, table: Table, marking: Marking) -> None:
        self._marking = marking
        self._settling = threading.Lock()  # a mark must not be overtaken by an older one
        self._unsure = False  # whether a commit that failed reached the disk
        commits = table.c.commits
        self._count = (
            update(table)
            .where(table.c.database == marking.database)
            .values(commits=commits + 1)
            .returning(commits)
        )

    @contextmanager
    def begin(self, engine: Engine) -> Iterator[Connection]:
        """Begin a transaction; if it wrote something, count it and note the commit.

        Call `settle` before anybody hears of it.
        """
        row = None
        with engine.begin() as db:
            before = _written(db)
            yield db
            if _written(db) != before or self._unsure:
                row = db.execute(self._count).one()
                self._unsure = True
        if row is not None:
            self._unsure = False
            self._marking.committed(row[0], EMPTY)

    @property
    def is_settled(self) -> bool:
        """Tell whether all that was committed is marked."""
        return self._marking.is_settled

    def settle(self) -> None:
        """Mark all commits, including those that an earlier call failed to mark.

        Raises:
            StorageUnavailable: it is committed and not marked: nobody may hear of it yet.
        """
        try:
            with self._settling:
                self._marking.settle()
        except OSError as error:
            raise StorageUnavailable from error

    def close(self) -> None:
        """Let go of the mark."""
        self._marking.close()


class StorageThread:
    """The one thread in which a service's SQL runs, so that the event loop never waits for a disk.

    One writer also means that SQLite never has two of this process's transactions in each
    other's way.
    """

    def __init__(self, engine: Engine, memory: Memory | None = None) -> None:
        """Run transactions on `engine`; with `memory`, mark commits before reporting them."""
        self._engine = engine
        self._memory = memory
        self._begin = engine.begin if memory is None else partial(memory.begin, engine)
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="storage")
        self._marking = ThreadPoolExecutor(max_workers=1, thread_name_prefix="marking")
        # transactions handed to the thread, and begun in it; each is counted in one thread only
        self._handed = self._begun = 0

    async def run(
        self,
        transaction: Callable[Concatenate[Connection, Arguments], Answer],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Answer:
        """Run `transaction(connection, ...)`; what it wrote is durable on return.

        It commits as a whole or not at all, also if the caller stops waiting for it. One that
        PostgreSQL broke off in favour of another process's is begun again from its start.

        Raises:
            StorageUnavailable: nothing was stored.
        """
        loop = asyncio.get_running_loop()
        self._handed += 1
        answer = await loop.run_in_executor(
            self._executor, self._in_turn, transaction, arguments, named
        )
        # what it read may be of a commit whose mark is not written yet
        if self._memory is not None and not self._memory.is_settled:
            # the next transaction begins meanwhile, and its mark may be written with this one's
            await loop.run_in_executor(self._marking, self._memory.settle)
        return answer

    def run_here(
        self,
        transaction: Callable[Concatenate[Connection, Arguments], Answer],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Answer:
        """Do what `run` does, in the calling thread: for start-up, before requests arrive."""
        answer = self._transact(transaction, arguments, named)
        if self._memory is not None:
            self._memory.settle()
        return answer

    def _in_turn(
        self, transaction: Callable[..., Answer], arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> Answer:
        self._begun += 1
        answer = self._transact(transaction, arguments, named)
        if self._memory is not None and self._handed == self._begun:  # the mark keeps none waiting
            self._memory.settle()
        return answer

    def _transact(
        self, transaction: Callable[..., Answer], arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> Answer:
        attempt = 1
        while True:
            try:
                with translating_storage_errors(), self._begin() as db:
                    return transaction(db, *arguments, **named)
            except StorageUnavailable as error:
                if attempt == _ATTEMPTS or sqlstate(error.__cause__) not in _IN_THE_WAY:
                    raise
                attempt += 1

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
        if self._memory is not None:
            self._memory.close()

    async def close(self) -> None:
        """Finish what was begun and let go of the database."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._executor.shutdown)
        await loop.run_in_executor(None, self._marking.shutdown)
        self.let_go()


def check_log(url: str, mark: Path) -> bool:
    """Do what `check_file` says, before an SQLite database is opened; tell whether none is there.

    Raises:
        StartupRefused: the file is older than its log, or the mark is damaged or cannot be read.
    """
    database = _file_of(make_url(url))
    if database is None:
        return False
    with _refusing(mark):
        check_file(database, mark)
    return not database.exists()


def check_new(mark: Path, *, accept: str | None) -> None:
    """Refuse to begin a database where the file `mark` is of one that is gone.

    `accept` is as in `open_marking`.

    Raises:
        StartupRefused: it is, or it is damaged or cannot be read.
    """
    with _refusing(mark):
        check_beginning(mark, accept=accept)


@contextmanager
def _refusing(mark: Path) -> Iterator[None]:
    try:
        yield
    except MemoryLost as error:
        raise StartupRefused(str(error)) from None
    except LedgerBroken as error:
        raise StartupRefused(f"{error}; {RESTORE}") from None
    except OSError as error:
        raise StartupRefused(f"{mark} cannot be used: {error.strerror}") from None


def open_memory(
    engine: Engine,
    mark: Path,
    table: Table,
    *,
    accept: str | None,
) -> Memory:
    """Hold a database against the file `mark`, once its schema was checked; begin both if new.

    `accept` is as in `open_marking`.

    Raises:
        StartupRefused: the database does not know what it acknowledged, or the mark is damaged or
            cannot be written.
        StorageUnavailable: it cannot be reached.
    """
    is_postgresql = engine.dialect.name == "postgresql"
    if is_postgresql:
        event.listen(engine, "after_cursor_execute", _note_rows)
    if not is_postgresql:
        _check_pages(engine)
    with _refusing(mark), translating_storage_errors(), engine.begin() as db:

        def stored(mark: Mark | None) -> Stored:
            return _stored(db, table, mark)

        def begin(mark: Mark) -> None:
            db.execute(table.insert().values(database=mark.database, commits=mark.commits))

        def vouched() -> bool:
            return (
                is_postgresql
                and db.execute(select(literal(1)).where(text(OTHERS_COMPARED))).first() is not None
            )

        marking = open_marking(
            mark,
            stored,
            begin,
            accept=accept,
            vouched=vouched,
            database=_file_of(engine.url),
        )
        if is_postgresql:
            tell_compared(engine, db)
    if marking.losses:
        log.warning(LOSSES_ACCEPTED, losses=marking.losses)
    return Memory(table, marking)


def _stored(db: Connection, table: Table, mark: Mark | None) -> Stored:
    touched = db.execute(select(table.c.commits).where(table.c.commits > 0).limit(1)).first()
    commits = None
    if mark is not None:
        of_mark = select(table.c.commits).where(table.c.database == mark.database)
        commits = db.execute(of_mark).scalar_one_or_none()
    marked = db.execute(select(table.c.database, table.c.commits).order_by(table.c.database))
    return Stored(
        commits, EMPTY, True, touched is None, tuple((name, many) for name, many in marked)
    )


def _file_of(url: URL) -> Path | None:
    is_file = url.get_backend_name() == "sqlite" and url.database
    return Path(url.database or "") if is_file else None


def _check_pages(engine: Engine) -> None:
    """Read all of an SQLite file once, so that a page that is broken shows now and not in use."""
    with translating_storage_errors():
        connection = engine.raw_connection()
    try:
        is_whole = pages_are_whole(connection.dbapi_connection, Path(engine.url.database or ""))
    except sqlite3.DatabaseError as error:
        raise StorageUnavailable from error
    finally:
        connection.close()
    if not is_whole:
        raise StartupRefused(DAMAGED)


def _written(db: Connection) -> int:
    if db.dialect.name == "sqlite":
        return int(db.connection.dbapi_connection.total_changes)  # type: ignore[union-attr]
    return int(db.info.get(_WRITTEN, 0))


def _note_rows(
    db: Connection, cursor: Any, _statement: str, _parameters: Any, context: Any, _many: bool
) -> None:
    if context is not None and (context.isinsert or context.isupdate or context.isdelete):
        db.info[_WRITTEN] = db.info.get(_WRITTEN, 0) + max(cursor.rowcount, 0)
