"""Task files: a job as an analyst writes it down in TOML; knows no consortium and no key."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from shoal.jobs.job_settings import JobSettings
from shoal_holder.toml_files import Bounds, columns_of, read_toml
from shoal_protocol.jobs.job_request import PrivacyDemand
from shoal_protocol.sharing.schemes import ADDITIVE
from shoal_protocol.sharing.threshold import ThresholdSharing
from shoal_protocol.studies import Task, TaskName
from shoal_protocol.wire.documents import Model

_BEGINNINGS: Final[dict[TaskName, str]] = {
    "linear_regression": """\
[task]
name = "linear_regression"
method = "norm_ball"           # or plain, box_projection, ball_projection, unit_rows

[features]                     # public bounds, from general knowledge, never from the data
age = [18, 100]
body_mass_index = [10, 60]

[target]
systolic_pressure = [60, 220]

""",
    "logistic_regression": """\
[task]
name = "logistic_regression"
rounds = 100
batch = 100                    # clients asked in a round

[features]                     # public bounds, from general knowledge, never from the data
age = [18, 100]
body_mass_index = [10, 60]

[target]                       # yes is whatever lies above the middle
smoker = [0, 1]
""",
    "poisson_regression": """\
[task]
name = "poisson_regression"
rounds = 100
batch = 100                    # clients asked in a round

[features]                     # public bounds, from general knowledge, never from the data
age = [18, 100]

[target]                       # 0, and the largest count
visits = [0, 20]
""",
    "numpyro_model": """\
[task]
name = "numpyro_model"
entry_point = "blood-pressure" # of a package that trainer and data holders have installed
digest = "%s"
unconstrained = 3              # numbers that the model's latents are
rounds = 100
batch = 100                    # clients asked in a round

[columns]                      # public bounds, from general knowledge, never from the data
age = [18, 100]
systolic_pressure = [60, 220]
"""
    % ("0" * 64),
    "bernoulli": """\
[task]
name = "bernoulli"
column = "smoker"
success = 1                    # whatever else the column holds is a failure
failure = 0
""",
    "categorical": """\
[task]
name = "categorical"
column = "stage"
levels = [1, 2, 3, 4]          # values that are none of them are counted as "other"
""",
    "poisson": """\
[task]
name = "poisson"
column = "visits"
upper = 20                     # counts are cut to it, and noise grows with it
""",
    "normal_mean": """\
[task]
name = "normal_mean"
sd = 15                        # known, from general knowledge

[columns]                      # public bounds, from general knowledge, never from the data
systolic_pressure = [60, 220]
""",
    "normal": """\
[task]
name = "normal"

[columns]                      # public bounds that records hardly ever pass
systolic_pressure = [60, 220]
""",
    "multivariate_normal": """\
[task]
name = "multivariate_normal"

[columns]                      # public bounds that records hardly ever pass
age = [18, 100]
systolic_pressure = [60, 220]
""",
}

_END: Final = """
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

_FIELD_OF_COLUMNS: Final[dict[str, str]] = {
    "normal_mean": "column",
    "normal": "column",
    "multivariate_normal": "variables",
}
"""What a task calls the columns of the table [columns], if not `columns`."""

Seconds = Annotated[int, Field(ge=1, le=366 * 86_400)]


class _Population(Model):
    """How many clients must and may take part."""

    minimum: int = Field(ge=2)
    maximum: int = Field(ge=2)


class _Deadlines(Model):
    """How long things may take, in seconds."""

    join: Seconds
    round: Seconds
    grace: Seconds


class _Threshold(Model):
    threshold: int


class _TaskFile(Model):
    task: dict[str, Any]
    features: dict[str, Bounds] | None = Field(default=None, min_length=1)
    target: dict[str, Bounds] | None = Field(default=None, min_length=1, max_length=1)
    columns: dict[str, Bounds] | None = Field(default=None, min_length=1)
    privacy: PrivacyDemand
    population: _Population
    deadlines: _Deadlines
    sharing: _Threshold | None = None


class _TaskInFile(Model):
    task: Task


@dataclass(frozen=True)
class TaskFile:
    """A job, complete but for the analyst, the consortium and the time of its submission."""

    task: Task
    settings: JobSettings


def read_task_file(path: Path) -> TaskFile:
    """Read a task file.

    Raises:
        ValueError: it is not TOML, or something in it is missing, unknown or out of range.
        OSError: it cannot be read.
    """
    return read_toml(path, parse_task_file)


def parse_task_file(content: dict[str, Any]) -> TaskFile:
    """Put together what the TOML says.

    Raises:
        pydantic.ValidationError: something is missing, unknown or out of range.
    """
    file = _TaskFile.model_validate(content)
    task = dict(file.task)
    if file.features is not None:
        task["features"] = columns_of(file.features)
    if file.target is not None:
        [task["target"]] = columns_of(file.target)
    if file.columns is not None:
        field = _FIELD_OF_COLUMNS.get(str(task.get("name")), "columns")
        columns = columns_of(file.columns)
        task[field] = columns[0] if field == "column" and len(columns) == 1 else columns
    sharing = ThresholdSharing(**file.sharing.model_dump()) if file.sharing else ADDITIVE
    settings = JobSettings(
        **file.privacy.model_dump(),
        minimum_population=file.population.minimum,
        maximum_population=file.population.maximum,
        join_seconds=file.deadlines.join,
        round_seconds=file.deadlines.round,
        grace_seconds=file.deadlines.grace,
        sharing=sharing,
    )
    return TaskFile(_TaskInFile.model_validate({"task": task}).task, settings)


def example(name: TaskName) -> str:
    """Return a task file to begin with."""
    return (_BEGINNINGS[name] + _END).rstrip()
