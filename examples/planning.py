# %% [markdown]
# # Planning a study: what does epsilon buy?
#
# Before anybody's budget is spent, simulate: invent records as you expect them to be, and see how
# wide intervals get and how often they hold the truth, by the price and by how many take part.
# Nothing here needs data, and nothing here costs privacy.

# %%
import numpy as np
from matplotlib import pyplot
from sklearn.base import clone

from shoal import SimulatedFederation
from shoal.estimators import LinearRegression, LinearRegressionInBounds

# %% [markdown]
# ## What you expect
#
# The question: by how much does blood pressure (mmHg) rise with salt (g a day)? Expected are some
# 1.5 mmHg for a gram, beside age, with much scatter.

# %%
SLOPE = 1.5
LEVEL = 0.9
BOUNDS = {"features": {"age": (18, 90), "salt": (0, 20)}, "target": {"pressure": (80, 200)}}
Regression = LinearRegression | LinearRegressionInBounds
model: Regression = LinearRegression(**BOUNDS)


def invented(clients: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Return records of as many clients, as they are expected to be."""
    age = generator.uniform(25, 80, clients)
    salt = generator.gamma(9.0, 1.0, clients)
    pressure = 95 + 0.4 * age + SLOPE * salt + generator.normal(0, 12, clients)
    return {"age": age, "salt": salt, "pressure": pressure}


# %% [markdown]
# ## Studies that might be
#
# Each is simulated 10 times, with other records and other noise. One dropout in twenty is allowed
# for, and as many clients who might collude. All of it takes some two minutes.

# %%
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)
SIZES = (500, 2000)
REPEATS = 10


def simulated(
    clients: int, epsilon: float, seed: int, regression: Regression = model
) -> tuple[float, bool]:
    """Return the width of the slope's interval, and whether it holds the truth."""
    federation = SimulatedFederation(
        invented(clients, np.random.default_rng(seed)),
        epsilon=epsilon,
        delta=1e-6,
        dropouts=clients // 20,
        colluders=clients // 20,
        seed=seed,
    )
    posterior = clone(regression).fit(federation).posterior_
    low, high = posterior.interval(LEVEL)[posterior.names.index("salt")]
    return high - low, bool(low <= SLOPE <= high)


widths = {}
for clients in SIZES:
    for epsilon in EPSILONS:
        outcomes = [simulated(clients, epsilon, seed) for seed in range(REPEATS)]
        widths[clients, epsilon] = [width for width, _ in outcomes]
        held = sum(holds for _, holds in outcomes)
        print(
            f"{clients:5,} clients, epsilon {epsilon:4}: {LEVEL:.0%} interval "
            f"{np.median(widths[clients, epsilon]):.2f} mmHg wide, held the truth {held} times "
            f"of {REPEATS}",
            flush=True,
        )

# %% [markdown]
# ## What it buys
#
# Where the curves flatten, more epsilon buys nothing: the records' own scatter is left. An interval
# wider than twice the slope says little about its sign: such a study is not worth its price.

# %%
_, axes = pyplot.subplots(layout="constrained")
for clients in SIZES:
    quartiles = np.array([np.quantile(widths[clients, e], [0.25, 0.5, 0.75]) for e in EPSILONS])
    axes.plot(EPSILONS, quartiles[:, 1], "o-", label=f"{clients:,} clients")
    axes.fill_between(EPSILONS, quartiles[:, 0], quartiles[:, 2], alpha=0.2)
axes.axhline(2 * SLOPE, color="0.6", linestyle=":", label="twice the expected slope")
axes.set_xscale("log", base=2)
axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
axes.set_xlabel("epsilon for each client, at delta = 1e-6")
axes.set_ylabel(f"width of the slope's {LEVEL:.0%} interval, mmHg per gram")
axes.legend()
pyplot.show()

# %% [markdown]
# ## One round instead of three
#
# `LinearRegressionInBounds` asks once, and measures no spreads: its prior is in units of
# bounds, which have to be as near as these. Where they are, it tells more for the same price.

# %%
for epsilon in EPSILONS:
    outcomes = [
        simulated(SIZES[-1], epsilon, seed, LinearRegressionInBounds(**BOUNDS, method="plain"))
        for seed in range(REPEATS)
    ]
    width = np.median([width for width, _ in outcomes])
    share = width / np.median(widths[SIZES[-1], epsilon])
    held = sum(holds for _, holds in outcomes)
    print(
        f"epsilon {epsilon:4}: {width:.2f} mmHg wide, {share:.2f} of the above, "
        f"held the truth {held} times of {REPEATS}",
        flush=True,
    )
