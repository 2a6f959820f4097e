"""Runs the `shoal` command in the process of a test."""

import io
import logging
from contextlib import nullcontext
from functools import cache
from typing import Any
from unittest.mock import patch

import structlog
import typer
from typer.testing import CliRunner, Result

from shoal_command import available, command_line

app = command_line(available())


@cache
def parser() -> Any:
    """Return the whole command as what parses it."""
    return typer.main.get_command(app)


class _Typed(io.BytesIO):
    """What a person types at a terminal."""

    def isatty(self) -> bool:
        return True


def run(*arguments: object, typed: str | bytes | None = None, asked: str | None = "y") -> Result:
    """Run the command, however it ends: a person is at its terminal, and answers what it asks.

    With `typed` on its standard input, or without an answer if it is `asked`, nobody is there.
    A command that logs to its standard error, which is closed then, leaves logs as they were.
    """
    root, before = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers, root.level
    answer = None if typed is not None or asked is None else _Typed(f"{asked}\n".encode())
    stream = patch("typer.testing.make_input_stream", lambda *_: answer)
    try:
        with stream if answer else nullcontext():
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
    """Run the command, which must fail with one line after what it asked, if so; return it."""
    result = shoal(*arguments, status=status)
    assert isinstance(result.exception, SystemExit)  # nothing else came through
    [line] = result.stderr.rpartition("[y/N] ")[2].splitlines()
    assert line.startswith("Error: ")
    return line


def words(result: Result) -> str:
    """Return what a command printed, without the lines of its tables."""
    return " ".join(result.stdout.replace("│", " ").split())
