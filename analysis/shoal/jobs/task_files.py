"""Reads task files: a job that an analyst wrote in TOML."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, get_args

from pydantic import Field

from shoal.jobs.job_settings import Bounds, JobSettings, columns_of
from shoal_holder.toml_files import read_toml
from shoal_protocol.jobs.job_request import PrivacyDemand, Purpose
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.sharing.schemes import sharing_of
from shoal_protocol.studies import STUDIES, Task, TaskName
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import Clients, Count

_END: Final = """
[privacy]                      # for one client, over the whole job
epsilon = 1.0
delta = 1e-6                   # 0 asks for pure epsilon, with discrete Laplace noise: dearer
dropouts = 20
colluders = 200                # at least as many as the largest data holder has

[population]                   # the round starts as soon as `maximum` clients have joined, or
minimum = 500                  # when `join` has passed and at least `minimum` have: set `maximum`
maximum = 600                  # to the number of clients that you expect

[deadlines]                    # seconds
join = 600                     # from the submission, for clients to join
round = 120                    # from a round's announcement, for uploads
grace = 120                    # from there, for the services, until they give up

# [sharing]                    # to go on without some Compute nodes, where the policy allows it:
# threshold = 2                # any two of them open a sum; without this, all of them are needed
# committee = 3                # each data holder shares with three of many; without this, with all
"""

_PURPOSE: Final = 'purpose = ""                   # one line, for data holders and the certificate'

Seconds = Annotated[int, Field(ge=1, le=366 * 86_400)]


class _Population(Model):
    """How many clients must and may take part."""

    minimum: Annotated[Clients, Field(ge=2)]
    maximum: Annotated[Clients, Field(ge=2)]


class _Deadlines(Model):
    """How long things may take, in seconds."""

    join: Seconds
    round: Seconds
    grace: Seconds


class _Sharing(Model):
    threshold: Count | None = None
    committee: Count | None = None


class _TaskFile(Model):
    purpose: Purpose = ""
    task: dict[str, Any]
    features: dict[str, Bounds] | None = Field(default=None, min_length=1)
    target: dict[str, Bounds] | None = Field(default=None, min_length=1, max_length=1)
    offset: dict[str, Bounds] | None = Field(default=None, min_length=1, max_length=1)
    weights: dict[str, Bounds] | None = Field(default=None, min_length=1, max_length=1)
    columns: dict[str, Bounds] | None = Field(default=None, min_length=1)
    privacy: PrivacyDemand
    population: _Population
    deadlines: _Deadlines
    sharing: _Sharing = _Sharing()


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
    for field in ("target", "offset", "weights"):
        column = getattr(file, field)
        if column is not None:
            [task[field]] = columns_of(column)
    if file.columns is not None:
        field, is_single = _field_of_columns(str(task.get("name")))
        columns = columns_of(file.columns)
        task[field] = columns[0] if is_single and len(columns) == 1 else columns
    settings = JobSettings(
        **file.privacy.model_dump(),
        minimum_population=file.population.minimum,
        maximum_population=file.population.maximum,
        join_seconds=file.deadlines.join,
        round_seconds=file.deadlines.round,
        grace_seconds=file.deadlines.grace,
        sharing=sharing_of(file.sharing.threshold, file.sharing.committee),
        purpose=file.purpose,
    )
    return TaskFile(_TaskInFile.model_validate({"task": task}).task, settings)


def _field_of_columns(name: str) -> tuple[str, bool]:
    """Return what a task calls the columns of the table [columns], and whether it takes one."""
    fields = STUDIES[name].model_fields if name in STUDIES else {}
    holding = [each for each, field in fields.items() if ColumnBounds in _kinds(field.annotation)]
    own = ("features", "target", "offset", "weights")
    field = next((each for each in holding if each not in own), "columns")
    return field, field in fields and fields[field].annotation is ColumnBounds


def _kinds(annotation: object) -> tuple[object, ...]:
    return (annotation, *get_args(annotation))


def example(name: TaskName) -> str:
    """Return a task file to begin with, headed by the queries that its rounds ask."""
    content = (STUDIES[name].example + _END).rstrip()
    queries = parse_task_file(tomllib.loads(content)).task.query_names()
    return f"# asks for the queries {', '.join(queries)}\n{_PURPOSE}\n{content}"
