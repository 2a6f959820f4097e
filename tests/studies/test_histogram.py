"""Histograms: the task, its posterior, how often intervals hold, and a job over all services."""

from itertools import pairwise

import numpy as np
import pytest

from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.wire.errors import RefusedJob, RefusedSpec
from shoal_studies.catalogue.cells import CategoricalTask, HistogramTask
from shoal_studies.catalogue.study import check_terms_of_task
from shoal_studies.registry import learner_for
from shoal_studies.simulation import Federation as Setting
from shoal_studies.simulation import run

pytestmark = pytest.mark.slow

EDGES = (18.0, 30.0, 45.0, 60.0, 75.0, 90.0, 100.0)
MIDDLES = np.array([(lower + upper) / 2.0 for lower, upper in pairwise(EDGES)])
TASK = HistogramTask(column="age", edges=EDGES)


def released(task: HistogramTask | CategoricalTask, counts: list[int], sd: float) -> ReleasedSum:
    """Return a sum that is these counts, with noise of `sd` records."""
    query = task.query()
    values = np.array([*counts, sum(counts)]) * query.grid
    return ReleasedSum(
        query=query,
        values=values.astype(np.int64),
        cohort_size=sum(counts),
        noise_sd=np.full(query.dimension, sd * query.grid),
        mechanism="discrete_gaussian",
    )


def test_a_round_is_held_to_the_tasks_own_edges() -> None:
    other = TASK.model_copy(update={"edges": (18.0, 31.0, *EDGES[2:])})
    with pytest.raises(RefusedSpec):
        TASK.terms(least=10, most=20).check(other.query(), number=0)
    with pytest.raises(RefusedJob):
        check_terms_of_task(other.terms(least=10, most=20), TASK, least=10, most=20)


def test_without_noise_the_posterior_is_the_dirichlet_distribution() -> None:
    # 2,000 draws: means within .1 standard deviations, and these to a tenth; false alarm below 1e-3
    counts = [5, 0, 20, 40, 3, 1]
    posterior = learner_for(TASK).next(69, [released(TASK, counts, sd=0.01)])
    alphas = np.array(counts) + 1.0
    shares = alphas / alphas.sum()
    sds = np.sqrt(shares * (1 - shares) / (alphas.sum() + 1))
    assert np.all(np.abs(posterior.mean - shares) < 0.1 * sds)
    np.testing.assert_allclose(posterior.sd, sds, rtol=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("delta", [1e-5, 0.0], ids=["gaussian", "laplace"])
@pytest.mark.parametrize("clients", [60, 400])
def test_intervals_hold_as_often_as_they_say(clients: int, delta: float) -> None:
    """Probabilities are drawn from the prior, and any number of clients has no record.

    With half a record of prior for each bin many bins are empty. 200 independent intervals at 90 %:
    163 to 195 of them hold but with probability 1e-4 (binomial), if the posterior is right.
    """
    task = TASK.model_copy(update={"concentration": 0.5})
    setting = Setting(
        population=clients, missing=3, dropouts=5, colluders=5, epsilon=2.0, delta=delta
    )
    generator = np.random.default_rng(clients)
    hold = 0
    for _ in range(200):
        truth = generator.dirichlet(np.full(len(MIDDLES), 0.5))
        held = int(generator.integers(clients - 3 + 1))
        records = np.full((clients, 1), np.nan)
        records[3 : 3 + held, 0] = generator.choice(MIDDLES, held, p=truth)
        posterior = run(learner_for(task), records, setting, generator).posterior
        chosen = generator.integers(len(MIDDLES))
        low, high = posterior.interval(0.9)[chosen]
        hold += int(low <= truth[chosen] <= high)
    assert 163 <= hold <= 195
