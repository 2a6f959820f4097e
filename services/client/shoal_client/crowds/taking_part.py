"""Finds crowd jobs, decides about each, contributes to it over its time, and checks how it ended.

It runs beside the rounds of other jobs, by connections of its own: whatever the trainer does with
crowd jobs, no round waits for it.
"""

from datetime import datetime, timedelta
from typing import Final

from shoal_client.admission import check_columns, check_crowd
from shoal_client.background import Background
from shoal_client.crowds import memory
from shoal_client.crowds.allowances import contributions_left
from shoal_client.crowds.closings import Closings, crowd_on_file
from shoal_client.crowds.contributor import MOST_TOGETHER, ONE_AFTER_ANOTHER, Contributor
from shoal_client.crowds.schedule import Schedule
from shoal_client.crowds.trainer import CrowdRefused, CrowdTrainer
from shoal_client.directory import Directory
from shoal_client.enrolment import follow_to
from shoal_client.policy import NO_CROWDS
from shoal_client.reporting import Report
from shoal_client.site import Site
from shoal_client.state import State
from shoal_hosting.exchange import Unavailable
from shoal_protocol.draw_and_discard.errors import CrowdClosed
from shoal_protocol.errors import MalformedDocument, ProtocolError, RefusedJob, UnknownManifest

BETWEEN_LOOKS: Final = timedelta(seconds=5)  # at the list of crowd jobs
BETWEEN_IDLE_LOOKS: Final = timedelta(seconds=60)  # if none is allowed: only to say so
CONTRIBUTED: Final = "contributed"
OVER: Final = "over"
NO_ALLOWANCE: Final = (
    "no allowance left: of those enrolled when it opened, no client has enough epsilon left "
    "under your policy (maximum_local_epsilon, maximum_epsilon)"
)
LAST_ANSWERS: Final = timedelta(seconds=60)
"""How long after a job's time the trainer is still asked what became of what was sent."""


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
        self._closings = Closings(site, background, self._trainer, report)
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
        await self._closings.look()
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
            for job in self._contributors.keys() - set(listed):
                await self._end_if_closed(job)
        except (Unavailable, MalformedDocument, CrowdRefused) as error:
            self._report("no list of crowd jobs", reason=str(error))

    async def _end_if_closed(self, job: str) -> None:
        """Stop at once where a job was closed early; the list alone, signed by nobody, ends none.

        Raises:
            Unavailable, CrowdRefused, MalformedDocument
        """
        contributor, _ = self._contributors[job]
        try:
            closing = await self._trainer.closing(contributor.crowd)
        except ProtocolError as error:
            self._report("no closing", job=job, reason=str(error))
            return
        if closing is not None:
            await self._closings.keep(contributor.crowd, closing)  # it may be shown only once
            await self._ask_once_more(contributor)
            await self._end(job, CrowdClosed.code)
            await self._closings.look_at_once(contributor.crowd)

    async def _ask_once_more(self, contributor: Contributor) -> None:
        """Learn what became of answers that the trainer may have taken before the job was closed.

        It is asked once: it could keep a job here from its end by never saying so.
        """
        try:
            await contributor.send()
        except (Unavailable, MalformedDocument) as error:
            self._report("crowd trainer not there", job=contributor.crowd.job, reason=str(error))

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
        if job in self._contributors and self._closes_at(job) + LAST_ANSWERS <= self._site.clock():
            await self._end(job, OVER)  # or who never answers would never be judged
        return False

    async def _take_up(self, job: str) -> None:
        """See that a job on file has a contributor and a schedule."""
        if job not in self._contributors:
            crowd = await crowd_on_file(self._site, self._background, job)
            # the owner may have changed the policy, or the records, since
            if reason := self._site.policy.crowd_refusal(crowd.request):
                raise RefusedJob(reason)
            check_columns(crowd.request.task.column_names, self._site.records.columns)
            contributor = Contributor(
                self._site, self._background, self._trainer, crowd, self._report
            )
            schedule = await self._background.disk(self._planned, contributor)
            self._contributors[job] = (contributor, schedule)

    def _planned(self, state: State, contributor: Contributor) -> Schedule:
        site = self._site
        return Schedule(
            contributions_left(state, contributor),
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
                del ready[: await contributor.contribute(ready[: contributor.portion])]
                is_answered = await contributor.send()
        finally:  # nothing was charged for the rest
            schedule.again([each.chosen.client for each in ready], clock())
        if contributor.is_closed:
            await self._end(job, CrowdClosed.code)
        elif clock() >= closes_at:
            await self._end(job, OVER)
        elif is_answered and schedule.next_moment is None:
            made = await self._background.disk(memory.has_contributed, job)
            await self._end(job, CONTRIBUTED if made else NO_ALLOWANCE)
        return bool(clients)

    async def _end(self, job: str, reason: str) -> None:
        await self._background.disk(memory.end, job, reason)
        self._report("crowd job ended", job=job, reason=reason)
        contributor, _ = self._contributors.pop(job, (None, None))
        if contributor is not None and reason != CONTRIBUTED:
            left = await self._background.disk(contributions_left, contributor)
            if missing := sum(left.values()):
                self._report("contributions not made", job=job, contributions=missing)
