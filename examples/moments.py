# %% [markdown]
# # One purchase, many answers
#
# Six variables of 442 diabetes patients, each of whom is a client of her own. One job releases the
# noisy matrix of their second moments; all that follows is computed from it, at no further price.

# %%
import os

import numpy as np
from matplotlib import pyplot
from sklearn.datasets import load_diabetes

from shoal import Federation, JobSettings, SimulatedFederation
from shoal.estimators import Moments
from shoal.jobs.federation import Learning

DIRECTORY = os.environ.get("SHOAL_FEDERATION")  # of a real federation; without one, a simulation

# %%
data = load_diabetes(scaled=False)
patients = dict(zip(data.feature_names, data.data.T, strict=True)) | {"progression": data.target}

# %% [markdown]
# Bounds are public and may be wide: a first round measures where values lie within them. Each more
# column makes rows longer and all answers a little noisier, so take those that questions are about.

# %%
model = Moments(
    columns={
        "age": (18, 100),
        "bmi": (15, 45),
        "bp": (60, 130),
        "s3": (20, 100),
        "s5": (3.5, 6.5),
        "progression": (0, 350),
    }
)

federation: Learning
if DIRECTORY is None:
    federation = SimulatedFederation(
        patients, epsilon=4.0, delta=1e-5, dropouts=20, colluders=20, seed=1
    )
else:
    federation = Federation.open(
        f"{DIRECTORY}/parties/analyst",
        f"{DIRECTORY}/consortium",
        JobSettings(
            purpose="How do six measurements of diabetes patients go together?",
            epsilon=4.0,
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

# %% [markdown]
# ## Regressions, of any column on any others
#
# A weighted sum of coefficients has an interval, too: here what 5 kg/m² and 10 mmHg more go along
# with.

# %%
answers = model.answers_
progression = answers.linear_model("progression", ["bmi", "bp", "s3", "s5"])
print(progression.summary())
weights = np.array([0.0, 5.0, 10.0, 0.0, 0.0])
sd = np.sqrt(weights @ progression.covariance_matrix @ weights)
print(f"5 kg/m² and 10 mmHg more: {weights @ progression.mean:.1f} ± {sd:.1f}")
print(answers.linear_model("bp", ["age", "bmi"]).summary())

# %% [markdown]
# ## Which model?
#
# Each by its evidence, as likely as any other beforehand.

# %%
print(answers.compare("progression", [[], ["bmi"], ["bmi", "s5"], ["bmi", "bp", "s5"]]))

# %% [markdown]
# ## What goes along with what

# %%
axes = model.plot(level=0.9)
exact = np.corrcoef([patients[name] for name in model.feature_names_in_])[np.triu_indices(6, 1)]
axes.plot(exact, range(15), "x", color="C3", label="without privacy")
axes.legend()
pyplot.show()
