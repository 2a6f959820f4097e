"""Is "arrived" ever said with wrong intervals? Logistic jobs, strong effects among them.

    python -m bench.variational_verdicts [--jobs 1500] [--seed 1]

First scikit-learn's breast_cancer, three features at a time within their smallest and largest
values, epsilon 4: rounds, verdicts, and how many 95 % intervals of slopes hold the posterior mode
of all records without noise. Then made-up jobs whose clients, features, effects, epsilon, rounds,
clip, learning rate and batch are drawn at random: for each verdict how many jobs there are, and of
their 90 % intervals the share that hold that mode, and the share of jobs that miss one.
"""

import itertools
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bench.command import options
from shoal_protocol.queries.columns import ColumnBounds
from shoal_studies.catalogue.variational import LogisticRegressionTask
from shoal_studies.catalogue.variational.posterior import VariationalPosterior, Verdict
from shoal_studies.registry import learner_for
from shoal_studies.simulation import Federation, run

Floats = NDArray[np.float64]

VERDICTS: Final[tuple[Verdict, ...]] = ("arrived", "cannot_tell", "not_arrived")
PATIENTS: Final = (
    ("mean radius", "mean texture", "mean concavity"),
    ("worst radius", "worst texture", "worst concave points"),
    ("mean radius", "mean texture", "mean smoothness"),
)
EFFECTS: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
CLIPS: Final = (0.25, 1.0, 1.5, 2.0)


@dataclass(frozen=True)
class Judged:
    """What a job said and how far its slopes are from the mode, in its standard deviations."""

    verdict: Verdict
    away: Floats


def mode(design: Floats, target: Floats, prior_sd: Floats) -> Floats:
    """Return the posterior mode of all records, by damped Newton steps."""
    found = np.zeros(design.shape[1])

    def height(at: Floats) -> float:
        predictor = design @ at
        whole = np.logaddexp(0.0, predictor)
        return float(np.sum(target * predictor - whole) - 0.5 * np.sum((at / prior_sd) ** 2))

    for _ in range(100):
        predictor = design @ found
        mean = 0.5 + 0.5 * np.tanh(0.5 * predictor)
        weights = mean * (1.0 - mean)
        curvature = design.T @ (design * weights[:, None]) + np.diag(prior_sd**-2.0)
        step = np.linalg.solve(curvature, design.T @ (target - mean) - found / prior_sd**2)
        while np.abs(step).max() > 1e-9 and height(found + step) < height(found):
            step = step / 2.0
        found = found + step
    return found


def judged(
    features: Floats,
    target: Floats,
    bounds: list[tuple[float, float]],
    *,
    epsilon: float,
    seed: int,
    **settings: Any,
) -> Judged | None:
    """Return one job's answer, None if its rounds are too few for it to know of its noise."""
    task = LogisticRegressionTask(
        features=tuple(
            ColumnBounds(name=f"x{place}", lower=low, upper=high)
            for place, (low, high) in enumerate(bounds)
        ),
        target=ColumnBounds(name="y", lower=0.0, upper=1.0),
        **settings,
    )
    federation = Federation(
        population=len(target), missing=0, dropouts=0, colluders=0, epsilon=epsilon, delta=1e-5
    )
    records = np.column_stack([features, target])
    generator = np.random.default_rng(seed)
    found = run(learner_for(task), records, federation, generator).posterior
    if not isinstance(found, VariationalPosterior) or found.convergence is None:
        return None
    low, high = np.array(bounds).T
    boxed = np.clip((features - (low + high) / 2.0) / ((high - low) / 2.0), -1.0, 1.0)
    design = np.column_stack([np.full(len(target), task.intercept), boxed])
    prior_sd = np.array([2.0 / task.intercept, *np.ones(len(bounds))]) * task.prior_sd
    away = (np.array(found.location) - mode(design, target, prior_sd)) / found.scale
    return Judged(found.convergence.verdict, away[1:])


def patients(rounds: int, repeats: int) -> list[Judged]:
    """Return jobs on breast_cancer, at epsilon 4 and with the defaults."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    names, found = list(data.feature_names), []
    for columns, seed in itertools.product(PATIENTS, range(repeats)):
        features = data.data[:, [names.index(name) for name in columns]]
        bounds = [(float(each.min()), float(each.max())) for each in features.T]
        found.append(
            judged(
                features,
                1.0 - data.target,
                bounds,
                epsilon=4.0,
                seed=seed,
                rounds=rounds,
                batch=None,
            )
        )
    return [each for each in found if each is not None]


def made_up(generator: np.random.Generator) -> Judged | None:
    """Return a job that is drawn at random."""
    seed = int(generator.integers(2**31))
    clients, size = int(generator.choice([500, 2000, 5000, 20_000])), int(generator.choice([1, 3]))
    root = np.linalg.cholesky(np.full((size, size), 0.3) + 0.7 * np.eye(size))
    features = np.clip(0.4 * generator.standard_normal((clients, size)) @ root.T, -1.0, 1.0)
    effects = generator.choice(EFFECTS) * generator.choice([-1.0, 1.0], size)
    predictor = features @ effects + 0.3
    target = generator.random(clients) < 0.5 + 0.5 * np.tanh(0.5 * predictor)
    return judged(
        features,
        np.asarray(target, dtype=np.float64),
        [(-1.0, 1.0)] * size,
        epsilon=float(generator.choice([1.0, 4.0, 10.0, 30.0])),
        seed=seed,
        rounds=int(generator.choice([30, 60, 200, 400])),
        batch=None if generator.random() < 0.6 else clients // 5,
        clip=float(generator.choice(CLIPS)),
        learning_rate=float(generator.choice([0.05, 0.2, 0.5, 2.0])),
    )


def main() -> None:
    """Read the arguments and print both tables."""
    asked = options(__doc__, jobs=1500, seed=1)
    print("| breast_cancer, rounds | arrived | cannot tell | not arrived | held | of |")
    print("|---" * 6 + "|")
    for rounds in (60, 200, 400):
        found = patients(rounds, 10)
        counts = [sum(each.verdict == verdict for each in found) for verdict in VERDICTS]
        away = np.array([each.away for each in found])
        held = int(np.sum(np.abs(away) < 1.96))
        print(f"| {rounds} | {' | '.join(map(str, counts))} | {held} | {away.size} |", flush=True)
    print("\n| verdict | jobs | intervals that hold | jobs that miss one |")
    print("|---" * 4 + "|")
    generator = np.random.default_rng([asked.seed, 0])
    jobs = [made_up(generator) for _ in range(asked.jobs)]
    for verdict in VERDICTS:
        held_in = [np.abs(e.away) < 1.6449 for e in jobs if e is not None and e.verdict == verdict]
        if not held_in:
            print(f"| {verdict} | 0 | | |")
            continue
        share = np.mean(np.concatenate(held_in))
        missed = sum(not each.all() for each in held_in)
        print(f"| {verdict} | {len(held_in)} | {share:.3f} | {missed} |", flush=True)


if __name__ == "__main__":
    main()
