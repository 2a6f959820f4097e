# %% [markdown]
# # A mean and a standard deviation
#
# How is the logarithm of triglycerides distributed among 442 diabetes patients, each of whom is a
# client of her own?

# %%
import os

import numpy as np
from matplotlib import pyplot
from sklearn.datasets import load_diabetes

from shoal import Federation, JobSettings, SimulatedFederation
from shoal.estimators import Normal
from shoal.jobs.federation import Learning

DIRECTORY = os.environ.get("SHOAL_FEDERATION")  # of a real federation; without one, a simulation

# %%
data = load_diabetes(scaled=False)
patients = {"triglycerides": data.data[:, data.feature_names.index("s5")]}

# %% [markdown]
# Bounds are public: 33 to 665 mg/dl, of which very high is from 500. The model does not know of the
# cut, so choose bounds that records hardly ever pass.

# %%
model = Normal(variables={"triglycerides": (3.5, 6.5)})

federation: Learning
if DIRECTORY is None:
    federation = SimulatedFederation(
        patients, epsilon=1.0, delta=1e-5, dropouts=20, colluders=20, seed=1
    )
else:
    federation = Federation.open(
        f"{DIRECTORY}/parties/analyst",
        f"{DIRECTORY}/consortium",
        JobSettings(
            purpose="How are triglycerides of diabetes patients distributed?",
            epsilon=1.0,
            delta=1e-5,
            dropouts=20,
            colluders=20,
            minimum_population=350,
            maximum_population=442,
            join_seconds=600,
            round_seconds=300,
            grace_seconds=300,
        ),
    )

# %%
model.fit(federation)
print(model.summary())

# %%
axes = model.plot(level=0.9, names=["mean[triglycerides]"])
axes.plot([patients["triglycerides"].mean()], [0], "x", color="C3", label="without privacy")
axes.legend()
pyplot.show()

# %% [markdown]
# Joint draws answer other questions: what share of such patients is above 200 mg/dl?

# %%
means, sds = model.posterior_.sample(4000, np.random.default_rng(1)).T
standard = np.random.default_rng(2).standard_normal((200, 4000))
shares = np.mean(means + sds * standard > np.log(200.0), axis=0)
low, high = np.quantile(shares, [0.05, 0.95])
print(f"between {low:.0%} and {high:.0%}, with probability 90 %")
