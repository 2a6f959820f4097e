"""Finds jobs, offers each to the vault and sends the data holder's signed word on them.

It also asks Compute nodes what they charged the slots here; the vault compares it with its ledger.
"""

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from shoal_agent.crowds.trainer import listed_jobs
from shoal_agent.directory import Part
from shoal_holder.charge_comparison import BETWEEN_COMPARISONS, ChargeComparison
from shoal_holder.jobs import Jobs
from shoal_holder.messages import Agenda, What
from shoal_holder.vault import Vault
from shoal_kit.marks import MemoryLost
from shoal_kit.peers.exchange import JSON, Unavailable
from shoal_kit.peers.peer import OK, NotThere, Peer
from shoal_protocol.jobs.job_request import JobRequest
from shoal_protocol.wire.documents import decode
from shoal_protocol.wire.errors import (
    BadSignature,
    MalformedDocument,
    NotReady,
    ProtocolError,
    RevokedHolder,
    UnknownManifest,
)

WAITING: Final = "nothing is joined or answered until a node says what it charged the slots here"
AFTER_NONSENSE: Final = timedelta(seconds=30)  # until a node is asked again that did not say it
PATIENCE_SECONDS: Final = 3.0  # with the other nodes, once one has answered


@dataclass(eq=False)
class ChargesCheck(Part):
    """Asks every Compute node after each start, and again before a job is joined.

    One node's answer is enough to go on; the others are heard as soon as they answer. How many are
    enough to spend anything is the vault's to say.
    """

    unheard: dict[str, str] = field(default_factory=dict)
    """Why nodes did not say what they charged when they were asked last, by node."""
    _compared_at: datetime | None = None
    _behind: dict[str, int] = field(default_factory=dict)  # by node: versions of the manifest
    _has_told: bool = False  # that it waits for a node
    _not_before: dict[str, datetime] = field(default_factory=dict)  # by node
    _asking: dict[str, asyncio.Task[bool]] = field(default_factory=dict)  # by node

    async def begin(self) -> bool:
        """Tell whether to go on: the ledger was compared with a node's since the start.

        Raises:
            MemoryLost: it lacks what a node charged; the message says what to do.
        """
        opened = await self._vault.ask(Vault.opened)
        if self._compared_at is None:
            if not await self._compare(opened.charging_nodes) and not self._has_told:
                self._has_told = True
                self._report(WAITING, reason=self.why)
        else:
            if asked := self._ask(opened.waiting_for):
                await asyncio.wait(asked, timeout=PATIENCE_SECONDS)
            await self._settle()
        return self._compared_at is not None

    async def before_joining(self) -> None:
        """Return if the ledger holds all charges that nodes made by now.

        Raises:
            MemoryLost: it does.
            Unavailable: no node answers.
        """
        now, at = self._clock(), self._compared_at
        if at is not None and timedelta(0) <= now - at < BETWEEN_COMPARISONS:
            return
        if not await self._compare((await self._vault.ask(Vault.opened)).charging_nodes):
            raise Unavailable(f"no Compute node says what it charged the slots here: {self.why}")

    @property
    def why(self) -> str:
        """Return why nodes did not say what they charged."""
        return "; ".join(f"{node}: {why}" for node, why in sorted(self.unheard.items()))

    async def end(self) -> None:
        """Cancel open requests."""
        for asking in self._asking.values():
            asking.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)
        self._asking.clear()

    async def _compare(self, nodes: Collection[str]) -> bool:
        """Ask these nodes; tell whether one answered, or no query or node is left to ask."""
        now, is_heard = self._clock(), not nodes
        self._ask(nodes)
        waiting = set(self._asking.values()) if nodes else set[asyncio.Task[bool]]()
        if waiting:
            done, waiting = await asyncio.wait(waiting, timeout=PATIENCE_SECONDS)
            is_heard = any(asked.result() for asked in done)
        while waiting and not is_heard:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            is_heard = any(asked.result() for asked in done)
        await self._settle()
        if is_heard:
            self._compared_at = now
        return is_heard

    def _ask(self, nodes: Iterable[str]) -> set[asyncio.Task[bool]]:
        """Begin to ask those of these nodes that are not being asked, and may be."""
        now, begun = self._clock(), set[asyncio.Task[bool]]()
        for node in nodes:
            is_paused = now < self._not_before.get(node, now) <= now + AFTER_NONSENSE
            if (
                node not in self._asking
                and not is_paused
                and self._directory.node_called(node).is_due
            ):
                self._asking[node] = asyncio.create_task(self._is_heard(node))
                begun.add(self._asking[node])
        return begun

    async def _is_heard(self, node: str) -> bool:
        """Fetch all new charges from a node; tell whether it answered."""
        try:
            while await self._hear(node):
                pass
        except (Unavailable, ProtocolError) as error:
            self.unheard[node] = str(error)
            self._report("charges not compared", node=node, reason=str(error))
            self._note_behind(node, error)
            if not isinstance(error, Unavailable):
                self._not_before[node] = self._clock() + AFTER_NONSENSE
            return False
        self.unheard.pop(node, None)
        return True

    def _note_behind(self, node: str, error: Exception) -> None:
        """Ask a node that does not know the manifest by an older one; then by the newest again."""
        is_behind = isinstance(error, NotThere) and error.code == UnknownManifest.code
        self._behind[node] = self._behind.get(node, 0) + 1 if is_behind else 0

    async def _hear(self, node: str) -> bool:
        """Fetch one node's next page of charges; tell whether there are more.

        Raises:
            Unavailable, ProtocolError: it does not say it, or it is not its word.
        """
        asked = await self._vault.ask(
            ChargeComparison.query, node=node, behind=self._behind.get(node, 0)
        )
        peer, path = self._directory.node_called(node), f"/v1/charges?after={asked.after}"
        answer = await peer.post(path, asked.query, JSON)
        if answer.code in (BadSignature.code, RevokedHolder.code):
            self._directory.note_other_key(peer)
            raise Unavailable(f"{node} knows another key of this holder, or has it revoked")
        if answer.status != OK:
            raise MalformedDocument(f"it refused to answer: {answer.reason}")
        return await self._vault.ask(ChargeComparison.hear, node=node, parts=(answer.body,))

    async def _settle(self) -> None:
        """Have the vault judge the nodes' answers.

        Raises:
            MemoryLost: its ledger lacks something, and the owner did not accept that loss.
        """
        for name, asking in list(self._asking.items()):
            if asking.done():
                del self._asking[name]
                asking.result()
        refusal = (await self._vault.ask(Vault.settle_charges)).refusal
        if refusal is not None:
            raise MemoryLost(refusal)


_PATHS: Final[dict[What, str]] = {"join": "joins", "leave": "leaves"}
MOST_ENDED: Final = 100
"""How many refused jobs that the trainer lists no more are shown, with the reason."""


@dataclass(eq=False)
class Joining(Part):
    """Offers each job that the trainer lists to the vault once, and delivers joins and leaves."""

    _charges: ChargesCheck
    unheard: str | None = None
    """Why the trainer did not list jobs when it was asked last; None: it did."""
    waiting: set[str] = field(default_factory=set)
    """Jobs that wait for the owners' approval, as the vault last said."""
    refused: dict[str, str] = field(default_factory=dict)
    """Why jobs are not joined: all that the trainer lists, the newest of others; in memory."""
    requests: dict[str, bytes] = field(default_factory=dict)
    """The requests of jobs that it lists, or that are among `refused`, as they were signed."""
    _taken: set[str] = field(default_factory=set)

    async def step(self) -> None:
        """Look for jobs once; send all unanswered joins, leaves and notices."""
        agenda = await self._vault.ask(Vault.agenda)
        self.waiting = set(agenda.waiting)  # what was decided since is offered once more
        if await self._look_for_jobs():
            agenda = await self._vault.ask(Vault.agenda)
        await self._send_all(agenda)

    async def _look_for_jobs(self) -> bool:
        """Offer each job that is joining and was not offered yet; tell whether there were any."""
        trainer, has_offered = self._directory.trainer, False
        try:
            if (query := await self._directory.query()) is None:
                return False
            answer = await trainer.post("/v1/jobs/joining", query, JSON)
            if answer.is_refusal:
                self._directory.note_refused_query(trainer, answer.code)
                self._note_unheard(answer.reason)
                return False
            listed = listed_jobs(answer.json(), "jobs")
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
            decided = await self._vault.ask(Jobs.offer, job=job, parts=(answer.body,))
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
        for what, job in agenda.letters:
            path = f"/v1/jobs/{job}/{_PATHS.get(what, 'approvals')}"
            await self._directory.deliver(what, job, self._directory.trainer, path)
