# %% [markdown]
# # Poisson regression
#
# How often do patients come to an emergency department, given age, the number of their chronic
# conditions and the distance to it? 2,000 invented patients, each of whom is a client of her own,
# so that what is learned can be compared with the truth. They were seen for half a year to five.

# %%
import os

import numpy as np
from matplotlib import pyplot

from shoal import Federation, JobSettings, SimulatedFederation
from shoal.estimators import (
    GammaRegression,
    NegativeBinomialRegression,
    PoissonRegression,
)
from shoal.jobs.federation import Learning

DIRECTORY = os.environ.get("SHOAL_FEDERATION")  # of a real federation; without one, a simulation

# %%
CLIENTS = 2000
TRUTH = {"intercept": -1.0, "age": 0.01, "conditions": 0.3, "distance": -0.04}
generator = np.random.default_rng(1)
patients = {
    "age": generator.uniform(18, 90, CLIENTS),
    "conditions": generator.binomial(6, 0.3, CLIENTS),
    "distance": generator.gamma(2.0, 5.0, CLIENTS),
}
log_rate = TRUTH["intercept"] + sum(TRUTH[name] * values for name, values in patients.items())
years = generator.uniform(0.5, 5, CLIENTS)
patients["years"] = years
patients["visits"] = generator.poisson(np.exp(log_rate + np.log(years)))
patients["cost"] = generator.gamma(2.0, 500 * np.exp(log_rate))

# %% [markdown]
# ## The model
#
# Five rounds of everybody. The logarithm of the time under observation is an offset: its
# coefficient is 1, and the others are of visits a year. Intervals hold where counts scatter more
# than Poisson's, too; where they scatter much more, `NegativeBinomialRegression` errs less.

# %%
COLUMNS = {"age": (18, 90), "conditions": (0, 6), "distance": (0, 50)}
model = PoissonRegression(
    formula="visits ~ age + conditions + distance + offset(log(years))",
    variables={**COLUMNS, "years": (0.5, 5), "visits": (0, 30)},
)
simulated = SimulatedFederation(
    patients, epsilon=2.0, delta=1e-5, dropouts=20, colluders=20, seed=1
)
federation: Learning = simulated
if DIRECTORY is not None:
    federation = Federation.open(
        f"{DIRECTORY}/parties/analyst",
        f"{DIRECTORY}/consortium",
        JobSettings(
            purpose="How often do patients come to an emergency department?",
            epsilon=2.0,
            delta=1e-5,
            dropouts=20,
            colluders=20,
            minimum_population=1500,
            maximum_population=2000,
            join_seconds=600,
            round_seconds=60,
            grace_seconds=60,
        ),
    )

# %%
model.fit(federation)
print(model.summary())

# %%
axes = model.plot()
axes.plot(list(TRUTH.values())[1:], range(3), "x", color="C3", label="truth")
axes.legend()
pyplot.show()

# %% [markdown]
# `score` is D², the share of the deviance that is explained: what R² is to a linear regression.

# %%
print(f"D²: {model.score(patients):.2f}")

# %% [markdown]
# ## A relative
#
# It allows for counts that scatter more than Poisson's, here at little cost.

# %%
wider = NegativeBinomialRegression(formula=model.formula, variables=model.variables)
wider.fit(federation)
print(wider.summary())

# %% [markdown]
# ## Costs
#
# A gamma regression is of positive numbers that scatter in proportion to their mean.

# %%
costs = GammaRegression(features=COLUMNS, target={"cost": (0, 20000)}).fit(federation)
print(costs.summary())
costs.plot()
pyplot.show()
