# %% [markdown]
# # Quantiles within wide bounds
#
# What do households earn in a year? 20,000 invented ones, each of which is a client of its own. All
# that may be said in public is that nobody earns more than a billion.

# %%
import os

import numpy as np
from matplotlib import pyplot

from shoal import Federation, JobSettings, SimulatedFederation
from shoal.estimators import Quantiles
from shoal.jobs.federation import Learning

DIRECTORY = os.environ.get("SHOAL_FEDERATION")  # of a real federation; without one, a simulation

# %%
generator = np.random.default_rng(1)
households = {"income": np.round(generator.lognormal(10.5, 0.8, 20_000))}

# %% [markdown]
# The first round counts in 64 bins of sixteen million each, and so nearly all in one. Each later
# round has as many, most of them where the quantiles may be by then. All rounds share the price.

# %%
model = Quantiles(variables={"income": (0, 1e9)}, levels=[0.1, 0.5, 0.9], bins=64, rounds=6)

federation: Learning
if DIRECTORY is None:
    federation = SimulatedFederation(
        households, epsilon=1.0, delta=1e-6, dropouts=100, colluders=100, seed=1
    )
else:
    federation = Federation.open(
        f"{DIRECTORY}/parties/analyst",
        f"{DIRECTORY}/consortium",
        JobSettings(
            purpose="What do households earn in a year?",
            epsilon=1.0,
            delta=1e-6,
            dropouts=100,
            colluders=100,
            minimum_population=15_000,
            maximum_population=20_000,
            join_seconds=600,
            round_seconds=300,
            grace_seconds=300,
        ),
    )

# %%
model.fit(federation)
print(model.summary())

# %% [markdown]
# Intervals hold what noise hides of these households; they say nothing of others.

# %%
axes = model.plot(names=model.posterior_.names[1:])
axes.plot(np.quantile(households["income"], [0.1, 0.5, 0.9]), range(3), "x", color="C3")
pyplot.show()
