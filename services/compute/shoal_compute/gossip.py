"""Composes gossip between two nodes, and tracks which documents the other one has.

Message and answer have one form: documents, for each round the digests of all documents that the
sender holds, and the digests of those that it requests. Each states all that its sender has, so
lost, repeated and reordered messages do no harm. Small documents are sent unasked, by way of the
round's relay (`Turn`). Of large ones a node sends only its own unasked, once, to each, and others
on request, so that each crosses a link once. Partial sums are not gossiped.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any, Final

import pydantic
from pydantic import Field

from shoal_compute.rounds import Round
from shoal_compute.store import SignedAttestation
from shoal_hosting.work import Pace
from shoal_protocol.rounds.attestations import Abandonment, Holdings, Vote
from shoal_protocol.wire.documents import Model, describe, from_json
from shoal_protocol.wire.encoding import Digest, Timestamp, canonical_json, parse_canonical_json
from shoal_protocol.wire.errors import MalformedDocument
from shoal_protocol.wire.phases import Phase

LARGEST_MESSAGE_BYTES: Final = 4 << 20
# of documents and of digests in one message, which leaves room; the rest follows in the next
_DOCUMENT_BYTES: Final = 2 << 20  # or one document, if that is larger
_DIGEST_BYTES: Final = 512 << 10
_BYTES_PER_DIGEST: Final = 67  # in hex, in quotes, behind a comma
_MOST_ROUNDS: Final = 256
_MOST_DIGESTS: Final = 2_048  # two holdings, votes and an abandonment of each of 255 nodes
_MOST_WANTED: Final = 4_096
_MOST_VALUES: Final = 1 << 17  # twice as many as a message of digests alone may have
LARGE_BYTES: Final = 16 << 10
PERIOD: Final = timedelta(seconds=1)
# for how long a large document is left to come from its signer before another node is asked,
# and to come from that one before the next is
RELAY_AFTER: Final = timedelta(seconds=3)
# how long a vote is left to be fetched by the relay, which brings the holdings that it follows from
FETCHED_WITHIN: Final = timedelta(seconds=0.25)
# how long a node that has all it needs leaves it to the relay to bring the others level
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
    rounds: Mapping[str, Round], message: Message, wanting: Iterable[str], now: datetime
) -> Message:
    """Return what to reply to `message`.

    `rounds` are those known here. What is lacked of those in `wanting` is asked for.
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
    lacked = (message.known[each] - named[each].keys() for each in wanting if each in named)
    return Message(
        documents=_bounded(due),
        known={each: frozenset(documents) for each, documents in here.items()},
        wanted=frozenset(sorted(frozenset().union(*lacked))[:_MOST_WANTED]),
        time=now,
    )


def is_large(signed: SignedAttestation) -> bool:
    """Tell whether a document is sent unasked only once, and otherwise on request."""
    body = signed.body
    return isinstance(body, Holdings) and len(body.answers) + len(body.missing) > LARGE_BYTES


@dataclass
class Requests:
    """Documents requested lately, so that each is requested from one peer at a time."""

    _until: dict[str, datetime] = field(default_factory=dict)  # by digest

    def may_ask(self, digest: str, now: datetime) -> bool:
        """Tell whether no peer was asked for the document lately."""
        return digest not in self._until or now >= self._until[digest]

    def asked(self, digests: Iterable[str], now: datetime) -> None:
        """Note the documents that a peer is asked for."""
        self._until = {each: until for each, until in self._until.items() if until > now}
        self._until.update(dict.fromkeys(digests, now + RELAY_AFTER))

    def failed(self, digests: Iterable[str]) -> None:
        """Ask the next peer at once: this one was not reached."""
        for digest in digests:
            self._until.pop(digest, None)


_EVERYBODY: Final = 1 << 30


@dataclass(frozen=True)
class Turn:
    """Whom a node tells, and asks, about one round now.

    One node of each round, by the round's id, is its relay: the others tell it their holdings; it
    tells them all holdings, which they answer with their votes, and then all votes. So M nodes
    exchange 3 M messages where each with each would be M**2, one after another three, and then each
    node's partial sum. A relay that is lost or lies costs time only: what
    has not gone round after a period is told to one node more, then to twice as many in each
    period. What ends a round is told to everybody at once.
    """

    ranks: Mapping[str, int]  # of the peers that can be reached, the relay's first
    reach: Mapping[str, int]  # by digest, how many of them are told by now
    asked: int  # how many of them are asked where they stand
    rests: bool
    """It is done, and leaves it to the relay for a while to bring the others level.

    Then it goes on: the relay may be lost, or a peer reach nobody by itself.
    """

    def is_due(self, digest: str, peer: str) -> bool:
        """Tell whether the peer is to be told of a document now."""
        return self.ranks.get(peer, len(self.ranks)) < self.reach[digest]

    def may_ask(self, peer: str) -> bool:
        """Tell whether the peer is to be asked where it stands, if it was not lately."""
        return self.ranks.get(peer, len(self.ranks)) < self.asked


@dataclass
class Turns:
    """Works out each round's `Turn`."""

    # by round and digest: from when on a document should have gone round by itself
    _since: dict[str, dict[str, datetime]] = field(default_factory=dict)

    def of(self, known: Round, now: datetime, *, away: Container[str]) -> Turn:
        """Return a round's turn; `away` are peers that could not be reached."""
        nodes = known.spec.body.compute_nodes
        first = int(known.id[:8], 16) % len(nodes)
        rotated = (*nodes[first:], *nodes[:first])
        order = [name for name in rotated if name == known.own or name not in away]
        relays = order[0] == known.own
        since = self._since.setdefault(known.id, {})
        for digest, signed in known.spoken_of.items():
            if digest not in since:
                alone = signed.signer == known.own and not relays
                wait = FETCHED_WITHIN if isinstance(signed.body, Vote) else timedelta(0)
                since[digest] = now + (wait if alone else PERIOD)  # else another brought it
        latest = max(since.values(), default=now)
        ended = known.equivocation or known.phase not in (Phase.AGREED, Phase.PUBLISHED)
        full = [
            kind
            for kind, there in ((Holdings, known.holdings), (Vote, known.votes))
            if relays and all(name in there or name in known.abandonments for name in order)
        ]
        others = (name for name in order if name != known.own)
        return Turn(
            ranks={name: rank for rank, name in enumerate(others)},
            reach={
                digest: _EVERYBODY
                if known.equivocation
                or isinstance(signed.body, (Abandonment, *full))
                or is_large(signed)
                else _reach(since[digest], now)
                for digest, signed in known.spoken_of.items()
            },
            asked=max(_reach(latest, now), not relays),
            rests=not (relays or ended) and -PERIOD <= now - latest < SETTLE_AFTER,
        )

    def forget(self, round_id: str) -> None:
        """Drop a settled round."""
        self._since.pop(round_id, None)


def _reach(since: datetime, now: datetime) -> int:
    """Return how many peers are spoken to by now."""
    periods = (now - since) // PERIOD
    if periods < -1:  # the clock was set back
        return _EVERYBODY
    return 0 if periods < 0 else 1 << min(periods, 16)


@dataclass
class Acquaintance:
    """The documents that one peer is known to have, and when to send to it next.

    A document that the peer was never sent is sent at once; what it turned down or missed is
    offered again after a period, and a peer that is down is tried ever more rarely, without
    large documents until it answers.
    """

    knows: dict[str, set[str]] = field(default_factory=dict)  # digests by round
    offered: dict[str, set[str]] = field(default_factory=dict)
    wanted: frozenset[str] = frozenset()  # by the peer
    has: dict[str, datetime] = field(default_factory=dict)  # missing documents, since when
    again_at: datetime | None = None
    pace: Pace = field(default_factory=Pace)

    def message(
        self,
        rounds: Iterable[Round],
        now: datetime,
        requests: Requests | None = None,
        *,
        peer: str = "",
        turns: Mapping[str, Turn] | None = None,
    ) -> Message | None:
        """Return the message to send to `peer` now, or None if it can wait.

        It is told of a round, and asked, when that is its turn; without `turns`, at any time.
        """
        if not self.pace.is_due(now):
            return None
        rounds = [
            each
            for each in rounds
            if turns is None or not self._may_wait(each, turns[each.id], peer)
        ]
        if not rounds:
            return None
        shared = {each.id: each.spoken_of for each in rounds}
        unknown = {
            each.id: {
                digest
                for digest in each.spoken_of.keys() - self.knows.get(each.id, set())
                if self._is_for_peer(each, digest)
            }
            for each in rounds
        }
        offered = {round_id: self.offered.get(round_id, set()) for round_id in shared}
        wanting = frozenset(self._wanting(now, requests or Requests()))
        news = wanting or any(
            turns is None or digest in self.wanted or turns[each].is_due(digest, peer)
            for each in shared
            for digest in unknown[each] - offered[each]
        )
        periodic = (self.again_at is None or now >= self.again_at) and any(
            (each.phase is Phase.FROZEN or not self.is_settled(each))
            and (turns is None or turns[each.id].may_ask(peer))
            for each in rounds
        )
        if not (news or periodic):
            return None
        # News comes first, then what was not offered for longest, so that no round is left out
        # for ever behind others whose documents the peer cannot use.
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
        due.sort(key=is_large)  # a vote is not to wait behind holdings
        known = {each: frozenset(documents) for each, documents in chosen.items()}
        return Message(_bounded(due), known, wanting, now)

    def _may_wait(self, known: Round, turn: Turn, peer: str) -> bool:
        """Tell whether a round rests; the relay still needs what this node signed."""
        if not turn.rests or turn.ranks.get(peer) != 0:
            return turn.rests
        there = self.knows.get(known.id, set())
        own = (each for each, signed in known.spoken_of.items() if signed.signer == known.own)
        return all(digest in there for digest in own)

    def _is_for_peer(self, known: Round, digest: str) -> bool:
        signed = known.spoken_of[digest]
        if not is_large(signed):
            return True
        if digest in self.wanted:
            return True
        first = digest not in self.offered.get(known.id, set())
        return signed.signer == known.own and first and not self.pace.failures

    def _wanting(self, now: datetime, requests: Requests) -> list[str]:
        due = (digest for digest, since in self.has.items() if now >= since + RELAY_AFTER)
        return sorted(digest for digest in due if requests.may_ask(digest, now))[:_MOST_WANTED]

    def heard(
        self, sent: Message, reply: Message, live: Mapping[str, Round], now: datetime
    ) -> None:
        """Take note of an exchange that succeeded, as far as it is about rounds that are `live`.

        Of what the peer says that it knows only documents that are known here are noted as such:
        a peer may invent as many as it likes.
        """
        self.pace.succeeded()
        self.again_at = now + PERIOD
        lacked: dict[str, datetime] = {}
        for round_id in sent.known.keys() & live.keys():
            there, here = reply.known.get(round_id, frozenset()), live[round_id].spoken_of.keys()
            self.knows[round_id] = set(there & here)
            # long after the freeze do not wait for the signers: this node was away
            late = now >= live[round_id].spec.body.deadline + RELAY_AFTER
            since = now - RELAY_AFTER if late else now
            lacked |= {digest: self.has.get(digest, since) for digest in there - here}
        self.has = lacked
        self.wanted = reply.wanted
        for signed in sent.documents:
            if signed.body.round in live:
                offered = self.offered.pop(signed.body.round, set()) | {signed.digest}
                self.offered[signed.body.round] = offered  # the last now

    def forget(self, round_id: str) -> None:
        """Drop a settled round."""
        self.knows.pop(round_id, None)
        self.offered.pop(round_id, None)

    def is_settled(self, known: Round) -> bool:
        """Tell whether the peer has all documents of a round."""
        return known.spoken_of.keys() <= self.knows.get(known.id, set())


def _fitting(
    rounds: Mapping[str, Mapping[str, SignedAttestation]],
) -> dict[str, Mapping[str, SignedAttestation]]:
    """Return the first of these rounds, as many as one message can name with their digests."""
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
