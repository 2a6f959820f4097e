"""Reads task files and crowd files: jobs that an analyst wrote in TOML."""

import tomllib
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from shoal.jobs.job_settings import Bounds, CrowdSettings, JobSettings
from shoal_holder.toml_files import read_toml
from shoal_protocol.crowds.tasks import CrowdTask
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.queries.models import Family
from shoal_protocol.wire.documents import Model, describe
from shoal_studies.registry import STUDIES, Task, TaskName

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
# records_per_client = 1       # a contribution is a step on so many records of a client, at most
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
open_seconds = 86400
session_seconds = 600          # within which a model that was drawn must come back
"""


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
        ValueError: something is missing, unknown or out of range; the message names its table.
    """
    task = _table(content, "task")
    study = STUDIES.get(str(task.get("name")))
    if study is None:
        raise ValueError(f"[task] name: it names a study, one of {', '.join(STUDIES)}")
    return _put_together(content, study, TaskFile)


def parse_crowd_file(content: dict[str, Any]) -> CrowdFile:
    """Put together what the TOML of a crowd file says.

    Raises:
        ValueError: as `parse_task_file`.
    """
    return _put_together(content, CrowdTask, CrowdFile)


def _put_together(content: dict[str, Any], study: type[Model], shape: type[FileT]) -> FileT:
    """Return the file: tables but `task` and `settings` are the study's columns, with bounds."""
    task, settings = dict(_table(content, "task")), _table(content, "settings")
    for name in [each for each in content if each not in ("task", "settings")]:
        columns = [_column(name, *each) for each in _table(content, name).items()]
        field = study.model_fields.get(name)
        is_one = field is not None and field.annotation in (ColumnBounds, ColumnBounds | None)
        task[name] = columns[0] if is_one and len(columns) == 1 else columns
    kind: Any = shape.model_fields["settings"].annotation
    return shape(task=_read(study, "[task]", task), settings=_read(kind, "[settings]", settings))


def _table(content: dict[str, Any], name: str) -> dict[str, Any]:
    table = content.get(name)
    if not isinstance(table, dict) or not table:
        raise ValueError(f"the table [{name}] is missing, or empty")
    return table


def _column(table: str, name: str, ends: object) -> ColumnBounds:
    where = f"[{table}] {name}:"
    try:
        lower, upper = TypeAdapter(Bounds).validate_python(ends)
    except ValidationError:
        raise ValueError(
            f"{where} bounds are two numbers, as [18, 90]; a task file takes no levels: give them "
            "to an estimator of shoal.estimators"
        ) from None
    column: ColumnBounds = _read(
        ColumnBounds, where, {"name": name, "lower": lower, "upper": upper}
    )
    return column


def _read(kind: Any, where: str, content: object) -> Any:
    """Return what a part of a file says.

    Raises:
        ValueError: it is not of this `kind`; the message begins with `where` it is.
    """
    try:
        return TypeAdapter(kind).validate_python(content)
    except ValidationError as error:
        raise ValueError(f"{where} {describe(error)}") from None


def example(name: TaskName) -> str:
    """Return a task file to begin with, headed by the queries that its rounds ask."""
    content = (STUDIES[name].example + _SETTINGS).rstrip()
    queries = parse_task_file(tomllib.loads(content)).task.query_names()
    return f"# asks for the queries {', '.join(queries)}\n{content}"


def crowd_example(family: Family) -> str:
    """Return a crowd file to begin with."""
    return (_CROWD % (family, _TARGETS[family])).rstrip()
