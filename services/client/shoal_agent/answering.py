"""Fetches rounds, offers them to the vault, has answers made and sees them delivered."""

from collections.abc import Sequence

from shoal_agent.delivery import Delivery
from shoal_agent.directory import Directory
from shoal_agent.next_rounds import NextRounds
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
from shoal_hosting.peers.exchange import Unavailable
from shoal_hosting.peers.peer import ACCEPTED, GONE, NOT_FOUND, OK, Answer
from shoal_protocol.jobs.membership import JobWithdrawn
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import decode
from shoal_protocol.wire.errors import ProtocolError, UnknownJob, UnknownManifest


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
