"""Asks the keepers of this node's journal what they have of it, and hands them its newest head.

After a start nothing is signed that must exist once, until more than half of the keepers answered;
and no such statement leaves before more than half acknowledged an entry as new. So a node that lost
such a statement is told by one of them at least.
"""

import asyncio
import secrets
from collections import defaultdict
from contextlib import suppress
from typing import Any, Final

from nacl.signing import VerifyKey
from sqlalchemy import Connection, select, update

from shoal_compute.schema import journal
from shoal_kit.manifest_book import ManifestBook, newest_with
from shoal_kit.pace import Pace
from shoal_kit.peers.exchange import Unavailable
from shoal_protocol.journal import Link, epoch_order
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
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.errors import BadSignature, NotReady, ProtocolError
from shoal_service.keeping import Keeper
from shoal_service.service import Resources
from shoal_service.storage.journal import Journal, JournalWriter

LOSS: Final = Loss.model_fields["kind"].default
VERSION: Final = ManifestStatement.model_fields["kind"].default


class Keepers:
    """The keepers of this node's journal."""

    def __init__(self, resources: Resources, kept: Journal, keeper: Keeper) -> None:
        """Begin with nobody asked."""
        self._own, self._journal, self._keeper = resources, kept, keeper
        self._at: dict[str, int] = {}  # the number up to which each keeper has the journal
        self._paces: dict[str, Pace] = defaultdict(Pace)
        self._shown: dict[str, Signed[JournalHead]] = {}  # by hash, what the journal lacks

    @property
    def _all(self) -> list[ServiceParty]:
        return keepers_of(self._own.book.current.manifest, self._own.name)

    def due(self) -> list[ServiceParty]:
        """Return who is to be asked now."""
        now = self._own.clock()
        return [
            each
            for each in self._all
            if each.name not in self._at and self._paces[each.name].is_due(now)
        ]

    @property
    def lacking(self) -> set[str]:
        """Return the hashes of heads that were shown and that the journal lacks."""
        return set(self._shown)

    async def ask(self) -> None:
        """Ask everybody who is due.

        Raises:
            StorageUnavailable
        """
        await asyncio.gather(*(self._ask(each) for each in self.due()))

    def check(self) -> None:
        """Refuse until more than half of the keepers answered.

        Raises:
            NotReady
        """
        if not self._are_enough(0):
            raise NotReady("too few keepers of the journal have answered since the start")

    def _are_enough(self, number: int) -> bool:
        """Tell whether more than half of the keepers answered, and have the journal so far."""
        count = sum(self._at.get(each.name, -1) >= number for each in self._all)
        return is_majority(count, self._own.book.current.manifest, self._own.name)

    async def _ask(self, party: ServiceParty, advance: Advance | None = None) -> None:
        try:
            answer = await self._keeper.ask(party, advance)
            if answer.is_new:
                raise Unavailable("the keeper is new")
        except (Unavailable, ProtocolError, ValueError):
            self._paces[party.name].failed(self._own.clock())
            return
        number: int | None = 0
        signed = answer.of(self._own.name)
        if signed is not None and is_by(signed, self._own.book, self._own.name):
            number = await self._own.storage.run(_shared, signed.body)
            if number is None:
                self._shown[signed.body.hash] = signed
        self._at[party.name] = number or 0

    async def acknowledged(self, number: int) -> None:
        """Return once more than half of the keepers have the journal up to an entry.

        Raises:
            NotReady: too few acknowledge it now; the statement is on file, and leaves later.
            StorageUnavailable
        """
        if not self._are_enough(number):
            await asyncio.gather(*(self._push(each, number) for each in self._all))
        if not self._are_enough(number):
            raise NotReady("too few keepers of the journal acknowledged its newest entry")

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
        losses = [decode(each, Loss) for each in journal.of_kind(db, LOSS)]
        loss = next((each for each in reversed(losses) if each.body.entry.number > after), None)
        if loss is not None:
            after = loss.body.entry.number - 1
        columns = journal.entries.c
        query = select(columns.epoch, columns.number, columns.content, columns.hash)
        query = query.where(columns.number > after).order_by(columns.number).limit(MOST_LINKS)
        rows = db.execute(query).all()
        versions = (decode(each, ManifestStatement) for each in journal.of_kind(db, VERSION))
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

    async def accept_loss(self) -> None:
        """Go on without what the journal lacks: in a higher epoch, which begins with a statement.

        Raises:
            StorageUnavailable
        """
        if self._shown:
            await self._journal.run(self._begin_epoch)
            self._shown.clear()
            self._at.clear()

    def _begin_epoch(self, writer: JournalWriter) -> None:
        own = self._own
        # the newest manifest here may be one from before the loss
        signed = max(each.body.sequence for each in self._shown.values())
        lost = max(self._shown.values(), key=lambda each: each.body.place)
        epoch, _ = journal.lock(writer.db)
        counter = max(epoch_order(each)[0] for each in (epoch, lost.body.epoch)) + 1
        higher = f"{counter}-{secrets.token_hex(16)}"
        writer.db.execute(update(journal.head).values(epoch=higher))

        def attest(entry: Link) -> Signed[Loss]:
            return own.sign(
                Loss(
                    manifest=newest_with(own.book, own.name).digest,
                    entry=entry,
                    node=own.name,
                    lost=lost,
                    sequence=max(signed, own.book.current.manifest.sequence + 1),
                    at=own.clock(),
                )
            )

        writer.append(LOSS, lost.body.hash, attest)


def is_by(signed: Signed[Any], book: ManifestBook, name: str) -> bool:
    """Tell whether one of the keys that a party had signed it, in whatever version."""
    keys = [each.party(name).verify_key for each in book.versions if each.lists(name)]
    for key in dict.fromkeys(keys):
        with suppress(BadSignature):
            signed.verify_signature(VerifyKey(bytes.fromhex(key)))
            return True
    return False


def _shared(db: Connection, head: JournalHead) -> int | None:
    """Return up to which number a keeper with this head has the journal; None: it has more.

    What an accepted loss covers ends where the loss begins.
    """
    if journal.holds(db, head.head):
        return head.number
    for encoded in journal.of_kind(db, LOSS):
        loss = decode(encoded, Loss).body
        if head.place <= loss.lost.body.place:
            return loss.entry.number - 1
    return None


def newest_loss(db: Connection) -> Loss | None:
    """Return the newest loss of this node that was accepted."""
    found = [*journal.of_kind(db, LOSS)]
    return decode(found[-1], Loss).body if found else None
