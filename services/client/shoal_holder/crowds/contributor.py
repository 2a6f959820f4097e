"""Contributes to one crowd job for the clients here: choose, draw noise, step, charge, store.

In that order: a submission is on disk and charged before a byte of it is handed over, and every
retry sends the same bytes. A client contributes with all its records at once, and one that has few,
or none, as often as others. When its answers leave depends neither on records nor on noise.
"""

import hashlib
import hmac
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from typing import Final

import numpy as np
from nacl.signing import SigningKey
from numpy.typing import NDArray
from pyroaring import BitMap

from shoal_holder.contribution import MOST_ENTRIES, drawn
from shoal_holder.crowds import memory
from shoal_holder.crowds.allowance import Limits, contributions_left, crowds_cap, used_by
from shoal_holder.crowds.crowd import Crowd, verified
from shoal_holder.crowds.memory import MOST_TOGETHER
from shoal_holder.crowds.schedule import Schedule
from shoal_holder.faults import without_failing
from shoal_holder.noise import FairBits, NoiseSampler
from shoal_holder.records import chosen_together
from shoal_holder.release_timing import encoding_seconds, sampling_seconds
from shoal_holder.site import Part
from shoal_kit.outcome import OVER
from shoal_protocol.crowds.draws import Draw, Submission
from shoal_protocol.crowds.tasks import CrowdTask, contribute, design_rows, steps
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.privacy.mechanisms import LaplacePart
from shoal_protocol.queries.columns import factors_in, in_levels
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.wire.documents import Role, Signed, decode, sign
from shoal_protocol.wire.encoding import Int64Vector, canonical_json, domain
from shoal_protocol.wire.errors import UnknownRound


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
    return drawn(noise, noise_part(task), (contributions, task.touched))


def nonce_of(key: SigningKey, job: str, client: int, made: int) -> str:
    """Return the nonce by which a client draws that made so many contributions to a job, in hex.

    Only who has `key` can tell it. It is the same whenever the draw is asked for again, also after
    a restart: a new one would give a trainer that dislikes a draw a second try, by leaving the
    first unanswered. A new key of the holder gives it one.
    """
    secret = hashlib.sha256(domain("crowd-nonce-key") + bytes(key)).digest()
    return hmac.digest(secret, f"{job}/{client}/{made}".encode(), "sha256").hex()


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
    """Return the signed submission that answers a verified draw by a step.

    `step`, shape (p,), is a clipped one from the drawn weights, zeros without records. `client` is
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


ONE_AFTER_ANOTHER: Final = 8  # of such portions, before other jobs have their turn

Design = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(eq=False)
class Ready:
    """A client that is to contribute.

    With it the nonce of its draw, the design of its r records, shapes (r, p) and (r,), if it has
    any, its noise, shape (touched,), and its draw once the trainer served it.
    """

    client: int
    position: int
    nonce: str
    number: int
    """Tells the letter that asks for its draw from others of the same job."""
    design: Design | None = field(default=None, repr=False)
    noise: Int64Vector = field(default_factory=lambda: np.zeros(0, np.int64), repr=False)
    draw: Signed[Draw] | None = field(default=None, repr=False)
    asked_at: float = 0.0
    """When its draw was asked for last, by the vault's timer."""


@dataclass(eq=False)
class Contributor(Part):
    """Makes this data holder's contributions to one crowd job."""

    crowd: Crowd
    """A job that was checked, and which the owner's policy allows."""
    ready: list[Ready] = field(default_factory=list)
    """Clients that wait for draws; nothing was charged for them."""
    reason: str = OVER
    """Why the job ends here at `until`, if not for want of clients."""
    over_at: datetime | None = None
    """When it was found to be over."""
    _numbers: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        request, policy, site = self.crowd.request, self._site.policy, self._site
        task = request.task
        self._stand_in = design_rows(task, np.zeros((1, len(task.column_names))))
        self._limits = Limits(
            cost=Cost.pure(task.contribution_epsilon),
            per_client=request.contributions_per_client,
            cap=policy.cap,
            crowds_cap=crowds_cap(policy),
        )
        self.portion = min(MOST_TOGETHER, task.instances)
        """How many are drawn for at a time. What comes back overwrites what its instance took in
        since the draw: with more than one for each instance most of them would be lost."""
        self.until = request.closes_at
        """When nothing more is drawn for."""
        self.schedule = Schedule(
            self.left(), now=site.clock(), end=self.until, random_bytes=site.random_bytes
        )

    def left(self) -> dict[int, int]:
        """Return how many contributions each client here may make."""
        clients = self._positions().keys()
        return contributions_left(self._state, self.crowd.job, clients, self._limits)

    def close(self, reason: str) -> None:
        """Draw for nobody from now on: the trainer closed the job."""
        if (now := self._site.clock()) < self.until:
            self.until, self.reason = now, reason

    @property
    def drawing(self) -> list[Ready]:
        """Return those that the trainer is to be asked for draws for."""
        return [each for each in self.ready[: self.portion] if each.draw is None]

    def ask(self, ready: Ready) -> bytes:
        """Return what asks for a client's draw, which is to be answered from now on in time."""
        ready.asked_at = self._site.sources.timer.now()
        return canonical_json({"nonce": ready.nonce})

    def _is_in_time(self, ready: Ready) -> bool:
        """Tell whether an answer to a client's draw can still count, whatever the trainer's clock.

        A draw expires no sooner than the session's seconds after it was asked for.
        """
        passed = self._site.sources.timer.now() - ready.asked_at
        in_session = passed < self.crowd.request.session_seconds
        return in_session and self._site.clock() < self.until

    def hear(self, number: int, document: bytes) -> None:
        """Take the draw that answers a letter of this number.

        Raises:
            UnknownRound: there is no such letter, or it was answered, or the answer came too late.
            RefusedDraw: the trainer signed an invalid draw.
            ProtocolError: it is not signed by the trainer.
        """
        asked = [each for each in self.drawing if each.number == number and self._is_in_time(each)]
        if not asked:
            raise UnknownRound("no such draw was asked for, or it came too late")
        asked[0].draw = verified(decode(document, Draw), self.crowd, asked[0].nonce)

    def work(self) -> Callable[[], bool] | None:
        """Return what is to be done now, if anything: `contribute`, or else `prepare`."""
        now, moment = self._site.clock(), self.schedule.next_moment
        if now >= self.until:
            return None
        if any(each.draw for each in self.ready):
            return self.contribute
        return self.prepare if not self.ready and moment is not None and moment <= now else None

    def prepare(self) -> bool:
        """Choose clients whose moment has come, and draw their noise; tell if there are any."""
        most = min(MOST_TOGETHER, ONE_AFTER_ANOTHER * self.portion)
        if chosen := self._choose(self.schedule.due(self._site.clock(), most=most)):
            self._work_out(chosen)
            self.ready = chosen
        return bool(chosen)

    def contribute(self) -> bool:
        """Step on the draws at hand, charge and store; tell whether there were any.

        Draws that may have expired meanwhile are asked for again, with their nonces.
        """
        answered = [(each, each.draw) for each in self.ready if each.draw is not None]
        taken_steps = self._steps(answered)
        for each, _ in answered:
            each.draw = each.draw if self._is_in_time(each) else None
        prepared = [
            make_submission(
                self.crowd,
                draw,
                each.client,
                self._site.key,
                step,
                noise=each.noise,
                random_bytes=self._site.random_bytes,
            )
            for (each, draw), step in zip(answered, taken_steps, strict=True)
            if each.draw is not None
        ]
        # whatever becomes of it: once it may be on disk, no other answer gets the same noise
        self.ready = [each for each in self.ready if each.draw is None]
        job = self.crowd.job
        taken = memory.charge(
            self._state, job, prepared, limits=self._limits, now=self._site.clock()
        )
        self._report("contributions charged", job=job, contributions=sum(taken))
        return True

    def _positions(self) -> dict[int, int]:
        """Return {client: position here} of those enrolled now and when the job was opened."""
        enrolled = len(self.crowd.consortium.roster)  # an index keeps its client
        return {
            client: here for client, here in self._site.positions().items() if client < enrolled
        }

    def _choose(self, clients: Sequence[int]) -> list[Ready]:
        """Return those of these clients that still may."""
        positions, job = self._positions(), self.crowd.job
        here = [client for client in dict.fromkeys(clients) if client in positions]
        committed = self._state.committed().of(BitMap(here))
        used = used_by(self._state, job, here)
        allowed = [
            client
            for client in here[:MOST_TOGETHER]
            if self._limits.allow(used[client], committed=committed[client])
        ]
        nonces = {each: nonce_of(self._site.key, job, each, used[each].made) for each in allowed}
        return [
            Ready(client, positions[client], nonces[client], next(self._numbers))
            for client in allowed
        ]

    def _steps(self, answered: Sequence[tuple[Ready, Signed[Draw]]]) -> list[Int64Vector]:
        """Return the steps that clients take, at a moment independent of their records."""
        with self._site.released_after(stepping_seconds(self.crowd.request.task, len(answered))):
            return [self._step(each, draw) for each, draw in answered]

    def _step(self, ready: Ready, draw: Signed[Draw]) -> Int64Vector:
        """Return the step that a client takes, shape (p,): zeros if it has no records, or it fails.

        Without one a stand-in's is worked out; the moment of release hides which it was.
        """
        task, weights = self.crowd.request.task, np.array(draw.body.weights, np.int64)
        design = self._stand_in if ready.design is None else ready.design
        taken = without_failing([ready], lambda _: steps(task, weights, *design), self._note_failed)
        return taken[0] if taken and ready.design else np.zeros(task.dimension, np.int64)

    def _note_failed(self, ready: Ready, error: BaseException) -> None:
        what = f"records in slot {ready.client} count for none in {self.crowd.job}"
        self._faults.write(what, error)

    def _work_out(self, chosen: Sequence[Ready]) -> None:
        """Work out the clients' designs and noise, at a moment independent of both."""
        task, designs = self.crowd.request.task, dict[int, Design]()
        with self._site.released_after(allowed_seconds(task, len(chosen))):
            at_once = max(1, MOST_ENTRIES // (task.records_per_client * len(task.columns)))
            for start in range(0, len(chosen), at_once):
                clients = chosen[start : start + at_once]
                for portion in without_failing(clients, self._designs, self._note_failed):
                    designs |= portion
            noise = draw_noise(task, len(chosen), self._site.noise)
        for each, own in zip(chosen, noise, strict=True):
            each.design, each.noise = designs.get(each.client), own

    def _designs(self, chosen: Sequence[Ready]) -> dict[int, Design]:
        """Return the design of each client's records, by client, if it has any."""
        task = self.crowd.request.task
        together, present = chosen_together(
            self._site.records,
            [each.position for each in chosen],
            task.column_names,
            most=task.records_per_client,
        )
        records = together.reshape(-1, together.shape[-1])
        whole = present & in_levels(task.columns, records).reshape(present.shape)
        rows, targets = (
            each.reshape(*present.shape, *each.shape[1:]) for each in design_rows(task, records)
        )
        return {
            each.client: (rows[place, counts], targets[place, counts])
            for place, (each, counts) in enumerate(zip(chosen, whole, strict=True))
            if counts.any()
        }


def allowed_seconds(task: CrowdTask, contributions: int) -> float:
    """Return how long working out so many contributions may take, until draws are asked for."""
    encoding = encoding_seconds(
        columns=len(task.column_names),
        factors=factors_in(task.columns),
        coordinates=task.dimension,
        records=task.records_per_client,
        slots=3 * contributions,
        passes=3 + 2 * contributions.bit_length(),
    )
    return sampling_seconds([(task.touched * contributions, noise_part(task))]) + encoding


def stepping_seconds(task: CrowdTask, contributions: int) -> float:
    """Return how long so many steps may take, one after another."""
    return encoding_seconds(
        columns=len(task.column_names),
        factors=factors_in(task.columns),
        coordinates=task.dimension,
        records=task.records_per_client,
        slots=contributions,
        passes=contributions,
    )
