"""Reads task files: a job that an analyst wrote in TOML."""

import tomllib
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from shoal.jobs.job_settings import Bounds, JobSettings, columns_of
from shoal_holder.toml_files import read_toml
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.studies import STUDIES, Task, TaskName
from shoal_protocol.wire.documents import Model

_SETTINGS: Final = """
[settings]
purpose = ""                   # one line, for data holders and the certificate
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


class _TaskFile(Model):
    task: dict[str, Any]
    tables: dict[str, Annotated[dict[str, Bounds], Field(min_length=1)]]
    settings: JobSettings


class TaskFile(Model):
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
    tables = {name: content[name] for name in content if name not in ("task", "settings")}
    rest = {name: content[name] for name in content if name not in tables}
    file = _TaskFile.model_validate({**rest, "tables": tables})
    task = dict(file.task)
    study = STUDIES.get(str(task.get("name")))
    for name, table in file.tables.items():
        columns = columns_of(table)
        field = study.model_fields.get(name) if study is not None else None
        is_one = field is not None and field.annotation in (ColumnBounds, ColumnBounds | None)
        task[name] = columns[0] if is_one and len(columns) == 1 else columns
    return TaskFile.model_validate({"task": task, "settings": file.settings})


def example(name: TaskName) -> str:
    """Return a task file to begin with, headed by the queries that its rounds ask."""
    content = (STUDIES[name].example + _SETTINGS).rstrip()
    queries = parse_task_file(tomllib.loads(content)).task.query_names()
    return f"# asks for the queries {', '.join(queries)}\n{content}"
