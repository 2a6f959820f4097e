"""Keeps the newest heads of other services' journals, and shows them to whoever asks.

Beside a head it shows the newest statement of the service that its own tables have: rounds' votes
and sums reach keepers in any case, and wait for no keeper.

A keeper that has none, because it is new or lost its database, first copies what more than half of
the others keep. Until then it counts as silent.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import structlog
from nacl.signing import VerifyKey
from sqlalchemy import Column, Connection, MetaData, String, Table, select

from shoal_kit.manifest_book import ManifestBook, newest_with
from shoal_kit.pace import Pace
from shoal_kit.peers.exchange import Unavailable
from shoal_protocol.journal import Statement
from shoal_protocol.keeping import (
    HEADS_PATH,
    LARGEST_ANSWER_BYTES,
    Advance,
    HeadsAsked,
    JournalHead,
    KeptHeads,
    keepers_of,
)
from shoal_protocol.trust.manifest import ServiceParty
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.encoding import parse_canonical_json
from shoal_protocol.wire.errors import BadSignature, ProtocolError, WrongSigner
from shoal_service.service import Resources
from shoal_service.storage.database import Bytes, insert_new

log = structlog.get_logger()

Seen = Callable[[Connection, str], bytes | None]
"""Returns the newest signed statement on file of another service, by its name."""


def kept_table(metadata: MetaData) -> Table:
    """Add the table of kept heads; a row of the keeper's own name says that it is not new."""
    return Table(
        "kept_heads",
        metadata,
        Column("service", String(63), primary_key=True),
        Column("head", Bytes),  # signed; NULL of the keeper itself
        Column("rival", Bytes),  # a signed head to which no entries led from that one: evidence
    )


def place_column() -> Column[str]:
    """Return a column by which the signed statements of one service are in its journal's order."""
    return Column("place", String(65))


def sortable(statement: Statement) -> str:
    """Return what `place_column` has of a statement."""
    (counter, random), number = statement.entry.order
    return f"{counter:015d}-{random}/{number:016d}"


def is_by(signed: Signed[Any], book: ManifestBook, name: str) -> bool:
    """Tell whether one of the keys that a party had signed it, in whatever version."""
    keys = [each.party(name).verify_key for each in book.versions if each.lists(name)]
    for key in dict.fromkeys(keys):
        with suppress(BadSignature):
            signed.verify_signature(VerifyKey(bytes.fromhex(key)))
            return signed.signer == name
    return False


class Keeper:
    """What one service keeps of the others."""

    def __init__(self, resources: Resources, table: Table, seen: Seen) -> None:
        """Keep heads in `table` of the storage of `resources`, where `seen` finds statements."""
        self._own, self._table, self._seen, self._pace = resources, table, seen, Pace()
        self._copying = asyncio.Lock()

    async def answer(self, encoded: bytes) -> bytes:
        """Return the signed heads kept here, once the one that came with the question is.

        Raises:
            MalformedDocument, UnsupportedVersion
            UnknownManifest, UnknownSigner, WrongSigner, BadSignature: of the head that came.
            StorageUnavailable
        """
        asked, own = HeadsAsked.decode(encoded), self._own
        if asked.advance is not None:
            self._verify(asked.advance.head)
            if (loss := asked.advance.loss) is not None:
                own.book.get(loss.body.manifest).verify(loss)
            await own.storage.run(self._take, asked.advance)
        heads = await own.storage.run(self._all)
        if own.name not in heads and not asked.copies:
            async with self._copying:
                if self._pace.is_due(own.clock()):
                    await self._copy()
            heads = await own.storage.run(self._all)
        statement = None
        if asked.service is not None:
            statement = await own.storage.run(self._seen, asked.service)
        telling = own.worker("telling").run_sized
        return await telling(len(statement or b""), self._signed, asked.nonce, heads, statement)

    def _signed(self, nonce: str, heads: Mapping[str, bytes | None], seen: bytes | None) -> bytes:
        own = self._own
        body = KeptHeads(
            keeper=own.name,
            nonce=nonce,
            is_new=own.name not in heads,
            heads=tuple(decode(each, JournalHead) for each in heads.values() if each is not None),
            statement=None if seen is None else parse_canonical_json(seen),
        )
        return own.sign(body).encode()

    def _verify(self, signed: Signed[JournalHead]) -> None:
        """Check that another service signed its head, by its newest key."""
        newest_with(self._own.book, signed.signer).verify(signed)
        if signed.signer == self._own.name:
            raise WrongSigner("a service does not keep its own head")

    def _take(self, db: Connection, advance: Advance) -> None:
        """Go on to a newer head along its entries; keep one without them as evidence."""
        head, filed = advance.head, self._lock(db, advance.head.signer)
        kept = None if filed is None else filed.body
        here = self._table.update().where(self._table.c.service == head.signer)
        if advance.leads_from(kept):
            db.execute(here.values(head=head.encode()))
        elif (
            kept is not None
            and advance.after == kept.number
            and advance.loss is None
            and head.body.order > kept.order  # not what an accepted loss left behind
        ):
            log.error(
                "a service shows two histories of its journal; both heads are kept as evidence",
                party=head.signer,
            )
            db.execute(here.values(rival=head.encode()))

    def _lock(self, db: Connection, service: str) -> Signed[JournalHead] | None:
        """Return the head of a service that is kept, if there is one, and lock its row."""
        insert_new(db, self._table, service=service)
        columns = self._table.c
        query = select(columns.head).where(columns.service == service).with_for_update()
        head = db.execute(query).scalar_one()
        return None if head is None else decode(head, JournalHead)

    def _all(self, db: Connection) -> dict[str, bytes | None]:
        columns = self._table.c
        rows = db.execute(select(columns.service, columns.head))
        return {row.service: row.head for row in rows if row.head or row.service == self._own.name}

    async def _copy(self) -> None:
        """Take over what more than half of the others keep, if so many answer, unless that is done.

        Raises:
            StorageUnavailable
        """
        if self._own.name in await self._own.storage.run(self._all):
            return
        others = keepers_of(self._own.book.current.manifest, self._own.name)
        asked = await asyncio.gather(*map(self._copied, others))
        copied = [each for each in asked if each is not None]
        if 2 * len(copied) <= len(others):
            self._pace.failed(self._own.clock())
        else:
            heads = [each for answer in copied for each in answer.heads]
            await self._own.storage.run(self._adopt, [*filter(self._is_a_services, heads)])

    async def _copied(self, other: ServiceParty) -> KeptHeads | None:
        with suppress(Unavailable, ProtocolError, ValueError):
            return await self.ask(other, copies=True)
        return None

    def _is_a_services(self, signed: Signed[JournalHead]) -> bool:
        book, name = self._own.book, signed.signer
        return is_by(signed, book, name) and isinstance(
            newest_with(book, name).party(name), ServiceParty
        )

    def _rank(self, signed: Signed[JournalHead]) -> tuple[bool, Any]:
        """Return what copied heads are ordered by: one of a replaced key supersedes no other."""
        version = newest_with(self._own.book, signed.signer)
        try:
            version.verify(signed)
        except ProtocolError:
            return False, signed.body.order
        return True, signed.body.order

    def _adopt(self, db: Connection, heads: Sequence[Signed[JournalHead]]) -> None:
        last = {each.signer: each for each in sorted(heads, key=self._rank)}
        last.pop(self._own.name, None)
        for name, head in sorted(last.items()):
            kept = self._lock(db, name)  # a newer one may have come to this keeper meanwhile
            if kept is None or self._rank(kept) < self._rank(head):
                here = self._table.update().where(self._table.c.service == name)
                db.execute(here.values(head=head.encode()))
        insert_new(db, self._table, service=self._own.name)

    async def ask(
        self,
        keeper: ServiceParty,
        advance: Advance | None = None,
        *,
        copies: bool = False,
        service: str | None = None,
    ) -> KeptHeads:
        """Return what a keeper answers, signed over this question's nonce.

        Its certificate may have ended: the signature speaks for itself.

        Raises:
            Unavailable: it does not answer, or another question.
            ProtocolError: it is not signed by the keeper.
        """
        nonce = secrets.token_hex(16)
        asked = HeadsAsked(nonce=nonce, copies=copies, service=service, advance=advance)
        encoded, peers, most = asked.encode(), self._own.peers, LARGEST_ANSWER_BYTES
        try:
            reply = await peers.to(keeper).ask("POST", HEADS_PATH, encoded, limit_bytes=most)
        except Unavailable:
            uncertified = peers.to(keeper, certified=False)
            reply = await uncertified.ask("POST", HEADS_PATH, encoded, limit_bytes=most)
        if reply.status != 200:
            raise Unavailable("the keeper does not tell which heads it keeps")
        answer = await self._own.read(reply.body, KeptHeads)
        newest_with(self._own.book, keeper.name).verify(answer)
        if (answer.signer, answer.body.nonce) != (keeper.name, asked.nonce):
            raise Unavailable("the answer is another keeper's, or of another question")
        return answer.body
