"""Asks the keepers of this service's journal what they have of it, and hands them its newest head.

A service is asked for nothing new until every keeper was asked once. What must exist once is not
signed until more than half of them answered, and nothing rests on it before more than half
acknowledged it. So a service that lost such a statement is told by one of them at least.
"""

import asyncio
import hashlib
import json
import secrets
from collections import defaultdict
from typing import Final

import structlog
from sqlalchemy import Connection, Table, select, update

from shoal_kit.database_file import ACCEPT, RESTORE
from shoal_kit.manifest_book import newest_with
from shoal_kit.pace import Pace
from shoal_kit.peers.exchange import Unavailable
from shoal_protocol.journal import EntryPlace, Link, Statement, epoch_order
from shoal_protocol.keeping import (
    MOST_LINKS,
    Advance,
    JournalHead,
    Loss,
    is_majority,
    keepers_of,
)
from shoal_protocol.trust.manifest import ServiceParty
from shoal_protocol.trust.succession import ManifestStatement
from shoal_protocol.wire.documents import Signed, decode, from_json
from shoal_protocol.wire.errors import BadSignature, LedgerBroken, NotReady, ProtocolError
from shoal_service.keeping import Keeper, Seen, is_by
from shoal_service.service import Resources
from shoal_service.storage.journal import Journal, JournalTables, JournalWriter

log = structlog.get_logger()

LOSS: Final = Loss.model_fields["kind"].default
VERSION: Final = ManifestStatement.model_fields["kind"].default


class Keepers:
    """The keepers of this service's journal; each is asked after a start, as soon as it answers."""

    def __init__(
        self,
        resources: Resources,
        journal: Journal,
        kept: Table,
        seen: Seen,
        *,
        accept: str | None,
    ) -> None:
        """Begin with nobody asked; `accept` is the token of a loss that the operator accepts.

        `kept` and `seen` are of this service as a keeper itself.
        """
        self._own, self.journal, self.keeper = resources, journal, Keeper(resources, kept, seen)
        self._accept = accept
        self._at: dict[str, int] = {}  # the number up to which each keeper has the journal
        self._paces: dict[str, Pace] = defaultdict(Pace)
        self._shown: dict[str, EntryPlace] = {}  # what the journal lacks, by digest
        self._sequence = 0  # the highest of a version that the lacking part signed
        self._told: set[str] = set()
        self._remedy = f"Stop the service, and {RESTORE}"  # for its operator alone
        self._was_asked = False
        self._asking = asyncio.Lock()
        if resources.storage.run_here(lambda db: newest_loss(db, journal.tables)) is not None:
            log.warning(
                "the journal goes on after a loss that was accepted: what was lost may be charged "
                "or signed a second time"
            )

    @property
    def _all(self) -> list[ServiceParty]:
        return keepers_of(self._own.book.current.manifest, self._own.name)

    def is_due(self) -> bool:
        """Tell whether somebody is to be asked now."""
        return bool(self._due())

    def _due(self) -> list[ServiceParty]:
        now = self._own.clock()
        return [
            each
            for each in self._all
            if each.name not in self._at and self._paces[each.name].is_due(now)
        ]

    async def ask(self) -> None:
        """Ask everybody who is due, and hold what they have against the journal.

        Raises:
            StorageUnavailable
        """
        async with self._asking:
            await asyncio.gather(*(self._ask(each) for each in self._due()))
            await self._judge()
            self._was_asked = True

    async def check(self) -> None:
        """Refuse if a keeper that was asked has of this journal what it lacks.

        The first call waits until everybody was asked; a keeper that does not answer delays only
        it.

        Raises:
            LedgerBroken: the service was set back.
            StorageUnavailable
        """
        if not self._was_asked:
            await self.ask()
        await self._refuse()

    async def check_begun(self) -> None:
        """Do what `check` does, and refuse until more than half of the keepers answered.

        Raises:
            LedgerBroken, StorageUnavailable
            NotReady: too few answered.
        """
        if self._due():
            await self.ask()
        await self.check()
        self._refuse_without(0)

    async def ready(self) -> None:
        """Return unless the service was set back.

        Raises:
            LedgerBroken, StorageUnavailable
        """
        await self._own.ready()
        await self._refuse()

    async def _refuse(self) -> None:
        if self._shown:  # a loss that was accepted at another replica may cover it
            loss = await self._own.storage.run(newest_loss, self.journal.tables)
            self._shown = {
                digest: place
                for digest, place in self._shown.items()
                if loss is None or place.order > loss.lost.order
            }
        if self._shown:
            broken = LedgerBroken("this service signed what is not in its journal: it was set back")
            broken.add_note(self._remedy)
            raise broken

    def _refuse_without(self, number: int) -> None:
        """Refuse unless more than half of the keepers answered, and have the journal so far."""
        silent = [each.name for each in self._all if self._at.get(each.name, -1) < number]
        if not is_majority(
            len(self._all) - len(silent), self._own.book.current.manifest, self._own.name
        ):
            raise NotReady(
                "too few of the other services say what they keep of this one's journal. "
                f"Silent are {', '.join(silent)}: let their operators start them, with their keys; "
                "whose data directory is lost for good starts with an empty one, and copies what "
                "the others keep"
            )

    async def _ask(self, party: ServiceParty, advance: Advance | None = None) -> None:
        own = self._own
        try:
            answer = await self.keeper.ask(party, advance, service=None if advance else own.name)
            if answer.is_new:
                raise Unavailable("the keeper is new")
            head, statement = answer.of(own.name), None
            if answer.statement is not None:
                statement = from_json(answer.statement, *self.journal.kinds)
                if not is_by(statement, own.book, own.name):
                    raise BadSignature
        except (Unavailable, ProtocolError, ValueError) as error:  # or no certificate at all
            self._paces[party.name].failed(own.clock())
            log.info("a keeper does not answer", party=party.name, reason=type(error).__name__)
            return
        number: int | None = 0
        if head is not None and is_by(head, own.book, own.name):
            number = await own.storage.run(_shared, self.journal.tables, head.body)
            if number is None:
                self._shown[head.digest] = head.body
                self._sequence = max(self._sequence, head.body.sequence)
        if statement is not None:
            if not await own.storage.run(_has, self.journal.tables, statement):
                self._shown[statement.digest] = statement.body.entry
        self._at[party.name] = number or 0

    async def _judge(self) -> None:
        """Tell the operator what the journal lacks, or go on without it as was accepted.

        Raises:
            StorageUnavailable
        """
        if not self._shown.keys() - self._told:
            return
        self._told = set(self._shown)
        named = json.dumps([self._own.name, *sorted(self._told)])
        token = hashlib.sha256(named.encode()).hexdigest()[:16]
        if self._accept == token:
            await self.journal.run(self._begin_epoch)
            for each in self._told:
                self._shown.pop(each, None)
            self._at.clear()
            return
        self._remedy = (
            f"Stop the service, and {RESTORE}. If that is lost for good, read 'Restore' in "
            f"docs/handbook.md, then start once with {ACCEPT}={token}"
        )
        log.error(
            "this service signed what is not in its journal: it was set back, and takes nothing "
            f"new. {self._remedy}",
            lost=len(self._told),
        )

    async def acknowledged(self, entry: Link) -> None:
        """Return once more than half of the keepers have the journal up to this entry.

        Raises:
            NotReady: too few acknowledge it now; the statement is on file, and leaves later.
            LedgerBroken, StorageUnavailable
        """
        try:
            self._refuse_without(entry.number)
        except NotReady:
            await asyncio.gather(*(self._push(each, entry.number) for each in self._all))
            await self._judge()
            await self._refuse()
            self._refuse_without(entry.number)

    async def _push(self, party: ServiceParty, number: int) -> None:
        """Hand a keeper what it lacks, part by part, for as long as it goes on."""
        if party.name not in self._at:
            await self._ask(party)
        before = -1
        while before < self._at.get(party.name, -1) < number:
            before = self._at[party.name]
            await self._ask(party, await self._own.storage.run(self._advance, before))

    def _advance(self, db: Connection, after: int) -> Advance:
        """Return what leads a keeper on from an entry; from a loss on if there is one behind it."""
        tables = self.journal.tables
        losses = [decode(each, Loss) for each in tables.of_kind(db, LOSS)]
        loss = next((each for each in reversed(losses) if each.body.entry.number > after), None)
        if loss is not None:
            after = loss.body.entry.number - 1
        columns = tables.entries.c
        query = select(columns.epoch, columns.number, columns.content, columns.hash)
        query = query.where(columns.number > after).order_by(columns.number).limit(MOST_LINKS)
        rows = db.execute(query).all()
        versions = (decode(each, ManifestStatement) for each in tables.of_kind(db, VERSION))
        head = JournalHead(
            service=self._own.name,
            epoch=rows[-1].epoch,
            number=rows[-1].number,
            hash=rows[-1].hash,
            sequence=max((each.body.sequence for each in versions), default=0),
        )
        return Advance(
            head=self._own.sign(head),
            after=after,
            entries=tuple((row.epoch, row.content) for row in rows),
            loss=loss,
        )

    def _begin_epoch(self, writer: JournalWriter) -> None:
        """Go on without what the journal lacks: in a higher epoch, which begins with a loss."""
        own, tables = self._own, self.journal.tables
        last = max(self._shown.values(), key=lambda each: each.order)
        lost = EntryPlace(epoch=last.epoch, number=last.number)
        epoch, _ = tables.lock(writer.db)
        counter = max(epoch_order(each)[0] for each in (epoch, lost.epoch)) + 1
        higher = f"{counter}-{secrets.token_hex(16)}"
        writer.db.execute(update(tables.head).values(epoch=higher))

        def attest(entry: Link) -> Signed[Loss]:
            return own.sign(
                Loss(
                    manifest=newest_with(own.book, own.name).digest,
                    entry=entry,
                    service=own.name,
                    lost=lost,
                    # the newest manifest here may be one from before the loss
                    sequence=max(self._sequence, own.book.current.manifest.sequence + 1),
                    at=own.clock(),
                )
            )

        writer.append(LOSS, f"{lost.epoch}/{lost.number}", attest)


def _losses(db: Connection, tables: JournalTables) -> list[Loss]:
    return [decode(each, Loss).body for each in tables.of_kind(db, LOSS)]


def _shared(db: Connection, tables: JournalTables, head: JournalHead) -> int | None:
    """Return up to which number a keeper with this head has the journal; None: it has more.

    What an accepted loss covers ends where the loss begins.
    """
    if tables.holds(db, head.head):
        return head.number
    for loss in _losses(db, tables):
        if head.order <= loss.lost.order:
            return loss.entry.number - 1
    return None


def _has(db: Connection, tables: JournalTables, signed: Signed[Statement]) -> bool:
    """Tell whether the journal has or had a statement, or an accepted loss covers it."""
    statement, here = signed.body, tables.entries.c
    query = select(here.body).where(
        here.epoch == statement.entry.epoch,
        here.number == statement.entry.number,
        here.previous == statement.entry.previous,
        here.kind == statement.slot,
        here.subject == statement.subject,
    )
    row = db.execute(query).one_or_none()
    if row is not None and row.body in (None, signed.encode()):
        return True
    return any(statement.entry.order <= each.lost.order for each in _losses(db, tables))


def newest_loss(db: Connection, tables: JournalTables) -> Loss | None:
    """Return the newest loss of this service that was accepted."""
    losses = _losses(db, tables)
    return losses[-1] if losses else None
