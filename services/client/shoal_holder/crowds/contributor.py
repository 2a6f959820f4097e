"""Contributes to one crowd job for the clients here: choose, draw noise, step, charge, store.

In that order: a submission is on disk and charged before a byte of it is handed over, and every
retry sends the same bytes. A client with few records, or none, contributes as often as others: each
time with one of its places, by lot, with or without a record. When its answers leave depends
neither on records nor on noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from nacl.signing import SigningKey
from numpy.typing import NDArray
from pyroaring import BitMap

from shoal_holder.crowds import memory
from shoal_holder.crowds.crowd import Crowd, verified
from shoal_holder.crowds.memory import Prepared
from shoal_holder.crowds.records_used import Limits, allowed_places, contributions_left, record_cap
from shoal_holder.crowds.schedule import Schedule
from shoal_holder.fair_bits import FairBits
from shoal_holder.faults import Faults, without_failing
from shoal_holder.noise import NoiseSampler
from shoal_holder.release_timing import encoding_seconds, release_time, sampling_seconds
from shoal_holder.reporting import Report
from shoal_holder.site import Site
from shoal_holder.state import State
from shoal_protocol.crowds.draws import Draw, Submission
from shoal_protocol.crowds.tasks import CrowdTask, contribute, design_rows, steps
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.privacy.mechanisms import LaplacePart
from shoal_protocol.queries.columns import factors_in, in_levels
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.wire.documents import Role, Signed, decode, sign
from shoal_protocol.wire.encoding import Int64Vector


def noise_part(task: CrowdTask) -> LaplacePart:
    """Return what noise each touched coordinate gets: a discrete Laplace, all of it this client's.

    It is drawn before the weights are, on which it does not depend.
    """
    return LaplacePart(scale=task.noise_scale, parties=1)


def draw_noise(task: CrowdTask, contributions: int, noise: NoiseSampler) -> NDArray[np.int64]:
    """Return the noise of so many contributions, shape (contributions, task.touched).

    Raises:
        ValueError: the sampler did not return as many 64-bit integers as asked for.
    """
    drawn = noise(noise_part(task), contributions * task.touched)
    # a float here would silently become an exact-looking integer further on
    if drawn.dtype != np.int64 or drawn.shape != (contributions * task.touched,):
        raise ValueError("a noise sampler must return a vector of 64-bit integers")
    return drawn.reshape(contributions, task.touched)


def make_submission(
    crowd: Crowd,
    draw: Signed[Draw],
    client: int,
    key: SigningKey,
    step: Int64Vector,
    *,
    noise: Int64Vector,
    random_bytes: RandomBytes,
) -> Signed[Submission]:
    """Return the signed submission that answers a verified draw by a step on one record.

    `step`, shape (p,), is a clipped one from the drawn weights, zeros without a record. `client` is
    the index of `key` on the roster; `noise`, shape (task.touched,), was drawn for this
    contribution alone. Call it once for a draw, and keep the bytes for retries.

    Raises:
        ValueError: a shape does not fit the task.
    """
    task = crowd.request.task
    one = task.variant == "one"
    coordinate = FairBits(random_bytes).below(task.dimension) if one else None
    weights = np.array(draw.body.weights, np.int64)
    sent = contribute(task, weights, step, coordinate=coordinate, noise=noise)
    body = Submission(
        manifest=crowd.request.manifest, client=client, draw=draw, weights=tuple(sent.tolist())
    )
    return sign(body, Role.CLIENT, key)


MOST_TOGETHER: Final = 64  # contributions that are drawn for, charged and sent together
ONE_AFTER_ANOTHER: Final = 8  # of such portions, before other jobs have their turn

Design = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True)
class Ready:
    """A client that is to contribute with one of its places in the job, chosen by lot.

    With it the nonce of its draw, the design of its record, shapes (1, p) and (1,), if it has one
    there, and its noise, shape (touched,).
    """

    client: int
    position: int
    place: int
    nonce: str
    design: Design | None = field(repr=False)
    noise: NDArray[np.int64] = field(repr=False)


class Contributor:
    """Makes this data holder's contributions to one crowd job."""

    def __init__(
        self, site: Site, state: State, crowd: Crowd, report: Report, faults: Faults
    ) -> None:
        """Contribute to `crowd`, which was checked, as far as the owner's policy allows.

        Raises:
            ValueError: the policy allows no crowd jobs.
        """
        self.crowd = crowd
        self._site = site
        self._state = state
        self._report = report
        self._faults = faults
        self._chance = FairBits(site.random_bytes)
        task = crowd.request.task
        self._stand_in = design_rows(task, np.zeros((1, len(task.column_names))))
        request, policy = crowd.request, site.policy
        self._limits = Limits(
            cost=Cost.pure(request.task.contribution_epsilon),
            per_client=request.contributions_per_client,
            per_record=request.contributions_per_record,
            cap=policy.cap,
            record_cap=record_cap(policy),
        )
        self.portion = min(MOST_TOGETHER, request.task.instances)
        """How many are drawn for at a time. What comes back overwrites what its instance took in
        since the draw: with more than one for each instance most of them would be lost."""
        self.ready: list[Ready] = []
        """Clients that wait for draws; nothing was charged for them."""
        self.schedule = Schedule(
            self.left(), now=site.clock(), end=request.closes_at, random_bytes=site.random_bytes
        )

    def left(self) -> dict[int, int]:
        """Return how many contributions each client here can make, or some more."""
        clients = self._positions().keys()
        return contributions_left(self._state, self.crowd.job, clients, self._limits)

    def prepare(self) -> None:
        """Choose clients whose moment has come, and draw their noise; add them to those ready.

        The nonces for their draws are then on file.
        """
        if self.ready:
            return
        most = min(MOST_TOGETHER, ONE_AFTER_ANOTHER * self.portion)
        due = self.schedule.due(self._site.clock(), most=most)
        chosen = self._choose(due)
        if not chosen:
            return
        kept = memory.nonces_of(
            self._state, self.crowd.job, [each[0] for each in chosen], self._site.random_bytes
        )
        designs, noise = self._work_out(chosen)
        self.ready = [
            Ready(client, position, place, kept[client], design, drawn)
            for (client, position, place), design, drawn in zip(chosen, designs, noise, strict=True)
        ]

    def contribute(self, documents: Sequence[bytes]) -> int:
        """Step on the trainer's draws for the first that are ready, charge and store; say how many.

        Raises:
            RefusedDraw: the trainer signed an invalid draw.
            ProtocolError: a draw is not signed by the trainer.
        """
        ready = self.ready[: len(documents)]
        draws = [
            verified(decode(document, Draw), self.crowd, each.nonce)
            for document, each in zip(documents, ready, strict=False)
        ]
        prepared = []
        for each, draw in zip(ready, draws, strict=True):
            submission = make_submission(
                self.crowd,
                draw,
                each.client,
                self._site.key,
                self._step(each, draw),
                noise=each.noise,
                random_bytes=self._site.random_bytes,
            )
            prepared.append(
                Prepared(
                    each.client,
                    each.place,
                    submission.digest,
                    submission.body.draw.encode(),
                    submission.encode(),
                )
            )
        job = self.crowd.job
        taken = memory.charge(
            self._state, job, prepared, limits=self._limits, now=self._site.clock()
        )
        del self.ready[: len(prepared)]
        self._report("contributions charged", job=job, contributions=sum(taken))
        return len(prepared)

    def _positions(self) -> dict[int, int]:
        """Return {client: position here} of those enrolled now and when the job was opened."""
        enrolled = len(self.crowd.consortium.roster)  # an index keeps its client
        return {
            client: here for client, here in self._site.positions().items() if client < enrolled
        }

    def _choose(self, clients: Sequence[int]) -> list[tuple[int, int, int]]:
        """Return (client, its position, one of its places by lot) of those that still may."""
        positions = self._positions()
        here = [client for client in dict.fromkeys(clients) if client in positions]
        committed, chosen = self._state.committed().of(BitMap(here)), []
        for client in here[:MOST_TOGETHER]:
            allowed = allowed_places(
                self._state,
                self.crowd.job,
                client,
                self._limits,
                committed=committed[client],
            )
            if allowed:
                place = allowed[self._chance.below(len(allowed))]
                chosen.append((client, positions[client], place))
        return chosen

    def _step(self, ready: Ready, draw: Signed[Draw]) -> Int64Vector:
        """Return the step that a client takes, shape (p,): zeros if it has no record, or it fails.

        Without one the same work is done: the trainer could time it.
        """
        task, weights = self.crowd.request.task, np.array(draw.body.weights, np.int64)
        design = self._stand_in if ready.design is None else ready.design
        taken = without_failing(
            [ready], lambda _: steps(task, weights[None], *design)[0], self._note_failed
        )
        return taken[0] if taken and ready.design else np.zeros(task.dimension, np.int64)

    def _note_failed(self, of: Ready | tuple[int, int, int], error: BaseException) -> None:
        client = of.client if isinstance(of, Ready) else of[0]
        what = f"a record in slot {client} counts for none in {self.crowd.job}"
        self._faults.write(what, error)

    def _work_out(
        self, chosen: Sequence[tuple[int, int, int]]
    ) -> tuple[list[Design | None], NDArray[np.int64]]:
        """Return designs and noise, shape (chosen, touched), at a moment independent of both."""
        timer, task, count = self._site.timer, self.crowd.request.task, len(chosen)
        began = timer.now()
        found: dict[int, Design] = {}
        for portion in without_failing(chosen, self._designs, self._note_failed):
            found |= portion
        noise = draw_noise(task, count, self._site.noise)
        leaves = release_time(
            began=began, ready=timer.now(), allowed_seconds=allowed_seconds(task, count)
        )
        timer.sleep(leaves - timer.now())
        return [found.get(client) for client, _, _ in chosen], noise

    def _designs(self, chosen: Sequence[tuple[int, int, int]]) -> dict[int, Design]:
        """Return the design of the record in each client's place, by client, if there is one."""
        task = self.crowd.request.task
        together, present = self._site.records_together(
            [position for _, position, _ in chosen],
            task.column_names,
            most=1,
            skipping=[place for _, _, place in chosen],
        )
        records = together[:, 0]
        whole = present[:, 0] & in_levels(task.columns, records)
        rows, targets = design_rows(task, records)
        return {
            client: (rows[place, None], targets[place, None])
            for place, (client, _, _) in enumerate(chosen)
            if whole[place]
        }


def allowed_seconds(task: CrowdTask, contributions: int) -> float:
    """Return how long working out so many contributions may take, until draws are asked for."""
    encoding = encoding_seconds(
        columns=len(task.column_names),
        factors=factors_in(task.columns),
        coordinates=task.dimension,
        records=1,
        slots=3 * contributions,
        passes=3 + 2 * contributions.bit_length(),
    )
    return sampling_seconds([(task.touched * contributions, noise_part(task))]) + encoding
