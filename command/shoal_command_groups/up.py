"""`shoal up`: runs a whole federation in one terminal, for trying out."""

import signal
import threading
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Annotated, Final

import typer

from shoal_command.terminal import ExitStatus, fail, say, shell_command, warn
from shoal_command_groups.quickstart import WARNING
from shoal_consortium.processes import Federation, Process
from shoal_consortium.quickstart import agents, exists, records_of, services
from shoal_holder.site_files import POLICY
from shoal_kit.manifest_chain import open_chain

_LOOK_SECONDS: Final = 1.0
_STOPS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def up(
    directory: Annotated[Path, typer.Argument(help="The federation's directory.")],
    ask_owners: Annotated[
        bool, typer.Option(help="Let agents ask their owners about jobs, as policy.toml says.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Run this party alone; repeat for several."),
    ] = None,
) -> None:
    """Run all services and agents of a federation until Ctrl-C, for trying out.

    An agent starts as soon as its site's directory has records and policy.toml, and anew when one
    of them changes. A service whose process ends stays stopped, and the others go on: --only starts
    it again, in another terminal. What a process says is in DIRECTORY/logs.
    """
    home = directory.resolve()
    if not exists(home):
        raise ValueError(f"there is no federation in {home}: `shoal quickstart` makes one")
    warn(WARNING)
    (home / "logs").mkdir(mode=0o700, exist_ok=True)
    parties, holders = (
        services(home, open_chain(home / "consortium")[-1]),
        agents(home, ask_owners=ask_owners),
    )
    names = [each.name for each in (*parties, *holders)]
    if unknown := set(only or ()) - set(names):
        raise ValueError(f"{min(unknown)} is no party here: these are {', '.join(names)}")
    chosen = only or names
    started = [
        replace(each, environment={**each.environment, "SHOAL_CONSOLE": "true"})
        for each in parties
        if each.name in chosen
    ]
    sites = [_Site(home / "clients" / each.name, each) for each in holders if each.name in chosen]
    stopping = _told_to_stop()
    with Federation() as federation:
        try:
            federation.start(*started)
        except RuntimeError as error:
            taken = "in use" in str(error)
            hint = ". Is another federation running on these ports?" if taken else ""
            fail(f"{error}{hint}", ExitStatus.MISTAKE)
        running = "1 service runs" if len(started) == 1 else f"{len(started)} services run"
        ends = "Ctrl-C ends all that runs here; `kill PROCESS` ends one party."
        say(f"{running}. {ends}" if started else ends)
        if started:
            say(f"What each does, by the token in {home}/data/NAME/operator.token:")
        for each in started:
            say(f"  {each.name}  {each.url}/console  process {each.pid}")
        if not ask_owners:
            say("Agents take part without asking their owners; --ask-owners lets them ask.")
        for site in sites:
            site.look(federation)
        who = ("--party", home / "parties" / "analyst", "--consortium", home / "consortium")
        submit = shell_command("shoal", "job", "submit", "--wait", *who, "TASK.toml")
        say(f"Submit a job: {submit}")
        say(f"The same in a browser: {shell_command('shoal', 'console', *who)}")
        while not stopping.wait(_LOOK_SECONDS):
            for each in started:
                if each.exit_status is not None:
                    again = shell_command("shoal", "up", home, "--only", each.name)
                    _tell_end(each, f"To start it again, in another terminal: {again}")
            for site in sites:
                site.look(federation)
            ended = [*(each.is_over for each in started), *(each.is_over for each in sites)]
            if only and all(ended):
                fail("nothing that --only names runs any more", ExitStatus.MISTAKE)
        say("Stopping.")
    say("All processes have ended.")


def _tell_end(process: Process, again: str) -> None:
    """Say why a process ended, and how it is started again; the others go on."""
    warn(f"{process.name} ended: {process.ending()} (see {process.log}). {again}")
    process.stop()


class _Site:
    """A site's agent, which runs while its owner's files are there."""

    def __init__(self, home: Path, process: Process) -> None:
        self._home, self._process = home, process
        # the files that it was started with; () while it waits for some, None before the first look
        self._of: tuple[tuple[str, int], ...] | None = None
        self.is_over = False  # another terminal runs it

    def look(self, federation: Federation) -> None:
        """Start the agent when its files are new; say what it waits for, and when it ended."""
        process = self._process
        files = tuple((path.name, path.stat().st_mtime_ns) for path in records_of(self._home))
        if files and files != self._of:
            self._of, self.is_over = files, False
            process.stop()
            try:
                federation.start(process)
            except RuntimeError:
                self._tell_end()
                return
            own = (
                "--agent",
                self._home,
                "--data",
                process.environment["SHOAL_DATA"],
                "--url",
                process.url,
            )
            say(
                f"{process.name} runs at {process.url} as process {process.pid}; its owner's "
                "pages (to decide, add --owner KEY): "
                f"{shell_command('shoal', 'agent', 'console', *own)}"
            )
        elif self._of is None:
            self._of = ()
            say(
                f"{process.name} waits for policy.toml and records in {self._home}: records.csv, "
                "or what `shoal records load` makes by records.toml; see examples/hospitals"
            )
        elif process.exit_status is not None:
            self._tell_end()

    def _tell_end(self) -> None:
        self.is_over = "is in use: one data holder" in self._process.ending()
        elsewhere = "It runs in another terminal: end it there first. " if self.is_over else ""
        _tell_end(
            self._process,
            f"{elsewhere}While `shoal up` runs, it starts again when one of its files changes: "
            f"{shell_command('touch', self._home / POLICY)}",
        )


def _told_to_stop() -> threading.Event:
    """Return what the first signal to stop sets; the second ends this process at once."""
    stopping = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        if stopping.is_set():
            signal.default_int_handler(number, frame)
        stopping.set()

    for each in _STOPS:
        signal.signal(each, stop)
    return stopping
