"""Runs learners on records in memory, for planning, teaching and experiments.

It has NO PRIVACY: its user has all records, and numpy draws the noise, rounded to integers.
Posteriors are distributed as those of a real federation's job at that price.
"""

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shoal_protocol.privacy.accounting import USELESS_DELTA, Cap
from shoal_protocol.privacy.job_costs import PrivacySpent, noise_for
from shoal_protocol.privacy.mechanisms import effective_noise_clients
from shoal_protocol.queries import Query, Tables
from shoal_protocol.queries.models.numpyro_models import CompiledModel, RecordModel, compile_model
from shoal_protocol.queries.scores import Gradients
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.trust.dictionary import COUNTING, fault_of
from shoal_studies.catalogue.one_round import SummedNoise
from shoal_studies.catalogue.regression import Verdict
from shoal_studies.catalogue.variational import NumpyroTask
from shoal_studies.coding import Variable, Variables, variables_given
from shoal_studies.contract import Learner, RequestedRound
from shoal_studies.registry import Posterior, Task, learner_for
from shoal_studies.simulated_records import SimulatedRecords


@dataclass(frozen=True, kw_only=True)
class Federation:
    """How many clients there are, how many of them fail or collude, and what a job may cost.

    With `delta` 0 the noise is Laplace's.
    """

    population: int
    missing: int
    dropouts: int
    colluders: int
    epsilon: float
    delta: float


@dataclass(frozen=True)
class Outcome:
    """A job's posterior and the sums that it came from."""

    posterior: Posterior
    sums: tuple[ReleasedSum, ...]


def run(
    learner: Learner,
    records: NDArray[np.float64],
    federation: Federation,
    generator: np.random.Generator,
    *,
    gradients: Gradients | None = None,
    there: NDArray[np.bool_] | None = None,
) -> Outcome:
    """Return the posterior that `learner` would get from `records`, shape (population, columns).

    Each client has one record; one whose row has a NaN has none, and adds its noise alone. Tables
    count what is missing: for them only clients not `there`, shape (population,), have no record,
    None: those whose whole row is NaN.
    The first `missing` clients fail before every round; the noise is calibrated for `dropouts`.
    A round of a batch asks those who were asked least often, at random among equals.
    `gradients` are those of the installed model that the learner asks for, if it does.
    """
    with_record = ~np.all(np.isnan(records), axis=1) if there is None else there
    asked = np.zeros(federation.population, dtype=np.int64)
    sums: list[ReleasedSum] = []
    while True:
        step = learner.next(federation.population, sums)
        if not isinstance(step, RequestedRound):
            return Outcome(step, tuple(sums))
        batch = _batch(step.batch, asked, generator)
        asked[batch] += 1
        here = batch[batch >= federation.missing]
        cohort = records[here]
        is_whole = np.all(~np.isnan(cohort), axis=1)
        counted = cohort[with_record[here] if isinstance(step.query, Tables) else is_whole]
        exact = _sum(step.query, counted, gradients)
        sums.append(
            with_noise(step, exact, federation, generator, asked=len(batch), cohort=len(cohort))
        )


def with_noise(
    step: RequestedRound,
    exact: NDArray[np.int64],
    federation: Federation,
    generator: np.random.Generator,
    *,
    asked: int,
    cohort: int,
) -> ReleasedSum:
    """Return what a round would release whose sum is `exact`, shape (d,).

    It asked so many clients, `cohort` of which answered.
    """
    budget = Cap(epsilon=federation.epsilon, delta=federation.delta)
    dropouts, colluders = federation.dropouts, federation.colluders
    parties = effective_noise_clients(population=asked, dropouts=dropouts, colluders=colluders)
    design = step.query.design(budget.mechanism)
    noise = noise_for(
        budget.mechanism,
        sensitivity=design.sensitivity,
        cost=budget.part(step.share),
        population=asked,
        dropouts=dropouts,
        colluders=colluders,
    )
    parts = [
        noise.part(block.relative_scale, parties=parties)
        for block in design.blocks
        for _ in range(block.coordinates)
    ]
    sds, surplus = np.sqrt([part.variance(clients=cohort) for part in parts]), cohort / parties
    drawn = [
        SummedNoise(mechanism=budget.mechanism, sd=sd, shape=surplus).draw((), generator)
        for sd in sds.tolist()
    ]
    return ReleasedSum(
        query=step.query,
        values=exact + np.rint(drawn).astype(np.int64),
        cohort_size=cohort,
        noise_sd=sds,
        mechanism=budget.mechanism,
        surplus=surplus,
    )


def _batch(
    size: int | None, asked: NDArray[np.int64], generator: np.random.Generator
) -> NDArray[np.intp]:
    """Return whom a round asks: all, or `size` of those who were `asked` in the fewest rounds."""
    if size is None:
        return np.arange(len(asked))
    return np.lexsort((generator.random(len(asked)), asked))[:size]


def _sum(
    query: Query, cohort: NDArray[np.float64], gradients: Gradients | None
) -> NDArray[np.int64]:
    """Return the sum over clients of one record each in one go."""
    if not len(cohort):
        return np.zeros(query.dimension, dtype=np.int64)
    if query.name != "gradient_sum":
        return query.encode_apart(cohort)
    whole = query.model_copy(update={"records_per_client": len(cohort)})
    return whole.encode(cohort, gradients)


@dataclass(frozen=True)
class SimulatedOutcome:
    """A task learned in a simulation; `privacy` is what a real job would have cost each client.

    `beyond` says which columns have more than one value in a hundred beyond their bounds; from one
    in twenty on the verdict says so, too.
    """

    task: Task
    posterior: Posterior
    privacy: PrivacySpent
    beyond: tuple[str, ...] = ()


class SimulatedFederation:
    """Clients that hold one record each, in memory. NO PRIVACY: for planning and for teaching.

    `records` has columns by name: a mapping to vectors, or a data frame. A client with a NaN in a
    column of the task has no record for it, which nobody is told: it adds its noise alone. Where a
    task counts what is missing, only a client without any value has no record. In each
    round the first `missing` clients fail; the noise is calibrated for `dropouts` and `colluders`,
    to cost each client (`epsilon`, `delta`), as `Analyst.submit` has it. Each `learn` draws new
    noise; the same `seed` and the same calls give the same posteriors. `models` are the NumPyro
    models that tasks may name, by entry point: what a real federation has installed.

    A text is a level, and becomes its place. `variables` are those of a data dictionary, or bounds
    and levels by name, as estimators take them, by which
    tasks are judged as a trainer does, and gaps get an indicator. Without them estimators have to
    say what they read, as in a federation without a dictionary: nothing is told from the records.
    """

    def __init__(
        self,
        records: Mapping[str, ArrayLike] | Any,
        *,
        epsilon: float,
        delta: float,
        dropouts: int,
        colluders: int,
        seed: int,
        missing: int = 0,
        models: Mapping[str, RecordModel] | None = None,
        variables: Variables | Iterable[Variable] | None = None,
    ) -> None:
        """Copy the records.

        Raises:
            ValueError: they are not columns of one length, a number is not finite, or the price or
                the counts are out of range.
        """
        known = None if variables is None else variables_given(variables)
        for name, number in (("epsilon", epsilon), ("delta", delta)):
            if not isinstance(number, Real):
                raise ValueError(f"{name} is a number, as 1.0")
        for name, count in (("dropouts", dropouts), ("colluders", colluders), ("missing", missing)):
            if not isinstance(count, Integral):
                raise ValueError(f"{name} is a whole number of clients")
        self._records = SimulatedRecords.of(records, known, missing=True)
        if not 0 <= missing <= dropouts or colluders < 0:
            raise ValueError("missing must lie between 0 and dropouts, and colluders not below 0")
        self._cap = Cap(epsilon=epsilon, delta=delta)
        self._dropouts, self._colluders, self._missing = dropouts, colluders, missing
        self._models = dict(models or {})
        self._seeds = np.random.SeedSequence(seed)
        if dropouts + colluders + 1 >= len(self):
            raise ValueError(
                f"there must be more clients than dropouts + colluders + 1: {len(self):,} are not "
                f"more than {dropouts + colluders + 1:,}"
            )
        if delta * len(self) >= 1.0:
            raise ValueError(
                f"delta must be below 1 / {len(self):,}, one over the clients: {USELESS_DELTA}"
            )

    def __repr__(self) -> str:
        return f"<SimulatedFederation of {len(self):,} clients at {self._cap}: NO PRIVACY>"

    def __len__(self) -> int:
        """Return the number of clients."""
        return len(self._records)

    def variables(self) -> Mapping[str, Variable]:
        """Return what is known of the columns, by name."""
        return self._records.variables

    def with_variables(self, given: Mapping[str, Variable]) -> Self:
        """Return the same with other levels and bounds; those that were agreed stay.

        Both draw from one seed.
        """
        part = copy(self)
        part._records = self._records.with_variables(given)
        return part

    def learn(self, task: Task) -> SimulatedOutcome:
        """Carry out a task's rounds here and now.

        Raises:
            ValueError: a column of the task is missing, or not as the variables that were agreed
                say, or has other codes than its bounds 0 and 1, its model is not at hand, or there
                are too few clients for it.
        """
        self._records.require_codings(task.codings)
        as_levels = set(task.query_names()) <= COUNTING
        if self._records.is_agreed and (
            fault := fault_of(self.variables(), task.columns, as_levels=as_levels)
        ):
            raise ValueError(fault)
        beyond, doubted = self._records.beyond(task.columns, task.codings)
        records = self._records.select(task.column_names)
        [seeds] = self._seeds.spawn(1)
        federation = Federation(
            population=len(self),
            missing=self._missing,
            dropouts=self._dropouts,
            colluders=self._colluders,
            epsilon=self._cap.epsilon,
            delta=self._cap.delta,
        )
        model = self._compiled(task) if isinstance(task, NumpyroTask) else None
        learner = (
            learner_for(task) if model is None else learner_for(task, find_model=lambda *_: model)
        )
        outcome = run(
            learner,
            records,
            federation,
            np.random.default_rng(seeds),
            gradients=None if model is None else model.gradients,
            there=np.any(~np.isnan(self._records.values), axis=1),
        )
        spent = PrivacySpent(
            epsilon=self._cap.epsilon, delta=self._cap.delta, mu=self._cap.whole.mu
        )
        posterior = outcome.posterior
        if doubted and isinstance(judged := getattr(posterior, "verdict", None), Verdict):
            told = judged.reasons if judged.kind == "doubtful" else ()
            doubtful = Verdict(kind="doubtful", reasons=(*told, *doubted))
            posterior = posterior.model_copy(update={"verdict": doubtful})
        return SimulatedOutcome(task, posterior, spent, beyond)

    def _compiled(self, task: NumpyroTask) -> CompiledModel:
        if task.entry_point not in self._models:
            raise ValueError(
                f"the task names the model {task.entry_point!r}: hand it over in `models`"
            )
        if task.normalised:
            lower, upper = -np.ones(len(task.columns)), np.ones(len(task.columns))
        else:
            lower = np.array([column.lower for column in task.columns])
            upper = np.array([column.upper for column in task.columns])
        names = [column.name for column in task.columns]
        return compile_model(self._models[task.entry_point], names, lower=lower, upper=upper)
