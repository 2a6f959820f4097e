"""Contributes to one crowd job for the clients here: draw, step, charge, store, send, receipt.

In that order: what is sent is on disk, and its price in the ledger, before a byte of it leaves;
however often it is sent, it is the same. A client contributes as often whether it has records or
not, with one of those that the job asks for, by lot, or with none; when its answers leave depends
neither on that nor on the noise in them.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from nacl.signing import SigningKey
from numpy.typing import NDArray

from shoal_client.background import Background
from shoal_client.crowds import memory, nonces
from shoal_client.crowds.contributing import (
    draw_noise,
    make_submission,
    noise_part,
)
from shoal_client.crowds.crowd import Crowd
from shoal_client.crowds.memory import Prepared
from shoal_client.crowds.records_used import Limits, allowed_places
from shoal_client.crowds.trainer import CrowdTrainer, Sent
from shoal_client.departure import departure, encoding_seconds, sampling_seconds
from shoal_client.negative_binomial import FairBits
from shoal_client.peer import ACKNOWLEDGED
from shoal_client.reporting import Report
from shoal_client.site import Site
from shoal_client.state import State
from shoal_protocol.accounting import NOTHING, Cost
from shoal_protocol.documents import Signed, decode
from shoal_protocol.draw_and_discard.documents import Draw, Submission
from shoal_protocol.draw_and_discard.errors import CrowdClosed
from shoal_protocol.encoding import Int64Vector
from shoal_protocol.sharing import RandomBytes

MOST_TOGETHER: Final = 64  # contributions that are drawn for, charged and sent together
ONE_AFTER_ANOTHER: Final = 8  # of such portions, before other jobs have their turn


@dataclass(frozen=True)
class Chosen:
    """A client that is to contribute, and one of its places in the job, chosen by lot."""

    client: int
    position: int
    place: int


@dataclass(frozen=True)
class Ready:
    """A client that is chosen, its nonce, its record, shape (m,), and its noise, (touched,)."""

    chosen: Chosen
    nonce: str
    record: NDArray[np.float64] | None = field(repr=False)
    noise: NDArray[np.int64] = field(repr=False)


class Contributor:
    """What this data holder does in one crowd job."""

    def __init__(
        self,
        site: Site,
        background: Background,
        trainer: CrowdTrainer,
        crowd: Crowd,
        report: Report,
    ) -> None:
        """Contribute to `crowd`, which was checked, as far as the owner's policy allows.

        Raises:
            ValueError: the policy allows no crowd jobs.
        """
        self.crowd = crowd
        self._site = site
        self._background = background
        self._trainer = trainer
        self._report = report
        self._chance = FairBits(site.random_bytes)
        request, policy = crowd.request, site.policy
        self.limits = Limits(
            cost=Cost.pure(request.task.contribution_epsilon),
            per_client=request.contributions_per_client,
            per_record=request.contributions_per_record,
            cap=policy.cap,
            record_cap=policy.record_cap,
        )
        self.portion = min(MOST_TOGETHER, request.task.instances)
        """How many are drawn for at a time. What comes back overwrites what its instance took in
        since the draw: with more than one for each instance most of them would be lost."""
        self.is_closed = False
        """Whether the trainer said that the job takes no more."""

    def positions(self) -> dict[int, int]:
        """Return {client: position here} of those enrolled now and when the job was opened."""
        enrolled = len(self.crowd.consortium.roster)  # an index keeps its client
        return {
            client: here for client, here in self._site.positions().items() if client < enrolled
        }

    async def prepare(self, clients: Sequence[int]) -> list[Ready]:
        """Choose places, and draw noise, of up to `MOST_TOGETHER` clients that still may.

        The nonces by which they are to draw are on file then.
        """
        chosen = await self._choose(clients)
        if not chosen:
            return []
        choosing = [each.client for each in chosen]
        kept = await self._background.disk(
            nonces.kept, self.crowd.job, choosing, self._site.random_bytes
        )
        records, noise = await self._work_out(chosen)
        return [
            Ready(each, kept[each.client], record, drawn)
            for each, record, drawn in zip(chosen, records, noise, strict=True)
        ]

    async def contribute(self, ready: Sequence[Ready]) -> int:
        """Draw, step and charge once for each of up to `portion` clients; `send` is to follow.

        Return for how many, from the first on: a busy trainer answers fewer, at least one.

        Raises:
            Unavailable: the trainer did not answer; of the clients nothing was charged.
            CrowdRefused: it refuses, as when the job is closed.
            ProtocolError: what it answered is no draw of this job.
        """
        draws = await self._trainer.draw(self.crowd, [each.nonce for each in ready])
        ready = ready[: len(draws)]
        chosen = [each.chosen for each in ready]
        submissions = await self._background.work(
            make_submissions,
            self.crowd,
            [self._assignment(each) for each in ready],
            draws,
            [each.noise for each in ready],
            random_bytes=self._site.random_bytes,
        )
        await self._charge(chosen, submissions)
        return len(chosen)

    async def send(self) -> bool:
        """Send what was charged and not answered, the same bytes as before; tell if all is now.

        Raises:
            Unavailable: the trainer did not answer.
            MalformedDocument: it did not say what became of each.
        """
        job = self.crowd.job
        waiting = await self._background.disk(memory.pending, job, count=MOST_TOGETHER)
        if not waiting:
            return True
        sent = [Sent.of(decode(document, Submission)) for _, document in waiting]
        found = await self._trainer.submit(self.crowd, sent)
        settled = [
            (contribution, outcome.outcome, outcome.receipt)
            for (contribution, _), outcome in zip(waiting, found, strict=True)
            if outcome is not None
        ]
        await self._background.disk(memory.settle, settled)
        taken = sum(outcome == ACKNOWLEDGED for _, outcome, _ in settled)
        self._report("contributions settled", job=job, taken=taken, not_taken=len(settled) - taken)
        if any(outcome == CrowdClosed.code for _, outcome, _ in settled):
            self.is_closed = True
        return len(settled) == len(waiting)

    async def _choose(self, clients: Sequence[int]) -> list[Chosen]:
        positions = self.positions()
        here = [client for client in dict.fromkeys(clients) if client in positions]
        chosen = []
        for client in here[:MOST_TOGETHER]:
            allowed = await self._background.disk(_allowed, self.crowd.job, client, self.limits)
            if allowed:
                place = allowed[self._chance.below(len(allowed))]
                chosen.append(Chosen(client, positions[client], place))
        return chosen

    async def _work_out(
        self, chosen: Sequence[Chosen]
    ) -> tuple[list[NDArray[np.float64] | None], NDArray[np.int64]]:
        """Return records, and noise of shape (chosen, touched), at a moment that tells nothing."""
        timer, task, count = self._site.timer, self.crowd.request.task, len(chosen)
        began = timer.now()
        records = await asyncio.to_thread(lambda: [self._record(each) for each in chosen])
        noise = await self._background.work(draw_noise, task, count, self._site.noise)
        allowed = sampling_seconds([(task.touched, noise_part(task))], count)
        columns = len(task.column_names)
        allowed += count * encoding_seconds(columns=columns, coordinates=0, records=1)
        leaves = departure(began=began, ready=timer.now(), allowed_seconds=allowed)
        await timer.sleep(leaves - timer.now())
        return records, noise

    def _record(self, chosen: Chosen) -> NDArray[np.float64] | None:
        """Return the record in a client's place, None if it has too few."""
        columns, most = self.crowd.request.task.column_names, self.limits.places
        records = self._site.records_of(chosen.position, columns, most=most)
        return records[chosen.place] if chosen.place < len(records) else None

    def _assignment(self, ready: Ready) -> "Assignment":
        chosen = ready.chosen
        return Assignment(chosen.client, bytes(self._site.keys[chosen.position]), ready.record)

    async def _charge(
        self, chosen: Sequence[Chosen], submissions: Sequence[Signed[Submission]]
    ) -> None:
        prepared = [
            Prepared(
                each.client,
                each.place,
                submission.digest,
                submission.body.draw.encode(),
                submission.encode(),
            )
            for each, submission in zip(chosen, submissions, strict=True)
        ]
        taken = await self._background.disk(
            memory.charge,
            self.crowd.job,
            prepared,
            limits=self.limits,
            now=self._site.clock(),
        )
        self._report("contributions charged", job=self.crowd.job, contributions=sum(taken))


@dataclass(frozen=True)
class Assignment:
    """One client that contributes; its key's seed and one of its records, shape (m,), or none."""

    client: int
    seed: bytes = field(repr=False)
    record: NDArray[np.float64] | None = field(repr=False)


def make_submissions(
    crowd: Crowd,
    assignments: Sequence[Assignment],
    draws: Sequence[Signed[Draw]],
    noise: Sequence[Int64Vector],
    *,
    random_bytes: RandomBytes,
) -> list[Signed[Submission]]:
    """Return one submission for each assignment; runs in a thread or another process."""
    return [
        make_submission(
            crowd,
            draw,
            each.client,
            SigningKey(each.seed),
            each.record,
            noise=drawn,
            random_bytes=random_bytes,
        )
        for each, draw, drawn in zip(assignments, draws, noise, strict=True)
    ]


def _allowed(state: State, job: str, client: int, limits: Limits) -> list[int]:
    committed = state.committed().get(client, NOTHING)
    return allowed_places(state, job, client, limits, committed=committed)
