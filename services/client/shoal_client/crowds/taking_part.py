"""Finds crowd jobs, decides about each, contributes to it over its time, and checks how it ended.

It runs beside the rounds of other jobs, by connections of its own: whatever the trainer does with
crowd jobs, no round waits for it.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from shoal_client.admission import check_columns, check_crowd
from shoal_client.background import Background
from shoal_client.crowds import memory
from shoal_client.crowds.allowances import contributions_left
from shoal_client.crowds.audit import Kept, faults, too_long
from shoal_client.crowds.contributor import MOST_TOGETHER, ONE_AFTER_ANOTHER, Contributor
from shoal_client.crowds.crowd import Crowd
from shoal_client.crowds.memory import Evidence
from shoal_client.crowds.schedule import Schedule
from shoal_client.crowds.trainer import WRONG_RECEIPT, CrowdRefused, CrowdTrainer
from shoal_client.crowds.verdicts import in_words, is_cheating
from shoal_client.directory import Directory
from shoal_client.enrolment import follow_to
from shoal_client.outside_bounds import outside_bounds
from shoal_client.peer import Unavailable
from shoal_client.policy import NO_CROWDS
from shoal_client.reporting import Report
from shoal_client.site import Site
from shoal_client.state import State
from shoal_protocol.documents import decode
from shoal_protocol.draw_and_discard.documents import (
    CrowdClosing,
    CrowdJobRequest,
    CrowdOpening,
    Draw,
    SubmissionReceipt,
)
from shoal_protocol.draw_and_discard.draws import check_closing
from shoal_protocol.draw_and_discard.errors import CrowdClosed
from shoal_protocol.errors import MalformedDocument, ProtocolError, RefusedJob, UnknownManifest

BETWEEN_LOOKS: Final = timedelta(seconds=5)  # at the list of crowd jobs
BETWEEN_IDLE_LOOKS: Final = timedelta(seconds=60)  # if none is allowed: only to say so
BETWEEN_CLOSINGS: Final = timedelta(seconds=60)  # between two questions for one closing
CONTRIBUTED: Final = "contributed"
OVER: Final = "over"


class TakingPart:
    """What this data holder does about crowd jobs."""

    def __init__(
        self, site: Site, background: Background, directory: Directory, report: Report
    ) -> None:
        """Begin with nothing in work."""
        self._site = site
        self._background = background
        self._directory = directory
        self._report = report
        self._trainer = CrowdTrainer(lambda: directory.crowd_trainer)
        self._contributors: dict[str, tuple[Contributor, Schedule]] = {}
        self._looks_at: datetime | None = None
        self._closings_at: dict[str, datetime] = {}
        self.refused: dict[str, str] = {}
        """Why crowd jobs that the trainer lists are not contributed to; asked anew at a start."""

    async def step(self) -> None:
        """Do all that is due now. A trainer's failure raises nothing: it is tried again."""
        while await self._give_turns():
            pass

    async def _give_turns(self) -> bool:
        """Give every job that is contributed to its turn; tell whether anything came of it.

        Every other turn is the job's that closes first of those that are behind: jobs that are open
        longer may catch up later, and no job waits for another one's end.
        """
        await self._look_for_jobs()
        taken = [
            job
            for job in await self._background.disk(memory.open_crowds)
            if await self._is_taken(job)
        ]
        went_on = False
        for job in sorted(taken, key=self._closes_at):
            if job in self._contributors and await self._go_on(job):
                went_on = True
                if (urgent := self._most_urgent()) is not None:
                    await self._go_on(urgent)
        for job in await self._background.disk(memory.unverified):
            await self._look_at_closing(job)
        return went_on

    def _closes_at(self, job: str) -> datetime:
        contributor, _ = self._contributors[job]
        return contributor.crowd.request.closes_at

    def _most_urgent(self) -> str | None:
        now = self._site.clock()
        behind = [
            job
            for job, (_, schedule) in self._contributors.items()
            if (moment := schedule.next_moment) is not None and moment <= now
        ]
        return min(behind, key=self._closes_at, default=None)

    async def _look_for_jobs(self) -> None:
        now = self._site.clock()
        if self._looks_at is not None and now < self._looks_at:
            return
        allows = self._site.policy.maximum_local_epsilon is not None
        self._looks_at = now + (BETWEEN_LOOKS if allows else BETWEEN_IDLE_LOOKS)
        try:
            listed = await self._trainer.open_jobs()
            self.refused = {job: why for job, why in self.refused.items() if job in listed}
            for job in listed:
                if job not in self.refused and not await self._background.disk(
                    memory.is_known, job
                ):
                    await self._consider(job)
        except (Unavailable, MalformedDocument, CrowdRefused) as error:
            self._report("no list of crowd jobs", reason=str(error))

    async def _consider(self, job: str) -> None:
        site = self._site
        try:
            if site.policy.maximum_local_epsilon is None:
                raise RefusedJob(NO_CROWDS)  # whatever it asks
            request = await self._trainer.request(job)
            await follow_to(request.body.manifest, site, self._directory)
            opening = await self._trainer.opening(job)
            check_crowd(
                request,
                opening,
                job=job,
                bound_to=site.book.get(request.body.manifest),
                current=site.book.current,
                policy=site.policy,
                columns=site.records.columns,
                now=site.clock(),
            )
        except CrowdRefused:
            return  # it may be gone since it was listed
        except ProtocolError as error:
            self.refused[job] = str(error)
            self._report("crowd job refused", job=job, reason=str(error))
            return
        await self._background.disk(memory.add, job, request.encode(), opening.encode())
        self._report("crowd job taken", job=job)
        task = request.body.task
        if outside := outside_bounds(site.records, [*task.features, task.target]):
            self._report("values outside bounds", job=job, columns=outside)

    async def _is_taken(self, job: str) -> bool:
        """Tell whether a job on file is contributed to; end it if it is no more."""
        try:
            await self._take_up(job)
        except UnknownManifest:  # the owner pinned a later version since
            self._report("crowd job not in the manifest", job=job)
        except ProtocolError as error:
            await self._end(job, f"refused: {error}")
        return job in self._contributors

    async def _go_on(self, job: str) -> bool:
        """Contribute to one job as far as it is due and its turn; tell if anything was."""
        try:
            return await self._contribute(*self._contributors[job])
        except Unavailable as error:
            self._report("crowd trainer not there", job=job, reason=str(error))
        except UnknownManifest:
            self._report("crowd job not in the manifest", job=job)
        except CrowdRefused as refusal:
            await self._end(job, refusal.code)
        except MalformedDocument as error:  # signed by nobody: whatever is in between may say so
            self._report("crowd trainer not understood", job=job, reason=str(error))
        except ProtocolError as error:
            # signed by the trainer, but no draw of this job: of such a one there is no other
            await self._end(job, f"refused: {error}")
        return False

    async def _take_up(self, job: str) -> None:
        """See that a job on file has a contributor and a schedule."""
        if job not in self._contributors:
            crowd = await self._crowd(job)
            # the owner may have changed the policy, or the records, since
            if reason := self._site.policy.crowd_refusal(crowd.request):
                raise RefusedJob(reason)
            check_columns(crowd.request.task.column_names, self._site.records.columns)
            contributor = Contributor(
                self._site, self._background, self._trainer, crowd, self._report
            )
            schedule = await self._background.disk(self._planned, contributor)
            self._contributors[job] = (contributor, schedule)

    async def _crowd(self, job: str) -> Crowd:
        stored = await self._background.disk(memory.documents, job)
        request = decode(stored.request, CrowdJobRequest).body
        opening = decode(stored.opening, CrowdOpening).body
        return Crowd(request, opening, self._site.book.get(request.manifest))

    def _planned(self, state: State, contributor: Contributor) -> Schedule:
        site = self._site
        return Schedule(
            contributions_left(state, site, contributor),
            now=site.clock(),
            end=contributor.crowd.request.closes_at,
            random_bytes=site.random_bytes,
        )

    async def _contribute(self, contributor: Contributor, schedule: Schedule) -> bool:
        """Contribute for those whose moment has come, one portion after another."""
        job, clock = contributor.crowd.job, self._site.clock
        closes_at = contributor.crowd.request.closes_at
        is_answered, clients = await contributor.send(), list[int]()
        if is_answered and clock() < closes_at:
            most = min(MOST_TOGETHER, ONE_AFTER_ANOTHER * contributor.portion)
            clients = schedule.due(clock(), most=most)
        ready = await contributor.prepare(clients)
        try:
            while ready and is_answered and not contributor.is_closed and clock() < closes_at:
                await contributor.contribute(ready[: contributor.portion])
                del ready[: contributor.portion]
                is_answered = await contributor.send()
        finally:  # nothing was charged for the rest
            schedule.again([each.chosen.client for each in ready], clock())
        if contributor.is_closed:
            await self._end(job, CrowdClosed.code)
        elif clock() >= closes_at:
            await self._end(job, OVER)
        elif is_answered and schedule.next_moment is None:
            await self._end(job, CONTRIBUTED)
        return bool(clients)

    async def _end(self, job: str, reason: str) -> None:
        await self._background.disk(memory.end, job, reason)
        self._report("crowd job ended", job=job, reason=reason)
        contributor, _ = self._contributors.pop(job, (None, None))
        if contributor is not None and reason != CONTRIBUTED:
            left = await self._background.disk(contributions_left, self._site, contributor)
            if missing := sum(left.values()):
                self._report("contributions not made", job=job, contributions=missing)

    async def _look_at_closing(self, job: str) -> None:
        """Compare what was kept of a job with its closing, once there is one."""
        now = self._site.clock()
        if job not in self._closings_at:  # not all data holders at once
            later = int.from_bytes(self._site.random_bytes(4), "little") / 2.0**32
            self._closings_at[job] = now + later * BETWEEN_CLOSINGS
        if now < self._closings_at[job]:
            return
        self._closings_at[job] = now + BETWEEN_CLOSINGS
        try:
            crowd = await self._crowd(job)
            if (left := crowd.request.closes_at - now) > timedelta(0):  # or it is full before
                self._closings_at[job] = now + max(BETWEEN_CLOSINGS, left / 10)
            closing = await self._trainer.closing(crowd)
            if closing is None:
                return
            stored = await self._background.disk(memory.evidence, job)
            found = await self._faults(crowd, closing.body, stored)
        except (Unavailable, CrowdRefused, ProtocolError) as error:
            self._report("no closing", job=job, reason=str(error))
            return
        unread = too_long(closing.body, [_kept(each) for each in stored])
        verdict = in_words(found, unread=bool(unread))
        kept = {*found, *unread}
        await self._background.disk(
            memory.conclude, job, closing=closing.encode(), verdict=verdict, kept=kept
        )
        del self._closings_at[job]
        event = "trainer cheated" if is_cheating(verdict) else "closing checked"
        self._report(event, job=job, verdict=verdict)

    async def _faults(
        self, crowd: Crowd, closing: CrowdClosing, stored: Sequence[Evidence]
    ) -> dict[str, list[str]]:
        try:
            check_closing(closing, crowd.opening, crowd.request)
        except MalformedDocument as error:
            return {each.contribution: [str(error)] for each in stored}
        found = await faults(self._trainer, crowd, closing, [_kept(each) for each in stored])
        for each in stored:
            if each.outcome == WRONG_RECEIPT:
                said = "the receipt is not the submission's"
                found.setdefault(each.contribution, []).append(said)
        return found


def _kept(stored: Evidence) -> Kept:
    receipt = None if stored.receipt is None else decode(stored.receipt, SubmissionReceipt)
    return Kept(stored.contribution, decode(stored.draw, Draw), receipt)
