"""Reads task files and crowd files: jobs that an analyst wrote in TOML."""

import tomllib
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from pydantic import Field

from shoal.jobs.job_settings import Bounds, CrowdSettings, JobSettings
from shoal_holder.toml_files import read_toml
from shoal_protocol.crowds.tasks import CrowdTask
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.queries.models import Family
from shoal_protocol.wire.documents import Model
from shoal_studies.catalogue import STUDIES, Task, TaskName

_SETTINGS: Final = """
[settings]
purpose = ""                   # one line: say what for; data holders decide by it
epsilon = 1.0                  # for one client, over the whole job
delta = 1e-6                   # 0 asks for pure epsilon, with discrete Laplace noise: dearer
dropouts = 20
colluders = 200                # at least as many as the largest data holder has
minimum_population = 500       # the round starts as soon as the maximum of clients have joined, or
maximum_population = 600       # when the time to join has passed and the minimum have: set the
                               # maximum to the number of clients that you expect
join_seconds = 600             # from the submission, for clients to join
round_seconds = 120            # from a round's announcement, for uploads
grace_seconds = 120            # from there, for the services, until they give up
# sharing = { scheme = "threshold", threshold = 2 }   # to go on without some Compute nodes, where
                               # the policy allows it: any two of them open a sum. Without this, all
                               # of them are needed. With committee = 3 each data holder shares with
                               # three of many
"""


_TARGETS: Final[dict[Family, str]] = {
    "linear": "systolic_pressure = [60, 220]",
    "logistic": "smoker = [0, 1]                # yes is whatever lies above the middle",
    "poisson": "visits = [0, 20]               # 0, and the largest count",
}

_CROWD: Final = """\
[task]
family = "%s"
epsilon = 1.0                  # of one contribution, local and pure
learning_rate = 0.03
clip = 0.03                    # largest step of a weight; the noise is 2 clip / epsilon
instances = 20                 # as many as contributions that are under way at once, or fewer:
                               # more of them cost accuracy; see `shoal plan`
# variant = "one"              # or feature, all: which weights a contribution touches
# clipping = "coordinate"      # or residual: feature and all need it for later noise to hide more
# start = [0, 0, 0]            # normalised weights to begin with: `shoal crowd model JOB`
                               # prints an earlier model's, for the same columns and bounds

[features]                     # public bounds, from general knowledge, never from the data
age = [18, 100]
body_mass_index = [10, 60]

[target]
%s

[settings]
contributions = 100000         # the job is closed after so many of them, or after open_seconds
contributions_per_client = 1
contributions_per_record = 1
open_seconds = 86400
session_seconds = 600          # within which a model that was drawn must come back
"""


class _File(Model):
    task: dict[str, Any]
    tables: dict[str, Annotated[dict[str, Bounds], Field(min_length=1)]]
    settings: dict[str, Any]


class TaskFile(Model):
    """A job, complete but for the analyst, the consortium and the time of its submission."""

    task: Task
    settings: JobSettings


class CrowdFile(Model):
    """A crowd job, complete but for the analyst, the consortium and the time of its opening."""

    task: CrowdTask
    settings: CrowdSettings


FileT = TypeVar("FileT", TaskFile, CrowdFile)


def read_task_file(path: Path) -> TaskFile:
    """Read a task file.

    Raises:
        ValueError: it is not TOML, or something in it is missing, unknown or out of range.
        OSError: it cannot be read.
    """
    return read_toml(path, parse_task_file)


def read_crowd_file(path: Path) -> CrowdFile:
    """Read a crowd file.

    Raises:
        ValueError, OSError: as `read_task_file`.
    """
    return read_toml(path, parse_crowd_file)


def parse_task_file(content: dict[str, Any]) -> TaskFile:
    """Put together what the TOML of a task file says.

    Raises:
        pydantic.ValidationError: something is missing, unknown or out of range.
    """
    task = content.get("task")
    study = STUDIES.get(str(task.get("name"))) if isinstance(task, dict) else None
    return _put_together(content, study, TaskFile)


def parse_crowd_file(content: dict[str, Any]) -> CrowdFile:
    """Put together what the TOML of a crowd file says.

    Raises:
        pydantic.ValidationError: something is missing, unknown or out of range.
    """
    return _put_together(content, CrowdTask, CrowdFile)


def _put_together(content: dict[str, Any], study: type[Model] | None, shape: type[FileT]) -> FileT:
    """Return the file: tables but `task` and `settings` are the study's columns, with bounds."""
    tables = {name: content[name] for name in content if name not in ("task", "settings")}
    rest = {name: content[name] for name in content if name not in tables}
    file = _File.model_validate({**rest, "tables": tables})
    task = dict(file.task)
    for name, table in file.tables.items():
        columns = [
            {"name": column, "lower": lower, "upper": upper}
            for column, (lower, upper) in table.items()
        ]
        field = study.model_fields.get(name) if study is not None else None
        is_one = field is not None and field.annotation in (ColumnBounds, ColumnBounds | None)
        task[name] = columns[0] if is_one and len(columns) == 1 else columns
    return shape.model_validate({"task": task, "settings": file.settings})


def example(name: TaskName) -> str:
    """Return a task file to begin with, headed by the queries that its rounds ask."""
    content = (STUDIES[name].example + _SETTINGS).rstrip()
    queries = parse_task_file(tomllib.loads(content)).task.query_names()
    return f"# asks for the queries {', '.join(queries)}\n{content}"


def crowd_example(family: Family) -> str:
    """Return a crowd file to begin with."""
    return (_CROWD % (family, _TARGETS[family])).rstrip()
