# %% [markdown]
# # One study, two trust models
#
# Does a phone's owner come back to an app tomorrow, given how long it was used today and how many
# days ago it was installed? The same logistic regression is learned twice: in rounds, where the
# noise of all clients together protects each and one Compute node has to be honest; and by Draw and
# Discard, where each client's own noise protects it against everybody. The second needs no rounds
# and no trust, and far more clients for the same error.

# %%
import os

import numpy as np
from matplotlib import pyplot

from shoal import Analyst, ColumnBounds, CrowdSettings, Federation, JobSettings, SimulatedFederation
from shoal.estimators import LogisticRegression
from shoal.jobs.federation import Learning
from shoal.planning import Study, draw_and_discard
from shoal_protocol.crowds.tasks import CrowdTask, design_rows
from shoal_studies.crowds.simulation import CrowdModel, in_turn, simulate

DIRECTORY = os.environ.get("SHOAL_FEDERATION")  # of a real federation; without one, a simulation
PHONES = int(os.environ.get("SHOAL_PHONES", "20000"))

# %% [markdown]
# ## What to expect of the crowd
#
# All that a plan needs is public: how many clients, how many columns, which price, and a guess of
# how large effects are. The expected error is that of one coefficient, on the scale where features
# are within [-1, 1].

# %%
EPSILON, DELTA = 4.0, 1e-6
EFFECT = 0.8
study = Study(
    family="logistic",
    clients=PHONES,
    features=2,
    epsilon=EPSILON,
    effect=EFFECT,
    instances=4,
)
plan = draw_and_discard(study)
print(f"Draw and Discard: expected error {plan.error.total:.2f}")

# %% [markdown]
# ## The data
#
# Invented, with a truth that we know. On a real federation each data holder has its own.

# %%
FEATURES = {"minutes": (0, 120), "days": (0, 60)}
TARGET = "returns"


def invented(phones: int, seed: int) -> dict[str, np.ndarray]:
    """Return records of as many phones."""
    generator = np.random.default_rng(seed)
    scaled = generator.uniform(-1, 1, (phones, 2))
    chance = 1 / (1 + np.exp(-EFFECT * (1 + scaled[:, 0] - scaled[:, 1])))
    minutes, days = 60 + 60 * scaled[:, 0], 30 + 30 * scaled[:, 1]
    return {"minutes": minutes, "days": days, TARGET: generator.binomial(1, chance)}


# %% [markdown]
# ## In rounds

# %%
records = invented(PHONES, seed=1)
few = PHONES // 50
federation: Learning
if DIRECTORY is None:
    federation = SimulatedFederation(
        records, epsilon=EPSILON, delta=DELTA, dropouts=few, colluders=few, seed=1
    )
else:
    federation = Federation.open(
        f"{DIRECTORY}/parties/analyst",
        f"{DIRECTORY}/consortium",
        JobSettings(
            purpose="Do owners come back to the app tomorrow?",
            epsilon=EPSILON,
            delta=DELTA,
            dropouts=few,
            colluders=few,
            minimum_population=PHONES,
            maximum_population=PHONES,
            join_seconds=600,
            round_seconds=60,
            grace_seconds=60,
        ),
    )
model = LogisticRegression(features=FEATURES, target={TARGET: (0, 1)})
model.fit(federation)
print(model.summary())

# %% [markdown]
# ## By Draw and Discard
#
# Each phone draws one of four instances of the model, takes one noisy step on its own record, and
# hands it back when it suits it. `rate` is the learning rate with which the plan expects the least
# error; `clip` is the largest step on one coefficient, and a logistic step never exceeds the rate.

# %%
rate = float(plan.settings["learning rate"])
task = CrowdTask(
    family="logistic",
    features=tuple(
        ColumnBounds(name=name, lower=lower, upper=upper)
        for name, (lower, upper) in FEATURES.items()
    ),
    target=ColumnBounds(name=TARGET, lower=0, upper=1),
    clip=rate,
    learning_rate=rate,
    epsilon=EPSILON,
    instances=study.instances,
)
if DIRECTORY is None:
    generator = np.random.default_rng(2)
    rows, targets = design_rows(task, np.column_stack([records[n] for n in task.column_names]))
    [ended] = simulate(
        task, in_turn(rows[:, None], targets[:, None], generator), generator, after=[PHONES]
    )
    crowd_model = CrowdModel.of(task, ended[0], PHONES)
else:
    crowd = Analyst.open(f"{DIRECTORY}/parties/analyst", f"{DIRECTORY}/consortium").open_crowd(
        task,
        CrowdSettings(
            contributions=PHONES,
            contributions_per_client=1,
            session_seconds=60,
            open_seconds=max(20, PHONES // 20),
        ),
    )
    crowd_model = crowd.wait()  # by what the trainer signed in the end
    crowd.verify()  # that it follows, contribution by contribution, from what it opened with
print(crowd_model.summary())

# %% [markdown]
# ## Side by side
#
# Below: how probable each says that owners with typical days come back, by minutes of use, beside
# the truth.

# %%
HALVES = np.array([1.0, 60.0, 30.0])  # half the ranges, by which slopes are normalised


def error(coefficients: np.ndarray) -> float:
    """Return the root mean square error of the intercept at the bounds' middle, and the slopes."""
    normalised = coefficients * HALVES
    normalised[0] += coefficients[1:] @ np.array([60.0, 30.0])
    return float(np.sqrt(np.mean((normalised - EFFECT * np.array([1.0, 1.0, -1.0])) ** 2)))


for name, coefficients in (
    ("in rounds", model.posterior_.mean),
    ("Draw and Discard", crowd_model.coefficients),
):
    print(f"{name}: error {error(coefficients):.2f}")

# %%
minutes = np.linspace(0, 120, 61)
shown = np.column_stack([minutes, np.full(61, 30.0)])
_, axes = pyplot.subplots(layout="constrained")
axes.plot(minutes, 1 / (1 + np.exp(-EFFECT * minutes / 60)), "k:", label="truth")
axes.plot(minutes, model.predict_proba(shown)[:, 1], label="in rounds")
axes.plot(minutes, crowd_model.predict(shown), label="Draw and Discard")
axes.set_xlabel("minutes of use")
axes.set_ylabel("probability of coming back")
axes.legend()
pyplot.show()
