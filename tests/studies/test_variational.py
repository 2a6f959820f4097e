"""Variational inference: right without noise, the same when replayed, honest about its limits."""

import numpy as np
import pytest

from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.queries.models.numpyro_models import Latent
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue.variational import LogisticRegressionTask
from shoal_studies.contract import RequestedRound
from shoal_studies.learners import learner_for
from shoal_studies.posteriors.variational import VariationalPosterior
from shoal_studies.simulation import Federation, run

X1, X2 = (ColumnBounds(name=name, lower=-2.0, upper=2.0) for name in ("x1", "x2"))
OUTCOME = ColumnBounds(name="outcome", lower=0.0, upper=1.0)
LOGISTIC = LogisticRegressionTask(
    features=(X1, X2), target=OUTCOME, rounds=300, batch=None, clip=4.0
)


def people(task, count, seed=0):
    """Return records, shape (count, 3), drawn from a model of the task's kind."""
    generator = np.random.default_rng(seed)
    features = generator.uniform(-2.0, 2.0, (count, 2))
    predictor = 0.4 + features @ [0.7, -0.3]
    target = generator.random(count) < 1.0 / (1.0 + np.exp(-predictor))
    return np.column_stack([features, target])


def answered(step, records, batch=None, seed=0):
    """Return the sum of a round without noise, over all records or a random batch."""
    if batch is not None:
        records = records[np.random.default_rng(seed).permutation(len(records))[:batch]]
    query = step.query
    many = query.model_copy(update={"records_per_client": len(records)})
    return ReleasedSum(
        query=query,
        values=many.encode(records),
        cohort_size=len(records),
        noise_sd=np.full(query.dimension, 1e-3),
        mechanism="discrete_gaussian",
    )


def without_noise(task, records, rounds=None):
    learner, sums = learner_for(task), []
    while len(sums) != rounds and isinstance(
        step := learner.next(len(records), sums), RequestedRound
    ):
        sums.append(answered(step, records, task.batch, seed=len(sums)))
    return learner, sums


def mode(task, records):
    """Return the posterior mode of the coefficients of columns in [-1, 1], and its curvature's sds.

    By Newton's method on the unclipped log posterior.
    """
    design = np.column_stack([np.full(len(records), task.intercept), records[:, :2] / 2.0])
    prior = np.array([task.prior_sd * 2.0 / task.intercept, task.prior_sd, task.prior_sd])
    theta = np.zeros(3)
    for _ in range(50):
        predictor = design @ theta
        mean = 1.0 / (1.0 + np.exp(-predictor))
        variance = mean * (1.0 - mean)
        slope = design.T @ (records[:, 2] - mean) - theta / prior**2
        curvature = design.T @ (design * variance[:, None]) + np.diag(prior**-2.0)
        theta = theta + np.linalg.solve(curvature, slope)
    return theta, 1.0 / np.sqrt(np.diagonal(curvature))


def test_without_noise_and_clipping_the_posterior_is_that_of_the_model():
    task = LOGISTIC
    records = people(task, 2000)
    learner, sums = without_noise(task, records)
    posterior = learner.next(len(records), sums)
    mean, sd = mode(task, records)
    assert posterior.names == ("intercept", "x1", "x2")
    assert posterior.columns == ("x1", "x2", task.target.name)
    assert np.all(np.abs(posterior.mean - mean) < 0.4 * sd)
    # a straight line through gradients along a path that goes up and down
    assert posterior.convergence.verdict == "arrived"
    assert posterior.sd == pytest.approx(sd, rel=0.5)
    assert posterior.records == 2000
    low, high = posterior.interval(0.9).T
    assert np.all((low < mean) & (mean < high))


def test_batches_find_the_same_coefficients_as_everybody_would():
    task = LOGISTIC.model_copy(update={"batch": 100, "rounds": 400, "learning_rate": 0.05})
    records = people(task, 2000)
    learner, sums = without_noise(task, records)
    posterior = learner.next(2000, sums)
    mean, sd = mode(task, records)
    assert {released.cohort_size for released in sums} == {100}
    assert np.all(np.abs(posterior.mean - mean) < 2.0 * sd)


def test_every_round_asks_what_clients_allow():
    records = people(LOGISTIC, 50)
    _, sums = without_noise(LOGISTIC, records, rounds=20)
    for number, released in enumerate(sums):
        LOGISTIC.terms(least=50, most=50).check(released.query, number=number)
    points = {released.query.point for released in sums}
    assert len(points) == 20


def test_rounds_that_were_lost_leave_a_posterior_of_the_others():
    records = people(LOGISTIC, 50)
    learner, sums = without_noise(LOGISTIC, records, rounds=280)
    assert isinstance(learner.next(50, sums), RequestedRound)
    assert isinstance(learner.conclude(50, sums), VariationalPosterior)


def test_noise_that_drowns_everything_leaves_numbers_that_are_finite():
    task = LOGISTIC.model_copy(update={"rounds": 60})
    learner, sums = learner_for(task), []
    generator = np.random.default_rng(1)
    for _ in range(60):
        query = learner.next(50, sums).query
        values = generator.choice([-1, 1], query.dimension) * 2**55
        sd = np.full(query.dimension, 2.0**55)
        sums.append(
            ReleasedSum(
                query=query,
                values=values,
                cohort_size=50,
                noise_sd=sd,
                mechanism="discrete_laplace",
            )
        )
    posterior = learner.next(50, sums)
    assert np.all(np.isfinite(posterior.mean)) and np.all(posterior.sd > 0.0)


@pytest.mark.parametrize("delta", [1e-5, 0.0])
def test_a_job_with_noise_predicts_better_than_the_base_rate(delta):
    # A generous epsilon, so that with this seed it is no matter of luck.
    task = LOGISTIC.model_copy(update={"rounds": 40, "clip": 0.5})
    records = people(task, 3000)
    federation = Federation(
        population=3000, missing=5, dropouts=10, colluders=10, epsilon=8.0, delta=delta
    )
    posterior = run(learner_for(task), records, federation, np.random.default_rng(1)).posterior
    unseen = people(task, 2000, seed=9)
    predictor = task.intercept * posterior.mean[0] + unseen[:, :2] @ posterior.mean[1:] / 2.0
    loss = np.mean(np.logaddexp(0.0, (1.0 - 2.0 * unseen[:, 2]) * predictor))
    base = unseen[:, 2].mean()
    assert loss < 0.95 * -(base * np.log(base) + (1.0 - base) * np.log(1.0 - base))


def logistic(**changes):
    fields = {
        "names": ("intercept", "x1"),
        "columns": ("x1", "outcome"),
        "latents": (Latent(name="intercept"), Latent(name="x1")),
        "location": (2.0, 1.5),
        "scale": (0.5, 0.8),
        "records": 9,
    }
    return VariationalPosterior(**(fields | changes))


def test_a_posterior_that_knows_of_no_noise_says_that_it_is_too_narrow():
    assert logistic().convergence is None
    assert "too narrow" in repr(logistic()) and "too narrow" in str(logistic())
    assert "TOO NARROW" in VariationalPosterior.__doc__


@pytest.mark.parametrize(
    "changes",
    [
        {"location": (1e31, 0.0)},
        {"location": (0.0, -1e31)},
        {"scale": (1e41, 1.0)},
        {"scale": (1.0, 1e-41)},
    ],
)
def test_a_posterior_of_numbers_whose_squares_are_none_is_refused(changes):
    with pytest.raises(ValueError, match=r"location|scale"):
        logistic(**changes)
