"""Carries out the decisions, sums, gossip, reports and erasures that are due.

The steps of a round are taken here, in order; each is durable before anybody can see it.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

import structlog
from nacl.signing import SigningKey
from pyroaring import BitMap

from shoal_compute import attesting, shares, store
from shoal_compute.bulks import Packed, Place
from shoal_compute.committees import partial_sum
from shoal_compute.decisions import CallOff, CastVote, Decision, Freeze, GiveUp, SumUp, decide
from shoal_compute.gossiping import Gossip
from shoal_compute.leading import Leadership
from shoal_compute.metrics import Metrics
from shoal_compute.reporting import Reports
from shoal_compute.round_book import RoundBook
from shoal_compute.rounds import Round
from shoal_compute.store import Kept, LostRace, SignedAttestation
from shoal_compute.summing import SharesMissing
from shoal_compute.tally import Tallies
from shoal_compute.witnesses import Witnesses
from shoal_hosting.server.logs import describe_exception
from shoal_hosting.service import Resources
from shoal_hosting.storage.database import StorageThread
from shoal_hosting.work import Work
from shoal_protocol.privacy.ledger import LedgerEntry
from shoal_protocol.rounds.attestations import AbandonmentReason, StoredAnswers
from shoal_protocol.wire.phases import FINISHED, Phase
from shoal_protocol.wire.service_errors import StorageUnavailable

log = structlog.get_logger()

# How long a step waits for work that makes no progress, such as a peer that does not answer.
PATIENCE_SECONDS: Final = 0.25


@dataclass(frozen=True)
class Stored:
    """A round's shares on file."""

    storage: StorageThread
    known: Round

    async def places(self, holders: BitMap) -> list[Place]:
        """Return where the shares of these data holders are."""
        dimension = self.known.spec.body.dimension
        return await self.storage.run(shares.places_of, self.known.id, holders, dimension)

    async def read(self, place: Place) -> list[Packed]:
        """Return the shares at a place, of those whose payload is stored."""
        return await self.storage.run(shares.read_shares, self.known.id, place)


class Node:
    """Takes the steps of this node's rounds, beside answering requests."""

    def __init__(
        self,
        resources: Resources,
        *,
        rounds: RoundBook,
        gossip: Gossip,
        tallies: Tallies,
        metrics: Metrics,
        leadership: Leadership | None,
        witnesses: Witnesses,
    ) -> None:
        """Begin without work; `leadership` is None if the node is one process."""
        self._own = resources
        self._rounds, self._gossip, self._tallies, self._metrics = rounds, gossip, tallies, metrics
        self._leadership, self._witnesses = leadership, witnesses
        self._reports = Reports(
            resources, rounds, acknowledged=self._acknowledged, called_off=self._called_off
        )
        self._work = Work(resources.clock)
        self._stepping = asyncio.Lock()

    async def step(self) -> None:
        """Do all that is due now. A peer's failure, or the store's, is tried again later."""
        async with self._stepping:
            if self._witnesses.is_due():  # a replica that does not lead takes rounds, too
                self._work.begin("witnesses", self._witnesses.ask)
            while await self._leads():
                self._own.wake.clear()
                for known in list(self._rounds.live.values()):
                    await self._advance(known)
                self._begin_work()
                live = self._rounds.live.values()
                self._own.standing.erase(each.consortium.digest for each in live)
                if not await self._work.progress(self._own.wake, patience_seconds=PATIENCE_SECONDS):
                    return

    async def _leads(self) -> bool:
        """Tell whether this replica is to take steps, having looked at what the others did.

        A node that is one process has no others, and knows all that is on file.
        """
        if self._leadership is None:
            return True
        try:
            await self._leadership.renew()
            await self._own.share_manifests()
            await self._rounds.refresh()
        except StorageUnavailable:
            log.warning("a replica waits for the store")
            return False
        if not self._leadership.leads:
            for known in list(self._rounds.live.values()):
                if known.done:
                    self._retire(known)
        return self._leadership.leads

    async def _advance(self, known: Round) -> None:
        """Take the round's steps that are due, up to one that must wait for something."""
        try:
            while (decision := decide(known, self._own.clock())) is not None:
                if isinstance(decision, SumUp):
                    self._work.begin(f"sum {known.id}", self._sum_up, known, decision.cohort)
                    return
                await self._carry_out(known, decision)
        except LostRace:
            log.warning("the round in memory was behind the store", round=known.id)
            await self._reload(known)
        except StorageUnavailable:
            log.warning("a step waits for the store", round=known.id)
        except Exception as error:  # noqa: BLE001 -- the other rounds go on
            log.error("a step failed", round=known.id, **describe_exception(error))

    def _key_of(self, known: Round) -> SigningKey:
        return self._own.party.signing_key_in(known.consortium)

    async def _reload(self, known: Round) -> None:
        try:
            await self._rounds.reload(known)
        except StorageUnavailable:
            log.warning("a round waits for the store", round=known.id)

    async def _carry_out(self, known: Round, decision: Decision) -> None:
        if isinstance(decision, Freeze):
            await self._freeze(known)
        elif isinstance(decision, CastVote):
            vote = attesting.attest_vote(
                known, decision.nodes, decision.cohort, self._key_of(known)
            )
            await self._own.storage.run(store.cast, known.id, vote)
            known.learn(vote, Kept.FIRST)
        elif isinstance(decision, GiveUp):
            await self._give_up(known, decision.reason)
        elif isinstance(decision, CallOff):
            await self._call_off(known, decision.reason)

    async def _freeze(self, known: Round) -> None:
        def attest(held: StoredAnswers) -> SignedAttestation:
            return attesting.attest_holdings(known, held, self._key_of(known))

        held, holdings = await self._own.storage.run(store.freeze, known.id, known.phase, attest)
        known.held = held
        known.learn(holdings, Kept.FIRST)
        self._moved(known, Phase.FROZEN)
        log.info("round frozen", round=known.id, held=len(held))

    async def _give_up(self, known: Round, reason: AbandonmentReason) -> None:
        own = attesting.attest_abandonment(known, reason, self._key_of(known))
        await self._own.storage.run(
            store.give_up, known.id, known.phase, reason.code, own, at=self._own.clock()
        )
        known.reason = reason.code
        self._abandoned(known)
        await self._reload(known)  # the abandonment on file may be an earlier one

    async def _call_off(self, known: Round, reason: AbandonmentReason) -> None:
        now = self._own.clock()
        await self._own.storage.run(store.call_off, known.id, known.phase, reason.code, at=now)
        known.reason, known.reported = reason.code, True
        self._abandoned(known)

    def _abandoned(self, known: Round) -> None:
        self._moved(known, Phase.ABANDONED)
        log.info("round abandoned", round=known.id, reason=known.reason)

    def _moved(self, known: Round, new: Phase) -> None:
        self._metrics.moved(known.phase, new)
        known.phase = new
        if new in (Phase.AGREED, Phase.ABANDONED):
            self._tallies.drop(known.id)

    async def _sum_up(self, known: Round, cohort: StoredAnswers) -> None:
        try:
            try:
                stored = Stored(self._own.storage, known)
                total = await partial_sum(
                    known,
                    cohort.holders,
                    lambda holders: self._tallies.total(known, holders, stored),
                )
            except SharesMissing:
                log.error("a share of the cohort is missing from the store", round=known.id)
                await self._give_up(known, AbandonmentReason(code="sum_failed"))
                return

            def attest(charge: LedgerEntry) -> SignedAttestation:
                key, among = self._key_of(known), known.votes[known.own].nodes
                return attesting.attest_sum(known, cohort, total, charge, key, among=among)

            signed = await self._own.storage.run(store.agree, known.id, attest)
        except LostRace:
            await self._reload(known)
        else:
            known.learn(signed, Kept.FIRST)
            self._moved(known, Phase.AGREED)

    async def _acknowledged(self, known: Round) -> None:
        """Note that the aggregator has this node's last word on a round, or nobody needs it."""
        if known.phase is Phase.AGREED:
            most = shares.erased_at_once(known.spec.body.dimension)
            try:
                known.emptied = await self._own.storage.run(store.publish, known.id, most)
            except LostRace:  # another replica noted it
                await self._rounds.reload(known)
                return
            self._moved(known, Phase.PUBLISHED)
            log.info("partial sum published", round=known.id)
        else:
            await self._own.storage.run(store.mark_reported, known.id)
        known.reported = True

    async def _called_off(self, signed: SignedAttestation) -> None:
        await self._gossip.take([signed])

    async def _erase(self, known: Round) -> None:
        most = shares.erased_at_once(known.spec.body.dimension)
        after: int | None = None if known.emptied else -1
        while after is not None:
            after = await self._own.storage.run(shares.erase_payloads, known.id, most, after)
        await asyncio.to_thread(self._own.storage.truncate_log)
        known.erased = True

    def _begin_work(self) -> None:
        due = self._gossip.due(busy=lambda name: self._work.is_under_way(f"peer {name}"))
        for name, message in due.items():
            self._work.begin(f"peer {name}", self._gossip.exchange, name, message)
        for name, reports in self._reports.due().items():
            self._work.begin(f"aggregator {name}", self._reports.send, reports)
        for known in list(self._rounds.live.values()):
            if known.phase in FINISHED and not known.erased:
                self._work.begin(f"erase {known.id}", self._erase, known)
            if known.done and (
                known.over
                or self._gossip.is_settled(known)
                or self._own.clock() >= known.spec.body.give_up_at
            ):
                self._retire(known)

    def _retire(self, known: Round) -> None:
        self._gossip.forget(known)
        self._tallies.drop(known.id)
        self._rounds.retire(known)

    async def close(self) -> None:
        """End the work in progress; what is not done is done after the next start."""
        await self._work.close()
        if self._leadership is not None:
            try:
                await self._leadership.release()
            except StorageUnavailable:
                log.warning("the lease runs out by itself")
