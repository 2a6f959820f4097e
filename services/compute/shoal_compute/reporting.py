"""Reports each round's partial sum or abandonment to its aggregator until it acknowledges.

Or until nobody waits for the round any more: an aggregator may be lost for good.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable

import structlog

from shoal_compute.attesting import check_attestation
from shoal_compute.round_book import RoundBook
from shoal_compute.rounds import Round
from shoal_compute.store import SignedAttestation
from shoal_hosting.manifests.manifest_book import at_present
from shoal_hosting.peers.exchange import Reply, Unavailable
from shoal_hosting.service import Resources
from shoal_hosting.work import Pace
from shoal_protocol.rounds.attestations import Abandonment, PartialSum
from shoal_protocol.trust.manifest import ServiceParty
from shoal_protocol.wire.documents import decode
from shoal_protocol.wire.errors import ProtocolError
from shoal_protocol.wire.phases import Phase

log = structlog.get_logger()


class Reports:
    """Reports that are due to the aggregator, and their back-off."""

    def __init__(
        self,
        resources: Resources,
        rounds: RoundBook,
        *,
        acknowledged: Callable[[Round], Awaitable[None]],
        called_off: Callable[[SignedAttestation], Awaitable[None]],
    ) -> None:
        self._own, self._rounds = resources, rounds
        self._acknowledged, self._called_off = acknowledged, called_off
        self._paces: dict[str, Pace] = defaultdict(Pace)  # by round

    def due(self) -> dict[str, list[Round]]:
        """Return the rounds whose report is due now, by their aggregator."""
        now, due = self._own.clock(), defaultdict[str, list[Round]](list)
        for known in self._rounds.live.values():
            is_last_word = known.phase in (Phase.AGREED, Phase.ABANDONED)
            if is_last_word and not known.reported and self._paces[known.id].is_due(now):
                due[known.consortium.manifest.aggregator.name].append(known)
        return due

    async def send(self, rounds: Iterable[Round]) -> None:
        """Report on rounds of one aggregator, one after another.

        Raises:
            StorageUnavailable
        """
        for known in rounds:
            pace = self._paces[known.id]
            try:
                settled = await self._report(known)
            except Unavailable as error:
                log.info("the aggregator is not reached", error=type(error).__name__)
                settled = False
            if not settled and self._nobody_waits(known):
                log.warning("the aggregator took no report in time", round=known.id)
                await self._acknowledged(known)
                settled = True
            if settled:
                del self._paces[known.id]
            else:
                pace.failed(self._own.clock())

    def _nobody_waits(self, known: Round) -> bool:
        """Tell whether the trainer has given the round up, as it does without an outcome."""
        return self._own.clock() > known.spec.body.give_up_at + self._own.patience

    async def _report(self, known: Round) -> bool:
        if known.phase is Phase.AGREED:
            return await self._report_sum(known)
        own = known.own_document(Abandonment)
        if own is None:
            raise ValueError("a round that this node gave up has its own abandonment")
        reply = await self._post(known, "abandonments", own)
        # 404 for good: after the deadline the round can no longer be announced there
        never = reply.status == 404 and self._own.clock() >= known.spec.body.deadline
        if reply.status in (200, 201, 409, 410) or never:
            await self._acknowledged(known)
            return True
        return False

    async def _report_sum(self, known: Round) -> bool:
        own = known.own_document(PartialSum)
        if own is None:
            raise ValueError("an agreed round has this node's partial sum")
        reply = await self._post(known, "partial-sums", own)
        if reply.status in (200, 201):
            await self._acknowledged(known)
            return True
        if reply.status == 410:
            return await self._fetch_abandonment(known)
        if reply.status < 500 and reply.status != 404:
            log.error("the aggregator refuses the partial sum", round=known.id, status=reply.status)
        return False

    async def _fetch_abandonment(self, known: Round) -> bool:
        aggregator = self._aggregator(known)
        reply = await self._own.peers.to(aggregator).ask(
            "GET", f"/v1/rounds/{known.id}/abandonment"
        )
        if reply.status != 200:
            return False
        try:
            signed = decode(reply.body, Abandonment)
            check_attestation(known, signed)
        except ProtocolError as error:
            log.error("the aggregator's abandonment does not verify", problem=error.code)
            return False
        if signed.signer != aggregator.name:
            return False
        await self._called_off(signed)
        return True

    async def _post(self, known: Round, what: str, signed: SignedAttestation) -> Reply:
        path = f"/v1/rounds/{known.id}/{what}"
        return await self._own.peers.to(self._aggregator(known)).ask("POST", path, signed.encode())

    def _aggregator(self, known: Round) -> ServiceParty:
        return at_present(self._own.book, known.consortium.manifest.aggregator)
