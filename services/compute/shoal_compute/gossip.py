"""What two nodes tell each other, and what one believes that the other knows; it sends nothing.

A message carries documents and, for each round, the digests of all that its sender holds. The
answer carries what the sender lacks, and names what it should send yet. Lost, repeated and
reordered messages do no harm: each says in full where its sender stands. Partial sums are not
for other nodes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any, Final

import pydantic
from pydantic import Field

from shoal_compute.pace import Pace
from shoal_compute.rounds import Round
from shoal_compute.store import SignedAttestation
from shoal_protocol.attestations import Abandonment, Holdings, Vote
from shoal_protocol.documents import Model, describe, from_json
from shoal_protocol.encoding import Digest, canonical_json, parse_canonical_json
from shoal_protocol.errors import MalformedDocument
from shoal_protocol.phases import Phase

LARGEST_MESSAGE_BYTES: Final = 4 << 20
# of documents and of digests in one message, which leaves room; the rest follows in the next
_DOCUMENT_BYTES: Final = 2 << 20
_DIGEST_BYTES: Final = 1 << 20
_BYTES_PER_DIGEST: Final = 67  # in hex, in quotes, behind a comma
_MOST_ROUNDS: Final = 256
_MOST_DIGESTS: Final = 2_048  # two holdings, votes and an abandonment of each of 255 nodes
PERIOD: Final = timedelta(seconds=1)


class _Message(Model):
    documents: list[Any]
    known: Annotated[
        dict[Digest, Annotated[list[Digest], Field(max_length=_MOST_DIGESTS)]],
        Field(max_length=_MOST_ROUNDS),
    ]


class _Answer(Model):
    documents: list[Any]
    wanted: Annotated[list[Digest], Field(max_length=_MOST_ROUNDS * _MOST_DIGESTS)]


@dataclass(frozen=True)
class Message:
    """What a node sends to another."""

    documents: tuple[SignedAttestation, ...]
    known: Mapping[str, frozenset[str]]  # digests by round

    def encode(self) -> bytes:
        """Return the message in canonical JSON."""
        known = canonical_json({each: sorted(digests) for each, digests in self.known.items()})
        return b'{"documents":' + _encode_all(self.documents) + b',"known":' + known + b"}"


@dataclass(frozen=True)
class Answer:
    """What the other node replies."""

    documents: tuple[SignedAttestation, ...]
    wanted: frozenset[str]  # digests

    def encode(self) -> bytes:
        """Return the answer in canonical JSON."""
        wanted = canonical_json(sorted(self.wanted))
        return b'{"documents":' + _encode_all(self.documents) + b',"wanted":' + wanted + b"}"


def decode_message(encoded: bytes) -> Message:
    """Decode a message; its documents are not verified.

    Raises:
        MalformedDocument, UnsupportedVersion
    """
    raw = _parse(encoded, _Message)
    known = {each: frozenset(digests) for each, digests in raw.known.items()}
    return Message(_documents(raw.documents), known)


def decode_answer(encoded: bytes) -> Answer:
    """Decode an answer; its documents are not verified.

    Raises:
        MalformedDocument, UnsupportedVersion
    """
    raw = _parse(encoded, _Answer)
    return Answer(_documents(raw.documents), frozenset(raw.wanted))


def answer(rounds: Mapping[str, Round], known: Mapping[str, frozenset[str]]) -> Answer:
    """Return what to reply to a node that knows `known`; `rounds` are those known here."""
    unknown_there: list[SignedAttestation] = []
    wanted: set[str] = set()
    for round_id, digests in known.items():
        here = rounds[round_id].spoken_of if round_id in rounds else {}
        wanted |= digests - here.keys()
        unknown_there += [here[digest] for digest in here.keys() - digests]
    return Answer(_bounded(unknown_there), frozenset(wanted))


@dataclass
class Acquaintance:
    """What a node believes that one peer knows, and when to speak to it again.

    A document that the peer was never sent is sent at once; what it turned down or missed is
    offered again after a period, and a peer that is down is tried ever more rarely.
    """

    knows: dict[str, set[str]] = field(default_factory=dict)  # digests by round
    offered: dict[str, set[str]] = field(default_factory=dict)
    again_at: datetime | None = None
    pace: Pace = field(default_factory=Pace)

    def message(self, rounds: Iterable[Round], now: datetime) -> Message | None:
        """Return what to tell the peer now, or None if that can wait."""
        if not self.pace.is_due(now):
            return None
        shared = {each.id: each.spoken_of for each in rounds}
        unknown = {
            round_id: documents.keys() - self.knows.get(round_id, set())
            for round_id, documents in shared.items()
        }
        offered = {round_id: self.offered.get(round_id, set()) for round_id in shared}
        news = any(unknown[round_id] - offered[round_id] for round_id in shared)
        unsettled = any(unknown.values()) or any(each.phase is Phase.FROZEN for each in rounds)
        periodic = unsettled and (self.again_at is None or now >= self.again_at)
        if not (news or periodic):
            return None
        # News comes first, then what was not offered for longest, so that no round is left out
        # for ever behind others whose documents the peer cannot use.
        turns = {round_id: turn for turn, round_id in enumerate(self.offered)}
        order = sorted(shared, key=lambda each: (not unknown[each], turns.get(each, -1)))
        order.sort(key=lambda each: not unknown[each] - offered[each])
        chosen = _fitting({each: shared[each] for each in order})
        due = [
            chosen[each][digest]
            for each in chosen
            for some in (unknown[each] - offered[each], unknown[each] & offered[each])
            for digest in sorted(some)
        ]
        known = {each: frozenset(documents) for each, documents in chosen.items()}
        return Message(_bounded(due), known)

    def heard(self, sent: Message, reply: Answer, live: Mapping[str, Round], now: datetime) -> None:
        """Take note of an exchange that succeeded, as far as it is about rounds that are `live`.

        Of what the peer replied only documents that passed their checks here are noted: a peer
        may invent as many as it likes.
        """
        self.pace.succeeded()
        self.again_at = now + PERIOD
        replied = {signed.digest for signed in reply.documents}
        for round_id in sent.known.keys() & live.keys():
            here = replied & live[round_id].spoken_of.keys()
            self.knows[round_id] = set(sent.known[round_id] - reply.wanted | here)
        for signed in sent.documents:
            if signed.body.round in live:
                offered = self.offered.pop(signed.body.round, set()) | {signed.digest}
                self.offered[signed.body.round] = offered  # the last now

    def forget(self, round_id: str) -> None:
        """Forget a round of which there is nothing more to say."""
        self.knows.pop(round_id, None)
        self.offered.pop(round_id, None)

    def is_settled(self, known: Round) -> bool:
        """Tell whether the peer knows all that there is to know of a round."""
        return known.spoken_of.keys() <= self.knows.get(known.id, set())


def _encode_all(documents: Iterable[SignedAttestation]) -> bytes:
    return b"[" + b",".join(signed.encode() for signed in documents) + b"]"


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


def _documents(values: list[Any]) -> tuple[SignedAttestation, ...]:
    return tuple(from_json(value, Holdings, Vote, Abandonment) for value in values)


def _parse(encoded: bytes, model: type[pydantic.BaseModel]) -> Any:
    try:
        return model.model_validate(parse_canonical_json(encoded))
    except pydantic.ValidationError as error:
        raise MalformedDocument(describe(error, model)) from None
