"""Plans a study by the Distributed Compute Algorithm: its cost and its expected error.

The learner itself is run on the expected sums of the assumed records, with the noise that its
rounds would have, a few times: what its means scatter by is what privacy costs.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal.planning import sizes
from shoal.planning.assumptions import Assumed, assume, evenly_spread, settled
from shoal.planning.study import ErrorParts, Prospect, Study
from shoal_learning.contract import RequestedRound
from shoal_learning.regression import Regression
from shoal_learning.simulation import Federation, with_noise
from shoal_protocol.queries import Query
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.queries.models import Family
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.studies.regression import RegressionTask, TargetFamily
from shoal_protocol.trust.policy import LARGEST_POPULATION

Floats = NDArray[np.float64]

_FAMILIES: Final[dict[Family, TargetFamily]] = {
    "linear": "normal",
    "logistic": "logistic",
    "poisson": "poisson",
}
_RUNS: Final = 12
_SEED: Final = 1703_01106
_MOST_COPIES: Final = 16  # of a point, with other targets
_MOST_VALUES: Final = 2_000_000  # of all copies, but for wide studies


def in_rounds_task(study: Study) -> RegressionTask:
    """Return the task of a job that learns the study's model in rounds."""
    lower = -1.0 if study.family == "linear" else 0.0
    upper = study.largest_count if study.family == "poisson" else 1.0
    features = tuple(
        ColumnBounds(name=f"feature {place}", lower=-1.0, upper=1.0)
        for place in range(study.features)
    )
    target = ColumnBounds(name="target", lower=lower, upper=upper)
    return RegressionTask(family=_FAMILIES[study.family], features=features, target=target)


def distributed_compute(study: Study) -> Prospect:
    """Return what a job in rounds would cost, and its posterior mean's expected error.

    Raises:
        ValueError: nobody's noise would be left, or the assumed records have no estimate.
    """
    task, assumed = in_rounds_task(study), assume(study)
    error, queries = _simulated(study, task, assumed)
    rounds = [sizes.of_a_round(study, query, population=study.clients) for query in queries]
    sent, received = (sum(each) for each in zip(*rounds, strict=True))
    joining, job = sizes.of_joining(study, task)
    excluded = None
    if not study.fits_rounds:
        excluded = f"a job in rounds has at most {LARGEST_POPULATION:,} clients"
    dropouts, colluders = study.tolerated
    return Prospect(
        protocol="distributed_compute",
        rounds=task.rounds,
        answers=task.rounds,
        sent_bytes=sent + joining,
        received_bytes=received + job,
        taken_in_bytes=study.clients * (sent + joining),
        error=error,
        settings={
            "Compute nodes": study.nodes,
            "of which open a sum": study.sharing.opening(study.nodes),
            "dropouts": dropouts,
            "colluders": colluders,
            "most numbers in a sum": max(query.dimension for query in queries),
            "noise": study.cap.mechanism,
        },
        excluded=excluded,
    )


def _simulated(
    study: Study, task: RegressionTask, assumed: Assumed
) -> tuple[ErrorParts, tuple[Query, ...]]:
    """Return the error's parts, and the queries of the rounds."""
    records, sums = _copies(assumed), tuple[ReleasedSum, ...]()
    generator = np.random.default_rng([_SEED, study.clients])  # noqa: TID251 - a simulation
    means = np.empty((_RUNS, study.coefficients))
    for run in range(_RUNS):
        means[run], sums = _run(study, task, records, generator)
    noise = means.std(axis=0, ddof=1)
    off = (means.mean(axis=0) - assumed.truth) ** 2 - noise**2 / _RUNS
    error = ErrorParts.of(
        noise=noise,
        sampling=_sampling(assumed),
        bias=np.sqrt(np.maximum(off, 0.0)),
        unfinished=np.zeros(len(noise)),
    )
    return error, tuple(released.query for released in sums)


def _run(
    study: Study,
    task: RegressionTask,
    records: Floats,
    generator: np.random.Generator,  # noqa: TID251 - a simulation
) -> tuple[Floats, tuple[ReleasedSum, ...]]:
    """Return the posterior mean of a job over expected sums, shape (p,), and these with noise."""
    learner, clients = Regression(task), min(study.clients, LARGEST_POPULATION)
    dropouts, colluders = study.tolerated
    federation = Federation(
        population=clients,
        missing=0,
        dropouts=dropouts,
        colluders=colluders,
        epsilon=study.epsilon,
        delta=study.delta,
    )
    sums: list[ReleasedSum] = []
    while isinstance(step := learner.next(clients, sums), RequestedRound):
        whole = step.query.model_copy(update={"records_per_client": len(records)})
        expected = np.rint(whole.encode(records) * (clients / len(records))).astype(np.int64)
        sums.append(
            with_noise(step, expected, federation, generator, asked=clients, cohort=clients)
        )
    return step.mean, tuple(sums)


def _copies(assumed: Assumed) -> Floats:
    """Return records that stand for all that are assumed, shape (n, features + 1).

    Each point has its targets in the shares of their weights, as closely as so many copies can;
    which are rounded up differs from point to point, evenly.
    """
    points, features = assumed.features.shape
    copies = min(_MOST_COPIES, max(2, _MOST_VALUES // (points * (features + 1))))
    start = evenly_spread(points, features + 1)[:, -1]
    places = (np.arange(copies) + start[:, None]) / copies
    ends = np.cumsum(assumed.weights, axis=1)
    ends /= ends[:, -1:]
    found = np.sum(places[:, :, None] > ends[:, None, :-1], axis=2)
    targets = np.take_along_axis(assumed.targets, found, axis=1)
    return np.column_stack([np.repeat(assumed.features, copies, axis=0), targets.ravel()])


def _sampling(assumed: Assumed) -> Floats:
    """Return what the exact fit to so many records errs by, shape (p,).

    By the sandwich variance, for features that hardly correlate.
    """
    rows, clients = assumed.rows(1.0), assumed.study.clients

    def mean_score(point: Floats) -> Floats:
        return _sums(assumed.weights * assumed.residuals(rows @ point)) @ rows

    fitted, falls = settled(mean_score, assumed.truth, slopes=assumed.slopes(rows))
    squares = _sums(assumed.weights * assumed.residuals(rows @ fitted) ** 2) @ rows**2
    return np.asarray(np.sqrt(squares / clients) / falls)


def _sums(weighted: Floats) -> Floats:
    return np.asarray(weighted.sum(axis=1))
