"""Fetches rounds, offers them to the vault, has answers made and delivers them to Compute nodes.

The trainer is asked for the next round of each job on each step, or by long polls, which run beside
the data holder's steps and wake it when answered.

Every attempt at delivery sends the same bytes, but for the signature, which is made by the key in
force. A node that lost its disk, or was restored from a backup, lacks shares that it acknowledged:
as long as the round takes shares, they are sent again.
"""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from shoal_agent.directory import Part
from shoal_holder.jobs import Jobs
from shoal_holder.messages import OpenJob, OpenRound
from shoal_holder.rounds import Rounds
from shoal_holder.vault import Vault
from shoal_kit.outcome import LOST
from shoal_kit.peers.exchange import ANSWER_SECONDS, JSON, OCTETS, Reply, Unavailable
from shoal_kit.peers.peer import ACCEPTED, GONE, NOT_FOUND, OK, NotThere, Peer
from shoal_protocol.jobs.membership import JobWithdrawn
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import decode
from shoal_protocol.wire.errors import (
    MalformedDocument,
    ProtocolError,
    UnknownJob,
    UnknownManifest,
    UnknownRound,
)
from shoal_protocol.wire.service_errors import MissingRequest

WHEN: Final = (0.5, 0.85)  # to ask, as parts of the time from a round's opening to its deadline
SPREAD: Final = 0.1  # and up to so much later: not all data holders ask at once


LONG_POLL_SECONDS: Final = int(ANSWER_SECONDS * 3 / 4)  # an answer is waited for no longer


def _path(job: OpenJob) -> str:
    return f"/v1/jobs/{job.job}/rounds/{job.next_number}"


@dataclass(eq=False)
class Answering(Part):
    """Takes the rounds of the jobs that were joined from their specs to the Compute nodes."""

    _wake: asyncio.Event | None
    _asked: dict[tuple[str, int], tuple[datetime, int]] = field(default_factory=dict)
    """By round and node: when, and after how many interruptions, it was last asked."""
    _behind: set[tuple[str, int]] = field(default_factory=set)
    """Rounds that nodes do not know any more, though they once accepted them."""

    def __post_init__(self) -> None:
        self._later = SPREAD * int.from_bytes(self._random_bytes(4), "little") / 2.0**32
        self._polls: dict[OpenJob, asyncio.Task[Reply]] = {}

    async def end(self) -> None:
        """Give up waiting for rounds."""
        await self._follow(())

    async def fetch_rounds(self) -> Sequence[OpenRound]:
        """Ask the trainer for each job's next round; offer the round, or end a job that is over.

        Return the rounds that are open then.
        """
        agenda, is_current = await self._vault.ask(Vault.agenda), True
        for job in agenda.jobs:
            try:
                answer = await self._answer_about(job)
                if answer is not None:
                    is_current = False
                    await self._take(job, answer)
            except Unavailable as error:
                self._report("no round", job=job.job, reason=str(error))
            except ProtocolError as error:
                # not the trainer's word, or not in our manifest: the next answer may be
                self._report("round not believed", job=job.job, reason=str(error))
        if not is_current:
            agenda = await self._vault.ask(Vault.agenda)
        await self._follow(agenda.jobs)
        return agenda.rounds

    # Long polls at the trainer, at most one for each job; without a `_wake` it is just asked.

    async def _answer_about(self, job: OpenJob) -> Reply | None:
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

    async def _follow(self, jobs: Collection[OpenJob]) -> None:
        """Keep a long poll open about the next round of each of these jobs, and about no others."""
        gone = [self._polls.pop(each) for each in self._polls.keys() - set(jobs)]
        for poll in gone:
            poll.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
        if self._wake is not None:
            for job in set(jobs) - self._polls.keys():
                self._polls[job] = asyncio.create_task(self._poll(_path(job), self._wake))

    async def _poll(self, path: str, wake: asyncio.Event) -> Reply:
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

    async def _take(self, job: OpenJob, answer: Reply) -> None:
        if answer.status == OK:
            spec = decode(answer.body, RoundSpec)
            await self._directory.follow_to(spec.body.manifest)
            await self._vault.ask(Rounds.offer, parts=(answer.body,))
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
        await self._vault.ask(Jobs.end_as_told, job=job, code=code, parts=tuple(parts))

    async def answer_rounds(self, rounds: Sequence[OpenRound]) -> None:
        """Have answers made and send what is due in each open round."""
        open_rounds = {each.round_id for each in rounds}
        self._asked = {key: what for key, what in self._asked.items() if key[0] in open_rounds}
        self._behind = {key for key in self._behind if key[0] in open_rounds}
        for each in rounds:
            await self._go_on(each)

    async def _go_on(self, known: OpenRound) -> None:
        round_id = known.round_id
        try:
            nodes = self._directory.nodes(known.manifest)
        except UnknownManifest:  # the owner pinned a later version since
            self._report("round not in the manifest", round=round_id)
            return
        if known.unprepared:
            try:
                await self._vault.ask(Rounds.prepare, round_id=round_id)
            except ProtocolError as error:  # it has ended meanwhile
                self._report("round not answered", round=round_id, reason=str(error))
        # sent, or failed, before others are worked on
        await self._deliver(known, nodes)

    async def _deliver(self, known: OpenRound, nodes: Sequence[Peer]) -> None:
        """Send each node that is due its envelope, and again where the node lost it.

        For a lost one it looks twice in a round, and whenever a node was out of reach.
        """
        async with asyncio.TaskGroup() as group:
            for node, peer in enumerate(nodes):
                if peer.is_due:
                    group.create_task(self._look_and_send(known, node, peer))

    async def _look_and_send(self, known: OpenRound, node: int, peer: Peer) -> None:
        now, round_id = self._clock(), known.round_id
        if now < known.deadline and self._is_to_be_asked(known, node, peer, now):
            await self._look(round_id, node, peer, now)
        if peer.is_due:
            path = f"/v1/rounds/{round_id}/shares"
            if not await self._directory.deliver("envelope", round_id, peer, path, node=node):
                self._behind.add((round_id, node))

    def _is_to_be_asked(self, known: OpenRound, node: int, peer: Peer, now: datetime) -> bool:
        """Tell whether to ask a node whether it still has the envelope that it acknowledged."""
        if (known.round_id, node) in self._behind:
            return True
        asked, interruptions = self._asked.get((known.round_id, node), (known.opened_at, 0))
        window = known.deadline - known.opened_at
        times = (known.opened_at + window * (part + self._later) for part in WHEN)
        return peer.interruptions != interruptions or any(asked < time <= now for time in times)

    async def _look(self, round_id: str, node: int, peer: Peer, now: datetime) -> None:
        interruptions = peer.interruptions
        try:
            if (round_id, node) in self._behind:
                await self._announce(round_id, node, peer)
            await self._ask(round_id, node, peer)
        except NotThere:
            self._behind.add((round_id, node))
        except (Unavailable, MalformedDocument, UnknownRound) as error:
            self._report("held not known", round=round_id, node=node, reason=str(error))
        else:
            self._asked[round_id, node] = (now, interruptions)

    async def _announce(self, round_id: str, node: int, peer: Peer) -> None:
        """Hand a node that lost a round the signed spec: the trainer did so once, long ago.

        A node that lost the job's signed request too is handed that before.
        """
        spec, request = await self._vault.ask(Vault.spec, round_id=round_id)
        answer = await peer.post("/v1/rounds", spec, JSON)
        if answer.code == MissingRequest.code:
            answer = await peer.post("/v1/jobs", request, JSON)
            if not answer.is_refusal:
                answer = await peer.post("/v1/rounds", spec, JSON)
        reason = answer.code if answer.is_refusal else None
        self._report("round handed on", round=round_id, node=node, reason=reason)
        self._behind.discard((round_id, node))

    async def _ask(self, round_id: str, node: int, peer: Peer) -> None:
        query = await self._vault.ask(Vault.acknowledged, round_id=round_id, node=node)
        if not query:
            return
        path = f"/v1/rounds/{round_id}/shares/stored"
        answer = await peer.post(path, query[0], OCTETS)
        if answer.status != OK:
            raise Unavailable(f"{peer.name} answered {answer.code}")
        body = answer.json()
        stored = body.get("stored") if isinstance(body, dict) else None
        if not isinstance(stored, bool):
            raise MalformedDocument("the node does not say whether it has the envelope")
        if not stored:
            await self._vault.ask(
                Vault.settle, what="envelope", about=round_id, node=node, outcome=LOST
            )
            self._report("envelope lost", round=round_id, node=node)
