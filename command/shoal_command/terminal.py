"""Shared by all commands: printing, errors and exit status.

Exit status: 0 done; 1 a mistake in what was asked or in a file; 2 wrong usage; 3 a service
refused; 4 a service could not be reached; 5 the job ended without a posterior, or nobody
contributed; 6 the job has no posterior yet; 7 the log contradicts itself, or what was seen of it.
"""

import json
import shlex
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from enum import IntEnum
from typing import Annotated, Any, Final, NoReturn, TypeVar

import pydantic
import pydantic_core
import typer
import typer.core
from rich.console import Console, RenderableType
from rich.text import Text

from shoal_command.rendering import plain, rendered
from shoal_hosting.peers.exchange import Unavailable
from shoal_hosting.peers.service_calls import NoResult, Refused
from shoal_hosting.startup import StartupRefused
from shoal_protocol.wire.documents import describe
from shoal_protocol.wire.errors import ProtocolError

Result = TypeVar("Result")

_WIDTH: Final = 200  # of tables that go to a file or a pipe


class ExitStatus(IntEnum):
    """The command's exit status."""

    DONE = 0
    MISTAKE = 1
    USAGE = 2
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


def output() -> Console:
    """Return the console for a command's output."""
    return Console(highlight=False)


def say(message: str) -> None:
    """Print a line of plain text: nothing in it is taken for markup."""
    output().print(plain(message), soft_wrap=True)


def warn(message: str) -> None:
    """Print a warning to standard error."""
    line = Text.assemble(("Warning: ", "yellow"), plain(message))
    Console(stderr=True, highlight=False).print(line, soft_wrap=True)


def shell_command(*words: object) -> str:
    """Return a command to be pasted into a shell, whatever its paths and names are made of."""
    return shlex.join(map(str, words))


def say_json(value: Any, *, indent: int | None = 2) -> None:
    """Print a value as JSON, one document to an output; without `indent` on one line of several."""
    typer.echo(json.dumps(pydantic_core.to_jsonable_python(value), indent=indent))


def tell(value: Any, as_json: bool, *sentences: str) -> None:
    """Print a value as JSON, or else the sentences that say it."""
    if as_json:
        say_json(value)
        return
    for each in sentences:
        say(each)


def present(value: Any, as_json: bool, *sentences: str, shown: Any = None) -> None:
    """Print a value as JSON, or else tables of its fields and then sentences about it.

    `shown` is put in tables in its place, where a value holds more than anyone reads.
    """
    if not as_json:
        show(rendered(value if shown is None else shown))
    tell(value, as_json, *sentences)


def show(renderable: RenderableType) -> None:
    """Print tables, wide enough for their cells where the output is no terminal."""
    Console(highlight=False, width=columns()).print(renderable)


def columns() -> int:
    """Return how wide tables may be."""
    console = output()
    return console.width if console.is_terminal else _WIDTH


def asking(whom: str) -> AbstractContextManager[object]:
    """Show, on a terminal only, that an answer is being waited for."""
    console = Console(stderr=True)
    return console.status(f"Asking {whom} ...") if console.is_terminal else nullcontext()


def confirm(question: str, *facts: str | RenderableType, yes: bool) -> None:
    """Show on standard error what a command is about to do, and ask before it is done.

    With `yes` nobody is asked. Without it the command ends, with nothing done, where no terminal
    is there to ask at, or if the answer is no.
    """
    console = Console(stderr=True, highlight=False)
    for each in facts:
        if isinstance(each, str):
            console.print(plain(each), soft_wrap=True)
        else:
            console.print(each, width=columns())
    if yes:
        return
    if not sys.stdin.isatty():
        fail(
            "nothing was done: this cannot be undone, and there is no terminal to ask at. Add "
            "--yes to do it without being asked",
            ExitStatus.MISTAKE,
        )
    console.print(plain(f"{question} [y/N] "), soft_wrap=True, end="")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        fail("nothing was done", ExitStatus.MISTAKE)


def fail(message: str, status: ExitStatus) -> NoReturn:
    """End the command with one line on standard error."""
    line = Text.assemble(
        ("Error: ", "bold red"), plain(" ".join(map(str.strip, message.splitlines())))
    )
    Console(stderr=True, highlight=False).print(line, soft_wrap=True)
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
    except BrokenPipeError:  # whoever read the output has enough: click ends quietly
        raise
    except (Unavailable, TimeoutError, ConnectionError) as error:
        detail = str(error) or type(error).__name__
        fail(f"a service could not be reached: {detail}", ExitStatus.UNREACHABLE)
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
