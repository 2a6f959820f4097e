"""Makes the round specs that a job would have if records were spread evenly over their bounds.

So a job that can never run is refused before anybody joins. No data is read.
"""

from datetime import datetime
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from shoal_hosting.installed_models import model_for
from shoal_learning.contract import RequestedRound
from shoal_learning.learners import learner_for
from shoal_protocol.certificates.study_request import StudyRequest
from shoal_protocol.privacy.accounting import NOTHING, compose
from shoal_protocol.queries import GradientSum, Query
from shoal_protocol.rounds.released_sum import ReleasedSum
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.trust.manifest import Consortium
from shoal_trainer.specs import next_spec

_RECORDS: Final = 64


def dry_run_specs(
    request: StudyRequest, consortium: Consortium, population: BitMap, *, now: datetime
) -> list[RoundSpec]:
    """Return the specs of a job's rounds if these clients join and nobody leaves.

    Rounds alike to the one before are left out, but for the last that a client is asked in.

    Raises:
        ValueError: one of them cannot be made, or would exceed the job's price.
    """
    learner, size = learner_for(request.task, find_model=model_for), len(population)
    most = request.task.participations(size)
    sums: list[ReleasedSum] = []
    specs: list[RoundSpec] = []
    spent = NOTHING
    while len(sums) < request.task.rounds:
        wanted = learner.next(size, sums)
        if not isinstance(wanted, RequestedRound):
            break
        is_alike = bool(sums) and wanted.query.name == sums[-1].query.name
        number = request.task.rounds - 1 if is_alike else len(sums)
        if is_alike:  # a client was asked as often as can be before
            spent = compose([NOTHING, *[specs[-1].cost] * (most - 1)])
        spec = next_spec(
            request,
            consortium,
            spread(population, wanted.batch or size),
            number=number,
            wanted=wanted,
            spent=spent,
            earlier=sums,
            now=now,
        )
        specs.append(spec)
        if is_alike:
            break
        spent = compose([spent, spec.cost])
        sums.append(_even(spec))
    return specs


def spread(population: BitMap, size: int) -> BitMap:
    """Return so many of a population, evenly, so that each data holder has its part of them."""
    clients = np.asarray(population.to_array())
    return BitMap(clients[np.linspace(0, len(clients) - 1, size).astype(np.intp)])


def _even(spec: RoundSpec) -> ReleasedSum:
    """Return the sum of a round whose cohort is complete."""
    size = spec.population_size
    coordinates, parts = zip(*spec.noise_blocks(), strict=True)
    variances = [part.variance(clients=size) for part in parts]
    return ReleasedSum(
        query=spec.query,
        values=np.rint(_mean(spec.query) * size).astype(np.int64),
        cohort_size=size,
        noise_sd=np.repeat(np.sqrt(variances), coordinates),
        mechanism=spec.noise.mechanism,
        surplus=size / spec.parties,
    )


def _mean(query: Query) -> NDArray[np.float64]:
    """Return what one client contributes on average, shape (dimension,): zeros of gradients."""
    if isinstance(query, GradientSum):
        return np.zeros(query.dimension)
    columns = tuple(each.model_copy(update={"term": None}) for each in query.columns)
    query = query.model_copy(update={"columns": columns})  # what a term makes is spread evenly
    # Richtmyer's sequence, and hardly a row twice
    steps = np.sqrt(np.arange(2, len(query.column_names) + 2))
    places = np.modf(np.outer(np.arange(1, _RECORDS + 1), steps))[0]
    centres = np.array([column.centre for column in columns])
    scales = np.array([column.scale for column in columns])
    records = centres + scales * (2.0 * places - 1.0)
    one = np.ones((query.records_per_client, 1))
    mean: NDArray[np.float64] = np.mean([query.encode(one * each) for each in records], axis=0)
    return mean
