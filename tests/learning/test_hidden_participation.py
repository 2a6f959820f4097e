"""Variational inference where each client's own coin says whether its records count."""

import numpy as np
import pytest

from shoal_learning.contract import RequestedRound
from shoal_learning.learners import learner_for
from shoal_learning.simulation import Federation, run
from shoal_protocol.amplification import hidden_mu
from shoal_protocol.curves import gaussian_mu
from shoal_protocol.hidden_participation import HiddenParticipation
from shoal_protocol.tasks import ColumnBounds, LogisticRegressionTask

RATE, ROUNDS, CLIENTS = 0.25, 120, 400
KNOWN = LogisticRegressionTask(
    features=(ColumnBounds(name="x", lower=-1.0, upper=1.0),),
    target=ColumnBounds(name="y", lower=0.0, upper=1.0),
    rounds=ROUNDS,
    batch=None,
)
HIDDEN = KNOWN.model_copy(update={"participation": RATE})


def federation(epsilon: float) -> Federation:
    return Federation(
        population=CLIENTS, missing=5, dropouts=10, colluders=5, epsilon=epsilon, delta=1e-5
    )


def records() -> np.ndarray:
    generator = np.random.default_rng(1)
    x = generator.uniform(-1.0, 1.0, CLIENTS)
    y = generator.random(CLIENTS) < 1.0 / (1.0 + np.exp(-3.0 * x))
    return np.column_stack([x, y])


def test_each_round_asks_all_and_says_what_all_rounds_cost() -> None:
    wanted = learner_for(HIDDEN).next(CLIENTS, [])
    assert isinstance(wanted, RequestedRound)
    assert (wanted.batch, wanted.share) == (None, 1.0)
    assert wanted.hidden == HiddenParticipation(rate=RATE, rounds=ROUNDS, prepaid_by=None)


def test_at_the_same_price_noise_shrinks_as_the_records_that_count_do() -> None:
    """So that nothing is won over rounds in which all take part, known to all."""
    noise = {}
    for task in (KNOWN, HIDDEN):
        outcome = run(learner_for(task), records(), federation(1.0), np.random.default_rng(2))
        noise[task] = outcome.sums[0].noise_sd[0]
    ratio = noise[HIDDEN] / noise[KNOWN]
    assert ratio == pytest.approx(RATE, rel=0.01)
    query = outcome.sums[0].query
    # as many clients' noise is there as answered, of whom 20 are not counted on
    sensitivity = query.design("discrete_gaussian").sensitivity
    mu = sensitivity / noise[HIDDEN] * np.sqrt((CLIENTS - 5) / (CLIENTS - 16))
    total = hidden_mu(rate=RATE, mu=float(mu), rounds=ROUNDS)
    assert total == pytest.approx(gaussian_mu(epsilon=1.0, delta=1e-5), rel=1e-4)


def test_with_little_noise_the_posterior_is_that_of_all_records() -> None:
    """The sampling of a quarter adds to a slope about a tenth of what is allowed here."""
    means = [
        run(learner_for(task), records(), federation(50.0), np.random.default_rng(3)).posterior.mean
        for task in (KNOWN, HIDDEN)
    ]
    assert np.allclose(means[0], means[1], atol=0.35)
    assert means[1][-1] > 1.5
