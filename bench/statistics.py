"""What the statistics are worth: errors, coverage and verdicts of estimators, by simulation.

    make bench-statistics [DATA=DIR]
    python -m bench.statistics [--data DIR] [--repeats 40] [--json build/bench/statistics.json]

Regressions are those of `bench.five_rounds`, whose terms hold here too; curves of survival those of
`bench.survival`. README's example is fitted to the patients of `examples/hospitals`, whose true
slope is known, as is that of hypertension over age. QUICK=1 takes two minutes. It ends with the
settings that miss the goals: of fits whose verdict is "trustworthy", .85 of the intervals hold on
average, and of each slope .70; and at most 1 fit of 40 is worse than the null model and trusted.
"""

import csv
import json
import math
import os
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.progress import Progress

from bench import survival
from bench.command import options, write
from bench.five_rounds import measuring
from shoal import SimulatedFederation
from shoal.estimators import LinearRegression, LogisticRegression
from shoal_protocol.queries.scores import mean_of
from shoal_studies.learners import learner_for
from shoal_studies.simulation import Federation, run

LEAST_HELD, LEAST_OF_A_SLOPE, MOST_WORSE = 0.85, 0.70, 1 / 40
FEWEST_TRUSTED: Final = 0.05  # share of fits below which it is not told how often they held
HOSPITALS: Final = Path(__file__).parents[1] / "examples" / "hospitals"
TRUE_SLOPE: Final = 0.5  # examples/hospitals/make.py
LEVEL: Final = 0.95


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


def misses(row: dict[str, Any]) -> list[str]:
    """Return which goals a setting of `bench.five_rounds` misses, in words."""
    goals = (
        ("held where trusted", LEAST_HELD),
        ("worst slope where trusted", LEAST_OF_A_SLOPE),
    )
    found = [f"{name} {row[name]:.2f}" for name, least in goals if row[name] < least]
    found = found if row["trustworthy"] >= FEWEST_TRUSTED else []
    if row.get("worse than null and trusted", 0.0) > MOST_WORSE:
        found.append(f"worse than null and trusted {row['worse than null and trusted']:.3f}")
    return found


def main() -> None:
    """Measure, print, and write."""
    quick = bool(os.environ.get("QUICK"))
    arguments = options(
        __doc__, data=Path, repeats=10 if quick else 40, json=Path("build/bench/statistics.json")
    )
    repeats, found, missed = arguments.repeats, dict[str, Any](repeats=arguments.repeats), []
    with Progress() as progress:
        bar = progress.add_task("regressions", total=measuring.settings(arguments.data) + 3)
        for part, row in measuring.measured(arguments.data, repeats):
            found.setdefault(part, []).append(row)
            where = f"{row['set']}, {row['family']}, n = {row['records']}, ε = {row['epsilon']:g}"
            missed += [f"{where}: {each}" for each in misses(row)]
            progress.console.print(measuring.shown(row), highlight=False)
            progress.advance(bar)
        found["kaplan_meier"] = survival.measure(repeats=repeats, clients_of=(2_000, 5_000))
        progress.advance(bar)
        found["readme"] = readme(repeats)
        progress.advance(bar)
        found["hypertension"] = hypertension(repeats)
        progress.advance(bar)
    found["misses"] = missed
    for name in ("kaplan_meier", "readme", "hypertension"):
        print(f"{name}: {json.dumps(found[name], indent=1)}")
    print("\n".join(["misses:", *missed] if missed else ["all goals are met"]))
    write(_without_nan(found), arguments.json)


def _without_nan(value: Any) -> Any:
    """Return the same with None for what is not a number, as JSON has it."""
    if isinstance(value, dict):
        return {name: _without_nan(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_without_nan(each) for each in value]
    return None if isinstance(value, float) and math.isnan(value) else value


if __name__ == "__main__":
    main()
