"""Takes uploads: checks envelopes in a thread, stores shares in batches, then acknowledges them."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from copy import copy
from itertools import islice, repeat
from typing import Final

from prometheus_client import Counter
from pyroaring import BitMap

from shoal_compute.round_book import RoundBook
from shoal_compute.rounds import Round
from shoal_compute.shares import AcceptedShare, add_shares, stored_digests
from shoal_protocol.sharing.received import parse, read_receipt_query, unframe
from shoal_protocol.wire.errors import ProtocolError
from shoal_protocol.wire.phases import TAKES_SHARES, Phase
from shoal_protocol.wire.service_errors import (
    MalformedEnvelope,
    RoundAbandoned,
    StorageUnavailable,
    TooLate,
)
from shoal_service.service import Resources
from shoal_service.storage.group_commit import Batches

MOST_IN_BULK: Final = 10_000
_AS_LONG_AS_BYTES: Final = 8 << 10  # checking any envelope takes as long as reading this many bytes
_LARGEST_COMMIT: Final = MOST_IN_BULK
_COMMITS_AT_ONCE: Final = 2  # one is written while the one before it is counted


class Uploads:
    """Checks and stores envelopes; returns an HTTP status for each."""

    def __init__(self, resources: Resources, rounds: RoundBook) -> None:
        """Start idle."""
        self._own = resources
        self._validator = resources.worker("validation")
        self._rounds = rounds
        self._commits = Batches(self._commit, largest=_LARGEST_COMMIT, at_once=_COMMITS_AT_ONCE)
        self._stored = Counter(
            "shoal_compute_shares_stored", "Shares stored durably", registry=resources.registry
        )

    async def take(self, round_id: str, encoded: bytes) -> int:
        """Store one envelope; return 201, or 200 if the same envelope is stored already.

        Raises:
            ProtocolError: the envelope is refused.
        """
        if round_id not in self._rounds.live:
            parse(encoded)  # malformed bytes are refused as such, also of unknown rounds
        [status] = await self._take(round_id, [encoded])
        if isinstance(status, ProtocolError):
            raise status
        return status

    async def take_all(self, round_id: str, body: bytes) -> list[int | ProtocolError]:
        """Store a bulk body's envelopes, each by itself; return each one's status or refusal.

        Raises:
            MalformedEnvelope: the body is cut short, or holds too many; nothing is stored.
            StorageUnavailable: all envelopes are valid, and none could be stored.
            UnknownRound
        """
        envelopes = list(islice(unframe(body), MOST_IN_BULK + 1))
        if len(envelopes) > MOST_IN_BULK:
            raise MalformedEnvelope(f"a bulk body may hold {MOST_IN_BULK} envelopes")
        return await self._take(round_id, envelopes)

    async def has(self, round_id: str, body: bytes) -> bool:
        """Tell whether exactly the envelope that the receipt query in `body` names is stored.

        Reads the database, not memory: a freeze attests what the database has.

        Raises:
            MalformedDocument, UnknownRound, StorageUnavailable
        """
        holder, digest = read_receipt_query(body)
        await self._rounds.find(round_id)
        stored = await self._own.storage.run(stored_digests, round_id, [holder])
        return stored.get(holder) == digest

    async def _take(self, round_id: str, envelopes: Sequence[bytes]) -> list[int | ProtocolError]:
        round_ = await self._rounds.find(round_id)
        # the deadline holds even if the freeze has not happened yet
        is_over = self._own.clock() >= round_.spec.body.deadline
        if is_over or round_.phase not in TAKES_SHARES:
            return await self._look_up(round_, envelopes)
        size = max(sum(map(len, envelopes)), _AS_LONG_AS_BYTES * len(envelopes))
        # in one thread: two would wait for each other at every envelope
        checked = await self._validator.run_sized(
            size, round_.intake.validate_all, envelopes, self._own.book.current.roster
        )
        accepted = [each for each in checked if isinstance(each, AcceptedShare)]
        statuses: Iterator[int | ProtocolError]
        try:
            statuses = iter(await self._commits.submit_all(accepted))
        except StorageUnavailable as error:
            if len(accepted) == len(checked):
                raise  # a refusal of the whole body tells the sender when to try again
            statuses = repeat(error)
        return [each if isinstance(each, ProtocolError) else next(statuses) for each in checked]

    async def _look_up(
        self, round_: Round, envelopes: Sequence[bytes]
    ) -> list[int | ProtocolError]:
        """Return 200 for envelopes that are stored already, in a round that takes no more."""
        closed = RoundAbandoned if round_.phase is Phase.ABANDONED else TooLate
        statuses: list[int | ProtocolError] = []
        named: dict[int, tuple[int, bytes]] = {}  # holder and digest, by the envelope's place
        for place, encoded in enumerate(envelopes):
            try:
                envelope = round_.intake.parse(encoded)
            except ProtocolError as error:
                statuses.append(copy(error))  # as `Intake.validate_all` does
            else:
                statuses.append(closed())
                named[place] = envelope.holder, envelope.digest
        holders = [holder for holder, _ in named.values()]
        stored = await self._own.storage.run(stored_digests, round_.id, holders) if named else {}
        for place, (holder, digest) in named.items():
            if stored.get(holder) == digest:
                statuses[place] = 200
        return statuses

    async def _commit(self, shares: list[AcceptedShare]) -> list[int | ProtocolError]:
        """Store shares and return the status of each."""
        outcomes = await self._own.storage.run(add_shares, shares)
        stored: dict[str, list[int]] = defaultdict(list)
        for share, outcome in zip(shares, outcomes, strict=True):
            if outcome == 201:
                stored[share.round_id].append(share.holder)
        for round_id, holders in stored.items():
            self._note(round_id, holders)
        return [each if isinstance(each, int) else each() for each in outcomes]

    def _note(self, round_id: str, holders: Sequence[int]) -> None:
        """Account for shares of a round that were just stored."""
        self._stored.inc(len(holders))
        round_ = self._rounds.live.get(round_id)
        if round_ is None:
            return
        round_.held |= BitMap(holders)
        if round_.phase is Phase.ANNOUNCED:
            round_.phase = Phase.COLLECTING
        if len(round_.held) == len(round_.intake.asked_here):
            self._own.wake.set()
