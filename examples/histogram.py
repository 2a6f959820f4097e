# %% [markdown]
# # A histogram
#
# How old are the patients of a clinic's emergency department? 1,000 invented patients, each of whom
# is a client of her own.

# %%
import os

import numpy as np
from matplotlib import pyplot

from shoal import Federation, JobSettings, SimulatedFederation
from shoal.estimators import Histogram
from shoal.jobs.federation import Learning

DIRECTORY = os.environ.get("SHOAL_FEDERATION")  # of a real federation; without one, a simulation

# %%
generator = np.random.default_rng(1)
children, adults = generator.gamma(2.0, 4.0, 300), generator.normal(62.0, 16.0, 700)
patients = {"age": np.clip(np.concatenate([children, adults]), 0.0, 100.0)}

# %% [markdown]
# The bins' edges are public and say nothing of the data. Ages beyond the outer edges would count in
# the outer bins. Each bin has the same noise, so more bins tell less of each.

# %%
EDGES = [0, 6, 18, 30, 45, 60, 75, 90, 105]
model = Histogram(column="age", edges=EDGES)

federation: Learning
if DIRECTORY is None:
    federation = SimulatedFederation(
        patients, epsilon=0.5, delta=1e-5, dropouts=25, colluders=25, seed=1
    )
else:
    federation = Federation.open(
        f"{DIRECTORY}/parties/analyst",
        f"{DIRECTORY}/consortium",
        JobSettings(
            purpose="How old are the emergency department's patients?",
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
truth, _ = np.histogram(patients["age"], EDGES)
axes = model.plot(level=0.9)
axes.plot(truth / 1000, range(len(truth)), "x", color="C3", label="truth")
axes.legend()
pyplot.show()

# %% [markdown]
# Bars whose areas are probabilities make a picture of the density. Draws answer any question: are
# fewer patients from 18 to 29 than of 90 and more?

# %%
pyplot.bar(EDGES[:-1], model.posterior_.density(), np.diff(EDGES), align="edge", edgecolor="white")
pyplot.xlabel("age")
pyplot.show()

# %%
draws = model.posterior_.sample(4000, generator)
print(f"Fewer are from 18 to 29 with probability {np.mean(draws[:, 2] < draws[:, 7]):.2f}")
