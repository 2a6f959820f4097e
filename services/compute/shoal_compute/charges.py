"""Answers clients' signed queries: in which rounds did this node take a share of the client's?

A client that lost its ledger learns from the answer what it spent. Only the client can ask.
"""

from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from pyroaring import BitMap
from sqlalchemy import Connection, select

from shoal_compute.schema import ledger, rounds
from shoal_compute.shares import held_among
from shoal_hosting.service import Resources
from shoal_protocol.jobs.charges import MOST_QUERIES, Charges, ChargesQuery, RoundCharged
from shoal_protocol.jobs.charges_asked import check_age
from shoal_protocol.privacy.ledger import Head
from shoal_protocol.trust.limits import CLOCKS_APART
from shoal_protocol.wire.documents import Signed, from_json
from shoal_protocol.wire.encoding import encode_clients, parse_canonical_json
from shoal_protocol.wire.errors import MalformedDocument, ProtocolError
from shoal_protocol.wire.service_errors import StaleQuery

# Of one answer: shares are looked up on the thread that stores them.
_MOST_ENTRIES: Final = 64
_MOST_LOOKUPS: Final = 10_000
_MOST_REMEMBERED: Final = 100_000


class Stretch(NamedTuple):
    """The charges of some clients in a stretch of the ledger, up to entry `through`."""

    rounds: tuple[RoundCharged, ...]
    through: int
    head: Head


class ChargesAnswers:
    """Checks each query, and signs answers from the ledger and the shares on file."""

    def __init__(self, resources: Resources) -> None:
        """Sign as the node whose `resources` they are."""
        self._own = resources
        self._telling = resources.worker("telling")
        self._answered: OrderedDict[tuple[str, int], datetime] = OrderedDict()

    async def answer(
        self, encoded: bytes, *, after: int
    ) -> tuple[list[ProtocolError | None], Signed[Charges]]:
        """Answer `{"documents": [signed query, …]}` from ledger entry `after` on.

        Return why each query is refused, None if it is not, and what was charged to the others.

        Raises:
            MalformedDocument: no list of queries, or too many.
            ProtocolError: no query is any good; it is the first one's refusal.
            StaleQuery: these queries were answered before.
            StorageUnavailable
        """
        read = await self._telling.run(self._read, encoded)
        good = [each for each in read if not isinstance(each, ProtocolError)]
        if not good:
            raise next(each for each in read if isinstance(each, ProtocolError))
        first = good[0].body
        self._once(first.nonce, after)
        asked = BitMap(each.body.client for each in good)
        found = await self._own.storage.run(read_stretch, asked, after)
        body = Charges(
            manifest=first.manifest,
            node=self._own.name,
            nonce=first.nonce,
            clients=encode_clients(asked),
            after=after,
            through=found.through,
            head=found.head.number,
            head_digest=found.head.digest,
            rounds=found.rounds,
        )
        signed = await self._telling.run(self._own.sign, body)
        return [each if isinstance(each, ProtocolError) else None for each in read], signed

    def _read(self, encoded: bytes) -> Sequence[Signed[ChargesQuery] | ProtocolError]:
        value = parse_canonical_json(encoded)
        documents = value.get("documents") if isinstance(value, dict) else None
        if not isinstance(documents, list) or len(value) > 1:
            raise MalformedDocument("the body must be a list of documents")
        if not 0 < len(documents) <= MOST_QUERIES:
            raise MalformedDocument(f"a request has 1 to {MOST_QUERIES} queries")
        now, together = self._own.clock(), set[tuple[str, str]]()
        return [self._validate(each, now, together) for each in documents]

    def _validate(
        self, document: Any, now: datetime, together: set[tuple[str, str]]
    ) -> Signed[ChargesQuery] | ProtocolError:
        try:
            signed = from_json(document, ChargesQuery)
            query = signed.body
            self._own.book.get(query.manifest).verify(signed)
            check_age(query, now)
            together.add((query.manifest, query.nonce))
            if len(together) > 1:
                together.remove((query.manifest, query.nonce))
                raise MalformedDocument("queries in one request have one manifest and one nonce")
        except ProtocolError as error:
            return error
        return signed

    def _once(self, nonce: str, after: int) -> None:
        """Refuse queries that were answered before; older ones are refused for their age.

        Raises:
            StaleQuery
        """
        now = self._own.clock()
        while self._answered:
            oldest, at = next(iter(self._answered.items()))
            if abs(now - at) <= 2 * CLOCKS_APART and len(self._answered) < _MOST_REMEMBERED:
                break
            del self._answered[oldest]
        if (nonce, after) in self._answered:
            raise StaleQuery
        self._answered[nonce, after] = now


def read_stretch(db: Connection, clients: BitMap, after: int) -> Stretch:
    """Return in which rounds, charged by entries behind `after`, these clients' shares came.

    It ends early where there is much to look up.

    Raises:
        LedgerBroken
    """
    head = ledger.hold(db, lock=False)
    found, through, looked_up, seen = [], after, 0, 0
    for entry, population in ledger.after(db, after, most=_MOST_ENTRIES):
        asked = population & clients if entry.kind == "charge" else BitMap()
        looked_up += len(asked)
        if entry.number > head.number or (seen and looked_up > _MOST_LOOKUPS):
            break  # a replica has just added it, or the next answer tells of it
        seen, through = seen + 1, entry.number
        held = held_among(db, entry.round, asked) if asked else asked
        if held:
            place = select(rounds.c.place).where(rounds.c.id == entry.round)
            found.append(
                RoundCharged(
                    entry=entry.number,
                    round=entry.round,
                    job=entry.job,
                    number=db.execute(place).scalar_one(),
                    mu=entry.mu,
                    epsilon=entry.epsilon,
                    clients=encode_clients(held),
                )
            )
    return Stretch(tuple(found), through if seen else head.number, head)
