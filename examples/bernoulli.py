# %% [markdown]
# # A proportion
#
# How many people smoke? 1,000 invented people, each of whom is a client of her own. It is what
# randomised response is for, with far less noise: here, noise is drawn once for all of them.

# %%
import os

import numpy as np
from matplotlib import pyplot

from shoal import Federation, JobSettings, SimulatedFederation
from shoal.estimators import Bernoulli
from shoal.jobs.federation import Learning

DIRECTORY = os.environ.get("SHOAL_FEDERATION")  # of a real federation; without one, a simulation

# %%
CLIENTS, TRUTH = 1000, 0.23
generator = np.random.default_rng(1)
people = {"smokes": generator.binomial(1, TRUTH, CLIENTS)}

# %% [markdown]
# The prior is a beta distribution: here worth two people, of whom one smokes. One round is enough.

# %%
model = Bernoulli(column="smokes", prior_successes=1.0, prior_failures=1.0)

federation: Learning
if DIRECTORY is None:
    federation = SimulatedFederation(
        people, epsilon=0.5, delta=1e-5, dropouts=25, colluders=25, seed=1
    )
else:
    federation = Federation.open(
        f"{DIRECTORY}/parties/analyst",
        f"{DIRECTORY}/consortium",
        JobSettings(
            purpose="How many people smoke?",
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
axes.axvline(TRUTH, color="C3", label="truth")
axes.legend()
pyplot.show()

# %% [markdown]
# What privacy costs is small beside what sampling 1,000 people costs anyway.

# %%
private = model.posterior_.sd[0]
sampling = np.sqrt(TRUTH * (1 - TRUTH) / CLIENTS)
print(f"posterior sd {private:.4f}; of the proportion among 1,000 people alone {sampling:.4f}")
