"""What `shoal plan` expects studies to err by, beside what simulated studies err by.

    python -m bench.planner [--runs 24]

Both protocols' simulators of `shoal_learning` run on records as the plan assumes them. Printed are
root mean square errors of the coefficients, on the normalised scale, and their standard errors.
"""

import argparse
import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shoal_client.planning import Prospect, Study, compare
from shoal_client.planning.assumptions import assume, mean_of
from shoal_client.planning.crowds import crowd_task
from shoal_client.planning.in_rounds import in_rounds_task
from shoal_learning.draw_and_discard.simulation import simulate
from shoal_learning.learners import learner_for
from shoal_learning.simulation import Federation, run

Floats = NDArray[np.float64]

SIZES: Final = (1_000, 10_000, 100_000)
EPSILONS: Final = (1.0, 4.0)
FAMILIES: Final = ("linear", "logistic", "poisson")
FEATURES: Final = 5
DELTA: Final = 1e-6


def outcomes(
    study: Study, shape: tuple[int, ...], generator: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return features, shape (*shape, d), and targets, `shape`, as the study assumes them."""
    features = generator.uniform(-1.0, 1.0, (*shape, study.features))
    truth = assume(study).truth
    predictors = truth[0] + features @ truth[1:]
    if study.family == "linear":
        exact = predictors + study.residual_sd * generator.standard_normal(shape)
        return features, np.clip(exact, -1.0, 1.0)
    if study.family == "logistic":
        upper = generator.random(shape) < mean_of(study, predictors)
        return features, upper.astype(np.float64)
    return features, np.minimum(generator.poisson(np.exp(predictors)), study.largest_count)


def errors_in_rounds(study: Study, *, runs: int) -> Floats:
    """Return the mean squared error of the posterior mean in each of so many studies."""
    task, truth, squares = in_rounds_task(study), assume(study).truth, []
    dropouts, colluders = study.tolerated
    federation = Federation(
        population=study.clients,
        missing=0,
        dropouts=dropouts,
        colluders=colluders,
        epsilon=study.epsilon,
        delta=study.delta,
    )
    for seed in range(runs):
        generator = np.random.default_rng(seed)
        features, targets = outcomes(study, (study.clients,), generator)
        records = np.column_stack([features, targets])
        outcome = run(learner_for(task), records, federation, generator)
        squares.append(float(np.mean((outcome.posterior.mean - truth) ** 2)))
    return np.array(squares)


def errors_of_crowds(study: Study, prospect: Prospect, *, runs: int) -> Floats:
    """Return the mean squared error of the averaged model in each of so many crowds."""
    task = crowd_task(study, float(prospect.settings["learning rate"]))
    generator = np.random.default_rng(1)

    def contributors(count: int, replicates: int) -> tuple[Floats, Floats]:
        features, targets = outcomes(study, (count, replicates), generator)
        return np.concatenate([np.ones((count, replicates, 1)), features], axis=2), targets

    ended = simulate(
        task,
        contributors,
        generator,
        contributions=study.contributions,
        replicates=runs,
        open_sessions=round(study.open_sessions),
    ).final
    averaged = ended.mean(axis=1) / task.grid
    squares: Floats = np.mean((averaged - assume(study).truth) ** 2, axis=1)
    return squares


def row(study: Study, *, runs: int) -> dict[str, Any]:
    """Return what is expected and what was simulated of one study."""
    rounds, crowd = compare(study)
    few = runs if study.clients <= 10_000 else max(4, runs // 4)  # rounds of many clients take long
    found = {
        "in rounds": (rounds, errors_in_rounds(study, runs=few)),
        "Draw and Discard": (crowd, errors_of_crowds(study, crowd, runs=runs)),
    }
    return {
        name: {
            "planned": prospect.error.total,
            "simulated": math.sqrt(squares.mean()),
            "standard error": float(squares.std(ddof=1))
            / math.sqrt(len(squares))
            / (2.0 * math.sqrt(squares.mean())),
        }
        for name, (prospect, squares) in found.items()
    }


def main() -> None:
    """Run and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=24)
    arguments = parser.parse_args()
    print("| family | N | epsilon | in rounds: planned | simulated | D&D: planned | simulated |")
    print("|---|---|---|---|---|---|---|")
    ratios = []
    for family in FAMILIES:
        for clients in SIZES:
            for epsilon in EPSILONS:
                study = Study(
                    family=family,
                    clients=clients,
                    features=FEATURES,
                    epsilon=epsilon,
                    delta=DELTA,
                )
                found = row(study, runs=arguments.runs)
                cells = []
                for each in found.values():
                    ratios.append(each["simulated"] / each["planned"])
                    cells.append(f"{each['planned']:.3f}")
                    cells.append(f"{each['simulated']:.3f} ± {each['standard error']:.3f}")
                print(f"| {family} | {clients:,} | {epsilon:g} | {' | '.join(cells)} |", flush=True)
    print(f"simulated / planned: {min(ratios):.2f} to {max(ratios):.2f}")


if __name__ == "__main__":
    main()
