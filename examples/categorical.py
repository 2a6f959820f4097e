# %% [markdown]
# # Proportions
#
# Which blood groups do donors have? 1,000 invented donors, each of whom is a client of her own.

# %%
import os

import numpy as np
from matplotlib import pyplot

from shoal import Federation, JobSettings, SimulatedFederation
from shoal.estimators import Categorical
from shoal.jobs.federation import Learning

DIRECTORY = os.environ.get("SHOAL_FEDERATION")  # of a real federation; without one, a simulation

# %%
GROUPS = {"O": 0.45, "A": 0.40, "B": 0.11, "AB": 0.04}
generator = np.random.default_rng(1)
donors = {"group": generator.choice(list(GROUPS), size=1000, p=list(GROUPS.values()))}

# %% [markdown]
# The list of levels is public. Values that are none of them are counted as "other".

# %%
model = Categorical(column={"group": tuple(GROUPS)})

federation: Learning
if DIRECTORY is None:
    federation = SimulatedFederation(
        donors, epsilon=0.5, delta=1e-5, dropouts=25, colluders=25, seed=1
    )
else:
    federation = Federation.open(
        f"{DIRECTORY}/parties/analyst",
        f"{DIRECTORY}/consortium",
        JobSettings(
            purpose="Which blood groups do donors have?",
            epsilon=0.5,
            delta=1e-5,
            dropouts=25,
            colluders=25,
            minimum_population=800,
            maximum_population=1000,
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
axes.plot(list(GROUPS.values()), range(len(GROUPS)), "x", color="C3", label="truth")
axes.legend()
pyplot.show()

# %% [markdown]
# Draws answer any question about the probabilities: is AB rarer than half of B?

# %%
draws = model.posterior_.sample(4000, generator)
print(f"AB is rarer than half of B with probability {np.mean(draws[:, 3] < draws[:, 2] / 2):.2f}")
