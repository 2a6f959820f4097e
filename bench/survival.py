"""How far Kaplan-Meier curves under privacy are from those without, and how often intervals hold.

Simulated: Weibull times, uniform and administrative censoring, epsilon 1 at delta 1e-5, 20 dropouts
and 20 colluders. An error is the largest over the times at which the posterior shows the curve.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.queries.columns import ColumnBounds
from shoal_studies.catalogue.kaplan_meier import KaplanMeierPosterior, KaplanMeierTask
from shoal_studies.learners import learner_for
from shoal_studies.simulation import Federation, run

Floats = NDArray[np.float64]

CLIENTS: Final = (500, 2_000, 5_000, 20_000)
SHAPE, SCALE, LEVEL = 1.3, 40.0, 0.9
TASK: Final = KaplanMeierTask(
    time=ColumnBounds(name="weeks", lower=0.0, upper=70.0), event="died", intervals=24
)


def kaplan_meier(times: Floats, events: Floats, places: Floats) -> Floats:
    """Return the product-limit estimate just before each of `places`, shape (n,)."""
    order = np.argsort(times, kind="stable")
    distinct, first = np.unique(times[order], return_index=True)
    deaths = np.add.reduceat(events[order], first)
    curve = np.cumprod(1.0 - deaths / (len(times) - first))
    return np.concatenate([[1.0], curve])[np.searchsorted(distinct, places, side="left")]


def patients(count: int, generator: np.random.Generator) -> tuple[Floats, Floats]:
    """Return times, and 1 where it is that of an event."""
    died = SCALE * generator.weibull(SHAPE, count)
    seen = np.minimum(generator.uniform(10.0, 80.0, count), 70.0)
    return np.minimum(died, seen), (died <= seen).astype(np.float64)


def measure(*, repeats: int, clients_of: Sequence[int] = CLIENTS, seed: int = 1) -> dict[str, Any]:
    """Return, by the number of clients, median errors and how often intervals and bands hold."""
    found = {}
    for clients in clients_of:
        generator = np.random.default_rng(seed)
        setting = Federation(
            population=clients, missing=0, dropouts=20, colluders=20, epsilon=1.0, delta=1e-5
        )
        errors, shown, inside, held = [], [], [], []
        for _ in range(repeats):
            times, events = patients(clients, generator)
            records = np.column_stack([times, events])
            posterior = run(learner_for(TASK), records, setting, generator).posterior
            assert isinstance(posterior, KaplanMeierPosterior)
            places = np.array(posterior.times[: posterior.groups[0].shown])
            exact = kaplan_meier(times, events, places)
            errors.append(float(np.abs(posterior.mean - exact).max()))
            shown.append(len(places))
            truth = np.exp(-((places / SCALE) ** SHAPE))
            ends, bands = posterior.interval(LEVEL), posterior.bands(LEVEL)
            inside.append(float(np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1]))))
            held.append(bool(np.all((bands[:, 0] <= truth) & (truth <= bands[:, 1]))))
        found[str(clients)] = {
            "median_sup_error": round(float(np.median(errors)), 4),
            "largest_of_90_percent": round(float(np.quantile(errors, 0.9)), 4),
            "times_shown_of_24": round(float(np.mean(shown)), 1),
            "coverage_of_90_percent_intervals": round(float(np.mean(inside)), 3),
            "coverage_of_90_percent_bands": round(float(np.mean(held)), 3),
        }
    return {"repeats": repeats, "intervals": TASK.intervals, "by_clients": found}
