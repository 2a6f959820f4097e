# %% [markdown]
# # A cohort card
#
# Who are the patients of a registry? The first table of many a paper, of 3,000 invented patients,
# each of whom is a client of her own. Some values are missing; of whom is as private as they are.

# %%
import os

import numpy as np
from matplotlib import pyplot

from shoal import Federation, JobSettings, SimulatedFederation
from shoal.estimators import CohortCard
from shoal.jobs.federation import Learning

DIRECTORY = os.environ.get("SHOAL_FEDERATION")  # of a real federation; without one, a simulation

# %%
generator = np.random.default_rng(1)
COUNT = 3000
patients = {
    "age": np.clip(generator.normal(63.0, 13.0, COUNT), 18.0, 100.0),
    "sex": generator.choice(["female", "male"], COUNT),
    "stage": generator.choice([1.0, 2.0, 3.0, 4.0], COUNT, p=[0.4, 0.3, 0.2, 0.1]),
}
patients["age"][generator.random(COUNT) < 0.06] = np.nan
patients["stage"][generator.random(COUNT) < 0.15] = np.nan

# %% [markdown]
# Bounds and levels are public and say nothing of the data. Each variable has a table of counts, a
# number one for each power of four up to its bins, and each cross table is one more: all share the
# price, so ask for what you need. What may be fewer than ten patients is not shown.

# %%
card = CohortCard(
    variables={
        "age": {"lower": 0, "upper": 128, "bins": 64},
        "sex": ("female", "male"),
        "stage": {"levels": [1, 2, 3, 4]},
    },
    quantiles=[0.25, 0.5, 0.75],
    crosses=[("sex", "stage")],
    smallest_cell=10,
)

federation: Learning
if DIRECTORY is None:
    federation = SimulatedFederation(
        patients, epsilon=1.0, delta=1e-5, dropouts=25, colluders=25, seed=1
    )
else:
    federation = Federation.open(
        f"{DIRECTORY}/parties/analyst",
        f"{DIRECTORY}/consortium",
        JobSettings(
            purpose="Who are the patients of the registry?",
            epsilon=1.0,
            delta=1e-5,
            dropouts=25,
            colluders=25,
            minimum_population=2500,
            maximum_population=3000,
            join_seconds=600,
            round_seconds=300,
            grace_seconds=300,
        ),
    )

# %%
card.fit(federation)
print(card.summary())

# %%
card.plot()
pyplot.show()
