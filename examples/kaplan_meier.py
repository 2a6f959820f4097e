# %% [markdown]
# # Survival by Kaplan and Meier
#
# Does a treatment prolong life? 3,000 invented patients, each of whom is a client of her own, are
# followed for up to 70 weeks; many leave before, alive.

# %%
import os

import numpy as np
from matplotlib import pyplot

from shoal import Federation, JobSettings, SimulatedFederation
from shoal.estimators import KaplanMeier, PiecewiseExponentialRegression
from shoal.jobs.federation import Learning

DIRECTORY = os.environ.get("SHOAL_FEDERATION")  # of a real federation; without one, a simulation

# %%
generator = np.random.default_rng(1)
COUNT = 3000
treated = generator.integers(0, 2, COUNT).astype(float)
age = generator.normal(55.0, 10.0, COUNT).clip(20.0, 90.0)
years = np.exp(-0.02 * (age - 55.0))  # lives are the shorter, the older
deaths = np.where(treated == 1.0, 55.0, 40.0) * years * generator.weibull(1.3, COUNT)
seen = np.minimum(generator.uniform(10.0, 80.0, COUNT), 70.0)
patients = {
    "weeks": np.minimum(deaths, seen),
    "died": (deaths <= seen).astype(float),
    "treated": treated,
    "age": age,
}

# %% [markdown]
# Each patient is counted once: in an interval of time, as dead or as last seen alive, in her group.
# Intervals are public; more of them tell times apart better and add noise.

# %%
model = KaplanMeier(time={"weeks": (0, 70)}, event="died", group={"treated": (0, 1)}, intervals=20)

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
            purpose="Does the treatment prolong life?",
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
model.fit(federation)
print(model.summary())

# %% [markdown]
# Dark bands hold the curve at each time by itself, light ones all of it. The test's p-value counts
# the noise: where there is no difference it is below .05 in one study of twenty.

# %%
model.plot()
pyplot.show()

# %% [markdown]
# How much does the treatment change the hazard of death, at the same age? Hazard ratios are those
# of Cox's regression; the baseline hazard is constant within each interval.

# %%
hazards = PiecewiseExponentialRegression(
    features={"treated": (0, 1), "age": (20, 90)}, time={"weeks": (0, 70)}, event="died"
)
hazards.fit(federation)
print(hazards.ratios())

# %%
curves = hazards.predict_survival({"treated": [0, 1], "age": [55, 55]})
for label, curve in zip(("not treated, 55", "treated, 55"), curves.survival, strict=True):
    pyplot.plot([0.0, *curves.times[-len(curve) :]], [1.0, *curve], label=label)
pyplot.legend()
pyplot.show()
