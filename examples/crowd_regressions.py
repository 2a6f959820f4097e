# %% [markdown]
# # Regressions by a crowd
#
# Phones of an app, each with one record: how long it was used, how long ago it was installed,
# whether its owner came back, how often, and how content she was. No operator is trusted: each
# phone adds its own noise (Draw and Discard), and many are needed for that.

# %%
import os

import numpy as np
from matplotlib import pyplot

from shoal import Analyst, ColumnBounds, CrowdModel, CrowdSettings, CrowdTask
from shoal_protocol.queries.models import Family
from shoal_studies.crowds.simulation import SimulatedCrowd

DIRECTORY = os.environ.get("SHOAL_FEDERATION")  # of a real federation; without one, a simulation
PHONES = int(os.environ.get("SHOAL_PHONES", "40000"))

# %% [markdown]
# ## The data
#
# Invented, with a truth that we know. On a real federation each data holder has its own.


# %%
def invented(phones: int, seed: int) -> dict[str, np.ndarray]:
    """Return records of as many phones."""
    generator = np.random.default_rng(seed)
    used, age = generator.uniform(-1, 1, (2, phones))
    return {
        "minutes": 60 + 60 * used,
        "days": 30 + 30 * age,
        "returns": generator.binomial(1, 1 / (1 + np.exp(-2 * used + age))),
        "visits": generator.poisson(np.exp(0.5 + 0.5 * used)),
        "content": np.clip(5 + 2 * used - age + generator.normal(0, 1, phones), 0, 10),
    }


held_out = invented(2000, seed=2)

# %% [markdown]
# ## The crowd
#
# `epsilon` is the price of one contribution, and each phone makes one. `shoal plan` finds a
# learning rate; `clip` is the largest step on one weight.

# %%
FEATURES = (
    ColumnBounds(name="minutes", lower=0, upper=120),
    ColumnBounds(name="days", lower=0, upper=60),
)
SETTINGS = CrowdSettings(
    contributions=PHONES,
    contributions_per_client=1,
    session_seconds=60,
    open_seconds=max(20, PHONES // 20),
)
if DIRECTORY is None:
    simulated = SimulatedCrowd(invented(PHONES, seed=1), seed=1)
else:
    analyst = Analyst.open(f"{DIRECTORY}/parties/analyst", f"{DIRECTORY}/consortium")


def learned(family: Family, target: str, upper: float) -> CrowdModel:
    """Return what the crowd learns of a column."""
    task = CrowdTask(
        family=family,
        features=FEATURES,
        target=ColumnBounds(name=target, lower=0, upper=upper),
        clip=0.01,
        learning_rate=0.01,
        epsilon=4.0,
        instances=4,
    )
    if DIRECTORY is None:
        return simulated.learn(task)
    return analyst.open_crowd(task, SETTINGS).wait()


rows = np.column_stack([held_out["minutes"], held_out["days"]])

# %% [markdown]
# ## One class of two
#
# There are no intervals: what error to expect, `shoal plan` says. The picture shows each instance.

# %%
returning = learned("logistic", "returns", 1)
print(returning.summary())
right = (returning.predict(rows) > 0.5) == (held_out["returns"] == 1)
print(f"Accuracy on phones that took no part: {right.mean():.2f}")

# %%
pyplot.plot(returning.weights.T, "|", color="C0", markersize=20)
pyplot.plot(returning.averaged, "o")
names = ["(intercept)", *(each.name for each in returning.task.features)]
pyplot.xticks(range(3), names)
pyplot.show()

# %% [markdown]
# ## A number, and a count
#
# Each is a job of its own, and costs each phone epsilon 4 once more.

# %%
content = learned("linear", "content", 10)
print(content.summary())
left = held_out["content"] - content.predict(rows)
print(f"R^2: {1 - left.var() / held_out['content'].var():.2f}")

# %%
visits = learned("poisson", "visits", 10)
print(visits.summary())
