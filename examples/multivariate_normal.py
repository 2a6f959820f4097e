# %% [markdown]
# # Means, spreads and correlations
#
# How do body mass index, blood pressure and the logarithm of triglycerides go together among 442
# diabetes patients, each of whom is a client of her own?

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
NAMES = {"bmi": "mass_index", "bp": "pressure", "s5": "triglycerides"}
patients = {name: data.data[:, data.feature_names.index(column)] for column, name in NAMES.items()}

# %% [markdown]
# Bounds are public: kg/m², mmHg, and 33 to 665 mg/dl. The model does not know of the cut, so choose
# bounds that records hardly ever pass.

# %%
model = Normal(
    variables={"mass_index": (15, 45), "pressure": (60, 130), "triglycerides": (3.5, 6.5)}
)

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
            purpose="How do body mass, blood pressure and blood fat correlate?",
            epsilon=2.0,
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
correlations = [name for name in model.posterior_.names if name.startswith("correlation")]
axes = model.plot(level=0.9, names=correlations)
exact = np.corrcoef(list(patients.values()))[np.triu_indices(3, 1)]
axes.plot(exact, range(3), "x", color="C3", label="without privacy")
axes.legend()
pyplot.show()

# %% [markdown]
# Every draw is of a covariance matrix that is one, so that what follows needs no repair: the
# partial correlation of pressure and triglycerides, body mass index held fixed, for instance.

# %%
precisions = np.linalg.inv(model.posterior_.covariances())
partial = -precisions[:, 1, 2] / np.sqrt(precisions[:, 1, 1] * precisions[:, 2, 2])
low, high = np.quantile(partial, [0.05, 0.95])
print(f"between {low:.2f} and {high:.2f}, with probability 90 %")
