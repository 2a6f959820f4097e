# %% [markdown]
# # A model of your own, in NumPyro
#
# Days in hospital spread more than a Poisson distribution lets them. A model of one stay is a
# function of one record; its latents are those of all stays. It needs
# `pip install . './analysis[numpyro]'`.

# %%
import os
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from matplotlib import pyplot

from shoal import Federation, JobSettings, SimulatedFederation
from shoal.estimators import NumpyroModel
from shoal.jobs.federation import Learning
from shoal_kit.installed_models import digest_of

DIRECTORY = os.environ.get("SHOAL_FEDERATION")  # of a real federation; without one, a simulation


# %%
def length_of_stay(record: Mapping[str, Any]) -> None:
    """Describe one stay; negative binomial, since the spread of stays is above their mean's."""
    base = numpyro.sample("base", dist.Normal(1.0, 1.0))
    decade = numpyro.sample("decade", dist.Normal(0.0, 0.3))
    emergency = numpyro.sample("emergency", dist.Normal(0.0, 1.0))
    concentration = numpyro.sample("concentration", dist.Gamma(2.0, 1.0))
    predictor = base + decade * (record["age"] - 60.0) / 10.0 + emergency * record["emergency"]
    days = dist.NegativeBinomial2(jnp.exp(predictor), concentration)
    numpyro.sample("days", days, obs=record["days"])


# %% [markdown]
# ## Models go by name and hash
#
# No code goes over a wire. On a real federation data holders and trainer have the model installed
# (`pip install examples/models` brings this one), and compare `shoal model digest length_of_stay`.
# In a simulation it is simply handed over.

# %%
model = NumpyroModel(
    entry_point="length_of_stay",
    digest="0" * 64 if DIRECTORY is None else digest_of("length_of_stay"),
    unconstrained=4,  # base, decade, emergency, concentration: one number each
    columns={"age": (18, 100), "emergency": (0, 1), "days": (0, 60)},
    rounds=150,
    batch=None,
    clip=4.0,  # of a gradient's norm: much less would cut many, and pull the latents aside
)

# %%
CLIENTS = 2000
TRUTH = {"base": 1.2, "decade": 0.15, "emergency": 0.6, "concentration": 2.0}
generator = np.random.default_rng(1)
age = generator.uniform(18, 100, CLIENTS)
emergency = generator.binomial(1, 0.4, CLIENTS)
centre = np.exp(TRUTH["base"] + TRUTH["decade"] * (age - 60) / 10 + TRUTH["emergency"] * emergency)
chance = TRUTH["concentration"] / (TRUTH["concentration"] + centre)
days = generator.negative_binomial(TRUTH["concentration"], chance)
stays = {"age": age, "emergency": emergency, "days": days}

simulated = SimulatedFederation(
    stays,
    epsilon=2.0,
    delta=1e-5,
    dropouts=20,
    colluders=20,
    seed=1,
    models={"length_of_stay": length_of_stay},
)
federation: Learning = simulated
if DIRECTORY is not None:
    federation = Federation.open(
        f"{DIRECTORY}/parties/analyst",
        f"{DIRECTORY}/consortium",
        JobSettings(
            purpose="How long do patients stay in hospital, and why?",
            epsilon=2.0,
            delta=1e-5,
            dropouts=20,
            colluders=20,
            minimum_population=1500,
            maximum_population=2000,
            join_seconds=600,
            round_seconds=60,
            grace_seconds=60,
        ),
    )

# %% [markdown]
# A job of many rounds is simulated at its size and price before it is paid for.

# %%
model.fit(simulated)
if DIRECTORY is not None:
    model.fit(federation)
print(model.summary())

# %%
axes = model.plot()
axes.plot(list(TRUTH.values()), range(4), "x", color="C3", label="truth")
axes.legend()
pyplot.show()

# %% [markdown]
# ## Predictions by the model itself
#
# Draws of the latents give draws of whatever the model says: here, how long emergencies of 80 stay.

# %%
base, decade, urgent, concentration = model.posterior_.sample(4000, generator).T
expected = np.exp(base + decade * 2.0 + urgent)
simulated = generator.negative_binomial(concentration, concentration / (concentration + expected))
low, high = np.quantile(simulated, [0.05, 0.95])
print(f"90 % of them stay {low:.0f} to {high:.0f} days, {simulated.mean():.1f} on average")
