"""Validates envelopes in threads, stores them in batches, acknowledges them once durable."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final

from pyroaring import BitMap

from shoal_compute.bulks import AcceptedShare, Bulk
from shoal_compute.intake import Judged, ManyUploads, Upload, validate_each, validate_many
from shoal_compute.metrics import Metrics
from shoal_compute.round_book import RoundBook
from shoal_compute.rounds import Round
from shoal_compute.sessions import Sessions
from shoal_compute.shares import (
    Outcome,
    add_bulks,
    add_shares,
    stored_digests,
)
from shoal_compute.tally import Tallies
from shoal_hosting.service import Resources
from shoal_hosting.storage.group_commit import Batches
from shoal_protocol.sharing.envelope import envelope_digest
from shoal_protocol.sharing.received import parse, unframe
from shoal_protocol.sharing.session_envelope import is_under_session
from shoal_protocol.sharing.shares import ShareKind
from shoal_protocol.wire.errors import ProtocolError, UnknownRound
from shoal_protocol.wire.phases import Phase
from shoal_protocol.wire.receipt_query import decode_query
from shoal_protocol.wire.service_errors import (
    BeforeRestore,
    ConflictingShare,
    MalformedEnvelope,
    RoundAbandoned,
    StorageUnavailable,
    Superseded,
    TooLate,
)

MOST_IN_BULK: Final = 10_000
_VALIDATING_THREADS: Final = 2
_VALIDATED_AT_ONCE: Final = 64
_AS_LONG_AS_BYTES: Final = 8 << 10  # of documents; to validate an envelope takes that at least
_LARGEST_COMMIT: Final = 1_000
_JUDGED_TOGETHER: Final = 2_500  # of what came in one body
_BULKS_IN_COMMIT: Final = 16
_COMMITS_AT_ONCE: Final = 2  # one is on its way to the disk while the one before it is marked

_REFUSALS: Final[dict[Outcome, type[ProtocolError]]] = {
    Outcome.CONFLICTING: ConflictingShare,
    Outcome.CLOSED: TooLate,
    Outcome.ABANDONED: RoundAbandoned,
    Outcome.UNKNOWN_ROUND: UnknownRound,
    Outcome.SUPERSEDED: Superseded,
    Outcome.BEFORE_RESTORE: BeforeRestore,
}


class Uploads:
    """Validates and stores envelopes; returns an HTTP status for each."""

    def __init__(
        self,
        resources: Resources,
        rounds: RoundBook,
        tallies: Tallies,
        metrics: Metrics,
        leads: Callable[[], bool],
        sessions: Sessions,
    ) -> None:
        """Begin without uploads; only a replica that leads adds shares up as they come."""
        self._own = resources
        self._validators = resources.worker("validation", threads=_VALIDATING_THREADS)
        self._rounds, self._tallies, self._metrics, self._leads = rounds, tallies, metrics, leads
        self._sessions = sessions
        self._validation = Batches(
            self._validate, largest=_VALIDATED_AT_ONCE, at_once=_VALIDATING_THREADS
        )
        self._bulk_validation = Batches(
            self._validate_bulks, largest=1, at_once=_VALIDATING_THREADS
        )
        self._bulks = Batches(
            self._commit_bulks, largest=_BULKS_IN_COMMIT, at_once=_COMMITS_AT_ONCE
        )
        self._commits = Batches(self._commit, largest=_LARGEST_COMMIT, at_once=_COMMITS_AT_ONCE)

    async def take(self, round_id: str, encoded: bytes) -> int:
        """Store one envelope; return 201, or 200 if its very bytes were stored before.

        Raises:
            ProtocolError: why it is refused.
        """
        known = self._rounds.live.get(round_id)
        if known is None:
            if not is_under_session(encoded):
                parse(encoded)  # malformed bytes are refused as such first
            known = await self._rounds.find(round_id)
        if not self._takes_shares(known):
            [status] = await self._look_up(known, [encoded])
        else:
            status = await self._store(known, encoded)
        if isinstance(status, ProtocolError):
            raise status
        return status

    async def take_all(self, round_id: str, body: bytes) -> Sequence[int | ProtocolError]:
        """Store a bulk body's envelopes, each by itself; return each one's status or refusal.

        Raises:
            MalformedEnvelope: the body is cut short, or holds too many; nothing is stored.
            StorageUnavailable: nothing of it could be stored, and nothing of it is refused.
            UnknownRound
        """
        envelopes = []
        for envelope in unframe(body):
            envelopes.append(envelope)
            if len(envelopes) > MOST_IN_BULK:
                raise MalformedEnvelope(f"a bulk body may hold {MOST_IN_BULK} envelopes")
        known = await self._rounds.find(round_id)
        if not self._takes_shares(known):
            return await self._look_up(known, envelopes)
        statuses = await self._store_all(known, envelopes)
        if statuses and all(isinstance(each, StorageUnavailable) for each in statuses):
            raise StorageUnavailable  # so that the sender is told when to come back
        return statuses

    async def held(self, round_id: str, body: bytes) -> list[bool]:
        """Return, for each (holder, digest) in `body`, whether that very envelope is stored.

        The answer is from what is on file, not from memory: that is what a freeze would attest.

        Raises:
            MalformedQuery, UnknownRound, StorageUnavailable
        """
        entries = decode_query(body)
        await self._rounds.find(round_id)
        holders = sorted({holder for holder, _ in entries})
        run = self._own.storage.run
        stored = await run(stored_digests, round_id, holders) if holders else {}
        return [stored.get(holder) == digest for holder, digest in entries]

    def _takes_shares(self, known: Round) -> bool:
        # The deadline counts by the clock, whether or not the freeze has been carried out.
        open_still = known.phase in (Phase.ANNOUNCED, Phase.COLLECTING)
        return open_still and self._own.clock() < known.spec.body.deadline

    async def _store(self, known: Round, encoded: bytes) -> int | ProtocolError:
        judged = await self._judge(known, encoded)
        if isinstance(judged, ProtocolError):
            return judged
        return _status(await self._commits.submit(judged))

    async def _store_all(
        self, known: Round, envelopes: Sequence[bytes]
    ) -> Sequence[int | ProtocolError]:
        statuses: list[int | ProtocolError] = [201] * len(envelopes)  # unless told otherwise
        places: list[Sequence[int]] = []
        bulks: list[Bulk] = []
        for judged in await self._judge_all(known, envelopes):
            for place, refusal in judged.refused.items():
                statuses[place] = refusal
            places += [each for each, _ in judged.accepted]
            bulks += [bulk for _, bulk in judged.accepted]
        try:
            committed = await self._bulks.submit_all(bulks)
        except StorageUnavailable as error:
            for place in chain.from_iterable(places):
                statuses[place] = error
            return statuses
        for each, outcomes in zip(places, committed, strict=True):
            if outcomes.count(Outcome.STORED) < len(outcomes):
                for place, outcome in zip(each, outcomes, strict=True):
                    statuses[place] = _status(outcome)
        return statuses

    async def _judge(self, known: Round, encoded: bytes) -> AcceptedShare | ProtocolError:
        roster = self._own.book.current.roster
        upload = Upload(known.intake, roster, self._sessions, encoded)
        return await self._validation.submit(upload)

    async def _judge_all(self, known: Round, envelopes: Sequence[bytes]) -> list[Judged]:
        """Check envelopes in portions; places in each are counted among all."""
        roster = self._own.book.current.roster
        starts = range(0, len(envelopes), _JUDGED_TOGETHER)
        portions = [envelopes[start : start + _JUDGED_TOGETHER] for start in starts]
        judged = await self._bulk_validation.submit_all(
            [ManyUploads(known.intake, roster, self._sessions, each) for each in portions]
        )
        return [each.moved(start) for start, each in zip(starts, judged, strict=True)]

    async def _look_up(
        self, known: Round, envelopes: Sequence[bytes]
    ) -> Sequence[int | ProtocolError]:
        """Tell for a round that takes no more shares which ones are stored already."""
        closed = RoundAbandoned if known.phase is Phase.ABANDONED else TooLate
        statuses: list[int | ProtocolError] = []
        digests: list[tuple[int, int, bytes]] = []
        for position, named in enumerate(await self._named(known, envelopes)):
            if isinstance(named, ProtocolError):
                statuses.append(named)
            else:
                statuses.append(closed())
                digests.append((position, *named))
        holders = [holder for _, holder, _ in digests]
        stored = await self._own.storage.run(stored_digests, known.id, holders) if holders else {}
        for position, holder, digest in digests:
            if stored.get(holder) == digest:
                statuses[position] = 200
        return statuses

    async def _named(
        self, known: Round, envelopes: Sequence[bytes]
    ) -> list[tuple[int, bytes] | ProtocolError]:
        """Return each envelope's holder, and the digest by which it would be on file."""
        if known.spec.body.wrapping == "session":  # which is known once it is opened
            found: dict[int, tuple[int, bytes] | ProtocolError] = {}
            for judged in await self._judge_all(known, envelopes):
                found |= judged.refused
                for places, bulk in judged.accepted:
                    pairs = zip(bulk.holders.tolist(), bulk.digests, strict=True)
                    found.update(zip(places, pairs, strict=True))
            return [found[place] for place in range(len(envelopes))]
        named: list[tuple[int, bytes] | ProtocolError] = []
        for encoded in envelopes:
            try:
                holder = known.intake.parse(encoded).header.holder
                named.append((holder, envelope_digest(encoded)))
            except ProtocolError as error:
                named.append(error)
        return named

    async def _validate(self, uploads: list[Upload]) -> list[AcceptedShare | ProtocolError]:
        size = sum(max(len(each.encoded), _AS_LONG_AS_BYTES) for each in uploads)
        return await self._validators.run_sized(size, validate_each, uploads)

    async def _validate_bulks(self, uploads: list[ManyUploads]) -> list[Judged]:
        return await self._validators.run(validate_many, uploads)

    async def _commit(self, shares: list[AcceptedShare]) -> list[Outcome]:
        outcomes = await self._own.storage.run(add_shares, shares)
        stored: dict[tuple[str, ShareKind], list[AcceptedShare]] = defaultdict(list)
        for share, outcome in zip(shares, outcomes, strict=True):
            if outcome is Outcome.STORED:
                stored[share.round_id, share.share.kind].append(share)
        for fresh in stored.values():
            await self._note(Bulk.of(fresh))
        self._metrics.batch_size.observe(len(shares))
        return outcomes

    async def _commit_bulks(self, bulks: list[Bulk]) -> list[list[Outcome]]:
        outcomes = await self._own.storage.run(add_bulks, bulks)
        for bulk, each in zip(bulks, outcomes, strict=True):
            if each.count(Outcome.STORED) == len(bulk):
                await self._note(bulk)
            elif fresh := [place for place, one in enumerate(each) if one is Outcome.STORED]:
                await self._note(bulk.some(fresh))
        self._metrics.batch_size.observe(sum(map(len, bulks)))
        return outcomes

    async def _note(self, fresh: Bulk) -> None:
        self._metrics.stored(len(fresh))
        known = self._rounds.live.get(fresh.round_id)
        if known is None:
            return
        known.held |= BitMap(fresh.holders)
        if known.phase is Phase.ANNOUNCED:
            self._metrics.moved(known.phase, Phase.COLLECTING)
            known.phase = Phase.COLLECTING
        if len(known.held) == len(known.intake.asked_here):
            self._own.wake.set()
        if known.phase is Phase.COLLECTING and self._leads():
            await self._tallies.count(known, fresh)


def _status(outcome: Outcome) -> int | ProtocolError:
    refusal = _REFUSALS.get(outcome)
    if refusal is not None:
        return refusal()
    return 201 if outcome is Outcome.STORED else 200
