"""How well regressions do in at most five rounds of everybody, on real columns, by simulation.

    python -m bench.five_rounds [--data DIR] [--repeats 40] [--json FILE]

Samples of a set are fitted at delta = 1e-5 with 20 lost and 20 colluding clients. Held is the share
of 90 % intervals of slopes that hold the exact fit to the whole set. Of lines the absolute error is
over AdaSSP's; of other models the way is the part of it, from the null model's log likelihood to
the exact fit's, that was gone. `DIR` has UCI's files, as `make figures` takes them.
"""

import argparse
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bench.five_rounds import generalised, linear, sets
from bench.five_rounds.families import mean_of, slope_of
from bench.five_rounds.rounds import Price
from shoal_protocol.privacy.accounting import Cap

Floats = NDArray[np.float64]

DELTA: Final = 1e-5
LOST_AND_COLLUDING: Final = 41
REACH: Final = 1.645  # of a 90 % interval, in standard deviations
BOUNDS: Final = ((1.1, 0.0), (2.0, 0.0), (4.0, 0.0), (3.0, 1.0))


def price_of(records: int, epsilon: float, seed: int) -> Price:
    """Return what a job over so many clients costs."""
    return Price(
        mu=Cap(epsilon=epsilon, delta=DELTA).whole.mu,
        excess=math.sqrt(records / (records - LOST_AND_COLLUDING)),
        generator=np.random.default_rng([seed, records]),
    )


def exact(each: sets.DataSet) -> Floats:
    """Return the coefficients of the exact fit to all records, the intercept first.

    By Newton's method on standardised columns; of scattered counts the Poisson fit, which has the
    same mean.
    """
    x, y = each.values[:, :-1], each.values[:, -1]
    means, spreads = x.mean(axis=0), x.std(axis=0)
    rows = np.column_stack([np.ones(len(x)), (x - means) / spreads])
    family = "poisson" if each.family == "negative_binomial" else each.family
    point = np.zeros(rows.shape[1])
    if family != "normal":
        point[0] = math.log(y.mean() / (1.0 - y.mean() if family == "logistic" else 1.0))
    for _ in range(1 if family == "normal" else 50):
        expected = mean_of(family, rows @ point)
        slope = slope_of(family, expected)
        point = point + np.linalg.solve((rows * slope[:, None]).T @ rows, rows.T @ (y - expected))
    slopes = point[1:] / spreads
    return np.append(point[0] - slopes @ means, slopes)


def log_likelihood(each: sets.DataSet, coefficients: Floats) -> float:
    """Return the mean log likelihood of all records, but for constants; counts' is Poisson's."""
    predictors = coefficients[0] + each.values[:, :-1] @ coefficients[1:]
    y = each.values[:, -1]
    if each.family == "logistic":
        return float(np.mean(y * predictors - np.logaddexp(0.0, predictors)))
    return float(np.mean(y * predictors - mean_of("poisson", predictors)))


def of_lines(each: sets.DataSet, repeats: int) -> Iterator[dict[str, Any]]:
    """Yield the figures of a set with a number as target."""
    truth, whole = exact(each), len(each.values)
    settings = [(500, 1.0, BOUNDS[0]), (2000, 1.0, BOUNDS[0]), (2000, 3.0, BOUNDS[0])]
    for records, epsilon, (wide, off) in [*settings, *((5000, 1.0, each) for each in BOUNDS[1:])]:
        count, bounds = min(records, whole), each.bounds(wide=wide, off=off)
        held, errors, rivals = [], [], []
        for seed in range(repeats):
            price = price_of(count, epsilon, seed)
            sample = each.values[price.generator.permutation(whole)[:count]]
            found = linear.fit(sample, bounds, price)
            held.append(found.holds(truth, reach=REACH)[1:])
            errors.append(_error(each, found.mean))
            rivals.append(_error(each, linear.ada_ssp(sample, bounds, price)))
        yield {
            "set": each.name,
            "records": count,
            "epsilon": epsilon,
            "bounds": f"{wide:g} times the range, off by {off:g}",
            "error over AdaSSP's": float(np.median(errors) / np.median(rivals)),
            **_held(held),
        }


def of_models(each: sets.DataSet, repeats: int) -> Iterator[dict[str, Any]]:
    """Yield the figures of a set with a class or a count as target."""
    truth, whole, bounds = exact(each), len(each.values), each.bounds()
    null = np.zeros_like(truth)
    share = each.values[:, -1].mean()
    null[0] = math.log(share / (1.0 - share if each.family == "logistic" else 1.0))
    worst, best = log_likelihood(each, null), log_likelihood(each, truth)
    for epsilon in (1.0, 3.0, 10.0):
        count, held, ways = min(2000, whole), [], []
        for seed in range(repeats):
            price = price_of(count, epsilon, seed)
            sample = each.values[price.generator.permutation(whole)[:count]]
            found = generalised.fit(each.family, sample, bounds, price)
            held.append(found.holds(truth, reach=REACH)[1:])
            ways.append((log_likelihood(each, found.mean) - worst) / (best - worst))
        yield {
            "set": each.name,
            "records": count,
            "epsilon": epsilon,
            "way": float(np.median(ways)),
            "worse than null": float(np.mean(np.array(ways) < 0.0)),
            **_held(held),
        }


def _error(each: sets.DataSet, coefficients: Floats) -> float:
    predicted = coefficients[0] + each.values[:, :-1] @ coefficients[1:]
    return float(np.abs(predicted - each.values[:, -1]).mean())


def _held(held: list[NDArray[np.bool_]]) -> dict[str, float]:
    shares = np.mean(held, axis=0)
    return {"held": float(shares.mean()), "held, worst slope": float(shares.min())}


def main() -> None:
    """Print a table for each kind, and write all figures where `--json` says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    parts: dict[str, tuple[Iterator[sets.DataSet], Callable[..., Iterator[dict[str, Any]]]]] = {
        "linear": (sets.linear(arguments.data), of_lines),
        "generalised": (sets.generalised(arguments.data), of_models),
    }
    figures: dict[str, list[dict[str, Any]]] = {}
    for part, (found, measure) in parts.items():
        for each in found:
            for row in measure(each, arguments.repeats):
                figures.setdefault(part, []).append(row)
                print(", ".join(f"{name} {_shown(value)}" for name, value in row.items()))
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(figures, indent=1))


def _shown(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
