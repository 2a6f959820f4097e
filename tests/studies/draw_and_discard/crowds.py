"""Small crowd tasks and made-up contributors for the tests beside this file."""

import numpy as np

from shoal_protocol.crowds.tasks import CrowdTask
from shoal_protocol.queries.columns import ColumnBounds
from shoal_studies.crowds.simulation import Contributors

TARGETS = {"linear": (-1.0, 1.0), "logistic": (0.0, 1.0), "poisson": (0.0, 20.0)}


def crowd_task(family: str = "linear", features: int = 2, **changes: object) -> CrowdTask:
    """Return a task over x0, x1, ... in [-1, 1] and y."""
    lower, upper = TARGETS[family]
    settings = {
        "clip": 0.05,
        "epsilon": 2.0,
        "learning_rate": 0.05,
        "instances": 10,
        **changes,
    }
    return CrowdTask(
        family=family,  # type: ignore[arg-type]
        features=tuple(
            ColumnBounds(name=f"x{number}", lower=-1.0, upper=1.0) for number in range(features)
        ),
        target=ColumnBounds(name="y", lower=lower, upper=upper),
        **settings,  # type: ignore[arg-type]
    )


def linear_contributors(
    truth: np.ndarray, residual_sd: float, generator: np.random.Generator
) -> Contributors:
    """Return contributors with uniform features, a constant 1 before them, and normal residuals."""

    def pick(count: int, replicates: int) -> tuple[np.ndarray, np.ndarray]:
        rows = generator.uniform(-1.0, 1.0, (count, replicates, len(truth)))
        rows[..., 0] = 1.0
        scatter = residual_sd * generator.standard_normal((count, replicates))
        targets = np.clip(rows @ truth + scatter, -1.0, 1.0)
        return rows[..., None, :], targets[..., None]

    return pick
