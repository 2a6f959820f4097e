# %% [markdown]
# # Multinomial regression
#
# With which party do people identify, given income and where they place themselves between left
# and right? 944 respondents of the American National Election Study of 1996, each a client of her
# own.

# %%
import os

import numpy as np
from matplotlib import pyplot
from statsmodels.datasets import anes96

from shoal import Federation, JobSettings, SimulatedFederation
from shoal.estimators import MultinomialRegression
from shoal.jobs.federation import Learning

DIRECTORY = os.environ.get("SHOAL_FEDERATION")  # of a real federation; without one, a simulation

# %% [markdown]
# ## The model
#
# The target has levels, of which the first is the reference: a coefficient says by how much the
# logarithm of a level's odds against it rises. Which level is the reference changes no prediction.

# %%
LEVELS = ("democrat", "independent", "republican")
model = MultinomialRegression(
    features={"right": (1, 7), "income": (1, 24)}, target={"party": LEVELS}
)

# %%
data = anes96.load_pandas().data
party = np.select([data.PID < 3, data.PID > 3], [0, 2], 1)
table = {
    "right": data.selfLR.to_numpy(),
    "income": data.income.to_numpy(),
    "party": np.array(LEVELS)[party],
}
shuffled = np.random.default_rng(1).permutation(len(party))
training = {name: values[shuffled[100:]] for name, values in table.items()}
held_out = {name: values[shuffled[:100]] for name, values in table.items()}

federation: Learning
if DIRECTORY is None:
    federation = SimulatedFederation(
        training, epsilon=4.0, delta=1e-5, dropouts=20, colluders=20, seed=1
    )
else:
    federation = Federation.open(
        f"{DIRECTORY}/parties/analyst",
        f"{DIRECTORY}/consortium",
        JobSettings(
            purpose="With which party do people identify, given income?",
            epsilon=4.0,
            delta=1e-5,
            dropouts=20,
            colluders=20,
            minimum_population=700,
            maximum_population=844,
            join_seconds=600,
            round_seconds=60,
            grace_seconds=60,
        ),
    )

# %%
model.fit(federation)
print(model.summary())

# %% [markdown]
# ## What it predicts
#
# A probability for each level, with an interval that knows of the noise.

# %%
somebody = {"right": [5], "income": [20]}
for level, probability, (low, high) in zip(
    model.classes_,
    model.predict_proba(somebody)[0],
    model.predict_interval(somebody, 0.9)[0],
    strict=True,
):
    print(f"{level}: {probability:.2f}, from {low:.2f} to {high:.2f}")
print(f"Accuracy on people who took no part: {model.score(held_out):.2f}")

# %%
model.plot()
pyplot.show()
