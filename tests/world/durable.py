"""Every durable step of every party, in order, and deaths just before and just after any of them.

A durable step is a commit that wrote something, the mark that follows it beside a vault's file, or
a file that was put in place. Which party takes it is told by whose task runs, so nothing in a
service knows of this. In a process of its own there is one party, and it dies by SIGKILL.
"""

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

from sqlalchemy.engine.default import DefaultDialect

from shoal_holder.mark import Mark
from shoal_holder.state_file import StateFile
from shoal_kit import manifest_book
from shoal_protocol.journal import Head
from shoal_service.storage.thread import StorageThread
from tests.world.lives import owner

MARK = "mark"
"""The name of the steps between a commit and whoever hears of it."""


class When(Enum):
    """On which side of a durable step a party dies."""

    BEFORE = "before"  # and the step is undone
    AFTER = "after"  # and nobody hears of it


@dataclass(frozen=True)
class Step:
    """A durable step: the `number`-th of its name that a party took, from 0."""

    party: str
    name: str
    number: int


@dataclass(frozen=True)
class Death:
    """A party's death at the `number`-th step of a name, or of any, after those planned before."""

    when: When
    party: str
    name: str | None = None
    number: int = 0


class Simulated:
    """The parties of a simulation."""

    def who(self) -> str | None:
        """Return whose step it is; None for the test itself, which looks at a service."""
        life = owner()
        return None if life is None else life.name

    def die(self) -> NoReturn:
        life = owner()
        assert life is not None
        life.kill()
        raise asyncio.CancelledError


class Process:
    """The one party of a real process."""

    def who(self) -> str | None:
        return "process"

    def die(self) -> NoReturn:
        os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("nobody survives that")


@dataclass
class DurableSteps:
    """Notes what is taken, and carries out a plan of deaths.

    They come one after the other, or where they are not `in_order`, each at its own step.
    """

    plan: list[Death] = field(default_factory=list)
    in_order: bool = True
    taken: list[Step] = field(default_factory=list)
    deaths: int = 0
    parties: Simulated | Process = field(default_factory=Simulated)
    _passed: int = 0  # steps that the first of the plan let pass
    _counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    _transaction: str = "check_schema"

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the parties that are started inside."""
        with ExitStack() as patches:
            for each in (self._services(), self._data_holders(), self._files(), self._marks()):
                patches.enter_context(each)
            yield

    def _begin(self, name: str) -> When | None:
        party = self.parties.who()
        if party is None or not self.plan:
            return None
        awaited = self.plan[:1] if self.in_order else self.plan
        here = (each for each in awaited if each.party == party and each.name in (None, name))
        due = next(here, None)
        if due is None:
            return None
        if self._passed < due.number:
            self._passed += 1
            return None
        self.plan.remove(due)
        self.deaths += 1
        self._passed = 0
        if due.when is When.BEFORE:
            self.parties.die()
        return due.when

    def _end(self, name: str, dies: When | None) -> None:
        party = self.parties.who()
        if party is None:
            return
        number = self._counts[party, name]
        self._counts[party, name] += 1
        self.taken.append(Step(party, name, number))
        if dies is When.AFTER:
            self.parties.die()

    @contextmanager
    def _services(self) -> Iterator[None]:
        transact = StorageThread._transact
        begin, commit = DefaultDialect.do_begin, DefaultDialect.do_commit

        def named(thread: StorageThread, transaction: Any, *rest: Any, **more: Any) -> Any:
            outer, self._transaction = self._transaction, _name_of(transaction)
            try:
                return transact(thread, transaction, *rest, **more)
            finally:
                self._transaction = outer

        def begun(dialect: DefaultDialect, connection: Any) -> None:
            # not at the last commit: what was undone since then counts, too
            connection.info["total_changes"] = connection.dbapi_connection.total_changes
            begin(dialect, connection)  # type: ignore[no-untyped-call]  # SQLAlchemy leaves it untyped

        def watched(dialect: DefaultDialect, connection: Any) -> None:
            total = connection.dbapi_connection.total_changes
            wrote = total != connection.info["total_changes"]
            dies = self._begin(self._transaction) if wrote else None
            commit(dialect, connection)  # type: ignore[no-untyped-call]  # as above
            if wrote:
                self._end(self._transaction, dies)

        with (
            patch.object(StorageThread, "_transact", named),
            patch.object(DefaultDialect, "do_begin", begun),
            patch.object(DefaultDialect, "do_commit", watched),
        ):
            yield

    @contextmanager
    def _data_holders(self) -> Iterator[None]:
        transaction = StateFile.transaction

        @contextmanager
        def watched(file: StateFile) -> Iterator[None]:
            begun_by = sys._getframe(2).f_code  # the operation of the state
            if begun_by is StateFile.write.__code__:
                begun_by = sys._getframe(3).f_code
            name = begun_by.co_name
            before, dies = file.database.total_changes, None
            with transaction(file):
                yield
                wrote = file.database.total_changes != before
                if wrote:
                    dies = self._begin(name)
            if wrote:
                self._end(name, dies)

        with patch.object(StateFile, "transaction", watched):
            yield

    @contextmanager
    def _files(self) -> Iterator[None]:
        write = manifest_book.replace

        def watched(path: Path, content: bytes) -> None:
            name = path.name.partition("-")[2] or path.name  # without the version's number
            dies = self._begin(name)
            write(path, content)
            self._end(name, dies)

        with patch.object(manifest_book, "replace", watched):
            yield

    @contextmanager
    def _marks(self) -> Iterator[None]:
        write = Mark.write

        def watched(file: Mark, head: Head) -> None:
            if head == file.head:
                return
            dies = self._begin(MARK)
            write(file, head)
            self._end(MARK, dies)

        with patch.object(Mark, "write", watched):
            yield


def _name_of(transaction: Any) -> str:
    """Return a transaction's own name, also where it is wrapped with some of its arguments."""
    while isinstance(transaction, partial):
        transaction = transaction.func
    return str(transaction.__name__)
