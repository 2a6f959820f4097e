# %% [markdown]
# # Sites
#
# Four invented hospitals hold the records of 4,000 patients. How much do the hospitals differ, and
# would a model do at a hospital that it has not seen?

# %%
import os

import numpy as np
from matplotlib import pyplot

from shoal import Federation, JobSettings, SimulatedFederation
from shoal.estimators import LogisticRegression, Validation
from shoal.jobs.federation import Learning

DIRECTORY = os.environ.get("SHOAL_FEDERATION")  # of a real federation; without one, a simulation

# %%
CLIENTS = 4000
SITES = ("north", "east", "south", "west")
generator = np.random.default_rng(1)
site = generator.choice(4, CLIENTS, p=[0.4, 0.3, 0.2, 0.1])
patients = {
    "age": generator.uniform(18, 90, CLIENTS),
    "severity": generator.normal(5.0, 1.5, CLIENTS),
    "site": np.array(SITES)[site],
}
log_odds = 0.04 * (patients["age"] - 60) + 0.5 * (patients["severity"] - 5)
log_odds += np.array([-0.3, 0.0, 0.2, 1.0])[site]
patients["died"] = generator.binomial(1, 1 / (1 + np.exp(-log_odds)))

# %%
federation: Learning
if DIRECTORY is None:
    federation = SimulatedFederation(
        patients, epsilon=2.0, delta=1e-5, dropouts=20, colluders=20, seed=1
    )
else:
    federation = Federation.open(
        f"{DIRECTORY}/parties/analyst",
        f"{DIRECTORY}/consortium",
        JobSettings(
            purpose="How much do the hospitals' patients differ?",
            epsilon=2.0,
            delta=1e-5,
            dropouts=20,
            colluders=20,
            minimum_population=3000,
            maximum_population=4000,
            join_seconds=600,
            round_seconds=60,
            grace_seconds=60,
        ),
    )

# %% [markdown]
# ## Partial pooling
#
# The hospitals' effects have a common prior, whose spread is learned: "sd of site".

# %%
columns = {"age": (18, 90), "severity": (0, 10)}
died = {"died": (0, 1)}
pooled = LogisticRegression(features={**columns, "site": SITES}, target=died, pooled="site")
print(pooled.fit(federation).summary())

# %% [markdown]
# ## A model from elsewhere
#
# `Validation` scores any public coefficients: the constant, then one for each feature. "explained"
# is by what share the log loss is lower than if each hospital's own mean were predicted; "bias" is
# the mean prediction less what was seen.

# %%
published = (-4.9, 0.04, 0.5)
model = Validation(
    family="logistic",
    features=columns,
    target=died,
    site="site",
    sites=dict.fromkeys(SITES, published),
)
print(model.fit(federation).summary())

# %%
model.plot(names=[name for name in model.posterior_.names if name.endswith("explained")])
pyplot.show()
