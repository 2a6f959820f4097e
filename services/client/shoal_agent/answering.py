"""Fetches rounds, offers them to the vault, has answers made and sees them delivered.

The trainer is asked for the next round of each job on each step, or by long polls, which run beside
the data holder's steps and wake it when answered.
"""

import asyncio
from collections.abc import Collection, Sequence
from typing import Final

from shoal_agent.delivery import Delivery
from shoal_agent.directory import Directory
from shoal_agent.reupload import Reupload
from shoal_agent.vault_link import VaultLink
from shoal_holder.messages import (
    Agenda,
    AskAgenda,
    Decided,
    Done,
    EndJob,
    OfferRound,
    OpenJob,
    OpenRound,
    Prepare,
    Prepared,
)
from shoal_holder.reporting import Report
from shoal_hosting.clock import Clock
from shoal_hosting.peers.exchange import ANSWER_SECONDS, Unavailable
from shoal_hosting.peers.peer import ACCEPTED, GONE, NOT_FOUND, OK, Answer
from shoal_protocol.jobs.membership import JobWithdrawn
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import decode
from shoal_protocol.wire.errors import ProtocolError, UnknownJob, UnknownManifest

LONG_POLL_SECONDS: Final = int(ANSWER_SECONDS * 3 / 4)  # an answer is waited for no longer


class NextRounds:
    """Keeps long polls open at the trainer, at most one for each job."""

    def __init__(self, directory: Directory, wake: asyncio.Event | None) -> None:
        """Set `wake` whenever a long poll is answered; None is without long polls."""
        self._directory = directory
        self._wake = wake
        self._polls: dict[OpenJob, asyncio.Task[Answer]] = {}

    async def answer(self, job: OpenJob) -> Answer | None:
        """Return the trainer's answer about a job's next round; None while it is waited for.

        Raises:
            Unavailable: it did not answer.
        """
        if self._wake is None:
            return await self._directory.ask_trainer(_path(job))
        poll = self._polls.get(job)
        if poll is None or not poll.done():
            return None
        del self._polls[job]
        return poll.result()

    async def follow(self, jobs: Collection[OpenJob]) -> None:
        """Keep a long poll open about the next round of each of these jobs, and about no others."""
        gone = [self._polls.pop(each) for each in self._polls.keys() - set(jobs)]
        for poll in gone:
            poll.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
        if self._wake is not None:
            for job in set(jobs) - self._polls.keys():
                self._polls[job] = asyncio.create_task(self._ask(_path(job), self._wake))

    async def _ask(self, path: str, wake: asyncio.Event) -> Answer:
        """Ask until there is news. A trainer that fails or does not wait is asked at the next tick.

        Raises:
            Unavailable: it did not answer.
        """
        loop = asyncio.get_running_loop()
        while True:
            asked_at = loop.time()
            answer = await self._directory.ask_trainer(path, wait=LONG_POLL_SECONDS)
            if answer.status != ACCEPTED:
                wake.set()
                return answer
            if loop.time() - asked_at < LONG_POLL_SECONDS / 2:
                return answer


def _path(job: OpenJob) -> str:
    return f"/v1/jobs/{job.job}/rounds/{job.next_number}"


class Answering:
    """Takes the rounds of the jobs that were joined from their specs to the Compute nodes."""

    def __init__(
        self,
        vault: VaultLink,
        directory: Directory,
        delivery: Delivery,
        reupload: Reupload,
        next_rounds: NextRounds,
        clock: Clock,
        report: Report,
    ) -> None:
        self._vault = vault
        self._directory = directory
        self._delivery = delivery
        self._reupload = reupload
        self._next_rounds = next_rounds
        self._clock = clock
        self._report = report
        self._unanswered: set[str] = set()  # new rounds, of which there is nothing to send yet

    async def fetch_rounds(self) -> Sequence[OpenRound]:
        """Ask the trainer for each job's next round; offer the round, or end a job that is over.

        Return the rounds that are open then.
        """
        agenda, is_current = await self._vault.ask(AskAgenda(), Agenda), True
        for job in agenda.jobs:
            try:
                answer = await self._next_rounds.answer(job)
                if answer is not None:
                    is_current = False
                    await self._take(job, answer)
            except Unavailable as error:
                self._report("no round", job=job.job, reason=str(error))
            except ProtocolError as error:
                # not the trainer's word, or not in our manifest: the next answer may be
                self._report("round not believed", job=job.job, reason=str(error))
        if not is_current:
            agenda = await self._vault.ask(AskAgenda(), Agenda)
        await self._next_rounds.follow(agenda.jobs)
        return agenda.rounds

    async def _take(self, job: OpenJob, answer: Answer) -> None:
        if answer.status == OK:
            spec = decode(answer.body, RoundSpec)
            await self._directory.follow_to(spec.body.manifest)
            await self._vault.ask(OfferRound(parts=(answer.body,)), Decided)
            self._unanswered.add(spec.digest)
        elif answer.status == GONE or (
            answer.status == NOT_FOUND and answer.code == UnknownJob.code
        ):
            await self._end(job.job, answer.code)
        elif answer.status != ACCEPTED:
            self._report("no round", job=job.job, reason=answer.code)

    async def _end(self, job: str, code: str) -> None:
        """Tell the vault that a job is over, with its analyst's withdrawal if that is why.

        Raises:
            Unavailable: the trainer did not show it.
        """
        parts = []
        if code == JobWithdrawn.code:
            shown = await self._directory.ask_trainer(f"/v1/jobs/{job}/withdrawal")
            parts = [shown.body] if shown.status == OK else []
        await self._vault.ask(EndJob(job=job, code=code, parts=tuple(parts)), Done)

    async def answer_rounds(self, rounds: Sequence[OpenRound]) -> None:
        """Have answers made and send what is due in each open round."""
        open_rounds = {each.round_id for each in rounds}
        self._unanswered &= open_rounds
        self._reupload.forget_others(open_rounds)
        for each in rounds:
            await self._go_on(each)

    async def _go_on(self, known: OpenRound) -> None:
        round_id = known.round_id
        try:
            nodes = self._directory.nodes(known.manifest)
        except UnknownManifest:  # the owner pinned a later version since
            self._report("round not in the manifest", round=round_id)
            return
        if (now := self._clock()) < known.deadline:
            await self._reupload.look(known, nodes, now)
        if not (known.unprepared and round_id in self._unanswered):
            await self._delivery.send_pending(round_id, nodes)
        if not known.unprepared:
            return
        try:
            prepared = await self._vault.ask(Prepare(round_id=round_id), Prepared)
        except ProtocolError as error:  # it has ended meanwhile
            self._report("round not answered", round=round_id, reason=str(error))
            return
        self._unanswered.discard(round_id)
        if prepared.made:  # sent, or failed, before others are worked on
            await self._delivery.send_pending(round_id, nodes)
