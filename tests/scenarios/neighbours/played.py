"""All that a data holder may be asked, by studies and crowds, and places of every shape."""

import tomllib
from typing import Any, Final

import numpy as np
from numpy.random import PCG64, Generator

from shoal.jobs.task_files import example, parse_task_file
from shoal_protocol.crowds.tasks import CrowdTask
from shoal_protocol.queries.columns import (
    Centred,
    ColumnBounds,
    Legendre,
    Level,
    Log,
    Power,
    Spline,
    Term,
)
from shoal_studies.catalogue.linear_regression import LinearRegressionTask
from shoal_studies.catalogue.single_numbers import VectorSumTask
from shoal_studies.registry import STUDIES, Task
from tests.scenarios.neighbours.holders import CLIENTS, MANY, Rows
from tests.world.around_holder import TASK
from tests.world.around_holder_crowds import TASK as CROWD_TASK

EXTREMES: Final = (1e308, -1e308, -0.0, 5e-324, -5e-324, 2.3e-308, 1e154, -1e-16)
"""All that a file of records may hold: infinities and NaN are refused where it is read."""


def term(*factors: Any) -> ColumnBounds:
    """Return the column that a product of factors makes of variables."""
    name = " x ".join(f"{each.kind} of {each.variable}" for each in factors)
    return ColumnBounds.of_term(name[:64], Term(factors=factors))


AGE: Final = {"variable": "age", "lower": 18.0, "upper": 90.0}
TERMS: Final = (
    term(Power(**AGE, exponent=2)),
    term(Legendre(**AGE, degree=3)),
    term(Centred(**AGE, at=50.0), Log(variable="dose", lower=0.5, upper=80.0)),
    term(Spline(**AGE, knots=(40.0, 60.0), place=2)),
    term(Level(variable="sex", value=1.0, among=(0.0, 1.0))),
    term(Level(variable="site", value=2.0, among=(0.0, 1.0, 2.0)), Power(**AGE, exponent=1)),
)


def _of_example(name: str) -> Task:
    """Return an example's task, as few rounds of which are asked as it may have."""
    task = parse_task_file(tomllib.loads(example(name))).task
    if "batch" not in type(task).model_fields:
        return task
    return task.model_copy(update={"batch": CLIENTS - 2, "rounds": 2})


def _linear(method: str, **changes: Any) -> LinearRegressionTask:
    given = {"method": method, "radius": 1.0 if method == "ball_projection" else None}
    return LinearRegressionTask.model_validate(TASK.model_dump() | given | changes)


def _regression(family: str, **changes: Any) -> Task:
    task = parse_task_file(tomllib.loads(example("regression"))).task
    target = {"name": "y", "lower": 0.0, "upper": 1.0}
    given = task.model_dump() | {"family": family, "features": TERMS, "target": target} | changes
    return type(task).model_validate(given)


VECTOR: Final = ColumnBounds(name="x", lower=-1.0, upper=1.0)
STUDIES_PLAYED: Final[tuple[Task, ...]] = (
    *(_of_example(name) for name in STUDIES if name != "numpyro_model"),
    *map(_linear, ("plain", "box_projection", "ball_projection")),
    VectorSumTask(columns=(VECTOR,), entries=3),
    *map(_regression, ("normal", "logistic", "poisson", "negative_binomial", "gamma")),
)
"""Each study, and whatever else there is to ask, once with terms."""

CROWDS_PLAYED: Final = tuple(
    CrowdTask.model_validate(
        CROWD_TASK.model_dump()
        | {
            "family": family,
            "variant": variant,
            "clipping": clipping,
            "features": features,
            "target": {"name": "y", "lower": 0.0, "upper": 1.0},
            "epsilon": 0.1,
        }
    )
    for family, variant, clipping, features in (
        ("linear", "one", "coordinate", TERMS),
        ("linear", "all", "residual", (ColumnBounds(name="age", lower=18.0, upper=90.0),)),
        ("logistic", "feature", "residual", TERMS),
        ("logistic", "one", "coordinate", TERMS[:1]),
        ("poisson", "all", "coordinate", TERMS),
        ("poisson", "one", "residual", TERMS[1:2]),
    )
)


def columns_of(*tasks: Any) -> tuple[str, ...]:
    """Return the names of all variables that tasks read, in order."""
    return tuple(sorted({name for task in tasks for name in task.column_names}))


def shapes(columns: int) -> dict[str, Rows]:
    """Return the rows of one place, in every shape that it may have."""
    generator = Generator(PCG64(3))
    some = generator.uniform(0.0, 90.0, (MANY, columns)).tolist()
    gaps = generator.random((3, columns)) < 0.5
    turned = [np.roll(np.resize(EXTREMES, columns), turn).tolist() for turn in range(4)]
    return {
        "no record": [[None] * columns],
        "one": some[:1],
        "several": some,
        "gaps": np.where(gaps, None, some[0]).tolist(),
        "codes": [[code] * columns for code in (0.0, 1.0, 2.0)],
        "no codes": [[code] * columns for code in (0.5, 99.0, -7.0)],
        "extremes": turned,
    }
