"""Clients without records, whom nobody knows: regressions hold, or the prior comes back."""

import numpy as np
import pytest

from shoal_protocol.queries.columns import ColumnBounds
from shoal_studies.catalogue.linear_regression import LinearRegression, LinearRegressionTask
from shoal_studies.catalogue.variational import LogisticRegressionTask, Variational
from shoal_studies.registry import learner_for
from shoal_studies.simulation import Federation, run

CLIENTS = 600
SIDES = [ColumnBounds(name=name, lower=-1.0, upper=1.0) for name in "abc"]
METHODS = ["plain", "box_projection", "ball_projection"]
MECHANISMS = {"discrete_gaussian": 1e-5, "discrete_laplace": 0.0}


def setting(mechanism, epsilon):
    return Federation(
        population=CLIENTS,
        missing=5,
        dropouts=10,
        colluders=5,
        epsilon=epsilon,
        delta=MECHANISMS[mechanism],
    )


def lost(records, share, generator):
    records = records.copy()
    records[generator.random(len(records)) < share] = np.nan
    return records


def task_of(method, **changes):
    return LinearRegressionTask(
        features=tuple(SIDES[:2]), target=SIDES[2], method=method, prior_sd=0.3, **changes
    )


def draw(method, generator):
    """Return a line from the prior, but for what bounds would cut, and its records."""
    truth = np.clip(generator.normal(0.0, 0.2, 3), -0.4, 0.4)
    x = generator.uniform(-0.7, 0.7, (CLIENTS, 2))
    y = truth[0] + x @ truth[1:] + 0.1 * generator.standard_normal(CLIENTS)
    return truth, np.column_stack([x, y])


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("method", METHODS)
def test_coefficients_hold_whatever_part_of_the_clients_has_no_record(method, mechanism, share):
    # 40 lines of 3 coefficients each: coverage of 90 % intervals has a standard error of .03 to
    # .05, so less than .75 comes by chance once in 500 runs, which this seed is not.
    generator = np.random.default_rng(21)
    held, counts = [], []
    for _ in range(40):
        truth, records = draw(method, generator)
        records = lost(records, share, generator)
        learner = LinearRegression(task_of(method))
        posterior = run(learner, records, setting(mechanism, 4.0), generator).posterior
        low, high = posterior.interval(0.9).T
        held.append((low <= truth) & (truth <= high))
        counts.append(posterior.records)
    assert np.mean(held) >= 0.75
    assert np.mean(counts) == pytest.approx(CLIENTS * (1.0 - share), rel=0.04)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_a_variational_posterior_holds_whatever_part_of_the_clients_has_no_record(share):
    # Gaussian noise alone: 20 lines of 2 slopes, coverage of 90 % intervals .75 or more, missed by
    # chance once in 100 runs, which this seed is not. Of no records about the prior's width.
    generator = np.random.default_rng(23)
    task = LogisticRegressionTask(
        features=tuple(SIDES[:2]),
        target=ColumnBounds(name="y", lower=0.0, upper=1.0),
        rounds=60,
        batch=None,
        prior_sd=1.0,
    )
    learner = learner_for(task)
    assert isinstance(learner, Variational)
    held, widths, verdicts = [], [], []
    for _ in range(20):
        slopes = generator.normal(0.0, 1.0, 2)
        x = generator.uniform(-1.0, 1.0, (CLIENTS, 2))
        y = generator.random(CLIENTS) < 1.0 / (1.0 + np.exp(-x @ slopes))
        records = lost(np.column_stack([x, y]), share, generator)
        federation = setting("discrete_gaussian", 6.0)
        posterior = run(learner_for(task), records, federation, generator).posterior
        low, high = posterior.interval(0.9)[1:].T
        held.append((low <= slopes) & (slopes <= high))
        widths.append(posterior.sd[1:])
        verdicts.append(posterior.convergence.verdict)
    if share < 1.0:
        assert np.mean(held) >= 0.75
    else:
        assert 0.8 < np.mean(widths) < 1.5
        assert "arrived" not in verdicts


@pytest.mark.slow
@pytest.mark.parametrize(("clients", "said"), [(0, False), (2000, True)])
def test_a_path_arrives_by_what_records_say_and_not_by_noise(clients, said):
    # A clip that no gradient exceeds, small steps and little noise: nothing else is in the way.
    generator = np.random.default_rng(24)
    task = LogisticRegressionTask(
        features=tuple(SIDES[:1]),
        target=ColumnBounds(name="y", lower=0.0, upper=1.0),
        rounds=100,
        batch=None,
        prior_sd=0.3,
        clip=1.5,
        learning_rate=0.02,
    )
    federation = Federation(
        population=2000, missing=0, dropouts=0, colluders=0, epsilon=30.0, delta=1e-5
    )
    verdicts = []
    for _ in range(12):
        x = generator.uniform(-1.0, 1.0, (2000, 1))
        records = np.column_stack([x, generator.random(2000) < 0.5 + 0.1 * x[:, 0]])
        records[clients:] = np.nan
        path = run(learner_for(task), records, federation, generator).posterior.convergence
        verdicts.append(path.verdict)
        if not clients:
            assert any("few clients" in each for each in path.doubts)
    assert ("arrived" in verdicts) == said
