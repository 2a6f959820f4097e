"""What the command has of the outside world: console, clock, exit status; it knows no subject.

Exit status: 0 done; 1 a mistake in what was asked or in a file; 2 wrong usage; 3 a service
refused; 4 a service could not be reached; 5 the job ended without a posterior, or nobody
contributed; 6 the job has no posterior yet.
"""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from enum import IntEnum
from typing import Annotated, Any, Final, NoReturn, TypeVar

import pydantic
import typer
import typer.core
from rich.console import Console
from rich.table import Table
from rich.text import Text

from shoal_client.job_failures import JobFailed, JobRefused
from shoal_hosting.exchange import Unavailable
from shoal_hosting.security import StartupRefused
from shoal_protocol.documents import describe
from shoal_protocol.errors import ProtocolError, UnknownJob

Result = TypeVar("Result")

_TWO_KINDS: Final = (
    "`shoal job list` shows the jobs in rounds; `shoal crowd list` the crowd jobs, for which there "
    "are the commands of `shoal crowd` only"
)


class Refused(Exception):
    """A service refused; the message says why, in its own words."""


class ExitStatus(IntEnum):
    """How the command ends."""

    DONE = 0
    MISTAKE = 1
    USAGE = 2
    REFUSED = 3
    UNREACHABLE = 4
    NO_POSTERIOR = 5
    NOT_YET = 6


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def now() -> datetime:
    """Return the time; commands pass it on to code that reads no clock."""
    return datetime.now(UTC)  # noqa: TID251 - the command is a process of its own


def output() -> Console:
    """Return the console for what was asked for."""
    return Console(highlight=False)


def plain(text: str) -> Text:
    """Return text that a terminal shows as it is: no markup, no control characters."""
    return Text(
        "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)
    )


def say(message: str) -> None:
    """Print a line of plain text: nothing in it is taken for markup."""
    output().print(plain(message), soft_wrap=True)


def warn(message: str) -> None:
    """Print a warning to standard error."""
    line = Text.assemble(("Warning: ", "yellow"), plain(message))
    Console(stderr=True, highlight=False).print(line, soft_wrap=True)


def say_json(value: Any) -> None:
    """Print a JSON value, exactly one, to standard output."""
    typer.echo(json.dumps(value, indent=2))


def say_json_line(value: Any) -> None:
    """Print a JSON value on one line, one of several."""
    typer.echo(json.dumps(value))


def show(table: Table) -> None:
    """Print a table, wide enough for its cells where the output is no terminal."""
    console = output()
    if not console.is_terminal:
        console = Console(highlight=False, width=200)
    console.print(table)


def asking(whom: str) -> AbstractContextManager[object]:
    """Show, on a terminal only, that an answer is being waited for."""
    console = Console(stderr=True)
    return console.status(f"Asking {whom} ...") if console.is_terminal else nullcontext()


def fail(message: str, status: ExitStatus) -> NoReturn:
    """End the command with one line on standard error."""
    line = Text.assemble(("Error: ", "bold red"), plain(" ".join(message.split())))
    Console(stderr=True, highlight=False).print(line, soft_wrap=True)
    raise typer.Exit(status)


def one_line_for_errors(work: Callable[[], Result]) -> Result:
    """Do `work`; an error that is not the command's own ends it with one line."""
    try:
        return work()
    except ProtocolError as error:
        fail(f"{error}. {error.remedy}", ExitStatus.REFUSED)
    except (JobRefused, Refused) as error:
        fail(f"refused: {error}", ExitStatus.REFUSED)
    except JobFailed as error:
        if str(error).startswith(UnknownJob.code):
            fail(f"refused: {error}. {_TWO_KINDS}", ExitStatus.REFUSED)
        hint = f". {error.hint}" if error.hint is not None else ""
        fail(f"the job has no posterior: {error}{hint}", ExitStatus.NO_POSTERIOR)
    except (Unavailable, TimeoutError, ConnectionError) as error:
        detail = str(error) or type(error).__name__
        fail(f"a service could not be reached: {detail}", ExitStatus.UNREACHABLE)
    except OSError as error:
        fail(_of_file(error), ExitStatus.MISTAKE)
    except pydantic.ValidationError as error:
        fail(describe(error), ExitStatus.MISTAKE)
    except (ValueError, StartupRefused) as error:
        fail(str(error), ExitStatus.MISTAKE)


def _of_file(error: OSError) -> str:
    if error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror


class OneLineErrors(typer.core.TyperGroup):
    """A group of commands under which every foreseen error is one line, never a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Invoke the command that was asked for."""
        return one_line_for_errors(lambda: super(OneLineErrors, self).invoke(ctx))
