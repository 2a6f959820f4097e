"""Finds crowd jobs, and carries messages between trainer and vault.

It runs beside the rounds of other jobs, over its own connections, so no round waits for it.
"""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from shoal_agent.crowds.trainer import CrowdRefused, CrowdTrainer
from shoal_agent.directory import Part
from shoal_holder.crowds.closings import Closings
from shoal_holder.crowds.status import NO_CROWDS
from shoal_holder.crowds.vault import CrowdVault, OpenCrowd
from shoal_kit.outcome import OVER
from shoal_kit.peers.exchange import Unavailable
from shoal_protocol.crowds.draws import CrowdClosed, RefusedDraw, Submission
from shoal_protocol.wire.documents import decode
from shoal_protocol.wire.errors import BadSignature, MalformedDocument, ProtocolError, UnknownJob

BETWEEN_LOOKS: Final = timedelta(seconds=5)  # at the list of crowd jobs
BETWEEN_CLOSINGS: Final = timedelta(seconds=60)  # between two questions for one closing
LAST_ANSWERS: Final = timedelta(seconds=60)
"""How long after a job's time the trainer is still asked about submissions."""


@dataclass(eq=False)
class TakingPart(Part):
    """Carries this data holder's part in all crowd jobs.

    One step of this work runs at a time, and may outlast a data holder's step. There is work where
    the owner's policy allows crowd jobs, or allowed them once: the closing of such a job is still
    to be checked.
    """

    refused: dict[str, str] = field(default_factory=dict)
    """Why crowd jobs that the trainer lists are not contributed to; asked anew at a start."""
    _looks_at: datetime | None = None
    _closings_at: dict[str, datetime] = field(default_factory=dict)
    _closes_at: dict[str, datetime] = field(default_factory=dict)
    _task: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self._trainer = CrowdTrainer(lambda: self._directory.trainer_apart("crowds"))
        if not self._vault.opened.takes_crowds:
            self._report("no crowd jobs", reason=NO_CROWDS)

    def begin(self) -> None:
        """Start a step unless one is running; raise what the step before raised."""
        self._settle()
        if self._task is None and self._vault.opened.takes_crowds:
            self._task = asyncio.create_task(self.step())

    async def wait(self, patience_seconds: float) -> None:
        """Wait for the step, though not for long; raise what it raised."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=patience_seconds)
            self._settle()

    async def end(self) -> None:
        """Cancel the running step."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def _settle(self) -> None:
        if self._task is not None and self._task.done():
            done, self._task = self._task, None
            done.result()

    async def step(self) -> None:
        """Do all that is due now. A trainer's failure is not raised, but retried later."""
        while await self._give_turns():
            pass

    async def _give_turns(self) -> bool:
        """Give each open job its turn; tell whether any turn did something.

        Every other turn goes to the job that closes first among those that are behind: jobs that
        stay open longer may catch up later, and no job waits for another one's end.
        """
        await self._look_for_jobs()
        went_on = False
        for job in sorted(await self._open_jobs(), key=lambda each: each.closes_at):
            if await self._go_on(job):
                went_on, now = True, self._clock()
                behind = [
                    each
                    for each in await self._open_jobs()
                    if each.next_moment is not None and each.next_moment <= now
                ]
                if behind:
                    await self._go_on(min(behind, key=lambda each: each.closes_at))
        for unvalidated in (await self._vault.ask(CrowdVault.agenda)).unvalidated:
            await self._look_at_closing(unvalidated)
        return went_on

    async def _open_jobs(self) -> tuple[OpenCrowd, ...]:
        agenda = await self._vault.ask(CrowdVault.agenda)
        self._closes_at |= {each.job: each.closes_at for each in agenda.jobs}
        return agenda.jobs

    async def _look_for_jobs(self) -> None:
        now = self._clock()
        if self._looks_at is not None and now < self._looks_at:
            return
        self._looks_at = now + BETWEEN_LOOKS
        try:
            if not (query := await self._vault.ask(CrowdVault.query)):
                return
            listed = await self._trainer.open_jobs(query[0])
            self.refused = {job: why for job, why in self.refused.items() if job in listed}
            agenda = await self._vault.ask(CrowdVault.agenda)
            for job in listed:
                if job not in self.refused and job not in agenda.known:
                    await self._offer(job)
            for each in agenda.jobs:
                if each.job not in listed:
                    await self._end_if_closed(each.job)
        except (Unavailable, MalformedDocument, CrowdRefused) as error:
            if isinstance(error, CrowdRefused):
                trainer = self._directory.trainer_apart("crowds")
                self._directory.note_refusal(trainer, error.code)
            self._report("no list of crowd jobs", reason=str(error))

    async def _offer(self, job: str) -> None:
        try:
            request = await self._trainer.request(job)
            await self._directory.follow_to(request.body.manifest)
            opening = await self._trainer.opening(job)
            parts = (request.encode(), opening.encode())
            reason = (await self._vault.ask(CrowdVault.offer, job=job, parts=parts)).reason
        except CrowdRefused:
            return  # it may be gone since it was listed
        except ProtocolError as error:
            reason = str(error)
        if reason is not None:
            self.refused[job] = reason
            self._report("crowd job refused", job=job, reason=reason)

    async def _end_if_closed(self, job: str) -> None:
        """Stop at once if a job was closed early, by its signed closing, not by the unsigned list.

        Raises:
            Unavailable, CrowdRefused, MalformedDocument
        """
        try:
            if not await self._has_shown_closing(job):
                return
        except ProtocolError as error:
            self._report("no closing", job=job, reason=str(error))
            return
        try:  # once: by never answering the trainer could keep a job here from its end
            await self._send(job)
        except (Unavailable, MalformedDocument) as error:
            self._report("crowd trainer not there", job=job, reason=str(error))
        await self._end(job, CrowdClosed.code)

    async def _has_shown_closing(self, job: str) -> bool:
        """Hand the vault a job's closing; tell whether there is one. It may be shown only once.

        Raises:
            Unavailable, CrowdRefused, ProtocolError
        """
        closing = await self._trainer.closing_document(job)
        if closing is not None:
            await self._vault.ask(Closings.show, job=job, parts=(closing,))
        return closing is not None

    async def _go_on(self, job: OpenCrowd) -> bool:
        """Contribute to one job as far as is due in its turn; tell whether anything was due."""
        try:
            await self._directory.follow_to(job.manifest)
            if await self._contribute(job):
                return True
        except Unavailable as error:
            self._report("crowd trainer not there", job=job.job, reason=str(error))
        except CrowdRefused as refusal:
            await self._end(job.job, refusal.code)
        except UnknownJob:
            pass  # it has ended here meanwhile
        except RefusedDraw:
            return False  # upon which the vault has ended it
        except ProtocolError as error:  # unsigned: anyone in between may have sent it
            self._report("crowd trainer not understood", job=job.job, reason=str(error))
        if job.closes_at + LAST_ANSWERS <= self._clock():
            await self._end(job.job, OVER)  # or who never answers would never be judged
        return False

    async def _contribute(self, open_job: OpenCrowd) -> bool:
        """Carry one portion after another, for those whose moment has come."""
        job = open_job.job
        is_answered = await self._send(job)
        if not is_answered or self._clock() >= open_job.closes_at:
            return False
        turn = await self._vault.ask(CrowdVault.turn, job=job)
        nonces = list(turn.nonces)
        while nonces and self._clock() < open_job.closes_at:
            draws = await self._trainer.draw_documents(job, nonces[: turn.portion])
            made = await self._vault.ask(CrowdVault.contribute, job=job, parts=tuple(draws))
            del nonces[:made]
            if not made or not await self._send(job):
                break
        return bool(turn.nonces)

    async def _send(self, job: str) -> bool:
        """Send unanswered submissions; tell whether all are answered now.

        Raises:
            Unavailable: the trainer did not answer.
            MalformedDocument: its answer lacks the outcome of a submission.
        """
        pending = await self._vault.ask(CrowdVault.pending, job=job)
        if not pending:
            return True
        found = await self._trainer.submit_documents(job, pending)
        outcomes: dict[str, tuple[str, bytes]] = {}
        for document, told in zip(pending, found, strict=True):
            if told is not None and told[0] == BadSignature.code:
                self._directory.note_other_key(self._directory.trainer_apart("crowds"))
            elif told is not None:
                outcomes[decode(document, Submission).digest] = told
        said = {submission: outcome for submission, (outcome, _) in outcomes.items()}
        receipts = tuple(receipt for _, receipt in outcomes.values())
        await self._vault.ask(CrowdVault.settle, job=job, outcomes=said, parts=receipts)
        return len(said) == len(pending) and CrowdClosed.code not in said.values()

    async def _end(self, job: str, reason: str) -> None:
        await self._vault.ask(CrowdVault.end, job=job, reason=reason)

    async def _look_at_closing(self, job: str) -> None:
        """Have a job's kept evidence compared with its closing, once there is one."""
        now = self._clock()
        if job not in self._closings_at:  # not all data holders at once
            later = int.from_bytes(self._random_bytes(4), "little") / 2.0**32
            self._closings_at[job] = now + later * BETWEEN_CLOSINGS
        if now < self._closings_at[job]:
            return
        self._closings_at[job] = now + BETWEEN_CLOSINGS
        try:
            if await self._is_validated(job, now):
                del self._closings_at[job]
        except (Unavailable, CrowdRefused, ProtocolError) as error:
            self._report("no closing", job=job, reason=str(error))

    async def _is_validated(self, job: str, now: datetime) -> bool:
        try:
            wanted = await self._vault.ask(Closings.judge, job=job)
        except UnknownJob:  # no closing was shown so far
            left = self._closes_at.get(job, now) - now
            if left > timedelta(0):  # or it is full before
                self._closings_at[job] = now + max(BETWEEN_CLOSINGS, left / 10)
            if not await self._has_shown_closing(job):
                return False
            wanted = await self._vault.ask(Closings.judge, job=job)
        while wanted.instance is not None:
            page = await self._trainer.log(job, wanted.instance, after=wanted.after)
            wanted = await self._vault.ask(Closings.show_log, job=job, parts=(page,))
        return True
