"""Simulates crowds that learn a task, many replicates at once, by the same steps as clients.

numpy draws the noise (the right discrete Laplace on the right lattice, and NO PRIVACY) and chooses
which instances are drawn and replaced. `SimulatedCrowd` is a crowd of records in memory, for
planning and for teaching.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shoal_learning.crowds.model import CrowdModel
from shoal_learning.simulated_records import OnRecords, SimulatedRecords
from shoal_protocol.crowds.tasks import LARGEST_WEIGHT, CrowdTask, decayed, design_rows, steps
from shoal_protocol.queries.columns import in_levels
from shoal_protocol.trust.dictionary import Coding, codings_of_target, codings_of_terms

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Contributors = Callable[[int, int], tuple[FloatArray, FloatArray]]
"""(n, R) -> rows, shape (n, R, p), and targets, shape (n, R), as `design_rows` has them: whose
records the next n contributions to each of R crowds come from."""

_DRAWS = 1 << 16  # random numbers of a kind in one call of numpy


@dataclass(frozen=True)
class Snapshots:
    """All instances of all crowds after so many contributions each; weights (n, R, k, p)."""

    contributions: tuple[int, ...]
    weights: IntArray

    @property
    def final(self) -> IntArray:
        """The last ones, shape (R, k, p)."""
        last: IntArray = self.weights[-1]
        return last


def in_turn(rows: FloatArray, targets: FloatArray, generator: np.random.Generator) -> Contributors:
    """Return contributors of whom each has contributed as often as any other, give or take one.

    Every crowd meets all records in an order of its own, then in another.
    """
    waiting = np.zeros((0, 0), dtype=np.int64)

    def pick(count: int, replicates: int) -> tuple[FloatArray, FloatArray]:
        nonlocal waiting
        if waiting.shape[1] != replicates:
            waiting = np.zeros((0, replicates), dtype=np.int64)
        while len(waiting) < count:
            once = np.tile(np.arange(len(targets))[:, None], (1, replicates))
            waiting = np.vstack([waiting, generator.permuted(once, axis=0)])
        chosen, waiting = waiting[:count], waiting[count:]
        return rows[chosen], targets[chosen]

    return pick


def simulate(
    task: CrowdTask,
    contributors: Contributors,
    generator: np.random.Generator,
    *,
    contributions: int,
    replicates: int = 1,
    snapshots: Sequence[int] = (),
    noisy: bool = True,
    open_sessions: int = 0,
) -> Snapshots:
    """Let so many contributions come to each of R crowds; instances all begin at the task's start.

    Snapshots are taken after each number in `snapshots`, and in the end. `noisy` False leaves the
    noise out: what the same steps would learn without privacy. With m `open_sessions` a client's
    instance is drawn m contributions before it comes back.

    Raises:
        ValueError: a snapshot is asked for below 0 or after the end, or sessions are below 0.
    """
    if open_sessions < 0:
        raise ValueError("open sessions are counted from 0")
    wanted = sorted({*snapshots, contributions})
    if wanted[0] < 0 or wanted[-1] > contributions:
        raise ValueError("snapshots lie between no contribution and the last one")
    state = np.tile(_start(task), (replicates, task.instances, 1))
    everyone = np.arange(replicates)
    open_draws = np.tile(_start(task), (open_sessions + 1, replicates, 1))  # a ring
    size = max(1, _DRAWS // (replicates * task.dimension))
    taken: list[IntArray] = []
    for first in range(0, contributions + 1, size):
        count = min(size, contributions + 1 - first)
        rows, targets = contributors(count, replicates)
        drawn = generator.integers(0, task.instances, (count, replicates))
        replaced = generator.integers(0, task.instances, (count, replicates))
        noise = _noise(task, generator, count, replicates, noisy)
        touched = _touched(task, generator, count, replicates)
        for place in range(count):
            if first + place in wanted:
                taken.append(state.copy())
            number = first + place
            slot = (number + open_sessions) % (open_sessions + 1)
            open_draws[slot] = state[everyone, drawn[place]]
            weights = open_draws[number % (open_sessions + 1)]
            step = steps(task, weights, rows[place], targets[place])
            moved = decayed(task, weights) + step + noise[place]
            if touched is not None:
                moved = np.where(touched[place], moved, weights)
            state[everyone, replaced[place]] = np.clip(moved, -LARGEST_WEIGHT, LARGEST_WEIGHT)
    return Snapshots(tuple(wanted), np.array(taken))


def discrete_laplace(
    scale: float, shape: tuple[int, ...], generator: np.random.Generator
) -> IntArray:
    """Return integers x with probability in proportion to exp(-|x| / scale): NOT for privacy.

    The difference of two geometric variables [Inusah and Kozubowski 2006].
    """
    success = -math.expm1(-1.0 / scale)
    gain, loss = generator.geometric(success, (2, *shape))
    difference: IntArray = (gain - loss).astype(np.int64)
    return difference


def _start(task: CrowdTask) -> IntArray:
    if task.start is None:
        return np.zeros(task.dimension, dtype=np.int64)
    return np.rint(np.array(task.start) * task.grid).astype(np.int64)


def _noise(
    task: CrowdTask, generator: np.random.Generator, count: int, replicates: int, noisy: bool
) -> IntArray:
    """Return noise, shape (count, R, touched)."""
    shape = (count, replicates, task.touched)
    if not noisy:
        return np.zeros(shape, dtype=np.int64)
    return discrete_laplace(task.noise_scale, shape, generator)


def _touched(
    task: CrowdTask, generator: np.random.Generator, count: int, replicates: int
) -> NDArray[np.bool_] | None:
    """Return which coordinate is touched, one-hot, shape (count, R, p); None if all are."""
    if task.variant != "one":
        return None
    chosen = generator.integers(0, task.dimension, (count, replicates, 1))
    touched: NDArray[np.bool_] = chosen == np.arange(task.dimension)
    return touched


class SimulatedCrowd(OnRecords):
    """Clients that hold one record each, in memory. NO PRIVACY: for planning and for teaching.

    `records` has columns by name: a mapping to vectors, or a data frame. Each `learn` draws new
    noise; the same `seed` and the same calls give the same models, distributed as those of a real
    crowd's job with as many contributions. Estimators are fitted on it.
    """

    def __init__(self, records: Mapping[str, ArrayLike] | Any, *, seed: int) -> None:
        """Copy the records.

        Raises:
            ValueError: they are not columns of one length, a number is not finite, or there are
                none.
        """
        self._records = SimulatedRecords.of(records, missing=False)
        if not len(self):
            raise ValueError("there must be records")
        self._seeds = np.random.SeedSequence(seed)

    def __repr__(self) -> str:
        return f"<SimulatedCrowd of {len(self):,} clients: NO PRIVACY>"

    def beyond(self, task: CrowdTask) -> tuple[str, ...]:
        """Return which columns have more than one value in a hundred beyond a task's bounds.

        Raises:
            ValueError: a column has other codes than its bounds 0 and 1, or no numbers.
        """
        return self._beyond(task.columns, _codings_of(task)).said

    def learn(
        self,
        task: CrowdTask,
        *,
        contributions_per_client: int = 1,
        open_sessions: int = 0,
    ) -> CrowdModel:
        """Return the model after all contributions.

        Each client contributes `contributions_per_client` times; who does so next is chosen at
        random among those that have contributed least. Each pays the task's `contribution_epsilon`
        for every one. Each answers its draw before the next one draws; with m `open_sessions`, m
        others answer in between, as under a load, and learning is slower.

        Raises:
            ValueError: a column of the task is missing or coded otherwise, or sessions are below 0.
        """
        self._require_codings(_codings_of(task))
        self.beyond(task)
        records = self._records.select(task.column_names)
        rows, targets = design_rows(task, records[in_levels(task.columns, records)])
        total = contributions_per_client * len(rows)
        [seeds] = self._seeds.spawn(1)
        generator = np.random.default_rng(seeds)
        ended = simulate(
            task,
            in_turn(rows, targets, generator),
            generator,
            contributions=total,
            open_sessions=open_sessions,
        )
        return CrowdModel.of(task, ended.final[0], total)


def _codings_of(task: CrowdTask) -> tuple[Coding, ...]:
    listed = codings_of_terms(each.term for each in task.columns)
    return (*listed, *codings_of_target(task.family, task.target))
