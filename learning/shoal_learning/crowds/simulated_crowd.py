"""A crowd of records in memory, on which crowd tasks are learned for planning and teaching.

It has NO PRIVACY: its user has all records, and the noise is numpy's. Its models are distributed as
those of a real crowd's job with as many contributions.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shoal_learning.crowds.model import CrowdModel
from shoal_learning.crowds.simulation import in_turn, simulate
from shoal_learning.simulated_records import OnRecords, SimulatedRecords
from shoal_protocol.crowds.tasks import CrowdTask
from shoal_protocol.crowds.updates import design_rows
from shoal_protocol.queries.columns import in_levels
from shoal_protocol.trust.codings import Coding, codings_of_target, codings_of_terms


class SimulatedCrowd(OnRecords):
    """Clients that hold one record each, in memory. NO PRIVACY: for planning and for teaching.

    `records` has columns by name: a mapping to vectors, or a data frame. Each `learn` draws new
    noise; the same `seed` and the same calls give the same models. Estimators are fitted on it:
    they are given a snapshot every so many contributions, none if `snapshot_every` is None.
    """

    def __init__(
        self,
        records: Mapping[str, ArrayLike] | Any,
        *,
        seed: int,
        snapshot_every: int | None = None,
    ) -> None:
        """Copy the records.

        Raises:
            ValueError: they are not columns of one length, a number is not finite, or there are
                none.
        """
        self._records = SimulatedRecords.of(records, missing=False)
        if not len(self):
            raise ValueError("there must be records")
        if snapshot_every is not None and snapshot_every < 1:
            raise ValueError("snapshot_every must be at least 1")
        self._snapshot_every = snapshot_every
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
        snapshots: Sequence[int] | None = None,
        open_sessions: int = 0,
    ) -> tuple[CrowdModel, ...]:
        """Return the models after so many contributions each, and in the end after all of them.

        `snapshots` None is every `snapshot_every` contributions.
        Each client contributes `contributions_per_client` times; who does so next is chosen at
        random among those that have contributed least. Each pays the task's `contribution_epsilon`
        for every one. Each answers its draw before the next one draws; with m `open_sessions`, m
        others answer in between, as under a load, and learning is slower.

        Raises:
            ValueError: a column of the task is missing or coded otherwise, a snapshot is none of
                this job's, or sessions are below 0.
        """
        self._require_codings(_codings_of(task))
        self.beyond(task)
        records = self._records.select(task.column_names)
        rows, targets = design_rows(task, records[in_levels(task.columns, records)])
        total = contributions_per_client * len(rows)
        if snapshots is None:
            every = self._snapshot_every
            snapshots = () if every is None else range(every, total, every)
        [seeds] = self._seeds.spawn(1)
        generator = np.random.default_rng(seeds)
        found = simulate(
            task,
            in_turn(rows, targets, generator),
            generator,
            contributions=total,
            snapshots=snapshots,
            open_sessions=open_sessions,
        )
        return tuple(
            CrowdModel.of(task, weights[0], contributions)
            for contributions, weights in zip(found.contributions, found.weights, strict=True)
        )


def _codings_of(task: CrowdTask) -> tuple[Coding, ...]:
    listed = codings_of_terms(each.term for each in task.columns)
    return (*listed, *codings_of_target(task.family, task.target))
