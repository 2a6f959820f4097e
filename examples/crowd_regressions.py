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

from shoal import CrowdFederation, CrowdSettings
from shoal.estimators import CrowdLinearRegression, CrowdLogisticRegression, CrowdPoissonRegression
from shoal.jobs.federation import LearningCrowd
from shoal_studies.crowds.simulation import SimulatedCrowd

DIRECTORY = os.environ.get("SHOAL_FEDERATION")  # of a real federation; without one, a simulation
PHONES = int(os.environ.get("SHOAL_PHONES", "40000"))

# %% [markdown]
# ## The data
#
# Invented, with a truth that we know. On a real federation each data holder has its own.

# %%
FEATURES = {"minutes": (0, 120), "days": (0, 60)}


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
# `epsilon` below is the price of one contribution. What a job asks of clients stands with the
# federation: here each phone contributes once.

# %%
crowd: LearningCrowd
if DIRECTORY is None:
    crowd = SimulatedCrowd(invented(PHONES, seed=1), seed=1)
else:
    crowd = CrowdFederation.open(
        f"{DIRECTORY}/parties/analyst",
        f"{DIRECTORY}/consortium",
        CrowdSettings(
            contributions=PHONES,
            contributions_per_client=1,
            session_seconds=60,
            open_seconds=max(20, PHONES // 20),
        ),
    )

# %% [markdown]
# ## One class of two
#
# A logistic step never exceeds the learning rate, so `clip` is that; `shoal plan` finds both. A
# wait that is interrupted does not end the job: `returning.fit_from(crowd.resume(id))` comes back.

# %%
returning = CrowdLogisticRegression(
    features=FEATURES,
    target={"returns": (0, 1)},
    clip=0.01,
    learning_rate=0.01,
    epsilon=4.0,
    instances=4,
)
returning.fit(crowd)
print(returning.summary())
print(f"Accuracy on phones that took no part: {returning.score(held_out):.2f}")

# %% [markdown]
# There are no intervals: what error to expect, `shoal plan` says. The picture shows each instance.

# %%
returning.plot()
pyplot.show()

# %% [markdown]
# ## A number, and a count
#
# Each is a job of its own, and costs each phone epsilon 4 once more.

# %%
content = CrowdLinearRegression(
    features=FEATURES,
    target={"content": (0, 10)},
    clip=0.01,
    learning_rate=0.01,
    epsilon=4.0,
    instances=4,
)
content.fit(crowd)
print(content.summary())
print(f"R^2: {content.score(held_out):.2f}")

# %%
visits = CrowdPoissonRegression(
    features=FEATURES,
    target={"visits": (0, 10)},
    clip=0.01,
    learning_rate=0.01,
    epsilon=4.0,
    instances=4,
)
visits.fit(crowd)
print(f"D^2: {visits.score(held_out):.2f}; coefficients {visits.coef_}")
