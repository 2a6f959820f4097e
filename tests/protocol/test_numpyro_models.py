"""NumPyro models compiled to gradients: the right ones, and of global latents alone."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

from shoal_protocol.queries.models import LogisticRegressionModel
from shoal_protocol.queries.models.numpyro_models import Latent, compile_model
from shoal_studies.catalogue.variational.posterior import VariationalPosterior, names_of

ENDS = {"lower": np.array([-1.0, 0.0]), "upper": np.array([1.0, 5.0])}


def compiled(model, columns=("x", "y")):
    return compile_model(model, columns, **ENDS)


def many_supports(record):
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    slopes = numpyro.sample("slopes", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    share = numpyro.sample("share", dist.Uniform(1.0, 3.0))
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.array([2.0, 1.0, 3.0])))
    low = numpyro.sample("low", dist.TruncatedNormal(0.0, 1.0, high=0.5))
    centre = slopes[0] + slopes[1] * record["x"] * weights[0] + low
    numpyro.sample("y", dist.Normal(centre, spread * share), obs=record["y"])


def log_density(u, x, y):
    """Return the same model's log-likelihood and log prior of u, written down by hand."""
    spread, slopes, share = math.exp(u[0]), u[1:3], 1.0 + 2.0 / (1.0 + math.exp(-u[3]))
    parts = 1.0 / (1.0 + np.exp(-(u[4:6] - np.log([2.0, 1.0]))))
    weights = np.array([parts[0], (1 - parts[0]) * parts[1], (1 - parts[0]) * (1 - parts[1])])
    low = 0.5 - math.exp(u[6])
    centre = slopes[0] + slopes[1] * x * weights[0] + low
    prior = (
        stats.halfnorm.logpdf(spread)
        + u[0]
        + stats.norm.logpdf(slopes, scale=2.0).sum()
        - math.log(2.0)
        + math.log(2.0)
        - u[3]
        - 2.0 * math.log1p(math.exp(-u[3]))
        + stats.dirichlet.logpdf(weights, [2.0, 1.0, 3.0])
        + math.log(parts[0] * (1 - parts[0]) ** 2 * parts[1] * (1 - parts[1]))
        + stats.truncnorm.logpdf(low, -np.inf, 0.5)
        + u[6]
    )
    return stats.norm.logpdf(y, centre, spread * share), prior


@pytest.mark.slow
def test_gradients_are_the_slopes_of_likelihood_and_prior_in_unconstrained_space():
    model = compiled(many_supports)
    point = np.array([-0.3, 0.5, -0.7, 0.4, 0.2, -0.6, -1.1])
    assert model.dimension == 7
    records = np.array([[0.3, 1.0], [-0.8, 4.0]])
    steps = 1e-6 * np.eye(7)
    for record, found in zip(records, model.gradients(point, records), strict=True):
        slope = [
            (log_density(point + step, *record)[0] - log_density(point - step, *record)[0]) / 2e-6
            for step in steps
        ]
        assert found == pytest.approx(slope, abs=1e-6)
    slope = [
        (log_density(point + step, 0, 0)[1] - log_density(point - step, 0, 0)[1]) / 2e-6
        for step in steps
    ]
    assert model.prior_gradient(point) == pytest.approx(slope, abs=1e-6)


def logistic(record):
    slopes = numpyro.sample("slopes", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    logits = 0.3 * slopes[0] + record["x"] * slopes[1]
    numpyro.sample("y", dist.Bernoulli(logits=logits), obs=record["y"])


def test_the_model_that_is_built_in_has_the_gradients_that_jax_finds():
    x = np.linspace(-1.0, 1.0, 4)
    built_in, model = LogisticRegressionModel(intercept=0.3), compiled(logistic)
    for point in np.random.default_rng(1).normal(0.0, 2.0, (5, 2)):
        expected = model.gradients(point, np.column_stack([x, [0.0, 1.0, 1.0, 0.0]]))
        gradients = built_in.gradients(point, np.column_stack([x, [-1, 1, 1, -1]]))
        assert gradients == pytest.approx(expected, abs=1e-9)


def discrete(record):
    numpyro.sample("kind", dist.Bernoulli(0.5))
    numpyro.sample("y", dist.Normal(0.0, 1.0), obs=record["y"])


def local(record):
    with numpyro.plate("patients", 3):
        numpyro.sample("own", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(0.0, 1.0), obs=record["y"])


def factor(record):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    numpyro.factor("extra", -(mean**2))
    numpyro.sample("y", dist.Normal(mean, 1.0), obs=record["y"])


def unobserved(record):
    numpyro.sample("mean", dist.Normal(0.0, 1.0))


def nothing_latent(record):
    numpyro.sample("y", dist.Normal(0.0, 1.0), obs=record["y"])


def parameter(record):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(mean, numpyro.param("spread", 1.0)), obs=record["y"])


def scaled(record):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.handlers.scale(scale=1000.0):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=record["y"])


def subsampled(record):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("batch", 10, subsample_size=1):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=record["y"])


def prior_of_the_record(record):
    mean = numpyro.sample("mean", dist.Normal(record["x"], 1.0))
    numpyro.sample("y", dist.Normal(mean, 1.0), obs=record["y"])


def support_of_a_latent(record):
    most = numpyro.sample("most", dist.HalfNormal(1.0))
    mean = numpyro.sample("mean", dist.Uniform(0.0, most))
    numpyro.sample("y", dist.Normal(mean, 1.0), obs=record["y"])


def contrasts(record):
    numpyro.sample("contrasts", dist.ZeroSumNormal(1.0, event_shape=(3,)))
    numpyro.sample("y", dist.Normal(0.0, 1.0), obs=record["y"])


def talks(record):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    jax.debug.callback(lambda value: None, record["y"])
    numpyro.sample("y", dist.Normal(mean, 1.0), obs=record["y"])


def loops(record):
    mean = numpyro.sample("mean", dist.HalfNormal(1.0))
    share = jax.scipy.special.gammainc(record["y"] + 1.0, mean)
    numpyro.sample("y", dist.Normal(share, 1.0), obs=record["y"])


def iterates(record):
    mean = numpyro.sample("mean", dist.HalfNormal(1.0))
    matrix = jax.numpy.array([[mean, record["y"]], [record["y"], 1.0]])
    largest = jax.numpy.linalg.eigvalsh(matrix)[1]
    numpyro.sample("y", dist.Normal(largest, 1.0), obs=record["y"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (discrete, "'kind' is discrete"),
        (local, "'own' is inside a plate"),
        (factor, "'extra': numpyro.factor"),
        (unobserved, "observes nothing"),
        (nothing_latent, "no latent"),
        (parameter, "'spread': param"),
        (scaled, "'y': scaled"),
        (subsampled, "'y': scaled|subsampl|plate"),
        (prior_of_the_record, "prior depends on the record"),
        (support_of_a_latent, "depend on the record or on other latents"),
        (contrasts, "'contrasts': its support"),
        (talks, "calls back into Python"),
        (loops, "loops until"),
        (iterates, "loops until"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_cannot_be_learned_from_clipped_gradients_is_refused(model, reason):
    with pytest.raises(ValueError, match=reason):
        compiled(model)


def test_a_record_that_the_model_cannot_explain_gives_what_is_no_number():
    def bounded(record):
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Uniform(mean, mean + 1.0), obs=record["y"])

    model = compiled(bounded)
    assert model.gradients(np.zeros(1), np.array([[0.0, 5.0]])).shape == (1, 1)


def posterior(latents, location, scale):
    return VariationalPosterior(
        names=names_of(latents),
        columns=("y",),
        latents=tuple(latents),
        location=tuple(location),
        scale=tuple(scale),
        prior_sd=(1.0,) * len(location),
        records=10,
    )


def test_a_posterior_reads_its_latents_without_numpyro():
    found = posterior(
        [
            Latent(name="mean"),
            Latent(name="spread", support="positive"),
            Latent(name="share", support="interval", offset=1.0, factor=2.0),
            Latent(name="parts", shape=(2,), support="simplex"),
            Latent(name="cuts", shape=(2,), support="ordered"),
        ],
        [1.0, 0.2, 0.0, 0.4, -1.0, 0.3],
        [0.5, 0.3, 1.0, 0.7, 0.2, 0.4],
    )
    assert found.names == ("mean", "spread", "share", "parts[0]", "parts[1]", "cuts[0]", "cuts[1]")
    mean, sd = (
        dict(zip(found.names, found.mean, strict=True)),
        dict(zip(found.names, found.sd, strict=True)),
    )
    assert mean["mean"] == pytest.approx(1.0, abs=1e-3) and sd["mean"] == pytest.approx(
        0.5, rel=0.01
    )
    assert mean["spread"] == pytest.approx(math.exp(0.2 + 0.045), rel=0.01)
    assert mean["share"] == pytest.approx(2.0, abs=0.01)
    assert mean["parts[0]"] + mean["parts[1]"] == pytest.approx(1.0)
    assert mean["cuts[1]"] - mean["cuts[0]"] == pytest.approx(math.exp(0.3 + 0.08), rel=0.02)
    draws = found.sample(100_000, np.random.default_rng(1))
    # within two digits, as it says; 100 000 draws add less
    assert draws.mean(axis=0) == pytest.approx(found.mean, abs=0.01)
    assert draws.std(axis=0) == pytest.approx(found.sd, rel=0.05)
    low, high = found.interval(0.9).T
    held = np.mean((low <= draws) & (draws <= high), axis=0)
    assert held == pytest.approx(np.full(7, 0.9), abs=0.02)
    assert low[1] == pytest.approx(math.exp(0.2 - 1.6449 * 0.3), rel=0.01)
    assert "too narrow" in repr(found)
