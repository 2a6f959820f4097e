"""Runs a learner's whole job on records in memory, without parties, for experiments only.

The noise is drawn by numpy, rounded to integers: the right distribution, and no privacy.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal_learning.contract import Learner, RequestedRound
from shoal_protocol.privacy.accounting import Cap
from shoal_protocol.privacy.job_costs import noise_for
from shoal_protocol.privacy.mechanisms import LaplacePart, NoisePart, effective_noise_clients
from shoal_protocol.queries import Mechanism, Query, Tables
from shoal_protocol.queries.scores import Gradients
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.studies import Posterior


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
    mechanism: Mechanism = "discrete_laplace" if budget.is_pure else "discrete_gaussian"
    dropouts, colluders = federation.dropouts, federation.colluders
    parties = effective_noise_clients(population=asked, dropouts=dropouts, colluders=colluders)
    design = step.query.design(mechanism)
    noise = noise_for(
        mechanism,
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
    drawn = np.array([_draw(part, cohort, generator) for part in parts])
    return ReleasedSum(
        query=step.query,
        values=exact + np.rint(drawn).astype(np.int64),
        cohort_size=cohort,
        noise_sd=np.sqrt([part.variance(clients=cohort) for part in parts]),
        mechanism=mechanism,
        surplus=cohort / parties,
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
    whole = query.model_copy(update={"records_per_client": len(cohort)})
    return whole.encode(cohort, gradients) if whole.name == "gradient_sum" else whole.encode(cohort)


def _draw(part: NoisePart, clients: int, generator: np.random.Generator) -> float:
    """Return the noise of so many clients on one coordinate, before it is rounded."""
    if isinstance(part, LaplacePart):
        gain, loss = generator.gamma(clients / part.parties, part.scale, 2)
        return float(gain - loss)
    return part.scale * math.sqrt(clients) * generator.standard_normal()
