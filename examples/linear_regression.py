# %% [markdown]
# # Linear regression
#
# How does diabetes progress in a year, given body mass index, blood pressure and two blood values?
# 442 patients, each of whom is a client of her own: nobody pools their records.

# %%
import os

from matplotlib import pyplot
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression as LeastSquares

from shoal import Federation, JobSettings, SimulatedFederation
from shoal.estimators import LinearRegression
from shoal.jobs.federation import Learning

DIRECTORY = os.environ.get("SHOAL_FEDERATION")  # of a real federation; without one, a simulation

# %% [markdown]
# ## Bounds
#
# They are public and come from general knowledge, never from the records: here the WHO's classes of
# body mass index (kg/m²), pressures that are survived (mmHg), and what laboratories call very low
# and very high (HDL cholesterol in mg/dl, logarithm of triglycerides). Values beyond are cut. Where
# values lie within them a first round measures, so wider ones cost precision alone.

# %%
model = LinearRegression(
    features={"bmi": (15, 45), "bp": (60, 130), "s3": (20, 100), "s5": (3.5, 6.5)},
    target={"progression": (0, 350)},
)

# %% [markdown]
# ## The federation
#
# A simulated one takes the records themselves. It has no privacy, and is for planning and for
# learning how this works. A real one is asked in the same words, and costs each patient
# (epsilon, delta) of her budget.

# %%
data = load_diabetes(scaled=False)
records = dict(zip(data.feature_names, data.data.T, strict=True)) | {"progression": data.target}
training = {name: values[42:] for name, values in records.items()}
held_out = {name: values[:42] for name, values in records.items()}

federation: Learning
if DIRECTORY is None:
    federation = SimulatedFederation(
        training, epsilon=1.0, delta=1e-5, dropouts=20, colluders=20, seed=1
    )
else:
    federation = Federation.open(
        f"{DIRECTORY}/parties/analyst",
        f"{DIRECTORY}/consortium",
        JobSettings(
            purpose="How does diabetes progress in a year?",
            epsilon=1.0,
            delta=1e-5,
            dropouts=20,
            colluders=20,
            minimum_population=300,
            maximum_population=400,
            join_seconds=600,
            round_seconds=300,
            grace_seconds=300,
        ),
    )

# %%
model.fit(federation)
print(model.summary())

# %% [markdown]
# ## What was learned
#
# The intervals account for the patients' scatter and for the privacy noise alike. The verdict says
# whether they may be believed.

# %%
model.plot(level=0.9)
pyplot.show()

# %% [markdown]
# ## Beside least squares on the pooled records
#
# which is what nobody may compute, but for this example.

# %%
columns = list(model.feature_names_in_)
pooled = LeastSquares().fit(
    [list(row) for row in zip(*(training[name] for name in columns), strict=True)],
    training["progression"],
)
theirs = pooled.score(
    [list(row) for row in zip(*(held_out[name] for name in columns), strict=True)],
    held_out["progression"],
)
ours = model.score(held_out)
print(f"R² on patients who took no part: {ours:.2f}; without privacy {theirs:.2f}")
