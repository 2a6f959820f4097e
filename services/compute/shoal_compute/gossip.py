"""Composes gossip messages, and tracks which documents each peer has.

A message and its answer have the same form: documents; for each round the digests of all documents
that the sender has; and the digests of the documents that it requests. Because each message states
everything that its sender has, lost, repeated and reordered messages do no harm.

A node hands each peer what it signed itself, at once. What others signed goes out in answers, and
to peers that still lack it a period later. Large documents of others are sent only on request, so
that each of them crosses a link once. Partial sums are not gossiped.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
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


@dataclass
class PeerState:
    """The documents that one peer has, and when to send to it next.

    What this node signed is sent at once, and so is what ends a round. Documents that the peer
    lacked when it was told of them are sent after a period. A peer that does not answer is tried
    less and less often, without large documents until it answers.
    """

    confirmed: dict[str, set[str]] = field(default_factory=dict)  # digests by round
    lacked: dict[str, set[str]] = field(default_factory=dict)  # at its last answer on the round
    requested: frozenset[str] = frozenset()  # digests that the peer requests
    missing: dict[str, datetime] = field(default_factory=dict)  # digests that only the peer has
    again_at: datetime | None = None
    pace: Pace = field(default_factory=Pace)

    def message(
        self, rounds: Iterable[Round], now: datetime, requests: Requests | None = None
    ) -> Message | None:
        """Return the message to send to the peer now, or None if there is none."""
        if not self.pace.is_due(now):
            return None
        rounds = list(rounds)
        news = {each.id: self._news(each) for each in rounds}
        again = {each.id: self._to_repeat(each) for each in rounds}
        requests = requests or Requests()
        lacked = (each for each, at in self.missing.items() if now >= at + ASK_NEXT_AFTER)
        askable = sorted(digest for digest in lacked if requests.may_ask(digest, now))
        wanting = frozenset(askable[:_MOST_WANTED])
        periodic = (self.again_at is None or now >= self.again_at) and any(
            each.phase is Phase.FROZEN or not self.is_settled(each) for each in rounds
        )
        if not (wanting or periodic or any(news.values())):
            return None
        # Rounds with news come first, then those with the oldest exchange. Otherwise rounds whose
        # documents the peer does not keep could crowd out another round for ever.
        last = {round_id: place for place, round_id in enumerate(self.lacked)}
        rounds.sort(key=lambda each: (not news[each.id], not again[each.id], last.get(each.id, -1)))
        chosen = _fitting({each.id: each.spoken_of for each in rounds})
        due = [
            documents[digest]
            for round_id, documents in chosen.items()
            for digest in (*news[round_id], *again[round_id])
        ]
        due.sort(key=is_large)  # votes do not wait behind large holdings
        known = {each: frozenset(documents) for each, documents in chosen.items()}
        return Message(_bounded(due), known, wanting, now)

    def _news(self, known: Round) -> list[str]:
        """Return the documents to send at once: what the peer requests, and what is new to it."""
        lacked = self.lacked.get(known.id, set())

        def is_new(signed: SignedAttestation) -> bool:
            if is_large(signed) and self.pace.failures:
                return False
            is_handed = signed.signer == known.own or isinstance(signed.body, Abandonment)
            return is_handed and signed.digest not in lacked

        unknown = known.spoken_of.keys() - self.confirmed.get(known.id, set())
        return [
            digest
            for digest in sorted(unknown)
            if digest in self.requested or is_new(known.spoken_of[digest])
        ]

    def _to_repeat(self, known: Round) -> list[str]:
        """Return the small documents that the peer lacked when it was told of them."""
        lacked = self.lacked.get(known.id, set()) - self.requested
        return [each for each in sorted(lacked) if not is_large(known.spoken_of[each])]

    def note_exchange(
        self, sent: Message, reply: Message, live: Mapping[str, Round], now: datetime
    ) -> None:
        """Note a successful exchange, as far as it is about rounds that are `live`.

        Only documents that this node has are noted as confirmed: a peer may invent digests.
        """
        self.pace = Pace()
        self.again_at = now + PERIOD
        handed = {signed.digest for signed in sent.documents}
        missing: dict[str, datetime] = {}
        for round_id in sent.known.keys() & live.keys():
            known, there = live[round_id], reply.known.get(round_id, frozenset())
            here = known.spoken_of
            self.confirmed[round_id] = set(there & here.keys())
            self.lacked.pop(round_id, None)  # moved to the end
            self.lacked[round_id] = {
                digest
                for digest in sent.known[round_id] & here.keys() - there
                # what did not fit into the message is new to the peer as before
                if digest in handed or here[digest].signer != known.own
            }
            # Long after the freeze, do not wait for the signers: this node was away.
            late = now >= known.spec.body.deadline + ASK_NEXT_AFTER
            since = now - ASK_NEXT_AFTER if late else now
            missing |= {each: self.missing.get(each, since) for each in there - here.keys()}
        self.missing = missing
        self.requested = reply.wanted - handed

    def forget(self, round_id: str) -> None:
        """Drop a settled round."""
        self.confirmed.pop(round_id, None)
        self.lacked.pop(round_id, None)

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
        self._requests = Requests()
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
        messages = {
            name: self._peers[name].message(
                [known for known in spoken_of if name in known.peers], now, self._requests
            )
            for name in sorted({name for known in spoken_of for name in known.peers})
            if not busy(name)
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
