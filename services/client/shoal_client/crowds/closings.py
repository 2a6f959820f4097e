"""Compares what was kept of a crowd job with the trainer's closing; it contributes nothing."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from shoal_client.background import Background
from shoal_client.crowds import memory
from shoal_client.crowds.audit import Kept, faults, too_long
from shoal_client.crowds.crowd import Crowd
from shoal_client.crowds.memory import Evidence
from shoal_client.crowds.trainer import WRONG_RECEIPT, CrowdRefused, CrowdTrainer
from shoal_client.crowds.verdicts import in_words, is_cheating
from shoal_client.reporting import Report
from shoal_client.site import Site
from shoal_hosting.exchange import Unavailable
from shoal_protocol.documents import Signed, decode
from shoal_protocol.draw_and_discard.documents import (
    CrowdClosing,
    CrowdJobRequest,
    CrowdOpening,
    Draw,
    SubmissionReceipt,
)
from shoal_protocol.draw_and_discard.draws import check_closing
from shoal_protocol.errors import MalformedDocument, ProtocolError

BETWEEN_CLOSINGS: Final = timedelta(seconds=60)  # between two questions for one closing


class Closings:
    """The jobs that ended here and whose closing is still to be compared with what was kept."""

    def __init__(
        self, site: Site, background: Background, trainer: CrowdTrainer, report: Report
    ) -> None:
        """Have asked for none yet."""
        self._site = site
        self._background = background
        self._trainer = trainer
        self._report = report
        self._closings_at: dict[str, datetime] = {}

    async def look(self) -> None:
        """Ask for the closings that are due to be asked for, and judge those that there are."""
        for job in await self._background.disk(memory.unverified):
            await self._look_at(job)

    async def _look_at(self, job: str) -> None:
        """Compare what was kept of a job with its closing, once there is one."""
        now = self._site.clock()
        if job not in self._closings_at:  # not all data holders at once
            later = int.from_bytes(self._site.random_bytes(4), "little") / 2.0**32
            self._closings_at[job] = now + later * BETWEEN_CLOSINGS
        if now < self._closings_at[job]:
            return
        self._closings_at[job] = now + BETWEEN_CLOSINGS
        try:
            crowd = await crowd_on_file(self._site, self._background, job)
            closing = await self._shown(crowd, now)
            if closing is None:
                return
            stored = await self._background.disk(memory.evidence, job)
            found = await self._faults(crowd, closing.body, stored)
        except (Unavailable, CrowdRefused, ProtocolError) as error:
            self._report("no closing", job=job, reason=str(error))
            return
        unread = too_long(closing.body, [_kept(each) for each in stored])
        await self._conclude(job, closing, found, unread)
        del self._closings_at[job]

    async def _shown(self, crowd: Crowd, now: datetime) -> Signed[CrowdClosing] | None:
        """Return the closing that was shown first; ask for it if there was none."""
        kept = await self._background.disk(memory.shown_closing, crowd.job)
        if kept is not None:
            return decode(kept, CrowdClosing)
        if (left := crowd.request.closes_at - now) > timedelta(0):  # or it is full before
            self._closings_at[crowd.job] = now + max(BETWEEN_CLOSINGS, left / 10)
        closing = await self._trainer.closing(crowd)
        if closing is not None:
            await self.keep(crowd, closing)
        return closing

    async def keep(self, crowd: Crowd, closing: Signed[CrowdClosing]) -> None:
        """Keep a closing that was shown: it will be judged, whatever is shown later."""
        await self._background.disk(memory.keep_closing, crowd.job, closing.encode())

    async def look_at_once(self, crowd: Crowd) -> None:
        """Convict the trainer of a closing, kept of a job that ended, that is wrong by itself.

        What needs logs is looked at later: not by all data holders at once.
        """
        kept = await self._background.disk(memory.shown_closing, crowd.job)
        if kept is None:
            return
        closing = decode(kept, CrowdClosing)
        stored = await self._background.disk(memory.evidence, crowd.job)
        if found := self._wrong_by_itself(crowd, closing.body, stored):
            await self._conclude(crowd.job, closing, found, unread=())

    async def _conclude(
        self,
        job: str,
        closing: Signed[CrowdClosing],
        found: Mapping[str, Sequence[str]],
        unread: Iterable[str],
    ) -> None:
        unread = set(unread)
        early = closing.body.closing_request is not None
        verdict = in_words(found, unread=bool(unread), early=early)
        await self._background.disk(
            memory.conclude,
            job,
            closing=closing.encode(),
            verdict=verdict,
            kept={*found, *unread},
        )
        event = "trainer cheated" if is_cheating(verdict) else "closing checked"
        self._report(event, job=job, verdict=verdict)

    def _wrong_by_itself(
        self, crowd: Crowd, closing: CrowdClosing, stored: Sequence[Evidence]
    ) -> dict[str, list[str]]:
        try:
            now = self._site.clock()
            check_closing(closing, crowd.opening, crowd.request, crowd.consortium, now=now)
        except MalformedDocument as error:
            return {each.contribution: [str(error)] for each in stored}
        return {}

    async def _faults(
        self, crowd: Crowd, closing: CrowdClosing, stored: Sequence[Evidence]
    ) -> dict[str, list[str]]:
        if wrong := self._wrong_by_itself(crowd, closing, stored):
            return wrong
        found = await faults(self._trainer, crowd, closing, [_kept(each) for each in stored])
        for each in stored:
            if each.outcome == WRONG_RECEIPT:
                said = "the receipt is not the submission's"
                found.setdefault(each.contribution, []).append(said)
        return found


async def crowd_on_file(site: Site, background: Background, job: str) -> Crowd:
    """Return a crowd job that was taken here, as it was checked then.

    Raises:
        UnknownManifest: the manifest that it is bound to is not at hand.
    """
    stored = await background.disk(memory.documents, job)
    request = decode(stored.request, CrowdJobRequest).body
    opening = decode(stored.opening, CrowdOpening).body
    return Crowd(request, opening, site.book.get(request.manifest))


def _kept(stored: Evidence) -> Kept:
    receipt = None if stored.receipt is None else decode(stored.receipt, SubmissionReceipt)
    return Kept(stored.contribution, decode(stored.draw, Draw), receipt)
