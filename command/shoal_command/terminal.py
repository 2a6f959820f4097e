"""Shared by all commands: printing, errors and exit status.

Exit status: 0 done; 1 a mistake in what was asked or in a file; 2 wrong usage; 3 a service
refused; 4 a service could not be reached; 5 the job ended without a posterior, or nobody
contributed; 6 the job has no certificate or posterior yet; 7 documents contradict each other.
"""

import json
import shlex
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from enum import IntEnum
from typing import Annotated, Any, Final, NoReturn, TypeVar

import pydantic
import pydantic_core
import typer
import typer.core
from rich.console import Console
from rich.text import Text

from shoal_command.rendering import plain, rendered
from shoal_kit.peers.exchange import Unavailable
from shoal_kit.peers.service_calls import NoResult, Refused
from shoal_kit.startup import StartupRefused
from shoal_protocol.wire.documents import describe
from shoal_protocol.wire.errors import ProtocolError

Result = TypeVar("Result")

_WIDTH: Final = 200  # of tables that go to a file or a pipe


class ExitStatus(IntEnum):
    """The command's exit status, beside 0 if it is done and 2 after wrong usage."""

    MISTAKE = 1
    REFUSED = 3
    UNREACHABLE = 4
    NO_POSTERIOR = 5
    NOT_YET = 6
    CONTRADICTION = 7


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it without asking, as a script must.")]


def now() -> datetime:
    """Return the time; commands pass it on to code that reads no clock."""
    return datetime.now(UTC)  # noqa: TID251 - the command is a process of its own


def say(part: Any) -> None:
    """Print a line of plain text, in which nothing is taken for markup, or a value as tables."""
    _print(part, Console(highlight=False))


def _print(part: Any, console: Console) -> None:
    """Print as `say`; tables are wide enough for their cells where the output is no terminal."""
    if isinstance(part, str):
        console.print(plain(part), soft_wrap=True)
        return
    if not console.is_terminal:
        console.width = _WIDTH
    console.print(rendered(part))


def warn(message: str) -> None:
    """Print a warning to standard error."""
    Console(stderr=True, highlight=False).print(
        Text.assemble(("Warning: ", "yellow"), plain(message)), soft_wrap=True
    )


def shell_command(*words: object) -> str:
    """Return a command to be pasted into a shell, whatever its paths and names are made of."""
    return shlex.join(map(str, words))


def say_json(value: Any, *, indent: int | None = 2) -> None:
    """Print a value as JSON, one document to an output; without `indent` on one line of several."""
    typer.echo(json.dumps(pydantic_core.to_jsonable_python(value), indent=indent))


def tell(value: Any, as_json: bool, *parts: Any, indent: int | None = 2) -> None:
    """Print a value as JSON, or else `parts`, each as `say` does."""
    if as_json:
        say_json(value, indent=indent)
        return
    for each in parts:
        say(each)


def confirm(question: str, *facts: Any, yes: bool) -> None:
    """Show on standard error what a command is about to do, and ask whether to do it.

    With `yes` it does not ask. Otherwise the command ends with nothing done if standard input is no
    terminal, or if the answer is no.
    """
    console = Console(stderr=True, highlight=False)
    for each in facts:
        _print(each, console)
    if yes:
        return
    if not sys.stdin.isatty():
        fail(
            "nothing was done: this cannot be undone, and there is no terminal to confirm it at. "
            "Add --yes to do it without confirmation",
            ExitStatus.MISTAKE,
        )
    console.print(plain(f"{question} [y/N] "), soft_wrap=True, end="")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        fail("nothing was done", ExitStatus.MISTAKE)


def fail(message: str, status: ExitStatus) -> NoReturn:
    """End the command with one line on standard error."""
    Console(stderr=True, highlight=False).print(
        Text.assemble(
            ("Error: ", "bold red"), plain(" ".join(map(str.strip, message.splitlines())))
        ),
        soft_wrap=True,
    )
    raise typer.Exit(status)


def one_line_for_errors(work: Callable[[], Result]) -> Result:
    """Do `work`; an error that is not the command's own ends it with one line."""
    try:
        return work()
    except ProtocolError as error:
        fail(f"{error}. {error.remedy}", ExitStatus.REFUSED)
    except Refused as error:
        fail(f"refused: {error}", ExitStatus.REFUSED)
    except NoResult as error:
        fail(f"the job has no posterior: {error}", ExitStatus.NO_POSTERIOR)
    except BrokenPipeError:  # the reader of the output is gone: click ends quietly
        raise
    except (Unavailable, TimeoutError, ConnectionError) as error:
        fail(
            f"a service could not be reached: {str(error) or type(error).__name__}",
            ExitStatus.UNREACHABLE,
        )
    except OSError as error:
        named = f"{error.filename}: " if error.filename and error.strerror else ""
        fail(f"{named}{error.strerror or error}", ExitStatus.MISTAKE)
    except pydantic.ValidationError as error:
        fail(describe(error), ExitStatus.MISTAKE)
    except (ValueError, StartupRefused) as error:
        fail(str(error), ExitStatus.MISTAKE)


class OneLineErrors(typer.core.TyperGroup):
    """A group of commands under which every foreseen error is one line, never a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Invoke the command that was asked for."""
        return one_line_for_errors(lambda: super(OneLineErrors, self).invoke(ctx))
