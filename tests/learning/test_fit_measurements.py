"""What a posterior says of its prior, its bounds and its noise, where they decide and where not."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from bench.linear_cautions import CASES, METHODS, job
from shoal_learning.learners import learner_for
from shoal_learning.simulation import Federation, run
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.studies.linear_regression import LinearRegressionTask
from shoal_protocol.studies.variational import (
    LogisticRegressionPosterior,
    LogisticRegressionTask,
)

SIZE = (5000, 3, 1.0)
UNIT = ColumnBounds(name="x", lower=-1.0, upper=1.0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("2 x", "BOUNDS LOOK TOO WIDE for x0, x1, x2, y"),
        ("4 x", "BOUNDS LOOK TOO WIDE for x0, x1, x2, y"),
        ("off .5", "x0 FAR OFF THE MIDDLE"),
        ("off .7", "x0 FAR OFF THE MIDDLE"),
    ],
)
def test_bounds_that_make_intervals_fail_are_cautioned_of(method, case, said):
    for seed in range(3):
        _, caution = job(method, CASES[case], SIZE, np.random.default_rng(seed))
        assert said in caution


def test_what_noise_drowns_is_cautioned_of():
    _, caution = job("norm_ball", CASES["off .7"], (1000, 3, 1.0), np.random.default_rng(1))
    assert "NOISE IS NEARLY AS LARGE as what tells of x0" in caution
    assert "THE PRIOR DECIDES" in caution


@pytest.mark.parametrize("method", ["plain", "box_projection", "ball_projection"])
def test_columns_that_methods_cut_or_shrink_much_are_cautioned_of(method):
    """Pixels of scikit-learn's digits are far from normal: intervals held in half of such jobs."""
    data = load_digits().data
    records = data[:, [27, 29, 20, 28]]
    columns = [ColumnBounds(name=f"p{place}", lower=0.0, upper=16.0) for place in range(4)]
    task = LinearRegressionTask(features=tuple(columns[:3]), target=columns[3], method=method)
    federation = Federation(
        population=len(data), missing=0, dropouts=0, colluders=0, epsilon=4.0, delta=1e-5
    )
    for seed in range(3):
        generator = np.random.default_rng(seed)
        posterior = run(learner_for(task), records, federation, generator).posterior
        assert "CUT OR SHRUNK" in posterior.caution


def line(**changes):
    """Return the posterior of a line through 400 records, at epsilon 2."""
    generator = np.random.default_rng(3)
    x = np.clip(0.4 * generator.standard_normal(400), -1.0, 1.0)
    y = 0.5 * x + 0.3 * generator.standard_normal(400)
    task = LinearRegressionTask(
        features=(UNIT,), target=ColumnBounds(name="y", lower=-1.0, upper=1.0), **changes
    )
    federation = Federation(
        population=400, missing=0, dropouts=0, colluders=0, epsilon=2.0, delta=1e-5
    )
    records = np.column_stack([x, y])
    return run(learner_for(task), records, federation, np.random.default_rng(4)).posterior


@pytest.mark.parametrize("method", ["plain", "norm_ball", "box_projection"])
def test_the_priors_share_falls_with_a_weaker_prior_and_is_printed(method):
    strong, weak = line(method=method, prior_sd=0.02), line(method=method, prior_sd=5.0)
    assert strong.prior.shares(strong.sd)[1] > 0.5 > 0.05 > weak.prior.shares(weak.sd)[1]
    assert "THE PRIOR DECIDES" in strong.caution and "x" in strong.caution
    assert "THE PRIOR DECIDES" not in (weak.caution or "")
    exported = strong.to_arviz(np.random.default_rng(1), count=10).posterior.attrs
    assert exported["caution"] == strong.caution
    share = f"{strong.prior.shares(strong.sd)[1]:.0%}"
    for shown in (str(strong.summary()), strong._repr_html_()):
        assert "its share" in shown and share in shown and "THE PRIOR DECIDES" in shown


def test_a_variational_posterior_says_its_priors_share():
    generator = np.random.default_rng(5)
    x = generator.uniform(-1.0, 1.0, 500)
    y = (generator.random(500) < 1.0 / (1.0 + np.exp(-2.0 * x))) * 1.0
    task = LogisticRegressionTask(features=(UNIT,), target=TARGET, rounds=60, batch=None)
    federation = Federation(
        population=500, missing=0, dropouts=0, colluders=0, epsilon=0.5, delta=1e-5
    )
    records = np.column_stack([x, y])
    posterior = run(learner_for(task), records, federation, generator).posterior
    assert posterior.prior.sd == pytest.approx([6.0, 3.0])
    shares = posterior.prior.shares(posterior.sd)
    assert shares == pytest.approx(np.minimum(posterior.sd / [6.0, 3.0], 1.0) ** 2)
    assert shares[1] > 0.25 and "THE PRIOR DECIDES" in posterior.caution
    assert "its share" in str(posterior.summary())
    assert (
        LogisticRegressionPosterior.model_validate(posterior.model_dump(mode="json")) == posterior
    )


TARGET = ColumnBounds(name="y", lower=0.0, upper=1.0)


def test_a_target_that_its_bounds_cut_is_cautioned_of():
    """Half of its values lie outside: slopes are pulled towards 0 by as much, whatever n is."""
    generator = np.random.default_rng(6)
    x = generator.uniform(-1.0, 1.0, 2000)
    y = 0.5 * x + 0.5 * generator.standard_normal(2000)
    federation = Federation(
        population=2000, missing=0, dropouts=0, colluders=0, epsilon=2.0, delta=1e-5
    )
    for reach, is_told in ((0.4, True), (2.0, False)):
        target = ColumnBounds(name="y", lower=-reach, upper=reach)
        task = LinearRegressionTask(features=(UNIT,), target=target)
        records = np.column_stack([x, y])
        posterior = run(learner_for(task), records, federation, generator).posterior
        assert ("CROWD AT THEIR BOUNDS" in (posterior.caution or "")) is is_told
