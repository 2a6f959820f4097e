"""What documents say of README's example, of hypertension and of curves of survival, by simulation.

    make bench-statistics [QUICK=1]
    python -m bench.statistics [--repeats 40] [--json build/bench/statistics.json]

README's example is fitted to the patients of `examples/hospitals`, whose true slope is known, as is
that of hypertension over age. Everything at epsilon 1, delta 1e-5; `make bench-statistics` measures
regressions of other data, too: see `bench.regressions`.
"""

import csv
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bench.command import options, show, write
from shoal import SimulatedFederation
from shoal.estimators import LinearRegression, LogisticRegression
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.queries.scores import mean_of
from shoal_studies.catalogue.kaplan_meier import KaplanMeierPosterior, KaplanMeierTask
from shoal_studies.registry import learner_for
from shoal_studies.simulation import Federation, run

Floats = NDArray[np.float64]

HOSPITALS: Final = Path(__file__).parents[1] / "examples" / "hospitals"
TRUE_SLOPE: Final = 0.5  # examples/hospitals/make.py
LEVEL: Final = 0.95
SHAPE, SCALE = 1.3, 40.0  # of the Weibull times of events, in weeks
CLIENTS: Final = (2_000, 5_000)
TASK: Final = KaplanMeierTask(
    time=ColumnBounds(name="weeks", lower=0.0, upper=70.0), event="died", intervals=24
)


def readme(repeats: int, seed: int = 5) -> dict[str, Any]:
    """Return how wide README's interval is, and how often it holds: other noise in each repeat."""
    patients = []
    for name in ("hospital-a.csv", "hospital-b.csv"):
        with (HOSPITALS / name).open(newline="") as file:
            patients += [
                (float(row["age"]), float(row["systolic_pressure"])) for row in csv.DictReader(file)
            ]
    estimator = LinearRegression(
        features={"age": (18, 90)}, target={"systolic_pressure": (80, 180)}
    )
    learner = learner_for(estimator.to_task())
    records = np.array(patients)
    generator = np.random.default_rng(seed)
    federation = Federation(
        population=600, missing=0, dropouts=20, colluders=200, epsilon=1.0, delta=1e-5
    )
    widths, held, kinds = [], [], []
    for _ in range(repeats):
        drawn = generator.permutation(records)[: federation.population]
        posterior: Any = run(learner, drawn, federation, generator).posterior
        low, high = posterior.interval(LEVEL)[1]
        widths.append(float(high - low))
        held.append(bool(low <= TRUE_SLOPE <= high))
        kinds.append(posterior.verdict.kind)
    return {
        "slope": TRUE_SLOPE,
        "median width of its 95 % interval": float(np.median(widths)),
        "held": float(np.mean(held)),
        **{kind: kinds.count(kind) / repeats for kind in ("trustworthy", "prior", "doubtful")},
    }


def hypertension(repeats: int) -> dict[str, Any]:
    """Return how wide the interval of the slope of hypertension over age is, in five rounds."""
    widths, held = [], []
    for seed in range(repeats):
        generator = np.random.default_rng([seed, 7])
        age = generator.uniform(18.0, 90.0, 5000)
        chance = mean_of("logistic", (age - 54.0) / 12.0 - 2.0)
        federation = SimulatedFederation(
            {"age": age, "hypertension": generator.binomial(1, chance)},
            epsilon=1.0,
            delta=1e-5,
            dropouts=20,
            colluders=20,
            seed=seed,
        )
        model = LogisticRegression(features={"age": (18, 90)}, target={"hypertension": (0, 1)})
        low, high = model.fit(federation).posterior_.interval(LEVEL)[1]
        widths.append(float(high - low))
        held.append(bool(low <= 1.0 / 12.0 <= high))
    return {
        "slope": 1.0 / 12.0,
        "median width of its 95 % interval": float(np.median(widths)),
        "held": float(np.mean(held)),
    }


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


def survival(repeats: int, seed: int = 1) -> dict[str, Any]:
    """Return, by the number of clients, median errors and how often intervals and bands hold.

    Times are censored uniformly and administratively. An error is the largest over the times at
    which the posterior shows the curve.
    """
    found = {}
    for clients in CLIENTS:
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
            ends, bands = posterior.interval(0.9), posterior.bands(0.9)
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


def main() -> None:
    """Measure, print, and write."""
    asked = options(__doc__, repeats=40, json=Path("build/bench/statistics.json"))
    figures = {
        "readme": readme(asked.repeats),
        "hypertension": hypertension(asked.repeats),
        "survival": survival(asked.repeats),
    }
    show(figures)
    write(figures, asked.json)


if __name__ == "__main__":
    main()
