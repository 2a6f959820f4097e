"""How often intervals of variational posteriors hold, by simulation; truths come from priors.

    python -m bench.variational_coverage [--repeats 200] [--seed 1] [--numpyro] [--rows 0 1 ...]

Shares of 90 % intervals of slopes that hold: of the posterior that knows of the noise, of the
mean-field one beside it, and of Laplace's approximation to all records without noise or clip. A
normal predictor of correlated features (.5) decides on a yes; delta is 1e-5. "wider" is
how many times as wide as without noise the intervals are in the median, "cannot
tell" and "not arrived" the shares of these verdicts on the path, "clipped" of records whose
gradient is longer than the clip, at the truth.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bench.command import options
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.queries.models.numpyro_models import compile_model
from shoal_studies.catalogue.variational import LogisticRegressionTask, NumpyroTask, Variational
from shoal_studies.catalogue.variational.posterior import VariationalPosterior, Verdict
from shoal_studies.registry import learner_for
from shoal_studies.simulation import Federation, run

Floats = NDArray[np.float64]

LEVEL: Final = 1.6449


@dataclass(frozen=True)
class Setting:
    """One row of the table: a batch of None is everybody."""

    features: int
    clients: int
    epsilon: float
    batch: int | None
    clip: float
    rounds: int = 200


SETTINGS: Final = (
    Setting(3, 2000, 1.0, None, 1.5),
    Setting(3, 2000, 3.0, None, 1.5),
    Setting(3, 2000, 10.0, None, 1.5),
    Setting(3, 20_000, 10.0, None, 1.5),
    Setting(3, 2000, 1.0, 200, 1.5),
    Setting(3, 2000, 3.0, 200, 1.5),
    Setting(3, 2000, 10.0, 200, 1.5),
    Setting(8, 5000, 3.0, None, 2.0, 300),
    Setting(3, 2000, 3.0, None, 0.25),
    Setting(3, 20_000, 10.0, None, 0.25),
)


def task_of(setting: Setting) -> LogisticRegressionTask:
    """Return the setting's task: slopes have prior standard deviation 1."""
    return LogisticRegressionTask(
        features=tuple(
            ColumnBounds(name=f"x{place}", lower=-2.0, upper=2.0)
            for place in range(setting.features)
        ),
        target=ColumnBounds(name="y", lower=0.0, upper=1.0),
        rounds=setting.rounds,
        batch=setting.batch,
        clip=setting.clip,
        prior_sd=1.0,
    )


def drawn(setting: Setting, constant: float, generator: np.random.Generator) -> tuple[Floats, ...]:
    """Return the true coefficients, shape (d,), the rows' design, shape (n, d), and the targets."""
    count, size = setting.clients, setting.features
    root = np.linalg.cholesky(np.full((size, size), 0.5) + 0.5 * np.eye(size))
    features = np.clip(0.8 * generator.standard_normal((count, size)) @ root.T, -2.0, 2.0)
    design = np.column_stack([np.full(count, constant), features / 2.0])
    # the constant term's prior is much wider
    truth = np.array([0.4 / constant, *np.ones(size)]) * generator.standard_normal(size + 1)
    predictor = design @ truth
    target = (generator.random(count) < 1.0 / (1.0 + np.exp(-predictor))) * 1.0
    return truth, design, np.asarray(target, dtype=np.float64)


def exact(design: Floats, target: Floats, prior_sd: Floats) -> tuple[Floats, Floats]:
    """Return mode and curvature's standard deviations of the posterior of all records."""
    found = np.zeros(design.shape[1])
    covariance: Floats = np.eye(len(found))
    for _ in range(50):
        predictor = design @ found
        mean = 1.0 / (1.0 + np.exp(-predictor))
        variance = mean * (1.0 - mean)
        curvature = design.T @ (design * variance[:, None]) + np.diag(prior_sd**-2.0)
        covariance = np.asarray(np.linalg.inv(curvature), dtype=np.float64)
        step = covariance @ (design.T @ (target - mean) - found / prior_sd**2)
        found = found + np.clip(step, -1.0, 1.0)
    return found, np.sqrt(np.diagonal(covariance))


def measured(
    setting: Setting, generator: np.random.Generator
) -> tuple[Floats, Verdict | None, float]:
    """Return of one job whether each slope is held, shape (3, features), in the order of the
    table, with widths as a fourth row; the verdict on its path; the share of clipped records.

    Raises:
        TypeError: the learner is not that of a variational task.
    """
    task = task_of(setting)
    truth, design, target = drawn(setting, task.intercept, generator)
    records = np.column_stack([design[:, 1:] * 2.0, target])
    federation = Federation(
        population=setting.clients,
        missing=0,
        dropouts=0,
        colluders=0,
        epsilon=setting.epsilon,
        delta=1e-5,
    )
    learner = learner_for(task)
    posterior = run(learner, records, federation, generator).posterior
    if not isinstance(learner, Variational) or not isinstance(posterior, VariationalPosterior):
        raise TypeError("the task is not variational")
    mean_field = learner.mean_field()
    prior_sd = np.array([2.0 / task.intercept, *np.ones(setting.features)])
    mode, sd = exact(design, target, prior_sd)
    pairs = (
        (np.array(posterior.location), np.array(posterior.scale)),
        (mean_field.location, mean_field.scale),
        (mode, sd),
    )
    held = [np.abs(middle - truth)[1:] < LEVEL * spread[1:] for middle, spread in pairs]
    predictor = design @ truth
    expected = 1.0 / (1.0 + np.exp(-predictor))
    length = np.abs(target - expected) * np.linalg.norm(design, axis=1)
    rows = np.array([*held, np.array(posterior.scale)[1:] / sd[1:]])
    return rows, _verdict(posterior), float(np.mean(length > setting.clip))


def _verdict(posterior: VariationalPosterior) -> Verdict | None:
    return None if posterior.convergence is None else posterior.convergence.verdict


def _shares(verdicts: list[Verdict | None]) -> str:
    told: tuple[Verdict, ...] = ("cannot_tell", "not_arrived")
    return " | ".join(f"{verdicts.count(each) / len(verdicts):.3f}" for each in told)


def numpyro_line(record: Mapping[str, Any]) -> None:
    """A straight line with unknown noise: not conjugate, and its prior is not normal."""
    import numpyro
    from numpyro import distributions

    slope = numpyro.sample("slope", distributions.Normal(0.0, 1.0))
    level = numpyro.sample("level", distributions.Normal(0.0, 1.0))
    scale = numpyro.sample("scale", distributions.LogNormal(-0.25, 0.4))
    mean = level + slope * record["x"]
    numpyro.sample("y", distributions.Normal(mean, scale), obs=record["y"])


def numpyro_coverage(epsilon: float, batch: int | None, repeats: int, seed: int) -> None:
    """Print rows for the slope and scale of `numpyro_line`: 1,500 clients, 200 rounds, clip 20."""
    columns = (
        ColumnBounds(name="x", lower=-1.0, upper=1.0),
        ColumnBounds(name="y", lower=-8.0, upper=8.0),
    )
    task = NumpyroTask(
        entry_point="line",
        digest="0" * 64,
        unconstrained=3,
        columns=columns,
        rounds=200,
        batch=batch,
        clip=20.0,
    )
    lower, upper = np.array([-1.0, -8.0]), np.array([1.0, 8.0])
    model = compile_model(numpyro_line, ["x", "y"], lower=lower, upper=upper)
    generator = np.random.default_rng([seed, 1000])
    federation = Federation(
        population=1500, missing=0, dropouts=0, colluders=0, epsilon=epsilon, delta=1e-5
    )
    held, naive, verdicts, clipped = [], [], [], []
    for _ in range(repeats):
        slope, level = generator.standard_normal(2)
        scale = np.exp(-0.25 + 0.4 * generator.standard_normal())
        x = generator.uniform(-1.0, 1.0, 1500)
        y = level + slope * x + scale * generator.standard_normal(1500)
        learner = learner_for(task, find_model=lambda *_: model)
        records = np.column_stack([x, y])
        posterior = run(
            learner, records, federation, generator, gradients=model.gradients
        ).posterior
        if not isinstance(learner, Variational) or not isinstance(posterior, VariationalPosterior):
            raise TypeError("the task is not variational")
        known = {"slope": slope, "level": level, "scale": scale}
        truths = np.array([known[name] for name in posterior.names])
        chosen = [posterior.names.index("slope"), posterior.names.index("scale")]
        low, high = posterior.interval(0.9).T
        held.append(((low < truths) & (truths < high))[chosen])
        mean_field = learner.mean_field()
        other = posterior.model_copy(
            update={
                "location": tuple(mean_field.location.tolist()),
                "scale": tuple(mean_field.scale.tolist()),
                "correlation": None,
                "convergence": None,
            }
        )
        low, high = VariationalPosterior(**other.model_dump()).interval(0.9).T
        naive.append(((low < truths) & (truths < high))[chosen])
        verdicts.append(_verdict(posterior))
        unconstrained = {"slope": slope, "level": level, "scale": np.log(scale)}
        point = np.array([unconstrained[name] for name in posterior.names])
        lengths = np.linalg.norm(model.gradients(point, records), axis=1)
        clipped.append(np.mean(lengths > task.clip))
    for place, name in enumerate(("slope", "scale")):
        print(
            f"| NumPyro line, {name} | 3 | 1500 | {epsilon:g} | {batch or 'all'} "
            f"| {np.mean(clipped):.1%} | {np.mean(held, axis=0)[place]:.3f} "
            f"| {np.mean(naive, axis=0)[place]:.3f} | | | {_shares(verdicts)} |",
            flush=True,
        )


def print_table(rows_asked: list[int], repeats: int, seed: int) -> None:
    """Print a row for each of these settings; the others change nothing in it."""
    names = (
        "model | d | N | epsilon | batch | clipped | held | mean-field | exact | wider "
        "| cannot tell | not arrived"
    )
    print(f"| {names} |")
    print("|---" * 12 + "|")
    for number in rows_asked:
        setting = SETTINGS[number]
        generator = np.random.default_rng([seed, number])
        jobs = [measured(setting, generator) for _ in range(repeats)]
        rows = np.array([each[0] for each in jobs])
        held, naive, all_known = rows[:, :3].mean(axis=(0, 2))
        print(
            f"| logistic | {setting.features + 1} | {setting.clients} | {setting.epsilon:g} "
            f"| {setting.batch or 'all'} | {np.mean([each[2] for each in jobs]):.0%} "
            f"| {held:.3f} | {naive:.3f} | {all_known:.3f} | {np.median(rows[:, 3]):.1f} "
            f"| {_shares([each[1] for each in jobs])} |",
            flush=True,
        )


def main() -> None:
    """Read the arguments and print the table."""
    rows = list(range(len(SETTINGS)))
    asked = options(__doc__, repeats=200, seed=1, numpyro=False, rows=rows)
    if asked.numpyro:
        for epsilon, batch in ((1.0, None), (3.0, None), (10.0, None), (10.0, 150)):
            numpyro_coverage(epsilon, batch, asked.repeats, asked.seed)
        return
    print_table(asked.rows, asked.repeats, asked.seed)


if __name__ == "__main__":
    main()
