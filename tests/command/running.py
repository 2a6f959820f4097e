"""Runs the `shoal` command in the process of a test."""

import logging
from functools import cache
from typing import Any

import structlog
import typer
from typer.testing import CliRunner, Result

from shoal_command import available, command_line

app = command_line(available())


@cache
def parser() -> Any:
    """Return the whole command as what parses it."""
    return typer.main.get_command(app)


def run(*arguments: object, typed: str | bytes | None = None) -> Result:
    """Run the command with `typed` on its standard input, however it ends.

    A command that logs to its standard error, which is closed then, leaves logs as they were.
    """
    root, before = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers, root.level
    try:
        return CliRunner().invoke(app, [str(argument) for argument in arguments], input=typed)
    finally:
        structlog.configure(**before)
        root.handlers = handlers
        root.setLevel(level)


def shoal(*arguments: object, status: int = 0) -> Result:
    """Run the command, which must end with `status`."""
    result = run(*arguments)
    assert result.exit_code == status, result.output
    return result


def refused(*arguments: object, status: int = 1) -> str:
    """Run the command, which must fail with one line; return the line."""
    result = shoal(*arguments, status=status)
    assert isinstance(result.exception, SystemExit)  # nothing else came through
    [line] = result.stderr.splitlines()
    assert line.startswith("Error: ")
    return line


def words(result: Result) -> str:
    """Return what a command printed, without the lines of its tables."""
    return " ".join(result.stdout.replace("│", " ").split())
