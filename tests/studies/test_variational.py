"""Variational inference: right without noise, the same when replayed, honest about its limits.

Its posteriors know of the noise: intervals hold, and a path that is under way shows. Rates of
false alarm are stated at each statistical test; seeds are fixed.
"""

import math

import numpy as np
import pytest

from bench.variational_verdicts import judged, patients
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.queries.models.numpyro_models import Latent
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue.variational import LogisticRegressionTask
from shoal_studies.catalogue.variational.noise_aware import Path, drawn, fitted, inferred
from shoal_studies.catalogue.variational.posterior import (
    FALSE_ALARMS,
    Convergence,
    VariationalPosterior,
)
from shoal_studies.contract import RequestedRound
from shoal_studies.registry import learner_for
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


def test_rounds_that_were_lost_leave_a_posterior_of_the_others():
    records = people(LOGISTIC, 50)
    learner, sums = without_noise(LOGISTIC, records, rounds=280)
    assert isinstance(learner.next(50, sums), RequestedRound)
    assert isinstance(learner.conclude(50, sums), VariationalPosterior)


def logistic(**changes):
    fields = {
        "names": ("intercept", "x1"),
        "columns": ("x1", "outcome"),
        "latents": (Latent(name="intercept"), Latent(name="x1")),
        "location": (2.0, 1.5),
        "scale": (0.5, 0.8),
        "prior_sd": (20.0, 3.0),
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


CURVATURE = np.array([[60.0, 25.0], [25.0, 40.0]])
PRIOR = np.eye(2)
NOISE = 60.0  # standard deviation of a round's: alone, of 2 posterior ones at 100 rounds


def quadratic(generator, rounds=160, noise=NOISE, led=1.0):
    """Return a truth from the prior, and a path about where noise has led it.

    `led` is how far, in standard deviations that the noise of so many rounds gives an answer.
    """
    truth = generator.standard_normal(2)
    mode = truth + np.linalg.cholesky(np.linalg.inv(CURVATURE)) @ generator.standard_normal(2)
    led = led * noise / math.sqrt(rounds) * np.linalg.solve(CURVATURE, generator.standard_normal(2))
    points = mode + led + 0.4 * generator.standard_normal((rounds, 2))
    gradients = (mode - points) @ CURVATURE + noise * generator.standard_normal((rounds, 2))
    variances = np.full(rounds, noise**2)
    return truth, Path(points, gradients, variances, 0.0, 1e4, lambda point: -PRIOR @ point)


@pytest.mark.slow
def test_intervals_of_logistic_jobs_hold_where_those_that_ignore_the_noise_do_not():
    """40 jobs, 80 slopes at 90 %: fewer than 78 % by chance with probability .001 or less."""
    generator = np.random.default_rng(2)
    held, naive = [], []
    task = LogisticRegressionTask(
        features=tuple(ColumnBounds(name=name, lower=-1, upper=1) for name in ("x", "z")),
        target=ColumnBounds(name="y", lower=0.0, upper=1.0),
        rounds=120,
        batch=None,
        clip=1.5,
        prior_sd=1.0,
    )
    for _ in range(40):
        slopes = generator.standard_normal(2)
        features = generator.uniform(-1.0, 1.0, (1000, 2))
        chance = 1.0 / (1.0 + np.exp(-features @ slopes))
        records = np.column_stack([features, generator.random(1000) < chance])
        federation = Federation(
            population=1000, missing=0, dropouts=0, colluders=0, epsilon=1.5, delta=1e-5
        )
        learner = learner_for(task)
        posterior = run(learner, records, federation, generator).posterior
        assert posterior.convergence is not None
        mean_field = learner.mean_field()
        held.append(np.abs(posterior.mean[1:] - slopes) < 1.6449 * posterior.sd[1:])
        naive.append(np.abs(mean_field.location[1:] - slopes) < 1.6449 * mean_field.scale[1:])
    assert np.mean(held) > 0.78
    assert np.mean(naive) < 0.6


def test_without_noise_the_posterior_is_the_likelihoods_and_priors():
    _, path = quadratic(np.random.default_rng(3), noise=1e-4)
    found = inferred(path)
    expected = np.linalg.inv(CURVATURE + PRIOR)
    root = found.factor * found.scale[:, None]
    # the spread is about the path's mean, which the points' own scatter has moved
    away = found.location - (path.points[80:].mean(axis=0))
    assert away == pytest.approx(0.0)
    distance = np.array(found.convergence.distances)
    about = expected * np.sqrt(np.outer(1.0 + distance**2, 1.0 + distance**2))
    assert np.diagonal(root @ root.T) == pytest.approx(np.diagonal(about), rel=0.01)
    assert max(found.convergence.noise_shares) < 1e-4


def scattered(generator, bend):
    """Return a path of the logarithm of a normal distribution's scale, and where its slope is 0.

    1,000 records of mean 0; the points lie where the mean slope along the path is 0.
    """
    squares = 1000 * math.exp(2.0 * generator.normal(0.0, 0.5))
    mode = 0.5 * math.log(squares / 1000)
    away = 0.3 * generator.standard_normal((200, 1))
    settled = mode + 0.5 * math.log(np.mean(np.exp(-2.0 * away)))
    points = settled + away
    gradients = squares * np.exp(-2.0 * points) - 1000.0
    gradients = gradients + 300.0 * generator.standard_normal((200, 1))
    noise = np.full(200, 300.0**2)
    return mode, Path(points, gradients, noise, 0.0, 1e6, lambda point: -point, bend=bend)


@pytest.mark.slow
def test_a_bent_likelihood_pulls_no_value_where_it_is_known_to_bend():
    """60 paths at 90 %: fewer than 45 by chance with probability .0002. As straight ones, none of
    their mean errors is near 0.
    """
    generator, rows = np.random.default_rng(7), []
    for _ in range(60):
        seed = int(generator.integers(2**31))
        for bend in (1.0, 0.0):
            mode, path = scattered(np.random.default_rng(seed), bend)
            found = inferred(path)
            rows.append((found.location[0] - mode, found.scale[0]))
    errors, scales = np.array(rows).T.reshape(2, 60, 2)
    held = np.abs(errors) < 1.6449 * scales
    assert held[:, 0].sum() >= 45
    assert held[:, 1].sum() < 30
    assert abs(errors[:, 0].mean()) < 0.5 * abs(errors[:, 1].mean())


def test_curvatures_are_drawn_from_the_regression_cut_to_definite_ones():
    """Of a well known curvature the draws have the regression's mean and deviations.

    1,280 draws of chains that mix in a few steps: five standard errors of 200 independent ones.
    """
    generator = np.random.default_rng(4)
    points = generator.standard_normal((400, 2))
    gradients = -points @ CURVATURE + generator.standard_normal((400, 2)) @ np.diag([2.0, 3.0])
    known = fitted(points, gradients, np.diag([4.0, 9.0]), largest=1e4)
    draws = drawn(known, generator)
    assert np.all(np.linalg.eigvalsh(draws) > 0.0)
    assert draws.mean(axis=0) == pytest.approx(known.centre, abs=5.0 * 0.15 / math.sqrt(200))
    # sd of an entry is at most 3 / sqrt(400)
    assert np.abs(known.centre - CURVATURE).max() < 5 * 0.15
    assert draws.std(axis=0).max() < 0.2


@pytest.mark.slow
def test_a_path_that_arrived_is_called_otherwise_no_more_often_than_stated():
    """Slopes at the mode are noise: FALSE_ALARMS of them, .001, would be 1 of 1,000 at most;
    more than 5 come by chance with probability .0006."""
    generator, alarms = np.random.default_rng(5), 0
    limit = Convergence.limit_for(3)
    for _ in range(1000):
        alarms += np.max(np.abs(generator.standard_normal(3))) > limit
    assert alarms <= 5 and FALSE_ALARMS == 0.001
    wrong = sum(
        inferred(quadratic(generator, rounds=60, led=0.0)[1]).convergence.verdict == "not_arrived"
        for _ in range(40)
    )
    # .04 expected at most: more than 1 come by chance with probability .001
    assert wrong <= 1


def readme(rounds, learning_rate=0.2):
    """Return the posterior of hypertension over age with so many rounds."""
    generator = np.random.default_rng(1)
    age = generator.uniform(18, 90, 5000)
    chance = 1 / (1 + np.exp(2 - (age - 54) / 12))
    records = np.column_stack([age, generator.binomial(1, chance)])
    task = LogisticRegressionTask(
        features=(ColumnBounds(name="age", lower=18, upper=90),),
        target=ColumnBounds(name="hypertension", lower=0, upper=1),
        rounds=rounds,
        batch=500,
        learning_rate=learning_rate,
    )
    federation = Federation(
        population=5000, missing=0, dropouts=20, colluders=20, epsilon=10.0, delta=1e-5
    )
    return run(learner_for(task), records, federation, np.random.default_rng(1)).posterior


@pytest.mark.parametrize(
    ("rounds", "verdict", "said", "caution"),
    [
        (20, "not_arrived", "NOT ARRIVED: slopes", "neither values"),
        (80, "cannot_tell", "CANNOT TELL whether it arrived: slopes", "CANNOT BE TOLD"),
        (200, "cannot_tell", "CANNOT TELL whether it arrived: slopes", "noise is most"),
    ],
)
def test_too_few_rounds_are_told_from_enough(rounds, verdict, said, caution):
    posterior = readme(rounds)
    assert posterior.convergence.verdict == verdict
    assert str(posterior.convergence).startswith(said)
    summary = " ".join(str(posterior.summary()).split())
    assert said in summary and "noise and batches are" in summary
    assert caution in posterior.convergence.caution and caution in posterior.caution


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [60, 200, 400])
def test_strong_effects_under_noise_are_never_said_to_have_arrived(rounds):
    """Of breast_cancer's intervals at epsilon 4 at most 53 of 90 held."""
    assert {each.verdict for each in patients(rounds, 4)} <= {"cannot_tell", "not_arrived"}


@pytest.mark.slow
def test_a_path_is_said_to_have_arrived_where_little_noise_and_no_clipping_can_be():
    """20,000 clients, epsilon 10: three of four jobs arrive at least, and nearly at the mode."""
    generator, jobs = np.random.default_rng(8), []
    for seed in range(4):
        x = generator.uniform(-1.0, 1.0, 20_000)
        y = (generator.random(20_000) < 1.0 / (1.0 + np.exp(0.5 - 3.0 * x))) * 1.0
        bounds, settings = [(-1.0, 1.0)], {"rounds": 200, "batch": None, "seed": seed}
        jobs.append(judged(x[:, None], y, bounds, epsilon=10.0, **settings))
    arrived = [each for each in jobs if each.verdict == "arrived"]
    assert len(arrived) >= 3
    assert max(abs(float(each.away[0])) for each in arrived) < 0.5


KIND = {
    "rounds": 50,
    "slopes": (0.0, 9.0),  # what is left to go does not count, however well it is seen
    "distances": (0.6, 0.0),
    "noise_shares": (0.5, 0.5),
    "scatters": (0.5, 0.5),
    "signals": (3.0, 3.0),
    "may_clip": False,
}


@pytest.mark.parametrize(
    ("changes", "verdict", "reason"),
    [
        ({}, "arrived", None),
        ({"slopes": (0.0, 1.0), "distances": (0.61, 0.0)}, "cannot_tell", "more rounds"),
        ({"distances": (0.61, 0.0)}, "not_arrived", None),
        ({"slopes": (-9.0, 0.0), "distances": (0.61, 0.0)}, "not_arrived", None),
        ({"noise_shares": (0.51, 0.1)}, "cannot_tell", "noise is most"),
        ({"scatters": (0.51, 0.1)}, "cannot_tell", "learning_rate"),
        ({"signals": (30.0, 2.9)}, "cannot_tell", "few clients"),
        ({"may_clip": True}, "cannot_tell", "clip"),
    ],
)
def test_a_path_has_arrived_only_if_nothing_speaks_against_it(changes, verdict, reason):
    path = Convergence(**(KIND | changes))
    assert path.verdict == verdict
    if reason is not None:
        assert reason in path.caution
    elif verdict == "arrived":
        assert path.caution is None and path.doubts == ()
