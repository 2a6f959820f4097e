"""The same game for a contribution to a crowd: a run is one submission, made by the client's code.

The adversary is the one that a contribution's price is stated against: it knows the drawn weights,
both records that it may be, and sees what comes back. Noise is drawn by `shoal_holder`, steps are
taken and sent weights made by `shoal_protocol`, as a submission's are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from nacl.utils import random

from audit.claims import Claim
from audit.neighbours import Floats
from shoal_holder.crowds.contributor import draw_noise
from shoal_holder.noise import FairBits, NoiseSampler, exact_noise
from shoal_protocol.crowds.tasks import CrowdTask, contribute, design_rows, steps
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.wire.encoding import Int64Vector

WEIGHTS: Final = 3

TASK: Final = CrowdTask(
    family="logistic",
    features=tuple(
        ColumnBounds(name=f"x{index}", lower=-1.0, upper=1.0) for index in range(WEIGHTS - 1)
    ),
    target=ColumnBounds(name="y", lower=0.0, upper=1.0),
    clip=0.03,
    epsilon=1.0,
    learning_rate=0.1,
    instances=20,
)
DRAWN: Final = np.array([70_000, -30_000, -40_000], np.int64)
NEIGHBOURS: Final = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
"""The two records: one pulls every weight down by the clip, the other one up."""


class Onlooker(StrEnum):
    """Who guesses."""

    LISTENER = "listener"
    """Sees the weights that were drawn and those that came back."""


@dataclass(frozen=True, kw_only=True)
class ContributionGame:
    """One contribution, and what it claims to cost.

    Where noise is added to every weight, the adversary looks at the weight that moved least: that
    all have moved far is e^epsilon times as likely with the one record as with the other.
    """

    task: CrowdTask
    sampler: NoiseSampler = exact_noise

    @property
    def claim(self) -> Claim:
        """Return the price that a ledger is charged."""
        cost = Cost.pure(self.task.contribution_epsilon)
        return Claim.of(cost, delta=0.0, coordinates=self.task.touched)

    @property
    def claims(self) -> Mapping[str, Claim]:
        """Return the price against each adversary."""
        return {Onlooker.LISTENER: self.claim}

    def true_epsilon(self, adversary: str) -> float | None:
        """Return what it costs: the price, for the two records are as far apart as can be."""
        return self.claim.epsilon

    def play(self, world: int, runs: int) -> dict[str, Floats]:
        """Return the adversary's statistic, shape (runs,), with `world`'s record (0 or 1).

        Raises:
            ValueError: the records are not as far apart as the price allows.
        """
        first, second = both_steps(self.task)
        if not np.all(second - first == 2 * self.task.lattice_clip):
            raise ValueError("the neighbours do not attain the declared sensitivity")
        noise = draw_noise(self.task, runs, self.sampler)
        sent = submitted(self.task, (first, second)[world], noise, random_bytes=random)
        moved = sent - DRAWN
        if self.task.variant == "one":
            # one weight at most has moved; if none has, its step and noise were 0 together
            moved = moved.sum(axis=1, keepdims=True)
        statistic: Floats = (moved - first[0]).min(axis=1) / self.task.noise_scale
        return {Onlooker.LISTENER: statistic}


def both_steps(task: CrowdTask) -> Int64Vector:
    """Return the steps on both records from what was drawn, shape (2, p)."""
    rows, targets = design_rows(task, NEIGHBOURS)
    return steps(task, np.tile(DRAWN, (2, 1)), rows[:, None], targets[:, None])


def submitted(
    task: CrowdTask, step: Int64Vector, noise: Int64Vector, *, random_bytes: RandomBytes
) -> Int64Vector:
    """Return what is sent in each run, shape (runs, p); `noise` has shape (runs, touched)."""
    lots, one = FairBits(random_bytes), task.variant == "one"
    return np.array(
        [
            contribute(
                task,
                DRAWN,
                step,
                coordinate=lots.below(task.dimension) if one else None,
                noise=each,
            )
            for each in noise
        ]
    )
