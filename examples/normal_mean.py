# %% [markdown]
# # A mean, the spread known
#
# What is the mean blood pressure of 442 diabetes patients, each of whom is a client of her own, if
# its spread is known from elsewhere?

# %%
import os

from matplotlib import pyplot
from sklearn.datasets import load_diabetes

from shoal import Federation, JobSettings, SimulatedFederation
from shoal.estimators import NormalMean
from shoal.jobs.federation import Learning

DIRECTORY = os.environ.get("SHOAL_FEDERATION")  # of a real federation; without one, a simulation

# %%
data = load_diabetes(scaled=False)
patients = {"pressure": data.data[:, data.feature_names.index("bp")]}

# %% [markdown]
# Bounds are public, from general knowledge (mmHg): 60 is the least that perfuses organs, 130 a
# hypertensive crisis. The standard deviation is what is known of such patients.

# %%
model = NormalMean(column={"pressure": (60, 130)}, sd=14.0)

federation: Learning
if DIRECTORY is None:
    federation = SimulatedFederation(
        patients, epsilon=0.5, delta=1e-5, dropouts=20, colluders=20, seed=1
    )
else:
    federation = Federation.open(
        f"{DIRECTORY}/parties/analyst",
        f"{DIRECTORY}/consortium",
        JobSettings(
            purpose="What is the mean blood pressure of diabetes patients?",
            epsilon=0.5,
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
axes = model.plot(level=0.95)
axes.axvline(patients["pressure"].mean(), color="C3", label="mean without privacy")
axes.legend()
pyplot.show()

# %% [markdown]
# What a further patient's pressure would be, scatter included:

# %%
mean, sd = model.posterior_.predict()
print(f"{mean[0]:.1f} mmHg, give or take {sd[0]:.1f}")
