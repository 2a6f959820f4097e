"""Exchanges gossip with this node's peers; `gossip` composes the messages."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Final

import structlog

from shoal_compute import store
from shoal_compute.attesting import attest_vote, check_attestation
from shoal_compute.decisions import CastVote, decide
from shoal_compute.gossip import (
    ASK_NEXT_AFTER,
    LARGEST_MESSAGE_BYTES,
    Message,
    PeerState,
    Requests,
    Schedules,
    answer,
    decode_message,
)
from shoal_compute.metrics import Metrics
from shoal_compute.round_book import RoundBook
from shoal_compute.rounds import Round
from shoal_compute.store import Kept, LostRace, SignedAttestation
from shoal_hosting.manifests.manifest_book import newest_with
from shoal_hosting.peers.exchange import Unavailable
from shoal_hosting.service import Resources
from shoal_protocol.trust.manifest import ComputeParty, ServiceParty
from shoal_protocol.wire.errors import ProtocolError, UnknownSigner
from shoal_protocol.wire.phases import Phase
from shoal_protocol.wire.service_errors import StorageUnavailable

log = structlog.get_logger()


TOLERANCE: Final = timedelta(seconds=5)


class ClockWatch:
    """Tells the operator when a peer's clock and this node's disagree, by the peer's last answer.

    Nothing else depends on it: a node that lies about its time can only make others warn.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._off: set[str] = set()

    def note(self, peer: str, shown: datetime, sent_at: datetime, received_at: datetime) -> None:
        """Note the time that `peer` showed, taken between the two moments here."""
        offset = shown - sent_at - (received_at - sent_at) / 2
        uncertainty = (received_at - sent_at) / 2
        self._metrics.set_clock_offset(peer, offset.total_seconds())
        if abs(offset) > TOLERANCE + uncertainty:
            if peer not in self._off:
                log.warning(
                    "a peer's clock differs from this node's: check both",
                    party=peer,
                    seconds_ahead=round(offset.total_seconds(), 1),
                )
            self._off.add(peer)
        else:
            self._off.discard(peer)


class Gossip:
    """This node's gossip with all other Compute nodes."""

    def __init__(
        self,
        resources: Resources,
        rounds: RoundBook,
        metrics: Metrics,
        leads: Callable[[], bool],
    ) -> None:
        """Start idle. Only the replica that leads votes."""
        self._own, self._rounds, self._metrics = resources, rounds, metrics
        self._leads = leads
        self._reading = resources.worker("gossiping")
        self._peers: dict[str, PeerState] = defaultdict(PeerState)
        self._requests, self._schedules = Requests(), Schedules()
        # rounds that lack documents, and from when on answers to peers request them
        self._waiting: dict[str, datetime] = {}
        self._clocks = ClockWatch(metrics)
        self._unreached: set[str] = set()  # peers whose failure was logged

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
                await self._take(known[round_id], offered, refused)
            else:
                self._metrics.gossiped("document_refused", len(offered))
        self._metrics.gossiped("document_refused", refused.total())
        if refused:  # one line: the peer chooses how many documents it sends
            # a code as a field's name would have its count withheld: `bad-signature`
            problems = [f"{code}: {count}" for code, count in sorted(refused.items())]
            log.warning("gossiped documents are refused", count=refused.total(), problems=problems)

    async def _take(
        self, known: Round, offered: list[SignedAttestation], refused: Counter[str]
    ) -> None:
        fresh = [signed for signed in offered if signed.digest not in known.documents]
        if not fresh:
            return
        size = sum(len(signed.encode()) for signed in fresh)
        passed, failed = await self._reading.run_sized(size, _verified, known, fresh)
        refused += failed
        if not passed:
            return
        for signed, kept in zip(passed, await self._keep(known, passed), strict=True):
            known.learn(signed, kept)
            if kept is Kept.EVIDENCE:
                self._metrics.gossiped("document_evidence")
                log.warning("a party signed two documents", kind=signed.body.kind)
            elif kept is Kept.FIRST:
                self._metrics.gossiped("document_new")
        self._own.wake.set()

    async def _keep(self, known: Round, passed: list[SignedAttestation]) -> list[Kept]:
        """Store documents of a round, and with them the vote that follows from them, if one does.

        So the answer to the message that brought them has the vote.

        Raises:
            StorageUnavailable
        """
        run = self._own.storage.run
        if known.phase is Phase.FROZEN and known.own not in known.votes and self._leads():
            following = known.with_documents(passed)
            decision = decide(following, self._own.clock())
            if isinstance(decision, CastVote):
                key = self._own.party.signing_key_in(known.consortium)
                vote = attest_vote(following, decision.nodes, decision.cohort, key)
                try:
                    kept = await run(store.keep_and_cast, known.id, passed, vote)
                except LostRace:
                    log.debug("a vote waits for the next step", round=known.id)
                else:
                    known.learn(vote, Kept.FIRST)
                    known.keep_cohorts(following)
                    return kept
        return await run(store.keep, known.id, passed)

    def due(self, *, busy: Callable[[str], bool]) -> dict[str, Message]:
        """Return the message due to each peer, except peers with an exchange under way."""
        now = self._own.clock()
        by_peer: dict[str, list[Round]] = defaultdict(list)
        self._waiting = {
            known.id: self._waiting.get(known.id, now + 2 * ASK_NEXT_AFTER)
            for known in self._rounds.live.values()
            if known.phase is Phase.FROZEN
        }
        spoken_of = [known for known in self._rounds.live.values() if known.spoken_of]
        away = {name for name, each in self._peers.items() if each.pace.failures}
        schedules = {known.id: self._schedules.of(known, now, away=away) for known in spoken_of}
        for known in spoken_of:
            for name in known.peers:
                if not busy(name):
                    by_peer[name].append(known)
        messages = {
            name: self._peers[name].message(
                rounds, now, self._requests, peer=name, schedules=schedules
            )
            for name, rounds in by_peer.items()
        }
        return {name: message for name, message in messages.items() if message is not None}

    async def exchange(self, name: str, message: Message) -> None:
        """Send a message to a peer and take its answer in."""
        peer_state = self._peers[name]
        sent_at = self._own.clock()
        self._requests.asked(message.wanted, sent_at)
        try:
            reply = await self._send(name, message)
            self._clocks.note(name, reply.time, sent_at, self._own.clock())
            asked = [signed for signed in reply.documents if signed.body.round in message.known]
            await self.take(asked)
        except (Unavailable, ProtocolError) as error:
            peer_state.pace.failed(self._own.clock())
            self._requests.failed(message.wanted)
            self._metrics.gossiped("unreachable")
            if isinstance(error, StorageUnavailable):
                raise
            if name not in self._unreached:
                log.warning("no gossip with a peer", party=name, error=type(error).__name__)
            self._unreached.add(name)
        else:
            peer_state.note_exchange(message, reply, self._rounds.live, self._own.clock())
            self._metrics.gossiped("exchanged")
            if name in self._unreached:
                log.info("gossip with a peer again", party=name)
            self._unreached.discard(name)

    async def _send(self, name: str, message: Message) -> Message:
        party = self._party(name)
        reply = await self._own.peers.to(party).ask(
            "POST", "/v1/gossip", message.encode(), limit_bytes=LARGEST_MESSAGE_BYTES
        )
        if reply.status != 200:
            raise Unavailable("the peer refused the message")
        return await self._reading.run_sized(len(reply.body), decode_message, reply.body)

    def _party(self, name: str) -> ServiceParty:
        party = newest_with(self._own.book, name).party(name)
        if not isinstance(party, ComputeParty):
            raise UnknownSigner
        return party

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
    """Return the documents that pass, and how many fail by which problem."""
    passed, failed = [], Counter[str]()
    for signed in documents:
        try:
            check_attestation(known, signed)
        except ProtocolError as error:
            failed[error.code] += 1
        else:
            passed.append(signed)
    return passed, failed
