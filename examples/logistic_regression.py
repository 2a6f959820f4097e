# %% [markdown]
# # Logistic regression
#
# Is a breast tumour malignant, given five measurements of its cells' nuclei? 569 patients, each of
# whom is a client of her own.

# %%
import os

import numpy as np
from matplotlib import pyplot
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import RocCurveDisplay

from shoal import Federation, JobSettings, SimulatedFederation
from shoal.estimators import LogisticRegression
from shoal.jobs.federation import Learning

DIRECTORY = os.environ.get("SHOAL_FEDERATION")  # of a real federation; without one, a simulation

# %% [markdown]
# ## The model
#
# Bounds are public, from knowledge of what the measurements are, never from the records. There are
# five rounds of everybody: one measures the columns, one how they go together, and three ask for
# the scores of the likelihood, each where those before lead to.

# %%
FEATURES = {
    "radius": (5, 30),  # micrometres
    "texture": (5, 45),  # standard deviation of grey levels
    "smoothness": (0.04, 0.18),
    "concavity": (0.0, 0.5),
    "symmetry": (0.1, 0.35),
}
model = LogisticRegression(features=FEATURES, target={"malignant": (0, 1)})

# %%
data = load_breast_cancer()
names = [name.removeprefix("mean ") for name in data.feature_names]
table = {name: data.data[:, names.index(name)] for name in FEATURES}
table["malignant"] = 1.0 - data.target  # scikit-learn codes benign as 1
shuffled = np.random.default_rng(1).permutation(len(data.target))
training = {name: values[shuffled[100:]] for name, values in table.items()}
held_out = {name: values[shuffled[:100]] for name, values in table.items()}

federation: Learning
if DIRECTORY is None:
    federation = SimulatedFederation(
        training, epsilon=2.0, delta=1e-5, dropouts=20, colluders=20, seed=1
    )
else:
    federation = Federation.open(
        f"{DIRECTORY}/parties/analyst",
        f"{DIRECTORY}/consortium",
        JobSettings(
            purpose="Is a breast tumour malignant, given its cells' nuclei?",
            epsilon=2.0,
            delta=1e-5,
            dropouts=20,
            colluders=20,
            minimum_population=400,
            maximum_population=469,
            join_seconds=600,
            round_seconds=60,
            grace_seconds=60,
        ),
    )

# %%
model.fit(federation)
print(model.summary())

# %% [markdown]
# The intervals know of the privacy noise, and the verdict says whether they may be believed.

# %%
print(f"Accuracy on patients who took no part: {model.score(held_out):.2f}")
print(f"of always saying benign: {1.0 - held_out['malignant'].mean():.2f}")

# %% [markdown]
# An estimator here is one for scikit-learn's tools, too.

# %%
rows = np.column_stack([held_out[name] for name in FEATURES])
RocCurveDisplay.from_estimator(model, rows, held_out["malignant"])
pyplot.show()

# %%
model.plot(level=0.9)
pyplot.show()
