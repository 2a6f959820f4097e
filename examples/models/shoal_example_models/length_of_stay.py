"""Days in hospital: overdispersed counts, by age and by whether it was an emergency.

For tasks in the data's units, with the columns `age` (years), `emergency` (0 or 1) and `days`.
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist


def model(record):
    """Describe one stay; negative binomial, since the spread of stays is above their mean's."""
    base = numpyro.sample("base", dist.Normal(1.0, 1.0))
    decade = numpyro.sample("decade", dist.Normal(0.0, 0.3))
    emergency = numpyro.sample("emergency", dist.Normal(0.0, 1.0))
    concentration = numpyro.sample("concentration", dist.Gamma(2.0, 1.0))
    predictor = base + decade * (record["age"] - 60.0) / 10.0 + emergency * record["emergency"]
    days = dist.NegativeBinomial2(jnp.exp(predictor), concentration)
    numpyro.sample("days", days, obs=record["days"])
