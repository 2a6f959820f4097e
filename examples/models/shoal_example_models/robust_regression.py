"""Linear regression that outliers do not bend: errors follow Student's t, with unknown spread.

For tasks with `normalised = true`: all columns lie in [-1, 1], and the last one is the target.
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist


def model(record):
    """Describe one record: a mapping from column names to numbers, in the task's order."""
    *features, target = record.values()
    slopes = numpyro.sample("slopes", dist.Normal(0.0, 1.0).expand([len(features)]).to_event(1))
    constant = numpyro.sample("constant", dist.Normal(0.0, 1.0))
    spread = numpyro.sample("spread", dist.HalfNormal(0.5))
    centre = constant + jnp.dot(slopes, jnp.stack(features))
    numpyro.sample("target", dist.StudentT(4.0, centre, spread), obs=target)
