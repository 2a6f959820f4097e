"""Finds jobs, offers each to the vault and sends the data holder's signed word on them."""

import re
from typing import Any, Final, Literal

from shoal_agent.charge_comparison import ChargesCheck
from shoal_agent.directory import Directory
from shoal_agent.vault_link import VaultLink
from shoal_holder.messages import (
    Agenda,
    AskAgenda,
    Bytes,
    Decided,
    Done,
    OfferJob,
    Pending,
    Receipt,
)
from shoal_holder.reporting import Report
from shoal_hosting.peers.exchange import Unavailable
from shoal_hosting.peers.peer import OK, Answer, Peer
from shoal_protocol.jobs.approvals import State
from shoal_protocol.jobs.job_request import JobRequest
from shoal_protocol.wire.documents import decode
from shoal_protocol.wire.errors import (
    BadSignature,
    MalformedDocument,
    NotReady,
    ProtocolError,
)

MOST_ENDED: Final = 100
"""How many refused jobs that the trainer lists no more are shown, with the reason."""
_JOB: Final = re.compile(r"[0-9a-f]{64}")


class Joining:
    """Offers each job that the trainer lists to the vault once, and delivers joins and leaves."""

    def __init__(
        self,
        vault: VaultLink,
        directory: Directory,
        charges: ChargesCheck,
        report: Report,
    ) -> None:
        self._vault = vault
        self._charges = charges
        self._directory = directory
        self._report = report
        self._taken: set[str] = set()
        self.unheard: str | None = None
        """Why the trainer did not list jobs when it was asked last; None: it did."""
        self.waiting: set[str] = set()
        """Jobs that wait for the owners' approval, as the vault last said."""
        self.refused: dict[str, str] = {}
        """Why jobs are not joined: all that the trainer lists, the newest of others; in memory."""
        self.requests: dict[str, bytes] = {}
        """The requests of jobs that it lists, or that are among `refused`, as they were signed."""

    async def step(self) -> None:
        """Look for jobs once; send all unanswered joins, leaves and notices."""
        agenda = await self._vault.ask(AskAgenda(), Agenda)
        self.waiting = set(agenda.waiting)  # what was decided since is offered once more
        if await self._look_for_jobs():
            agenda = await self._vault.ask(AskAgenda(), Agenda)
        await self._send_all(agenda)

    async def _look_for_jobs(self) -> bool:
        """Offer each job that is joining and was not offered yet; tell whether there were any."""
        trainer, has_offered = self._directory.trainer, False
        try:
            if (query := await self._directory.query()) is None:
                return False
            answer = await trainer.post("/v1/jobs/joining", query, "application/json")
            if answer.is_refusal:
                self._directory.note_refused_query(trainer, answer.code)
                self._note_unheard(answer.reason)
                return False
            listed = _listed_jobs(answer)
            self.unheard = None
            ended = [job for job in self.refused if job not in listed]
            for job in ended[:-MOST_ENDED]:
                del self.refused[job]
            kept = self.refused.keys() | listed
            self.requests = {job: each for job, each in self.requests.items() if job in kept}
            for job in listed:
                if job not in self._taken | self.waiting | self.refused.keys():
                    has_offered = True
                    await self._offer(trainer, job)
        except (Unavailable, MalformedDocument) as error:
            self._note_unheard(str(error))
        return has_offered

    def _note_unheard(self, reason: str) -> None:
        self.unheard = reason
        self._report("no list of jobs", reason=reason)

    async def _offer(self, trainer: Peer, job: str) -> None:
        answer = await trainer.get(f"/v1/jobs/{job}/request")
        if answer.status != OK:
            return  # it may be gone since it was listed
        try:
            request = decode(answer.body, JobRequest)
            await self._directory.follow_to(request.body.manifest)
            if request.digest == job:
                self.requests[job] = answer.body
            await self._charges.before_joining()
            decided = await self._vault.ask(OfferJob(job=job, parts=(answer.body,)), Decided)
            reason = decided.reason
            if not decided.taken and reason is None:
                self.waiting.add(job)
                self._report("job waits for its owners' approval", job=job)
                return
        except NotReady as error:  # until enough nodes have said what they charged
            self._report("job not judged yet", job=job, reason=str(error))
            return
        except ProtocolError as error:
            reason = str(error)
        if reason is None:
            self._taken.add(job)
        else:
            self.refused[job] = reason
            self._report("job refused", job=job, reason=reason)

    async def _send_all(self, agenda: Agenda) -> None:
        self._taken |= {each.job for each in agenda.jobs}
        self.waiting = set(agenda.waiting)
        for job, state in agenda.notices.items():
            await self._send(state, job, "approvals")
        for job in agenda.leaves:
            await self._send("leave", job, "leaves")
        for job in agenda.joins:
            await self._send("join", job, "joins")

    async def _send(self, what: Literal["join", "leave"] | State, job: str, path: str) -> None:
        pending = await self._vault.ask(Pending(what=what, about=job), Bytes)
        if not pending.parts:
            return
        try:
            answer = await self._directory.trainer.post(
                f"/v1/jobs/{job}/{path}", pending.parts[0], "application/json"
            )
        except Unavailable as error:
            self._report(f"{what} not sent", job=job, reason=str(error))
            return
        if answer.code == BadSignature.code:
            self._directory.note_other_key(self._directory.trainer)
            self._report(f"{what} not sent", job=job, reason=answer.code)
            return
        await self._vault.ask(Receipt(what=what, about=job, outcome=answer.outcome), Done)
        self._report(f"{what} settled", job=job, outcome=answer.outcome)


def _listed_jobs(answer: Answer) -> list[str]:
    body: Any = answer.json()
    try:
        jobs = [each["job"] for each in body["jobs"]]
    except (KeyError, TypeError):
        raise MalformedDocument("the list of jobs is not one") from None
    if not all(isinstance(job, str) and _JOB.fullmatch(job) for job in jobs):
        raise MalformedDocument("a job is named by a digest")
    return jobs
