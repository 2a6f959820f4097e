"""How often intervals of hazard ratios hold, and how far these are from Cox's of the same records.

    python -m bench.hazards [--repeats 40] [--json FILE]

Simulated: 2,000 records, delta 1e-5, 20 dropouts and 20 colluders; Weibull times with skewed, rare
and correlated features. The true slopes are for one standard deviation.
"""

from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from statsmodels.duration.hazard_regression import PHReg

from bench.command import options, show, write
from shoal_protocol.queries.columns import ColumnBounds
from shoal_studies.catalogue.piecewise_exponential import PiecewiseExponentialTask
from shoal_studies.registry import learner_for
from shoal_studies.simulation import Federation, run

Floats = NDArray[np.float64]

RECORDS: Final = 2_000
EPSILONS: Final = (1.0, 3.0, 10.0)
LEVEL: Final = 0.9
SLOPES: Final = np.array([0.4, -0.5, 0.0, 0.2, 0.15])
TASK: Final = PiecewiseExponentialTask(
    features=(
        ColumnBounds(name="age", lower=0.0, upper=120.0),
        ColumnBounds(name="treated", lower=0.0, upper=1.0),
        ColumnBounds(name="pressure", lower=-6.0, upper=6.0),
        ColumnBounds(name="marker", lower=0.0, upper=40.0),
        ColumnBounds(name="rare", lower=0.0, upper=1.0),
    ),
    time=ColumnBounds(name="weeks", lower=0.0, upper=52.0),
    event="died",
)
SPREADS: Final = np.array([11.3, 0.5, 1.0, 4.2, 0.22])


def patients(count: int, generator: np.random.Generator) -> Floats:
    """Return invented patients, whose hazards rise with time: features, time, event, (n, m)."""
    age = 30.0 + generator.gamma(2.0, 8.0, count).clip(max=80.0)
    treated = generator.binomial(1, 0.5, count)
    pressure = 0.5 * (age - 46.0) / 11.3 + 0.87 * generator.standard_normal(count)
    marker = generator.lognormal(1.2, 0.8, count).clip(max=40.0)
    rare = generator.binomial(1, 0.05, count)
    features = np.column_stack([age, treated, pressure, marker, rare])
    hazards = np.exp((features - [46.0, 0.5, 0.0, 4.6, 0.05]) @ (SLOPES / SPREADS))
    times = 30.0 * (generator.exponential(size=count) / hazards) ** (1.0 / 1.3)
    seen = np.minimum(generator.uniform(5.0, 60.0, count), 52.0)
    return np.column_stack([features, np.minimum(times, seen), times <= seen])


def cox(values: Floats) -> tuple[Floats, Floats]:
    """Return slopes of Cox's partial likelihood and their standard errors, shapes (q,)."""
    fit = PHReg(values[:, -2], values[:, :-2], status=values[:, -1], ties="efron").fit()
    return np.asarray(fit.params), np.asarray(fit.bse)


def measure(*, epsilon: float, repeats: int) -> dict[str, float]:
    """Return how often intervals hold, and how far slopes are from Cox's, in standard errors."""
    setting = Federation(
        population=RECORDS, missing=0, dropouts=20, colluders=20, epsilon=epsilon, delta=1e-5
    )
    truth, held, trusted, away = SLOPES / SPREADS, [], [], []
    for seed in range(repeats):
        generator = np.random.default_rng(seed)
        values = patients(RECORDS, generator)
        found: Any = run(learner_for(TASK), values, setting, generator).posterior
        low, high = found.interval(LEVEL)[: len(truth)].T
        slopes, errors = cox(values)
        held.append((low <= truth) & (truth <= high))
        trusted.append(found.verdict.kind == "trustworthy")
        away.append(np.abs(found.mean[: len(truth)] - slopes) / errors)
    return {
        "held": float(np.mean(held)),
        "trusted": float(np.mean(trusted)),
        "from Cox's, in standard errors, median": float(np.median(away)),
    }


def main() -> None:
    """Measure, print, and write where told to."""
    given = options(__doc__, repeats=40, json=Path)
    found = {f"epsilon {each:g}": measure(epsilon=each, repeats=given.repeats) for each in EPSILONS}
    show(found)
    write(found, given.json)


if __name__ == "__main__":
    main()
