"""Fetches rounds, judges them and prepares the clients' answers; it decides about no job.

An answer is on disk, and charged, before its first byte is sent. Who answers, and when, depends
neither on records nor on noise.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shoal_client import outbox
from shoal_client.admission import check_round
from shoal_client.background import Background
from shoal_client.contribution import box_keys
from shoal_client.delivery import MOST_BYTES, MOST_ENVELOPES, Delivery
from shoal_client.directory import Directory
from shoal_client.enrolment import follow_to
from shoal_client.judging import Judging
from shoal_client.leaving import Leaving
from shoal_client.next_rounds import NextRounds
from shoal_client.peer import ACCEPTED, GONE, NOT_FOUND, OK, Answer, Peer
from shoal_client.preparing import Assignment, Preparing, seal_batch
from shoal_client.repair import Repair
from shoal_client.reporting import Report
from shoal_client.site import Site
from shoal_client.state import DELIVERED, State, StoredJob, StoredRound
from shoal_hosting.exchange import Unavailable
from shoal_protocol.documents import decode
from shoal_protocol.encoding import Int64Vector
from shoal_protocol.envelope import envelope_size
from shoal_protocol.errors import ProtocolError, RefusedSpec, UnknownJob, UnknownManifest
from shoal_protocol.jobs import JobRequest
from shoal_protocol.rounds import RoundSpec
from shoal_protocol.sharing import ShareKind

MISSED: Final = "missed"
NOT_ASKED: Final = "not asked"
OVER: Final = "over"


@dataclass
class _OpenRound:
    """A round that has not ended here, decoded once.

    `prepared` when no answer is left to make; `outcome` is how it ends when all were sent.
    """

    spec: RoundSpec
    prepared: bool = False
    outcome: str = DELIVERED


class Answering:
    """Takes the rounds of the jobs that were joined from their specs to the outbox."""

    def __init__(
        self,
        site: Site,
        background: Background,
        directory: Directory,
        delivery: Delivery,
        repair: Repair,
        next_rounds: NextRounds,
        judging: Judging,
        leaving: Leaving,
        report: Report,
    ) -> None:
        self._site = site
        self._background = background
        self._directory = directory
        self._delivery = delivery
        self._repair = repair
        self._next_rounds = next_rounds
        self._judging = judging
        self._leaving = leaving
        self._report = report
        self._preparing = Preparing(site, background)
        self._open: dict[str, _OpenRound] = {}

    async def fetch_rounds(self) -> None:
        """Ask for the next round of each job, and store it or learn that the job ended."""
        for job in await self._background.disk(State.open_jobs):
            try:
                self._judging.settle(job.job)
                if self._judging.is_under_way(job.job):
                    continue
                answer = await self._next_rounds.answer(job)
                if answer is not None:
                    await self._take(job, answer)
            except Unavailable as error:
                self._report("no round", job=job.job, reason=str(error))
            except ProtocolError as error:
                # not the trainer's word, or not in our manifest: the next answer may be
                self._report("round not believed", job=job.job, reason=str(error))
        jobs = await self._background.disk(State.open_jobs)
        to_ask = [job for job in jobs if not self._judging.is_under_way(job.job)]
        await self._next_rounds.follow(to_ask)

    async def _take(self, job: StoredJob, answer: Answer) -> None:
        if answer.status == OK:
            await self._judging.go_on(job.job, self._admit(job, answer.body))
        elif answer.status == GONE or (
            answer.status == NOT_FOUND and answer.code == UnknownJob.code
        ):
            await self._leaving.end_as_told(job, answer.code)
        elif answer.status != ACCEPTED:
            self._report("no round", job=job.job, reason=answer.code)

    async def _admit(self, job: StoredJob, encoded: bytes) -> None:
        signed = decode(encoded, RoundSpec)
        await follow_to(signed.body.manifest, self._site, self._directory)
        now, ours = self._site.clock(), self._of_ours(signed.body)
        ended = None if ours else NOT_ASKED
        try:
            await asyncio.to_thread(
                check_round,
                signed,
                request=decode(job.request, JobRequest).body,
                number=job.next_number,
                consortium=self._site.book.current,
                policy=self._site.policy,
                spent=await self._background.disk(State.spent_in_job, job.job, ours),
                now=now,
            )
        except RefusedSpec as refusal:
            ended = MISSED if signed.body.deadline <= now else f"refused: {refusal}"
        if signed.body.number >= job.next_number:
            await self._background.disk(
                State.add_round, signed.digest, job.job, signed.body.number, encoded, ended
            )
        if ended not in (None, NOT_ASKED, MISSED):
            await self._background.disk(State.end_job, job.job, ended)
        self._report("round taken", round=signed.digest, number=signed.body.number, reason=ended)

    async def answer_rounds(self) -> bool:
        """Prepare and send what is due in each open round, and end those that are over.

        Answers are prepared in portions, of each round one, so that none waits long for another.
        Returns whether there are more to prepare.
        """
        stored = await self._background.disk(State.open_rounds)
        for round_id in self._open.keys() - {each.round_id for each in stored}:
            del self._open[round_id]  # its job ended, or the next round began
            self._repair.forget(round_id)
        return any([await self._go_on(each) for each in stored])

    async def _go_on(self, stored: StoredRound) -> bool:
        """Return whether there is another portion to prepare."""
        round_id, disk = stored.round_id, self._background.disk
        if round_id not in self._open:
            self._open[round_id] = _OpenRound(decode(stored.spec, RoundSpec).body)
        known = self._open[round_id]
        spec, now = known.spec, self._site.clock()
        if now >= spec.give_up_at:
            await disk(State.end_round, round_id, OVER)
            return False
        try:
            nodes = self._directory.nodes(spec.manifest)
        except UnknownManifest:  # the owner pinned a later version since
            self._report("round not in the manifest", round=round_id)
            return False
        if now < spec.deadline:
            await self._repair.look(round_id, spec, stored.spec, nodes, now)
        await self._delivery.send_pending(round_id, nodes)
        if not known.prepared:
            await self._prepare(round_id, known, nodes)
        # until the deadline a node may lose what it acknowledged
        if self._site.clock() >= spec.deadline and not await disk(outbox.has_pending, round_id):
            await disk(State.end_round, round_id, known.outcome)
        return not known.prepared

    async def _prepare(self, round_id: str, known: _OpenRound, nodes: Sequence[Peer]) -> None:
        """Prepare and send the answers of as many clients as are worked on together."""
        spec = known.spec
        clients = await self._who_answers(round_id, spec)
        left = (spec.deadline - self._site.clock()).total_seconds()
        size = self._preparing.portion(spec, len(clients), seconds=left) if clients else 0
        if clients and size == 0:  # nothing is drawn for them, and they are charged nothing
            known.outcome = MISSED
            self._report("too late to answer", round=round_id, clients=len(clients))
        known.prepared = size in (0, len(clients))
        if size:
            values, noise = await self._preparing.work_out(spec, clients[:size])
            await self._send_answers(round_id, spec, nodes, clients[:size], values, noise)

    async def _send_answers(
        self,
        round_id: str,
        spec: RoundSpec,
        nodes: Sequence[Peer],
        clients: Sequence[int],
        values: Int64Vector,
        noise: Int64Vector,
    ) -> None:
        """Seal, store and send; all is sent, or failed, before others are worked on.

        What is done from here on is the same, on as many bytes, whatever is in them.
        """
        site = self._site
        positions = site.positions()
        keys = box_keys(site.book.get(spec.manifest))
        largest = envelope_size(ShareKind.VECTOR, spec.dimension)
        size = max(1, min(MOST_ENVELOPES, MOST_BYTES // largest))
        async with asyncio.TaskGroup() as sending:
            for start in range(0, len(clients), size):
                if site.clock() >= spec.deadline:
                    return
                batch = [
                    Assignment(client, bytes(site.keys[positions[client]]), value)
                    for client, value in zip(
                        clients[start : start + size], values[start : start + size], strict=True
                    )
                ]
                answers = await self._background.work(
                    seal_batch,
                    spec,
                    keys,
                    batch,
                    noise[start : start + size],
                    random_bytes=site.random_bytes,
                )
                cost = spec.cost if spec.hidden is None else None
                disk, now = self._background.disk, site.clock()
                if not await disk(State.record_answers, round_id, cost, now, answers):
                    return  # the job has ended here
                for node, peer in enumerate(nodes):
                    chunk = [(client, envelopes[node]) for client, envelopes in answers]
                    await self._delivery.start(sending, round_id, node, peer, chunk)

    async def _who_answers(self, round_id: str, spec: RoundSpec) -> list[int]:
        clients = await self._background.disk(State.unanswered, round_id, self._of_ours(spec))
        if not clients:
            return []
        # since it joined the job, the owner may have come to other columns, or lowered the cap
        if not set(spec.query.column_names) <= set(self._site.records.columns):
            self._report("a column of the round is missing", round=round_id, clients=len(clients))
            return []
        cap = self._site.policy.cap
        committed = await self._background.disk(State.committed)  # the job is in there already
        return [client for client in clients if cap.allows(committed[client])]

    def _of_ours(self, spec: RoundSpec) -> list[int]:
        """Return the clients here whom a round asks."""
        population = spec.clients()
        return [client for client in self._site.positions() if client in population]
