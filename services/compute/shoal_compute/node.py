"""Carries out what is due: decisions, sums, gossip, reports and erasure; it decides nothing.

All steps of a round are taken here, one after another, and each is durable before it shows.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime

import structlog
from nacl.signing import SigningKey
from sqlalchemy import Engine

from shoal_compute import attesting, shares, store
from shoal_compute.decisions import CallOff, CastVote, Decision, Freeze, GiveUp, SumUp, decide
from shoal_compute.erasing import batch_size, truncate_log
from shoal_compute.gossiping import Gossip
from shoal_compute.leading import Leadership
from shoal_compute.metrics import Metrics
from shoal_compute.reporting import Reports
from shoal_compute.round_book import RoundBook
from shoal_compute.rounds import Round
from shoal_compute.schema import ledger
from shoal_compute.store import Kept, LostRace, SignedAttestation
from shoal_compute.summing import SharesMissing
from shoal_compute.tally import Tallies
from shoal_compute.witnesses import Witnesses
from shoal_compute.work import Work
from shoal_hosting.exchange import Connections
from shoal_hosting.logs import describe_exception
from shoal_hosting.manifest_book import ManifestBook
from shoal_hosting.shared_manifests import SharedManifests
from shoal_hosting.storage import StorageThread
from shoal_protocol.attestations import AbandonmentReason, Held
from shoal_protocol.errors import StorageUnavailable
from shoal_protocol.phases import FINISHED, Phase
from shoal_protocol.sharing import Share

log = structlog.get_logger()


class Node:
    """What a Compute node does by itself, beside answering requests."""

    def __init__(
        self,
        *,
        rounds: RoundBook,
        gossip: Gossip,
        storage: StorageThread,
        engine: Engine,
        book: ManifestBook,
        peers: Connections,
        key: SigningKey,
        clock: Callable[[], datetime],
        tallies: Tallies,
        metrics: Metrics,
        wake: asyncio.Event,
        leadership: Leadership | None,
        manifests: SharedManifests,
        witnesses: Witnesses,
    ) -> None:
        """Begin with nothing under way; `leadership` is None if the node is one process."""
        self.wake = wake
        self._rounds = rounds
        self._gossip = gossip
        self._storage = storage
        self._engine = engine
        self._key = key
        self._clock = clock
        self._tallies = tallies
        self._metrics = metrics
        self._leadership = leadership
        self._manifests = manifests
        self._witnesses = witnesses
        self._reports = Reports(
            rounds,
            book,
            peers,
            clock,
            acknowledged=self._acknowledged,
            called_off=self._called_off,
        )
        self._work = Work(clock)
        self._stepping = asyncio.Lock()

    async def step(self) -> None:
        """Do all that is due now. A peer's failure, or the store's, is tried again later."""
        async with self._stepping:
            if self._witnesses.is_due():  # a replica that does not lead takes rounds, too
                self._work.begin("witnesses", self._witnesses.ask)
            while await self._leads():
                self.wake.clear()
                for known in list(self._rounds.live.values()):
                    await self._advance(known)
                self._begin_work()
                if not await self._work.progress(self.wake):
                    return

    async def _leads(self) -> bool:
        """Tell whether this replica is to take steps, having looked at what the others did.

        A node that is one process has no others, and knows all that is on file.
        """
        if self._leadership is None:
            return True
        try:
            await self._leadership.renew()
            await self._storage.run(self._manifests.exchange)
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
            while (decision := decide(known, self._clock())) is not None:
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

    async def _reload(self, known: Round) -> None:
        try:
            await self._rounds.reload(known)
        except StorageUnavailable:
            log.warning("a round waits for the store", round=known.id)

    async def _carry_out(self, known: Round, decision: Decision) -> None:
        if isinstance(decision, Freeze):
            await self._freeze(known)
        elif isinstance(decision, CastVote):
            vote = attesting.attest_vote(known, decision.holders, decision.cohort, self._key)
            await self._storage.run(store.cast, known.id, vote)
            known.learn(vote, Kept.FIRST)
        elif isinstance(decision, GiveUp):
            await self._give_up(known, decision.reason)
        elif isinstance(decision, CallOff):
            await self._call_off(known, decision.reason)

    async def _freeze(self, known: Round) -> None:
        def attest(held: Held) -> SignedAttestation:
            return attesting.attest_holdings(known, held, self._key)

        held, holdings = await self._storage.run(store.freeze, known.id, known.phase, attest)
        known.held = held
        known.learn(holdings, Kept.FIRST)
        self._moved(known, Phase.FROZEN)
        log.info("round frozen", round=known.id, held=len(held))

    async def _give_up(self, known: Round, reason: AbandonmentReason) -> None:
        own = attesting.attest_abandonment(known, reason, self._key)
        await self._storage.run(
            store.give_up, known.id, known.phase, reason.code, own, at=self._clock()
        )
        known.reason = reason.code
        self._abandoned(known)
        await self._reload(known)  # the abandonment on file may be an earlier one

    async def _call_off(self, known: Round, reason: AbandonmentReason) -> None:
        now = self._clock()
        await self._storage.run(store.call_off, known.id, known.phase, reason.code, at=now)
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

    async def _sum_up(self, known: Round, cohort: Held) -> None:
        async def read(clients: list[int]) -> list[Share]:
            return await self._storage.run(shares.read_shares, known.id, clients)

        try:
            try:
                total = await self._tallies.total(known, cohort.clients, read)
            except SharesMissing:
                log.error("a share of the cohort is missing from the store", round=known.id)
                await self._give_up(known, AbandonmentReason(code="sum_failed"))
                return
            charge = await self._storage.run(ledger.charge_of, known.id)
            signed = attesting.attest_sum(known, cohort, total, charge, self._key)
            await self._storage.run(store.agree, known.id, signed)
        except LostRace:
            await self._reload(known)
        else:
            known.learn(signed, Kept.FIRST)
            self._moved(known, Phase.AGREED)

    async def _acknowledged(self, known: Round) -> None:
        """Note that the aggregator has this node's last word on a round."""
        if known.phase is Phase.AGREED:
            try:
                await self._storage.run(store.publish, known.id)
            except LostRace:  # another replica noted it
                await self._rounds.reload(known)
                return
            self._moved(known, Phase.PUBLISHED)
            log.info("partial sum published", round=known.id)
        else:
            await self._storage.run(store.mark_reported, known.id)
        known.reported = True

    async def _called_off(self, signed: SignedAttestation) -> None:
        await self._gossip.take([signed])

    async def _erase(self, known: Round) -> None:
        most = batch_size(known.spec.body.dimension)
        while not await self._storage.run(shares.erase_payloads, known.id, most):
            continue
        await asyncio.to_thread(truncate_log, self._engine)
        known.erased = True

    def _begin_work(self) -> None:
        due = self._gossip.due(busy=lambda name: self._work.is_under_way(f"peer {name}"))
        for name, message in due.items():
            self._work.begin(f"peer {name}", self._gossip.exchange, name, message)
        reports = self._reports.due()
        if reports:
            self._work.begin("aggregator", self._reports.send, reports)
        for known in list(self._rounds.live.values()):
            if known.phase in FINISHED and not known.erased:
                self._work.begin(f"erase {known.id}", self._erase, known)
            over = self._gossip.is_settled(known) or self._clock() >= known.spec.body.give_up_at
            if known.done and over:
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
