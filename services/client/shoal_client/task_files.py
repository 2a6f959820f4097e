"""Task files: a job as an analyst writes it down in TOML; knows no consortium and no key."""

import tomllib
from pathlib import Path
from typing import Annotated, Any, Final

import pydantic
from pydantic import Field

from shoal_protocol.documents import Model, describe
from shoal_protocol.jobs import PrivacyDemand
from shoal_protocol.schemes import ADDITIVE, Sharing
from shoal_protocol.tasks import LinearRegressionTask, Task
from shoal_protocol.threshold import ThresholdSharing

EXAMPLE: Final = """\
[task]
name = "linear_regression"
method = "norm_ball"           # or plain, box_projection, ball_projection, unit_rows

[features]                     # public bounds, from general knowledge, never from the data
age = [18, 100]
body_mass_index = [10, 60]

[target]
systolic_pressure = [60, 220]

[privacy]                      # for one client, over the whole job
epsilon = 1.0
delta = 1e-6                   # 0 asks for pure epsilon, with discrete Laplace noise: dearer
dropouts = 20
colluders = 10

[population]                   # the round starts as soon as `maximum` clients have joined, or
minimum = 500                  # when `join` has passed and at least `minimum` have: set `maximum`
maximum = 600                  # to the number of clients that you expect

[deadlines]                    # seconds
join = 600                     # from the submission, for clients to join
round = 120                    # from a round's announcement, for uploads
grace = 120                    # from there, for the services, until they give up

# [sharing]                    # to go on without some Compute nodes, where the policy allows it:
# threshold = 2                # any two of them open a sum; without this, all of them are needed
"""

Seconds = Annotated[int, Field(ge=1, le=366 * 86_400)]
Bounds = tuple[float, float]


class Population(Model):
    """How many clients must and may take part."""

    minimum: int = Field(ge=2)
    maximum: int = Field(ge=2)


class Deadlines(Model):
    """How long things may take, in seconds."""

    join: Seconds
    round: Seconds
    grace: Seconds


class _Threshold(Model):
    threshold: int


class _TaskFile(Model):
    task: dict[str, Any]
    features: dict[str, Bounds] = Field(min_length=1)
    target: dict[str, Bounds] = Field(min_length=1, max_length=1)
    privacy: PrivacyDemand
    population: Population
    deadlines: Deadlines
    sharing: _Threshold | None = None


class TaskFile(Model):
    """A job, complete but for the analyst, the consortium and the time of its submission."""

    task: Task
    privacy: PrivacyDemand
    population: Population
    deadlines: Deadlines
    sharing: Sharing


def read_task_file(path: Path) -> TaskFile:
    """Read a task file.

    Raises:
        ValueError: it is not TOML, or something in it is missing, unknown or out of range.
        OSError: it cannot be read.
    """
    try:
        return parse_task_file(tomllib.loads(path.read_text(encoding="utf-8")))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from error
    except pydantic.ValidationError as error:
        raise ValueError(f"{path}: {describe(error)}") from error


def parse_task_file(content: dict[str, Any]) -> TaskFile:
    """Put together what the TOML says.

    Raises:
        pydantic.ValidationError: something is missing, unknown or out of range.
    """
    file = _TaskFile.model_validate(content)
    [target] = _columns(file.target)
    task = LinearRegressionTask.model_validate(
        {**file.task, "features": _columns(file.features), "target": target}
    )
    return TaskFile(
        task=task,
        privacy=file.privacy,
        population=file.population,
        deadlines=file.deadlines,
        sharing=ThresholdSharing(**file.sharing.model_dump()) if file.sharing else ADDITIVE,
    )


def _columns(bounds: dict[str, Bounds]) -> list[dict[str, Any]]:
    return [
        {"name": name, "lower": lower, "upper": upper} for name, (lower, upper) in bounds.items()
    ]
