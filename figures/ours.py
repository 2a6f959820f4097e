"""The product's own linear regression on the figures' data, by `shoal_studies.simulation`.

Everything counts as in a real job, integers and accounting; only the noise is numpy's. Nobody drops
out and nobody colludes, as in the paper's experiments.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.privacy.accounting import Cap
from shoal_protocol.privacy.job_costs import noise_for
from shoal_protocol.privacy.mechanisms import effective_noise_clients
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue.linear_regression import (
    LinearRegressionPosterior,
    LinearRegressionTask,
    RegressionMethod,
)
from shoal_studies.catalogue.regression import (
    MeasuredRegressionPosterior,
    Purpose,
    RegressionTask,
)
from shoal_studies.contract import RequestedRound
from shoal_studies.registry import learner_for
from shoal_studies.simulation import Federation, run

Floats = NDArray[np.float64]

UCI_BOUND: Final = 7.5
"""Public bound of every scaled column, as the paper assumes it: wider than the range of 10."""


GENE_BOUNDS: Final = (2.0, 14.0)
"""Public bounds of log2 RMA expression: the method's own floor and the scanner's saturation."""

RESPONSE_BOUNDS: Final = (-2.0, 6.0)
"""Public bounds of ln IC50 in micromolar: .14 to 400, about what drugs are screened at."""


def uci_task(features: int, purpose: Purpose = "prediction") -> RegressionTask:
    """Return the task of Figure 2."""
    columns = _columns(features, (-UCI_BOUND, UCI_BOUND), (-UCI_BOUND, UCI_BOUND))
    return RegressionTask(family="normal", **columns, purpose=purpose)


def gdsc_task(genes: int, purpose: Purpose = "prediction") -> RegressionTask:
    """Return the task of Figure 3: rows as they are in the file, one response's bounds for all."""
    columns = _columns(genes, GENE_BOUNDS, RESPONSE_BOUNDS)
    return RegressionTask(family="normal", **columns, purpose=purpose)


def algorithm2_task(
    features: int, bounds: tuple[float, float], method: RegressionMethod
) -> LinearRegressionTask:
    """Return Algorithm 2 with correct sensitivities, for columns that are centred already.

    `bounds` are those of features and target about 0, as the published methods assume them.
    """
    feature, target = bounds
    columns = _columns(features, (-feature, feature), (-target, target))
    return LinearRegressionTask(**columns, method=method, intercept=0.0)


def _columns(count: int, each: tuple[float, float], target: tuple[float, float]) -> dict[str, Any]:
    return {
        "features": tuple(
            ColumnBounds(name=f"x{place}", lower=each[0], upper=each[1]) for place in range(count)
        ),
        "target": ColumnBounds(name="y", lower=target[0], upper=target[1]),
    }


def services_would_run(
    task: RegressionTask, *, population: int, epsilon: float, delta: float
) -> bool:
    """Tell whether services would accept the noise of the job's first round on its grid."""
    wanted = learner_for(task).next(population, [])
    if not isinstance(wanted, RequestedRound):
        return True
    design = wanted.query.design("discrete_gaussian")
    cost = Cap(epsilon=epsilon, delta=delta).part(wanted.share)
    noise = noise_for(
        "discrete_gaussian",
        sensitivity=design.sensitivity,
        cost=cost,
        population=population,
        dropouts=0,
        colluders=0,
    )
    parties = effective_noise_clients(population=population, dropouts=0, colluders=0)
    return noise.is_fine_enough(design, parties=parties, mu=cost.mu)


LinePosterior = MeasuredRegressionPosterior | LinearRegressionPosterior


@dataclass(frozen=True)
class Fit:
    """A job's posterior and the sums that it came from."""

    posterior: LinePosterior
    sums: tuple[ReleasedSum, ...]


def fit(
    task: RegressionTask | LinearRegressionTask,
    rows: Floats,
    *,
    epsilon: float,
    delta: float,
    generator: np.random.Generator,
) -> Fit:
    """Return the job's outcome for `rows`, one client each, columns as `task` has them."""
    federation = Federation(
        population=len(rows), missing=0, dropouts=0, colluders=0, epsilon=epsilon, delta=delta
    )
    outcome = run(learner_for(task), rows, federation, generator)
    return Fit(_regression(outcome.posterior), outcome.sums)


def fit_without_noise(task: RegressionTask, rows: Floats) -> Fit:
    """Return the outcome of a job that adds hardly any noise: NOT private, for comparison only."""
    learner, sums = learner_for(task), list[ReleasedSum]()
    while isinstance(step := learner.next(len(rows), sums), RequestedRound):
        whole = step.query.model_copy(update={"records_per_client": len(rows)})
        released = ReleasedSum(
            query=step.query,
            values=whole.encode(rows),
            cohort_size=len(rows),
            noise_sd=np.ones(step.query.dimension),
            mechanism="discrete_gaussian",
        )
        sums.append(released)
    return Fit(_regression(step), tuple(sums))


def _regression(
    posterior: object,
) -> LinePosterior:
    if not isinstance(posterior, LinePosterior):
        raise TypeError("a regression ended in another kind of posterior")
    return posterior
