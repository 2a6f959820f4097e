"""Crowds in memory: what one ends with, and many replicates that learn a task by clients' steps.

A result has k instances of a model, and their average in the units of the data. The instances'
spread is no posterior and no standard error. What error to expect of a task, `shoal plan` says.

numpy draws the noise (the right discrete Laplace on the right lattice, and NO PRIVACY) and chooses
which instances are drawn and replaced. `SimulatedCrowd` is a crowd of records in memory, for
planning and for teaching.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, model_validator

from shoal_protocol.crowds import tasks
from shoal_protocol.crowds.draws import CrowdClosing, Weights
from shoal_protocol.crowds.tasks import (
    LARGEST_WEIGHT,
    CrowdTask,
    decayed,
    design_rows,
    first_weights,
    steps,
)
from shoal_protocol.queries import design
from shoal_protocol.queries.columns import in_levels
from shoal_protocol.queries.design import Floats
from shoal_protocol.trust.dictionary import Coding, codings_of_target, codings_of_terms
from shoal_protocol.wire.documents import Model
from shoal_studies.posteriors.base import to_data_units
from shoal_studies.posteriors.summaries import Summary
from shoal_studies.simulated_records import SimulatedRecords

IntArray = NDArray[np.int64]

CAUTION = (
    "the spread over instances is no standard error: most of what the noise does to them, it does "
    "to all of them alike"
)


NOBODY: Final = "none: nobody contributed, so all instances are as at the start"


class CrowdModel(Model):
    """k instances of a task's p weights after `contributions` updates, on the task's lattice.

    Weights are of normalised features, and of a normalised target if the model is linear:
    `averaged`, shape (p,). `coefficients`, shape (1 + m,), are in the units of the data, the
    intercept first.
    """

    task: CrowdTask
    contributions: int = Field(ge=0, lt=2**53)
    instances: tuple[Weights, ...] = Field(min_length=1, max_length=10_000)

    @model_validator(mode="after")
    def _fits_its_task(self) -> Self:
        if len(self.instances) != self.task.instances:
            raise ValueError(f"the task has {self.task.instances} instances")
        if {len(each) for each in self.instances} != {self.task.dimension}:
            raise ValueError(f"every instance must have {self.task.dimension} weights")
        return self

    @classmethod
    def of(cls, task: CrowdTask, weights: IntArray, contributions: int) -> Self:
        """Return the model of `weights` on the lattice, shape (k, p)."""
        instances = tuple(tuple(int(each) for each in row) for row in weights)
        return cls(task=task, contributions=contributions, instances=instances)

    @classmethod
    def closed(cls, task: CrowdTask, closing: CrowdClosing) -> Self:
        """Return the model that a job of this task ended with."""
        return cls(
            task=task,
            contributions=closing.contributions,
            instances=tuple(head.weights for head in closing.heads),
        )

    def __repr__(self) -> str:
        return (
            f"<CrowdModel: {self.task.family}, {len(self.instances)} instances,"
            f" {self.contributions:,} contributions>"
        )

    __str__ = __repr__

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coefficients: "(intercept)", then the features."""
        return ("(intercept)", *(bounds.name for bounds in self.task.features))

    @property
    def weights(self) -> Floats:
        """Every instance's weights, normalised, shape (k, p)."""
        return np.array(self.instances, dtype=np.float64) / self.task.grid

    @property
    def averaged(self) -> Floats:
        """The instances' mean, normalised, shape (p,)."""
        return np.asarray(self.weights.mean(axis=0))

    @property
    def coefficients(self) -> Floats:
        """The averaged model's coefficients in the units of the data, shape (1 + m,)."""
        return _to_data_units(self.task, self.averaged)

    def predict(self, rows: Floats) -> Floats:
        """Return the averaged model's mean of the target, shape (n,), for `rows`, shape (n, m).

        In the target's units: a probability of its upper bound if it is logistic, an expected
        count if it is Poisson. Features are cut to their bounds, as they were when it was learned.

        Raises:
            ValueError: `rows` does not have one column per feature, or has what is no number.
        """
        predictors = _feature_rows(self.task, rows) @ self.averaged
        means: Floats = tasks.means(self.task, predictors)
        if self.task.family != "linear":
            return means
        return self.task.target.centre + self.task.target.half_range * means

    def as_start(self) -> tuple[float, ...]:
        """Return the averaged weights as the `start` of the same task."""
        return tuple(map(float, self.averaged))

    @property
    def title(self) -> str:
        """What it is a model of."""
        return f"{self.task.family.capitalize()} model of {self.task.target.name}, from a crowd"

    def summary(self) -> Summary:
        """Return a table of coefficients, averaged, with the least and largest over instances."""
        each = _to_data_units(self.task, self.weights)
        return Summary(
            self.title,
            ("", "averaged", "lowest instance", "highest instance"),
            tuple(
                (name, f"{mean:.5g}", f"{low:.5g}", f"{high:.5g}")
                for name, mean, low, high in zip(
                    self.names, self.coefficients, each.min(axis=0), each.max(axis=0), strict=True
                )
            ),
            (
                ("Contributions", f"{self.contributions:,}" if self.contributions else NOBODY),
                ("Price of each", f"epsilon {self.task.contribution_epsilon:g}, local and pure"),
                ("Instances", f"{len(self.instances):,}"),
                ("Caution", CAUTION),
            ),
        )

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON has it, the coefficients in the data's units, and `start`."""
        coefficients = dict(zip(self.names, map(float, self.coefficients), strict=True))
        more = {"coefficients": coefficients, "start": list(self.as_start())}
        return {**self.model_dump(mode="json"), **more}


def _feature_rows(task: CrowdTask, features: Floats) -> Floats:
    """Return rows x, shape (r, p), as `tasks.design_rows` does, of features alone, shape (r, m)."""
    features = np.asarray(features)
    most = max(1, len(np.atleast_1d(features)))
    features = design.usable(features, [each.name for each in task.features], most)
    whole = np.column_stack([features, np.full(len(features), task.target.upper)])
    return tasks.normalised(task, whole)[0]


def _to_data_units(task: CrowdTask, weights: Floats) -> Floats:
    """Return coefficients, shape (..., 1 + m), of normalised weights, shape (..., p)."""
    centres, scales = np.array([(each.centre, each.half_range) for each in task.features]).T
    is_linear = task.family == "linear"
    transform = to_data_units(centres, scales, task.target.half_range if is_linear else 1.0)
    found: Floats = weights @ transform[:, -weights.shape[-1] :].T
    found[..., 0] += task.target.centre if is_linear else 0.0
    return found


Contributors = Callable[[int, int], tuple[Floats, Floats]]
"""(n, R) -> rows, shape (n, R, r, p), and targets, shape (n, R, r), as `design_rows` has them: of
the r records of each client that makes the next n contributions to each of R crowds."""

_DRAWS = 1 << 16  # random numbers of a kind in one call of numpy


def in_turn(rows: Floats, targets: Floats, generator: np.random.Generator) -> Contributors:
    """Return contributors of whom each has contributed as often as any other, give or take one.

    `rows`, shape (n, r, p), and `targets`, shape (n, r), are of n clients. Every crowd meets all of
    them in an order of its own, then in another.
    """
    waiting = np.zeros((0, 0), dtype=np.int64)

    def pick(count: int, replicates: int) -> tuple[Floats, Floats]:
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
    after: Sequence[int],
    replicates: int = 1,
    noisy: bool = True,
    open_sessions: int = 0,
) -> IntArray:
    """Let contributions come to each of R crowds; instances all begin at the task's start.

    Returned are all instances of all crowds `after` so many contributions, which ascend: shape
    (len(after), R, k, p). `noisy` False leaves the noise out: what the same steps would learn
    without privacy. With m `open_sessions` a client's instance is drawn m contributions before it
    comes back.

    Raises:
        ValueError: sessions are below 0, or `after` is empty, or does not ascend from 0 or above.
    """
    if open_sessions < 0 or not after or [*after] != sorted({*after}) or after[0] < 0:
        raise ValueError("contributions and open sessions are counted from 0, and `after` ascends")
    state = np.tile(first_weights(task), (replicates, task.instances, 1))
    everyone = np.arange(replicates)
    open_draws = np.tile(first_weights(task), (open_sessions + 1, replicates, 1))  # a ring
    seen, wanted, last = list[IntArray](), {*after}, after[-1]
    size = max(1, _DRAWS // (replicates * task.dimension))
    for first in range(0, last + 1, size):
        count = min(size, last + 1 - first)
        rows, targets = contributors(count, replicates)
        drawn = generator.integers(0, task.instances, (count, replicates))
        replaced = generator.integers(0, task.instances, (count, replicates))
        noise = _noise(task, generator, count, replicates, noisy)
        touched = _touched(task, generator, count, replicates)
        for place in range(count):
            number = first + place
            if number in wanted:
                seen.append(state.copy())
            slot = (number + open_sessions) % (open_sessions + 1)
            open_draws[slot] = state[everyone, drawn[place]]
            weights = open_draws[number % (open_sessions + 1)]
            step = steps(task, weights, rows[place], targets[place])
            moved = decayed(task, weights) + step + noise[place]
            if touched is not None:
                moved = np.where(touched[place], moved, weights)
            state[everyone, replaced[place]] = np.clip(moved, -LARGEST_WEIGHT, LARGEST_WEIGHT)
    return np.array(seen)


def discrete_laplace(
    scale: float, shape: tuple[int, ...], generator: np.random.Generator
) -> IntArray:
    """Return integers x with probability in proportion to exp(-|x| / scale): NOT for privacy.

    The difference of two geometric variables [Inusah and Kozubowski 2006].
    """
    success = -math.expm1(-1.0 / scale)
    gain, loss = generator.geometric(success, (2, *shape))
    return np.asarray(gain - loss, np.int64)


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
    return np.asarray(chosen == np.arange(task.dimension))


class SimulatedCrowd:
    """Clients and their records, in memory. NO PRIVACY: for planning and for teaching.

    Every `records_per_client` of a task's records, in their order, are one client's; a rest is left
    out.

    `records` has columns by name: a mapping to vectors, or a data frame. Each `learn` draws new
    noise; the same `seed` and the same calls give the same models, distributed as those of a real
    crowd's job with as many contributions.
    """

    def __init__(self, records: Mapping[str, ArrayLike] | Any, *, seed: int) -> None:
        """Copy the records.

        Raises:
            ValueError: they are not columns of one length, a number is not finite, or there are
                none.
        """
        self._records = SimulatedRecords.of(records, missing=False)
        if not len(self._records):
            raise ValueError("there must be records")
        self._seeds = np.random.SeedSequence(seed)

    def __repr__(self) -> str:
        return f"<SimulatedCrowd of {len(self._records):,} records: NO PRIVACY>"

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
        [seeds] = self._seeds.spawn(1)
        generator = np.random.default_rng(seeds)
        rows, targets = self._design(task)
        total = contributions_per_client * len(rows)
        contributors = in_turn(rows, targets, generator)
        [[instances]] = simulate(
            task, contributors, generator, after=[total], open_sessions=open_sessions
        )
        return CrowdModel.of(task, instances, total)

    def _design(self, task: CrowdTask) -> tuple[Floats, Floats]:
        """Return rows, shape (n, r, p), and targets, (n, r), of n clients.

        Records with levels that the task does not have are left out.

        Raises:
            ValueError: a column of the task is missing or coded otherwise.
        """
        codings = _codings_of(task)
        self._records.require_codings(codings)
        self._records.beyond(task.columns, codings)  # none that speak of a wrong coding
        records = self._records.select(task.column_names)
        rows, targets = design_rows(task, records[in_levels(task.columns, records)])
        each, clients = task.records_per_client, len(rows) // task.records_per_client
        rows, targets = rows[: clients * each], targets[: clients * each]
        return rows.reshape(clients, each, task.dimension), targets.reshape(clients, each)


def _codings_of(task: CrowdTask) -> tuple[Coding, ...]:
    listed = codings_of_terms(each.term for each in task.columns)
    return (*listed, *codings_of_target(task.family, task.target))
