"""What a posterior says of its prior, its bounds and its noise, where they decide and where not."""

import numpy as np
import pytest

from shoal_protocol.queries.columns import ColumnBounds
from shoal_studies.catalogue.linear_regression import LinearRegressionTask
from shoal_studies.catalogue.variational import LogisticRegressionTask
from shoal_studies.catalogue.variational.posterior import VariationalPosterior
from shoal_studies.registry import learner_for
from shoal_studies.simulation import Federation, run

UNIT = ColumnBounds(name="x", lower=-1.0, upper=1.0)


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


@pytest.mark.parametrize("method", ["plain", "box_projection"])
def test_the_priors_share_falls_with_a_weaker_prior_and_is_printed(method):
    strong, weak = line(method=method, prior_sd=0.02), line(method=method, prior_sd=5.0)
    assert strong.prior.shares(strong.sd)[1] > 0.5 > 0.05 > weak.prior.shares(weak.sd)[1]
    assert "THE PRIOR DECIDES" in strong.caution and "x" in strong.caution
    assert "THE PRIOR DECIDES" not in (weak.caution or "")
    assert "taken as given" in dict(weak.facts)["Bounds"]
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
    assert posterior.prior_sd == pytest.approx([20.0, 3.0])
    assert (posterior.scale[1] / 3.0) ** 2 > 0.25
    assert f"THE PRIOR DECIDES {posterior.names[1]}" in posterior.caution
    latents = [each.model_copy(update={"support": "positive"}) for each in posterior.latents]
    bent = posterior.model_copy(update={"latents": tuple(latents)})
    assert "THE PRIOR DECIDES unconstrained number 2" in bent.caution
    assert "Prior's share" in str(posterior.summary())
    assert VariationalPosterior.model_validate(posterior.model_dump(mode="json")) == posterior


TARGET = ColumnBounds(name="y", lower=0.0, upper=1.0)
