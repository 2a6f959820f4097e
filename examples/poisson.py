# %% [markdown]
# # A rate
#
# How many falls a year does a resident of a nursing home have? 800 invented residents, each of whom
# is a client of her own.

# %%
import os

import numpy as np
from matplotlib import pyplot

from shoal import Federation, JobSettings, SimulatedFederation
from shoal.estimators import Poisson
from shoal.jobs.federation import Learning

DIRECTORY = os.environ.get("SHOAL_FEDERATION")  # of a real federation; without one, a simulation

# %%
TRUTH = 1.6
generator = np.random.default_rng(1)
residents = {"falls": generator.poisson(TRUTH, 800)}

# %% [markdown]
# Counts are cut to `upper`, which is public, and the posterior knows of the cut. Noise grows with
# it: a little above the largest count that is likely is a good choice.

# %%
model = Poisson(column="falls", upper=8)

federation: Learning
if DIRECTORY is None:
    federation = SimulatedFederation(
        residents, epsilon=1.0, delta=1e-5, dropouts=20, colluders=20, seed=1
    )
else:
    federation = Federation.open(
        f"{DIRECTORY}/parties/analyst",
        f"{DIRECTORY}/consortium",
        JobSettings(
            purpose="How often do residents of nursing homes fall?",
            epsilon=1.0,
            delta=1e-5,
            dropouts=20,
            colluders=20,
            minimum_population=600,
            maximum_population=800,
            join_seconds=600,
            round_seconds=300,
            grace_seconds=300,
        ),
    )

# %%
model.fit(federation)
print(model.summary())

# %%
axes = model.plot(level=0.9)
axes.axvline(TRUTH, color="C3", label="truth")
axes.legend()
pyplot.show()
