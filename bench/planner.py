"""What `shoal plan` expects crowds to err by, beside what simulated crowds err by.

    python -m bench.planner [--runs 24] [--clients 100000]

The simulator of `shoal_studies` runs on records as the plan assumes them. Printed are root mean
square errors of the coefficients, on the normalised scale, and their standard errors.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.command import options
from figures.draw_and_discard.experiments import turning
from shoal.planning import Prospect, Study, assume, crowd_task, draw_and_discard, mean_of
from shoal_studies.crowds.simulation import Contributors, simulate

Floats = NDArray[np.float64]

FAMILIES: Final = ("linear", "logistic", "poisson")
FEATURES: Final = 5
CROWDS: Final = (
    {"instances": 1},
    {"instances": 20},
    {"instances": 1, "clipping": "residual"},
    {"instances": 20, "clipping": "residual"},
    {"instances": 100},
    {"instances": 1000},
    {"instances": 3000},
    {"instances": 1000, "clipping": "residual"},
    {"instances": 100, "open_sessions": 100},
    {"instances": 1, "horizon": 20_000},
    {"instances": 20, "horizon": 20_000},
)
"""All at epsilon 4."""


def outcomes(
    study: Study, shape: tuple[int, ...], generator: np.random.Generator, size: float = 1.0
) -> tuple[Floats, Floats]:
    """Return features, shape (*shape, d), and targets, `shape`, as the study assumes them.

    The coefficients are `size` times those that it assumes.
    """
    features = generator.uniform(-1.0, 1.0, (*shape, study.features))
    truth = size * assume(study).truth
    predictors = truth[0] + features @ truth[1:]
    if study.family == "linear":
        exact = predictors + study.residual_sd * generator.standard_normal(shape)
        return features, np.clip(exact, -1.0, 1.0)
    if study.family == "logistic":
        upper = generator.random(shape) < mean_of(study, predictors)
        return features, upper.astype(np.float64)
    return features, np.minimum(generator.poisson(np.exp(predictors)), study.largest_count)


def errors_of_crowds(study: Study, prospect: Prospect, *, runs: int) -> Floats:
    """Return the mean squared error of the averaged model in each of so many crowds.

    With a horizon the truth turns from zero after all contributions but those of the horizon, over
    which the error is averaged.
    """
    task = crowd_task(study, float(prospect.settings["learning rate"]))
    generator = np.random.default_rng(1)

    def contributors_of(size: float) -> Contributors:
        def contributors(count: int, replicates: int) -> tuple[Floats, Floats]:
            features, targets = outcomes(study, (count, replicates), generator, size)
            rows = np.concatenate([np.ones((count, replicates, 1)), features], axis=2)
            return rows[..., None, :], targets[..., None]

        return contributors

    contributors, after = contributors_of(1.0), [study.contributions]
    if study.horizon is not None:
        begun = study.contributions - study.horizon
        contributors = turning(contributors_of(0.0), contributors, at=begun)
        after = [begun + study.horizon * (2 * part + 1) // 32 for part in range(16)]
    seen = simulate(
        task,
        contributors,
        generator,
        after=after,
        replicates=runs,
        open_sessions=round(study.open_sessions),
    )
    averaged = seen.mean(axis=2) / task.grid
    squares: Floats = np.mean((averaged - assume(study).truth) ** 2, axis=(0, 2))
    return squares


def cells(prospect: Prospect, squares: Floats) -> dict[str, float]:
    """Return what is planned and what simulations found, given their mean squared errors."""
    return {
        "planned": prospect.error.total,
        "simulated": math.sqrt(squares.mean()),
        "standard error": float(squares.std(ddof=1))
        / math.sqrt(len(squares))
        / (2.0 * math.sqrt(squares.mean())),
    }


def compare_crowds(*, runs: int, clients: int) -> list[float]:
    """Print a table of crowds of all kinds, and return simulated over planned errors."""
    print("| family | crowd | planned | simulated |")
    print("|---|---|---|---|")
    ratios = []
    for changes in CROWDS:
        for family in FAMILIES:
            study = Study.model_validate(
                {"family": family, "clients": clients, "features": FEATURES, "epsilon": 4.0}
                | changes
            )
            crowd = draw_and_discard(study)
            found = cells(crowd, errors_of_crowds(study, crowd, runs=runs))
            ratios.append(found["simulated"] / found["planned"])
            kind = ", ".join(f"{name} {value}" for name, value in changes.items())
            print(f"| {family} | {kind} | {_said(found)} |", flush=True)
    return ratios


def _said(found: dict[str, float]) -> str:
    simulated = f"{found['simulated']:.3f} ± {found['standard error']:.3f}"
    return f"{found['planned']:.3f} | {simulated}"


def main() -> None:
    """Run and print a table."""
    arguments = options(__doc__, runs=24, clients=100_000)
    ratios = compare_crowds(runs=arguments.runs, clients=arguments.clients)
    print(f"simulated / planned: {min(ratios):.2f} to {max(ratios):.2f}")


if __name__ == "__main__":
    main()
