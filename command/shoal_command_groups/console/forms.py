"""Turns the fields of the form for a new job into the task file that they stand for."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pydantic

from shoal.jobs.task_files import TaskFile, example, parse_task_file
from shoal_protocol.studies import STUDIES, TaskName
from shoal_protocol.wire.documents import describe

NUMBERS: Final = {
    "epsilon": ("Epsilon, for each client", "1.0"),
    "delta": ("Delta: 0 asks for pure epsilon", "1e-6"),
    "dropouts": ("Clients that may go missing", "20"),
    "colluders": ("Clients that may collude: those of the largest data holder", "200"),
    "minimum_population": ("Clients that must join", "500"),
    "maximum_population": ("Clients that are enough to begin", "600"),
    "join_seconds": ("Seconds to join", "600"),
    "round_seconds": ("Seconds to answer a round", "120"),
    "grace_seconds": ("Seconds more until a round is given up", "120"),
}
"""Settings of every job, as a task file has them: label and what stands there at first."""
_TABLES: Final = ("features", "target", "columns", "column", "variables", "time")


def example_of(name: TaskName) -> str:
    """Return the task file that `shoal job example` prints."""
    return example(name)


def parameters_of(name: TaskName) -> dict[str, str]:
    """Return a task's parameters but its columns, with the example's values as they are typed."""
    task = tomllib.loads(STUDIES[name].example)["task"]
    return {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in task.items()
        if key != "name"
    }


def roles_of(name: TaskName) -> tuple[str, ...]:
    """Return what variables can be in a task: tables of its file. None if a form cannot say it."""
    content = tomllib.loads(STUDIES[name].example)
    task = content.pop("task")
    nested = any(isinstance(each, list) and isinstance(each[0], dict) for each in task.values())
    named = {"column", "target", "event", "group", "site", "crosses", "entry_point"} & task.keys()
    return () if nested or named else tuple(each for each in _TABLES if each in content)


def parsed(toml: str) -> TaskFile:
    """Read a task file's text.

    Raises:
        ValueError: it is not TOML, or something in it is missing, unknown or out of range.
    """
    try:
        return parse_task_file(tomllib.loads(toml))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"this is not TOML: {error}") from None
    except pydantic.ValidationError as error:
        raise ValueError(describe(error)) from None


def toml_in(form: Mapping[str, str]) -> str:
    """Return the task file that was sent: as text, or by fields.

    Raises:
        ValueError: a field is empty, or no number.
    """
    if form.get("toml", "").strip():
        return form["toml"].replace("\r\n", "\n")
    return "\n".join(_lines(form)) + "\n"


def _lines(form: Mapping[str, str]) -> Iterator[str]:
    yield "[task]"
    yield f"name = {_text(form.get('task', ''))}"
    for key, value in form.items():
        if key.startswith("task."):
            yield f"{key.removeprefix('task.')} = {_value(value)}"
    chosen: dict[str, list[str]] = {}
    for key, role in form.items():
        name = key.removeprefix("role.")
        if name != key and role in _TABLES:
            ends = [_number(name, form.get(f"{end}.{name}", "")) for end in ("lower", "upper")]
            chosen.setdefault(role, []).append(f"{_text(name)} = [{', '.join(ends)}]")
    if not chosen:
        raise ValueError("no variable was chosen: say of one at least what it is in the job")
    for role, rows in chosen.items():
        yield from ("", f"[{role}]", *rows)
    yield from ("", "[settings]", f"purpose = {_text(form.get('purpose', ''))}")
    for key, (label, _) in NUMBERS.items():
        yield f"{key} = {_number(label, form.get(key, ''))}"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: str) -> str:
    """Return TOML for what was typed: itself if it is TOML, else a text."""
    try:
        tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError:
        return _text(value)
    return _text(value) if "\n" in value else value


def _number(label: str, value: str) -> str:
    try:
        number: Any = json.loads(value)
    except ValueError:
        number = None
    if not isinstance(number, int | float) or isinstance(number, bool):
        raise ValueError(f"{label}: a number is due, such as 10 or 1e-6")
    return value.strip()
