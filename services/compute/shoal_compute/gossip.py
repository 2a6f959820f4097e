"""Composes gossip messages, and tracks which documents each peer has.

A message and its answer have the same form: documents; for each round the digests of all documents
that the sender has; and the digests of the documents that it requests. Because each message states
everything that its sender has, lost, repeated and reordered messages do no harm.

Small documents are sent without being requested, by way of the round's hub (`Schedule`). A node
sends its own large documents once to each peer, and other nodes' large documents only on request,
so that each of them crosses a link once. Partial sums are not gossiped.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any, Final

import pydantic
import structlog
from prometheus_client import Counter as CounterMetric
from prometheus_client import Gauge
from pydantic import Field

from shoal_compute import attesting, store
from shoal_compute.decisions import CastVote, decide
from shoal_compute.round_book import RoundBook
from shoal_compute.rounds import Round
from shoal_compute.store import Kept, LostRace, SignedAttestation
from shoal_kit.manifest_book import newest_with
from shoal_kit.pace import Pace
from shoal_kit.peers.exchange import Unavailable
from shoal_protocol.journal import Link
from shoal_protocol.rounds.attestations import Abandonment, Holdings, Vote
from shoal_protocol.trust.manifest import ComputeParty
from shoal_protocol.wire.documents import Model, Signed, describe, from_json
from shoal_protocol.wire.encoding import Digest, Timestamp, canonical_json, parse_canonical_json
from shoal_protocol.wire.errors import MalformedDocument, ProtocolError, UnknownSigner
from shoal_protocol.wire.phases import Phase
from shoal_protocol.wire.service_errors import StorageUnavailable
from shoal_service.service import Resources
from shoal_service.storage.journal import Journal

log = structlog.get_logger()

LARGEST_MESSAGE_BYTES: Final = 4 << 20
# What does not fit into one message is sent with the next.
_DOCUMENT_BYTES: Final = 2 << 20  # or one document, if it is larger
_DIGEST_BYTES: Final = 512 << 10
_BYTES_PER_DIGEST: Final = 67  # 64 digits, two quotes and a comma
_MOST_ROUNDS: Final = 256
_MOST_DIGESTS: Final = 2_048  # 255 nodes, each with two holdings, two votes and an abandonment
_MOST_WANTED: Final = 4_096
_MOST_VALUES: Final = 1 << 17  # twice as many as the largest message of digests has
LARGE_BYTES: Final = 64 << 10
PERIOD: Final = timedelta(seconds=1)
# Wait this long for the signer to send a large document before asking another node, and for that
# node before asking the next.
ASK_NEXT_AFTER: Final = timedelta(seconds=3)
# Wait this long for the hub to fetch a vote: it brings the holdings that the vote follows from.
FETCHED_WITHIN: Final = timedelta(seconds=0.25)
# A node that has all it needs leaves the other nodes to the hub for this long.
SETTLE_AFTER: Final = timedelta(seconds=5)


class _Message(Model):
    documents: list[Any]
    known: Annotated[
        dict[Digest, Annotated[list[Digest], Field(max_length=_MOST_DIGESTS)]],
        Field(max_length=_MOST_ROUNDS),
    ]
    time: Timestamp
    wanted: Annotated[list[Digest], Field(max_length=_MOST_WANTED)]


@dataclass(frozen=True)
class Message:
    """A gossip message, or the answer to one."""

    documents: tuple[SignedAttestation, ...]
    known: Mapping[str, frozenset[str]]  # digests by round
    wanted: frozenset[str]  # digests
    time: datetime  # by the sender's clock

    def encode(self) -> bytes:
        """Return the message in canonical JSON."""
        rest = _Message(
            documents=[],
            known={each: sorted(digests) for each, digests in self.known.items()},
            time=self.time,
            wanted=sorted(self.wanted),
        )
        encoded = b",".join(signed.encode() for signed in self.documents)
        start, end = b'{"documents":[', canonical_json(rest.model_dump(mode="json"))
        return start + encoded + end.removeprefix(start)


def decode_message(encoded: bytes) -> Message:
    """Decode a message; its documents are not verified.

    Raises:
        MalformedDocument, UnsupportedVersion
    """
    try:
        raw = _Message.model_validate(parse_canonical_json(encoded, most_values=_MOST_VALUES))
    except pydantic.ValidationError as error:
        raise MalformedDocument(describe(error, _Message)) from None
    return Message(
        documents=tuple(from_json(value, Holdings, Vote, Abandonment) for value in raw.documents),
        known={each: frozenset(digests) for each, digests in raw.known.items()},
        wanted=frozenset(raw.wanted),
        time=raw.time,
    )


def answer(
    rounds: Mapping[str, Round], message: Message, incomplete: Iterable[str], now: datetime
) -> Message:
    """Return the answer to `message`.

    `rounds` are the rounds that this node knows. The answer requests the documents that this node
    lacks of the rounds in `incomplete`.
    """
    named = {each: rounds[each].spoken_of for each in message.known if each in rounds}
    here = _fitting(named)
    due = [
        signed
        for round_id, documents in here.items()
        for digest, signed in documents.items()
        if digest not in message.known[round_id]
        and (digest in message.wanted or not is_large(signed))
    ]
    due.sort(key=is_large)
    missing = (message.known[each] - named[each].keys() for each in incomplete if each in named)
    return Message(
        documents=_bounded(due),
        known={each: frozenset(documents) for each, documents in here.items()},
        wanted=frozenset(sorted(frozenset().union(*missing))[:_MOST_WANTED]),
        time=now,
    )


def is_large(signed: SignedAttestation) -> bool:
    """Tell whether a document is so large that peers request it."""
    body = signed.body
    return isinstance(body, Holdings) and len(body.answers) + len(body.missing) > LARGE_BYTES


@dataclass
class Requests:
    """Recent requests, so that each document is requested from one peer at a time."""

    _until: dict[str, datetime] = field(default_factory=dict)  # when each digest is free again

    def may_ask(self, digest: str, now: datetime) -> bool:
        """Tell whether no recent request asks for the document."""
        return digest not in self._until or now >= self._until[digest]

    def asked(self, digests: Iterable[str], now: datetime) -> None:
        """Note a request to a peer."""
        self._until = {each: until for each, until in self._until.items() if until > now}
        self._until.update(dict.fromkeys(digests, now + ASK_NEXT_AFTER))

    def failed(self, digests: Iterable[str]) -> None:
        """Forget a request that did not reach its peer: the next peer may be asked at once."""
        for digest in digests:
            self._until.pop(digest, None)


_EVERYBODY: Final = 1 << 30


@dataclass(frozen=True)
class Schedule:
    """Which peers a node contacts about one round now.

    The round's id makes one node the hub. The other nodes send it their holdings; it sends all
    holdings to each of them, which they answer with their votes, and then all votes. M nodes so
    exchange 3 M messages instead of M**2, in three steps.

    A hub that is lost or lies costs only time: a document that has not reached all nodes after a
    period is sent to one more peer, and to twice as many in each further period. Documents that end
    a round are sent to all peers at once.
    """

    ranks: Mapping[str, int]  # of the reachable peers; the hub has rank 0
    reach: Mapping[str, int]  # by digest: how many peers the document may be sent to now
    asked: int  # how many peers may be asked for their state
    rests: bool
    """The node has all it needs, and for a while lets the hub alone contact the other nodes.

    Afterwards it contacts them itself: the hub may be lost, or some peers cannot connect to others.
    """

    def is_due(self, digest: str, peer: str) -> bool:
        """Tell whether the document may be sent to the peer now."""
        return self.ranks.get(peer, len(self.ranks)) < self.reach[digest]

    def may_ask(self, peer: str) -> bool:
        """Tell whether the peer may be asked for its state."""
        return self.ranks.get(peer, len(self.ranks)) < self.asked


@dataclass
class Schedules:
    """Works out each round's `Schedule`."""

    # by round and digest: when the hub should have sent the document to all nodes
    _since: dict[str, dict[str, datetime]] = field(default_factory=dict)

    def of(self, known: Round, now: datetime, *, away: Container[str]) -> Schedule:
        """Return a round's schedule; `away` are the peers that could not be reached."""
        nodes = known.spec.body.compute_nodes
        first = int(known.id[:8], 16) % len(nodes)
        rotated = (*nodes[first:], *nodes[:first])
        order = [name for name in rotated if name == known.own or name not in away]
        is_hub = order[0] == known.own
        since = self._since.setdefault(known.id, {})
        for digest, signed in known.spoken_of.items():
            if digest not in since:
                is_new = signed.signer == known.own and not is_hub
                wait = FETCHED_WITHIN if isinstance(signed.body, Vote) else timedelta(0)
                since[digest] = now + (wait if is_new else PERIOD)
        latest = max(since.values(), default=now)
        ended = known.equivocation or known.phase not in (Phase.AGREED, Phase.PUBLISHED)
        full = [
            kind
            for kind, there in ((Holdings, known.holdings), (Vote, known.votes))
            if is_hub and all(name in there or name in known.abandonments for name in order)
        ]
        others = (name for name in order if name != known.own)
        return Schedule(
            ranks={name: rank for rank, name in enumerate(others)},
            reach={
                digest: _EVERYBODY
                if known.equivocation
                or isinstance(signed.body, (Abandonment, *full))
                or is_large(signed)
                else _reach(since[digest], now)
                for digest, signed in known.spoken_of.items()
            },
            asked=max(_reach(latest, now), not is_hub),
            rests=not (is_hub or ended) and -PERIOD <= now - latest < SETTLE_AFTER,
        )

    def forget(self, round_id: str) -> None:
        """Drop a settled round."""
        self._since.pop(round_id, None)


def _reach(since: datetime, now: datetime) -> int:
    """Return how many peers may be contacted now."""
    periods = (now - since) // PERIOD
    if periods < -1:  # the clock was set back
        return _EVERYBODY
    return 0 if periods < 0 else 1 << min(periods, 16)


@dataclass
class PeerState:
    """The documents that one peer has, and when to send to it next.

    New documents are sent at once. Documents that the peer refused or missed are offered again
    after a period. A peer that does not answer is tried less and less often, without large
    documents until it answers.
    """

    confirmed: dict[str, set[str]] = field(default_factory=dict)  # digests by round
    offered: dict[str, set[str]] = field(default_factory=dict)  # digests by round
    requested: frozenset[str] = frozenset()  # digests that the peer requests
    missing: dict[str, datetime] = field(default_factory=dict)  # digests that only the peer has
    again_at: datetime | None = None
    pace: Pace = field(default_factory=Pace)

    def message(
        self,
        rounds: Iterable[Round],
        now: datetime,
        requests: Requests | None = None,
        *,
        peer: str = "",
        schedules: Mapping[str, Schedule] | None = None,
    ) -> Message | None:
        """Return the message to send to `peer` now, or None if there is none.

        A round is in it if its schedule allows the peer; without `schedules`, always.
        """
        if not self.pace.is_due(now):
            return None
        rounds = [
            each
            for each in rounds
            if schedules is None or not self._may_wait(each, schedules[each.id], peer)
        ]
        if not rounds:
            return None
        shared = {each.id: each.spoken_of for each in rounds}
        unknown = {
            each.id: {
                digest
                for digest in each.spoken_of.keys() - self.confirmed.get(each.id, set())
                if self._is_for_peer(each, digest)
            }
            for each in rounds
        }
        offered = {round_id: self.offered.get(round_id, set()) for round_id in shared}
        requests = requests or Requests()
        lacked = (each for each, at in self.missing.items() if now >= at + ASK_NEXT_AFTER)
        askable = sorted(digest for digest in lacked if requests.may_ask(digest, now))
        wanting = frozenset(askable[:_MOST_WANTED])
        news = wanting or any(
            schedules is None or digest in self.requested or schedules[each].is_due(digest, peer)
            for each in shared
            for digest in unknown[each] - offered[each]
        )
        periodic = (self.again_at is None or now >= self.again_at) and any(
            (each.phase is Phase.FROZEN or not self.is_settled(each))
            and (schedules is None or schedules[each.id].may_ask(peer))
            for each in rounds
        )
        if not (news or periodic):
            return None
        # Rounds with news come first, then those with the oldest offer. Otherwise rounds whose
        # documents the peer does not keep could crowd out another round for ever.
        last = {round_id: place for place, round_id in enumerate(self.offered)}
        order = sorted(shared, key=lambda each: (not unknown[each], last.get(each, -1)))
        order.sort(key=lambda each: not unknown[each] - offered[each])
        chosen = _fitting({each: shared[each] for each in order})
        due = [
            chosen[each][digest]
            for each in chosen
            for some in (unknown[each] - offered[each], unknown[each] & offered[each])
            for digest in sorted(some)
        ]
        due.sort(key=is_large)  # votes do not wait behind large holdings
        known = {each: frozenset(documents) for each, documents in chosen.items()}
        return Message(_bounded(due), known, wanting, now)

    def _may_wait(self, known: Round, schedule: Schedule, peer: str) -> bool:
        """Tell whether a round rests and the peer, if it is the hub, has what this node signed."""
        if not schedule.rests or schedule.ranks.get(peer) != 0:
            return schedule.rests
        confirmed = self.confirmed.get(known.id, set())
        return all(
            digest in confirmed
            for digest, signed in known.spoken_of.items()
            if signed.signer == known.own
        )

    def _is_for_peer(self, known: Round, digest: str) -> bool:
        signed = known.spoken_of[digest]
        if not is_large(signed):
            return True
        if digest in self.requested:
            return True
        first = digest not in self.offered.get(known.id, set())
        return signed.signer == known.own and first and not self.pace.failures

    def note_exchange(
        self, sent: Message, reply: Message, live: Mapping[str, Round], now: datetime
    ) -> None:
        """Note a successful exchange, as far as it is about rounds that are `live`.

        Only documents that this node has are noted as confirmed: a peer may invent digests.
        """
        self.pace = Pace()
        self.again_at = now + PERIOD
        missing: dict[str, datetime] = {}
        for round_id in sent.known.keys() & live.keys():
            there, here = reply.known.get(round_id, frozenset()), live[round_id].spoken_of.keys()
            self.confirmed[round_id] = set(there & here)
            # Long after the freeze, do not wait for the signers: this node was away.
            late = now >= live[round_id].spec.body.deadline + ASK_NEXT_AFTER
            since = now - ASK_NEXT_AFTER if late else now
            missing |= {digest: self.missing.get(digest, since) for digest in there - here}
        self.missing = missing
        self.requested = reply.wanted
        for signed in sent.documents:
            if signed.body.round in live:
                offered = self.offered.pop(signed.body.round, set()) | {signed.digest}
                self.offered[signed.body.round] = offered  # moved to the end

    def forget(self, round_id: str) -> None:
        """Drop a settled round."""
        self.confirmed.pop(round_id, None)
        self.offered.pop(round_id, None)

    def is_settled(self, known: Round) -> bool:
        """Tell whether the peer has all documents of a round."""
        return known.spoken_of.keys() <= self.confirmed.get(known.id, set())


def _fitting(
    rounds: Mapping[str, Mapping[str, SignedAttestation]],
) -> dict[str, Mapping[str, SignedAttestation]]:
    """Return the first of these rounds, as many as fit into one message with their digests."""
    chosen: dict[str, Mapping[str, SignedAttestation]] = {}
    size = 0
    for round_id, documents in rounds.items():
        size += _BYTES_PER_DIGEST * (len(documents) + 1)
        if len(chosen) == _MOST_ROUNDS or size > _DIGEST_BYTES:
            break
        chosen[round_id] = documents
    return chosen


def _bounded(documents: Iterable[SignedAttestation]) -> tuple[SignedAttestation, ...]:
    chosen: list[SignedAttestation] = []
    size = 0
    for signed in documents:
        size += len(signed.encode())
        if chosen and size > _DOCUMENT_BYTES:
            break
        chosen.append(signed)
    return tuple(chosen)


class Gossip:
    """This node's gossip with all other Compute nodes."""

    def __init__(
        self,
        resources: Resources,
        rounds: RoundBook,
        journal: Journal,
        leads: Callable[[], bool],
    ) -> None:
        """Start idle. Only the replica that leads votes."""
        self._own, self._rounds, self._journal = resources, rounds, journal
        self._leads = leads
        self._reading = resources.worker("gossiping")
        self._peers: dict[str, PeerState] = defaultdict(PeerState)
        self._requests, self._schedules = Requests(), Schedules()
        # rounds that lack documents; answers to peers request these from the given time on
        self._waiting: dict[str, datetime] = {}
        self._clock_offset = Gauge(
            "shoal_compute_peer_clock_offset_seconds",
            "How far a peer's clock is ahead of this node's, by its last answer",
            ("peer",),
            registry=resources.registry,
        )
        self._outcomes = CounterMetric(
            "shoal_compute_gossip", "Gossip by outcome", ("outcome",), registry=resources.registry
        )

    async def receive(self, encoded: bytes) -> bytes:
        """Take a peer's message in and return the answer.

        A document that fails its checks is left out; the others are kept.

        Raises:
            MalformedDocument, UnsupportedVersion, StorageUnavailable
        """
        message = await self._reading.run_sized(len(encoded), decode_message, encoded)
        await self.take(message.documents)
        now = self._own.clock()
        # this node's own requests may not reach the peer
        incomplete = [round_id for round_id, due in self._waiting.items() if now >= due]
        rounds = await self._rounds.find_some(message.known)
        return answer(rounds, message, incomplete, now).encode()

    async def take(self, documents: Iterable[SignedAttestation]) -> None:
        """Verify documents and keep those that pass.

        Raises:
            StorageUnavailable
        """
        by_round: dict[str, list[SignedAttestation]] = defaultdict(list)
        for signed in documents:
            by_round[signed.body.round].append(signed)
        known = await self._rounds.find_some(by_round)
        refused = Counter[str]()
        for round_id, offered in by_round.items():
            if round_id in known:
                if (
                    await self._take(known[round_id], offered, refused)
                    or known[round_id].voting.locked()
                ):
                    await self._vote_once_due(known[round_id])
            else:
                self._outcomes.labels("document_refused").inc(len(offered))
        self._outcomes.labels("document_refused").inc(refused.total())
        if refused:  # one line: the peer chooses how many documents it sends
            # codes are values here: the log withholds fields named like `bad-signature`
            problems = [f"{code}: {count}" for code, count in sorted(refused.items())]
            log.warning("gossiped documents are refused", count=refused.total(), problems=problems)

    async def _take(
        self, known: Round, offered: list[SignedAttestation], refused: Counter[str]
    ) -> bool:
        """Keep those that pass; tell whether there are any that were not known."""
        fresh = [signed for signed in offered if signed.digest not in known.documents]
        if not fresh:
            return False
        size = sum(len(signed.encode()) for signed in fresh)
        passed, failed = await self._reading.run_sized(size, _verified, known, fresh)
        refused += failed
        if not passed:
            return False
        stored = await self._own.storage.run(store.keep, known.id, passed, own=known.own)
        for signed, kept in zip(passed, stored, strict=True):
            known.learn(signed, kept)
            if kept is Kept.EVIDENCE:
                self._outcomes.labels("document_evidence").inc()
                log.warning("a party signed two documents", kind=signed.body.kind)
        self._own.wake.set()
        return True

    async def _vote_once_due(self, known: Round) -> None:
        """Vote, or wait for the vote under way: the answer to a message contains it."""
        if self._leads():
            try:
                if await self.vote(known):
                    self._own.wake.set()
            except LostRace:
                log.debug("a vote waits for the next step", round=known.id)

    async def vote(self, known: Round) -> bool:
        """Sign and keep this node's only vote in a round, if one follows from what came.

        Tells whether it did.

        Raises:
            LostRace: another replica moved the round on, or voted.
            StorageUnavailable
        """
        async with known.voting:  # a message and a step may find at once that it is due
            decision = decide(known, self._own.clock())
            if not isinstance(decision, CastVote):
                return False

            def attest(entry: Link) -> Signed[Vote]:
                return self._own.sign(attesting.vote(known, decision.nodes, decision.cohort, entry))

            known.learn(await self._journal.run(store.cast, known.id, attest), Kept.FIRST)
            return True

    def due(self, *, busy: Callable[[str], bool]) -> dict[str, Message]:
        """Return the message due to each peer, except peers with an exchange under way."""
        now = self._own.clock()
        self._waiting = {
            known.id: self._waiting.get(known.id, now + 2 * ASK_NEXT_AFTER)
            for known in self._rounds.live.values()
            if known.phase is Phase.FROZEN
        }
        spoken_of = [known for known in self._rounds.live.values() if known.spoken_of]
        away = {name for name, each in self._peers.items() if each.pace.failures}
        schedules = {known.id: self._schedules.of(known, now, away=away) for known in spoken_of}
        names = sorted({name for known in spoken_of for name in known.peers if not busy(name)})
        messages = {
            name: self._peers[name].message(
                [known for known in spoken_of if name in known.peers],
                now,
                self._requests,
                peer=name,
                schedules=schedules,
            )
            for name in names
        }
        return {name: message for name, message in messages.items() if message is not None}

    async def exchange(self, name: str, message: Message) -> None:
        """Send a message to a peer and take its answer in."""
        peer_state = self._peers[name]
        sent_at = self._own.clock()
        self._requests.asked(message.wanted, sent_at)
        try:
            reply = await self._send(name, message)
            ahead = reply.time - sent_at - (self._own.clock() - sent_at) / 2
            self._clock_offset.labels(name).set(ahead.total_seconds())
            asked = [signed for signed in reply.documents if signed.body.round in message.known]
            await self.take(asked)
        except (Unavailable, ProtocolError) as error:
            if not peer_state.pace.failures and not isinstance(error, StorageUnavailable):
                log.warning("no gossip with a peer", party=name, error=type(error).__name__)
            peer_state.pace.failed(self._own.clock())
            self._requests.failed(message.wanted)
            self._outcomes.labels("unreachable").inc()
            if isinstance(error, StorageUnavailable):
                raise
        else:
            if peer_state.pace.failures:
                log.info("gossip with a peer again", party=name)
            peer_state.note_exchange(message, reply, self._rounds.live, self._own.clock())

    async def _send(self, name: str, message: Message) -> Message:
        party = newest_with(self._own.book, name).party(name)
        if not isinstance(party, ComputeParty):
            raise UnknownSigner
        reply = await self._own.peers.to(party).ask(
            "POST", "/v1/gossip", message.encode(), limit_bytes=LARGEST_MESSAGE_BYTES
        )
        if reply.status != 200:
            raise Unavailable("the peer refused the message")
        return await self._reading.run_sized(len(reply.body), decode_message, reply.body)

    def is_settled(self, known: Round) -> bool:
        """Tell whether all peers have all documents of a round."""
        return all(self._peers[name].is_settled(known) for name in known.peers)

    def forget(self, known: Round) -> None:
        """Drop a settled round."""
        self._schedules.forget(known.id)
        for name in known.peers:
            self._peers[name].forget(known.id)


def _verified(
    known: Round, documents: list[SignedAttestation]
) -> tuple[list[SignedAttestation], Counter[str]]:
    """Return the documents that pass, and the number of failures by problem."""
    passed, failed = [], Counter[str]()
    for signed in documents:
        try:
            attesting.check_attestation(known, signed)
        except ProtocolError as error:
            failed[error.code] += 1
        else:
            passed.append(signed)
    return passed, failed
