"""The `shoal` command: every group of commands, by its name.

Exit status: 0 done; 1 a mistake in what was asked or in a file; 2 wrong usage; 3 a service
refused; 4 a service could not be reached; 5 the job ended without a posterior; 6 the job has no
certificate or posterior yet; 7 documents contradict each other.
"""

import importlib.util
import io
import sys
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Final

import typer

from shoal_command.terminal import OneLineErrors

GROUP: Final = "shoal.commands"
"""The group of entry points by which other distributions add commands.

`GROUP.COMMAND` adds a command to a group that is there already.
"""

OF_DATA_HOLDERS: Final = {
    "agent": "shoal_command.agent:app",
    "certificate": "shoal_command.certificate:app",
    "model": "shoal_command.model:app",
    "party": "shoal_command.party:app",
    "records": "shoal_command.records:app",
}
"""The data holder's commands, none of which loads analysis, learning or consortium code."""

_RED_TEAM: Final = {"redteam": "shoal_redteam.command:app"}
_MORE: Final = "Commands for analysts, auditors and the authority: pip install shoal."


def command_line(commands: Iterable[EntryPoint]) -> typer.Typer:
    """Load groups of commands, and single commands, and return the command that has them."""
    listed = sorted(commands, key=lambda command: command.name)
    exits = " ".join((__doc__ or "").partition("\n\n")[2].split())
    complete = any(each.name not in OF_DATA_HOLDERS for each in listed)
    app = typer.Typer(
        name="shoal",
        cls=OneLineErrors,
        no_args_is_help=True,
        pretty_exceptions_enable=False,  # a traceback with local variables would show keys
        help="Bayesian learning, with differential privacy, on data that never leaves its owners.",
        epilog=exits if complete else f"{exits}\n\n{_MORE}",
    )
    app.callback()(lambda: None)  # without one a single command would lose its name
    groups: dict[str, typer.Typer] = {}
    for each in listed:
        loaded, (group, _, name) = each.load(), each.name.partition(".")
        if isinstance(loaded, typer.Typer):
            groups[group] = loaded
            app.add_typer(loaded, name=group)
        else:
            (groups[group] if name else app).command(name or group)(loaded)
    return app


def available() -> list[EntryPoint]:
    """Return all commands: other distributions' too, and the red team's in a source tree."""
    red_team = _RED_TEAM if importlib.util.find_spec("shoal_redteam") else {}
    return [
        *(EntryPoint(name, value, GROUP) for name, value in (OF_DATA_HOLDERS | red_team).items()),
        *entry_points(group=GROUP),
    ]


def main() -> None:
    """Run the command; what it prints is UTF-8, whatever the machine's locale."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    found = available()
    asked = [each for each in found if each.name.partition(".")[0] in sys.argv[1:2]]
    command_line(asked or found)()  # loading all groups takes seconds
