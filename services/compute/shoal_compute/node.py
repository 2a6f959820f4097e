"""Carries out the decisions, sums, gossip, reports and erasures that are due.

The steps of a round are taken here, in order; each is durable before anybody can see it.
"""

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, ParamSpec

import structlog
from pyroaring import BitMap
from sqlalchemy import ColumnElement, Connection, Double, cast, func, literal, select, update

from shoal_compute import attesting, shares, store
from shoal_compute.decisions import CallOff, CastVote, Decision, Freeze, GiveUp, SumUp, decide
from shoal_compute.gossip import Gossip
from shoal_compute.round_book import RoundBook
from shoal_compute.rounds import Round
from shoal_compute.schema import lease
from shoal_compute.store import Kept, LostRace
from shoal_compute.summing import SharesMissing, Summing, sum_shares
from shoal_kit.manifest_book import at_present
from shoal_kit.pace import Pace
from shoal_kit.peers.exchange import Unavailable
from shoal_kit.web.logs import describe_exception
from shoal_protocol.rounds.attestations import (
    Abandonment,
    AbandonmentReason,
    PartialSum,
    StoredAnswers,
    Vote,
)
from shoal_protocol.rounds.outcomes import verified_outcome
from shoal_protocol.sharing import committee_sums, summation
from shoal_protocol.trust.manifest import ServiceParty
from shoal_protocol.wire.documents import DocumentT, Signed
from shoal_protocol.wire.encoding import Uint64Vector
from shoal_protocol.wire.errors import ProtocolError
from shoal_protocol.wire.phases import FINISHED, Phase
from shoal_protocol.wire.service_errors import StorageUnavailable
from shoal_service.keepers import Keepers
from shoal_service.service import Resources
from shoal_service.storage.database import insert_new
from shoal_service.storage.journal import Journal
from shoal_service.storage.thread import StorageThread

log = structlog.get_logger()


Arguments = ParamSpec("Arguments")
TERM_SECONDS: Final = 3.0  # of the lease


class Leadership:
    """Elects the replica that takes the steps of the node's rounds, by a lease in the database.

    The lease only saves work. Every step is a compare-and-swap in the database, so two leaders at
    once, or none for a while, do no harm. Leases run by the database's clock.
    """

    def __init__(self, storage: StorageThread) -> None:
        """Begin without the lease."""
        self.leads = False
        self._storage = storage
        self._name = secrets.token_hex(16)  # of this process and no other

    async def renew(self) -> None:
        """Renew the lease, or take it if it is free.

        Raises:
            StorageUnavailable: this replica does not lead.
        """
        self.leads, leads = False, self.leads
        self.leads = await self._storage.run(take_lease, self._name, TERM_SECONDS)
        if self.leads and not leads:
            log.info("this replica leads")


def take_lease(db: Connection, name: str, term_seconds: float) -> bool:
    """Take the lease if it is free, or renew it in good time; tell whether `name` holds it.

    Nothing is written while somebody else holds it, or while most of the term is left.
    """
    now = _now(db)
    until = now + literal(term_seconds, Double)
    own = (lease.c.holder == name) & (lease.c.until < now + literal(term_seconds * 2 / 3, Double))
    free = lease.c.until <= now
    db.execute(update(lease).where(own | free).values(holder=name, until=until))
    holder = select(lease.c.holder)
    if (held_by := db.execute(holder).scalar()) is None:
        insert_new(db, lease, one=1, holder=name, until=until)
        held_by = db.execute(holder).scalar_one()
    return bool(held_by == name)


def _now(db: Connection) -> ColumnElement[Any]:
    """Return the database's clock in seconds since 1970."""
    if db.dialect.name == "postgresql":
        return cast(func.extract("epoch", func.clock_timestamp()), Double)
    return (func.julianday("now") - literal(2440587.5, Double)) * literal(86_400.0, Double)


def _blinded(known: Round, vote: Vote, sums: dict[int, Uint64Vector]) -> Uint64Vector:
    """Weigh and mask: only all nodes of the vote together tell a total."""
    spec, intake = known.spec.body, known.intake
    among = [spec.compute_nodes.index(name) for name in vote.nodes]
    if spec.sharing.scheme == "threshold":
        total = committee_sums.weighted(
            spec.sharing, sums, node=intake.node, among=among, nodes=len(spec.compute_nodes)
        )
    else:
        total = sums[0]
    parties = known.consortium.manifest.compute_nodes
    mask = committee_sums.mask(
        spec.sharing,
        {each: bytes.fromhex(parties[each].box_key) for each in among if each != intake.node},
        node=intake.node,
        box_private_key=intake.box_private_key,
        cohort=vote.cohort,
        dimension=spec.dimension,
    )
    return summation.plus(spec.sharing, total, mask)


# How long a step waits for work that makes no progress, such as a peer that does not answer.
PATIENCE_SECONDS: Final = 0.25


class Node:
    """Takes the steps of this node's rounds, beside answering requests."""

    def __init__(
        self,
        resources: Resources,
        *,
        rounds: RoundBook,
        gossip: Gossip,
        summing: Summing,
        leadership: Leadership | None,
        keepers: Keepers,
        journal: Journal,
    ) -> None:
        """Start idle. `leadership` is None in single-process deployments."""
        self._own = resources
        self._rounds, self._gossip, self._summing = rounds, gossip, summing
        self._leadership, self._keepers, self._journal = leadership, keepers, journal
        self._paces: dict[str, Pace] = defaultdict(Pace)  # of reports, by round
        self._work = resources.work()
        self._stepping = asyncio.Lock()

    async def step(self) -> None:
        """Do all that is due now. A peer's failure, or the store's, is tried again later."""
        async with self._stepping:
            if self._keepers.is_due():  # a replica that does not lead takes rounds, too
                self._work.begin("keepers", self._keepers.ask)
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

    async def _reload(self, known: Round) -> None:
        try:
            await self._rounds.reload(known)
        except StorageUnavailable:
            log.warning("a round waits for the store", round=known.id)

    async def _carry_out(self, known: Round, decision: Decision) -> None:
        if isinstance(decision, Freeze):
            await self._freeze(known)
        elif isinstance(decision, CastVote):
            await self._gossip.vote(known)
        elif isinstance(decision, GiveUp):
            await self._give_up(known, decision.reason)
        elif isinstance(decision, CallOff):
            await self._journal.run(store.call_off, known.id, known.phase)
            known.reported = True
            self._abandoned(known, decision.reason)

    async def _freeze(self, known: Round) -> None:
        attest = self._signing(partial(attesting.holdings, known))
        held, holdings = await self._journal.run(store.freeze, known.id, known.phase, attest)
        known.held = held
        known.learn(holdings, Kept.FIRST)
        known.phase = Phase.FROZEN
        log.info("round frozen", round=known.id, held=len(held))

    def _signing(
        self, attest: Callable[Arguments, DocumentT]
    ) -> Callable[Arguments, Signed[DocumentT]]:
        """Have this node sign what `attest` returns."""
        return lambda *given, **named: self._own.sign(attest(*given, **named))

    async def _give_up(self, known: Round, reason: AbandonmentReason) -> None:
        attest = self._signing(partial(attesting.abandonment, known, reason))
        await self._journal.run(store.give_up, known.id, known.phase, attest, own=known.own)
        self._abandoned(known, reason)
        await self._reload(known)  # the abandonment on file may be an earlier one

    def _abandoned(self, known: Round, reason: AbandonmentReason) -> None:
        known.phase = Phase.ABANDONED
        log.info("round abandoned", round=known.id, reason=reason.code)

    async def _partial_sum(self, known: Round, cohort: BitMap) -> Uint64Vector:
        """Return this node's partial sum, shape (d,), over the cohort that it voted for.

        Raises:
            SharesMissing, StorageUnavailable
        """
        if known.spec.body.sharing.committee is None:
            return await self._sum_of(known, cohort)
        sums = {
            start: await self._sum_of(known, holders)
            for start, holders in known.by_committee(cohort).items()
        }
        return await asyncio.to_thread(_blinded, known, known.votes[known.own], sums)

    async def _sum_of(self, known: Round, holders: BitMap) -> Uint64Vector:
        run, spec = self._own.storage.run, known.spec.body
        parts = shares.parts_of(holders, spec.dimension)
        return await sum_shares(
            spec, parts, lambda part: run(shares.read_shares, known.id, part), self._summing
        )

    async def _sum_up(self, known: Round, cohort: StoredAnswers) -> None:
        try:
            try:
                total = await self._partial_sum(known, cohort.holders)
            except SharesMissing:
                log.error("a share of the cohort is missing from the store", round=known.id)
                await self._give_up(known, AbandonmentReason(code="sum_failed"))
                return

            among = known.votes[known.own].nodes
            attest = partial(attesting.partial_sum, known, cohort, total, among=among)
            signed = await self._journal.run(store.agree, known.id, self._signing(attest))
        except LostRace:
            await self._reload(known)
        else:
            known.learn(signed, Kept.FIRST)
            known.phase = Phase.AGREED

    async def _acknowledged(self, known: Round) -> None:
        """Note that the aggregator has this node's last word on a round, or nobody needs it."""
        if known.phase is Phase.AGREED:
            try:
                await self._own.storage.run(store.publish, known.id)
            except LostRace:  # another replica noted it
                await self._rounds.reload(known)
                return
            known.phase = Phase.PUBLISHED
            log.info("partial sum published", round=known.id)
        else:
            await self._own.storage.run(store.mark_reported, known.id)
        known.reported = True

    async def _send_reports(self, rounds: Iterable[Round]) -> None:
        """Report on rounds of one aggregator, one after another, until it acknowledges.

        Reporting also ends once nobody waits for the round: an aggregator may be lost for good.

        Raises:
            StorageUnavailable
        """
        for known in rounds:
            try:
                settled = await self._report(known)
            except Unavailable as error:
                log.info("the aggregator is not reached", error=type(error).__name__)
                settled = False
            # the trainer gives the round up then, without an outcome
            is_over = self._own.clock() > known.spec.body.give_up_at + self._own.patience
            if not settled and is_over:
                log.warning("the aggregator took no report in time", round=known.id)
                await self._acknowledged(known)
            if settled or is_over:
                self._paces.pop(known.id, None)
            else:
                self._paces[known.id].failed(self._own.clock())

    async def _report(self, known: Round) -> bool:
        """Report the partial sum or the abandonment of a round; tell whether that is settled."""
        is_sum = known.phase is Phase.AGREED
        kind = PartialSum if is_sum else Abandonment
        mine = (each for each in known.documents.values() if each.signer == known.own)
        own = next((each for each in mine if isinstance(each.body, kind)), None)
        if own is None:
            raise ValueError("a round that has ended here has this node's last word")
        party = at_present(self._own.book, known.consortium.manifest.aggregator)
        reply = await self._own.peers.to(party).ask(
            "POST", f"/v1/rounds/{known.id}/ends", own.encode()
        )
        if is_sum and reply.status == 410:
            return await self._fetch_abandonment(known, party)
        # 404 for good: after the deadline the round can no longer be announced there
        never = reply.status == 404 and self._own.clock() >= known.spec.body.deadline
        if reply.status in (200, 201) or (not is_sum and (reply.status in (409, 410) or never)):
            await self._acknowledged(known)
            return True
        if is_sum and reply.status < 500 and reply.status != 404:
            log.error("the aggregator refuses the partial sum", round=known.id, status=reply.status)
        return False

    async def _fetch_abandonment(self, known: Round, aggregator: ServiceParty) -> bool:
        path = f"/v1/rounds/{known.id}/outcome"
        reply = await self._own.peers.to(aggregator).ask("GET", path)
        if reply.status != 200:
            return False
        try:
            signed, _ = verified_outcome(reply.body, known.spec.body, known.consortium)
        except ProtocolError as error:
            log.error("the aggregator's word on the round is not valid", problem=error.code)
            return False
        if isinstance(signed.body, Abandonment):
            await self._gossip.take([signed])
        return aggregator.name in known.abandonments

    async def _erase(self, known: Round) -> None:
        most = shares.erased_at_once(known.spec.body.dimension)
        after: int | None = -1
        while after is not None:
            after = await self._own.storage.run(shares.erase_payloads, known.id, most, after)
        await asyncio.to_thread(self._own.storage.truncate_log)
        known.erased = True

    def _begin_work(self) -> None:
        due = self._gossip.due(busy=lambda name: self._work.is_under_way(f"peer {name}"))
        for name, message in due.items():
            self._work.begin(f"peer {name}", self._gossip.exchange, name, message)
        now, reports = self._own.clock(), defaultdict[str, list[Round]](list)
        for known in self._rounds.live.values():
            is_last_word = known.phase in (Phase.AGREED, Phase.ABANDONED)
            if is_last_word and not known.reported and self._paces[known.id].is_due(now):
                reports[known.consortium.manifest.aggregator.name].append(known)
        for name, of_aggregator in reports.items():
            self._work.begin(f"aggregator {name}", self._send_reports, of_aggregator)
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
        self._rounds.retire(known)
