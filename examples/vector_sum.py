# %% [markdown]
# # The sum of a long vector
#
# What is the mean image of 1,797 handwritten digits, each of which is a client of its own? A client
# holds one record: a vector of 64 pixels. All that leaves it are shares of the noisy vector.

# %%
import os

import numpy as np
from matplotlib import pyplot
from sklearn.datasets import load_digits

from shoal import Federation, JobSettings, SimulatedFederation
from shoal.estimators import VectorSum
from shoal.jobs.federation import Learning

DIRECTORY = os.environ.get("SHOAL_FEDERATION")  # of a real federation; without one, a simulation

# %%
pixels = load_digits().data
records = {f"pixel_{place}": pixels[:, place] for place in range(64)}

# %% [markdown]
# A vector `pixel` of 64 `entries` is the columns `pixel_0` to `pixel_63`. Its bounds are public: a
# pixel is from 0 to 16. `radius` bounds the length of a record, in half ranges about the middle of
# the bounds: 8, the root of 64, is what the bounds alone allow. Noise is in proportion to it.

# %%
model = VectorSum(columns={"pixel": (0, 16)}, entries=64, radius=8.0)

federation: Learning
if DIRECTORY is None:
    federation = SimulatedFederation(
        records, epsilon=1.0, delta=1e-6, dropouts=20, colluders=20, seed=1
    )
else:
    federation = Federation.open(
        f"{DIRECTORY}/parties/analyst",
        f"{DIRECTORY}/consortium",
        JobSettings(
            purpose="What is the mean image of a digit?",
            epsilon=1.0,
            delta=1e-6,
            dropouts=20,
            colluders=20,
            minimum_population=1500,
            maximum_population=1797,
            join_seconds=600,
            round_seconds=300,
            grace_seconds=300,
        ),
    )

# %%
model.fit(federation)
posterior = model.posterior_
low, high = posterior.total_interval()[20]
print(f"pixel_20 sums to {posterior.total[20]:,.0f}, between {low:,.0f} and {high:,.0f}")

# %% [markdown]
# Intervals are of noise alone, about the cohort's own records:

# %%
inside = np.abs(posterior.mean - pixels.mean(axis=0)) < 1.96 * posterior.sd
print(f"{inside.sum()} of 64 means are within their interval, give or take {posterior.sd[0]:.2f}")

# %%
figure, panels = pyplot.subplots(1, 2)
for axes, image, title in zip(
    panels, (pixels.mean(axis=0), posterior.mean), ("without privacy", "released"), strict=True
):
    axes.imshow(image.reshape(8, 8), cmap="gray_r", vmin=0, vmax=16)
    axes.set_title(title)
pyplot.show()
