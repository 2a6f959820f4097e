"""The procedures of the handbook, typed as they are printed, in a federation of real processes.

A step's command runs in the federation's directory. What the page says that one sees must be seen,
and what stands in capitals there is what later steps are given. All procedures are one story, in
the order of the page: what one installs, a later one retires.
"""

import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import IO, Final

import pytest

from demo.ports import free_ports
from tests.world.handbook import BLANKS, Step, matches, procedures

pytestmark = pytest.mark.slow

HOSPITALS: Final = Path(__file__).parents[2] / "examples" / "hospitals"
OF_THE_FEDERATION: Final = 9  # five services, three agents, and one between
NEW_PARTIES: Final = 3  # each with a free port above, which a site made later is given
PATIENCE: Final = 90.0
AGAIN: Final = ("tail", "grep", "curl", "shoal agent status", "shoal consortium publish")
MADE_BY: Final = {  # what others show is compared with it
    "DIGEST": "shoal consortium",
    "FINGERPRINT": "shoal party",
    "HOLDER": "shoal agent",
}


class Terminal:
    """A command that runs on, and what it says."""

    def __init__(self, command: str, home: Path, said: Path) -> None:
        self._said = said
        self._file: IO[bytes] = said.open("wb")
        self.process = subprocess.Popen(
            ["bash", "-c", f"exec {command}" if command.startswith("shoal") else command],
            cwd=home,
            env=environment(),
            stdout=self._file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def said(self) -> str:
        return self._said.read_text()

    def interrupt(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)

    def close(self) -> None:
        self.process.wait(PATIENCE)
        self._file.close()


def environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "COLUMNS": "200"}


class Drill:
    """A federation that runs, and whoever follows the page in its directory."""

    def __init__(self, home: Path, ports: Iterator[int]) -> None:
        self.home, self._ports = home, ports
        self._terminals = list[Terminal]()
        self._known = dict[str, str]()

    def said(self, before: tuple[str, ...] = ()) -> str:
        """Return what all terminals of `shoal up` said since `before`, the newest last."""
        said = zip_longest((each.said for each in self._terminals), before, fillvalue="")
        return "\n".join(now.removeprefix(then) for now, then in said)

    def up(self, command: str = "shoal up .") -> Terminal:
        said = self.home.parent / f"terminal-{len(self._terminals)}"
        self._terminals.append(Terminal(command, self.home, said))
        return self._terminals[-1]

    def do(self, heading: str) -> None:
        """Do the steps of a procedure in order, whose new party is at a free port."""
        steps = procedures()[heading]
        self._known = {}
        if any("--url URL" in each.command for each in steps) and not steps[0].shows("URL"):
            self._known["URL"] = f"https://127.0.0.1:{next(self._ports)}"
        for step in steps:
            self._follow(step)

    def _follow(self, step: Step) -> None:
        for blank in BLANKS:  # a step shows a new one, if it does not compare the one before
            makes = blank not in step.command and MADE_BY.get(blank, "") in step.command
            if step.shows(blank) and makes and blank != "URL":
                self._known.pop(blank, None)
        self._see(step.seen_before, self.said)
        if step.command:
            before = tuple(each.said for each in self._terminals)
            command = step.typed(self._known)
            if "shoal up" in command:
                terminal = self.up(command)
                self._see(step.seen, lambda: terminal.said)
            else:
                self._type(command, step)
            self._see(step.seen_then, lambda: self.said(before))

    def _type(self, command: str, step: Step) -> None:
        """Type a command, and again for a while where the page says that it takes some time."""
        looks = command.startswith(AGAIN)
        deadline = time.monotonic() + (PATIENCE if looks else 0.0)
        while True:
            done = self.run(command)
            after: dict[str, str] | None = self._known
            for each in step.seen:
                after = matches(each, done.stdout, after) if after is not None else None
            if done.returncode == 0 and after is not None:
                self._known = after
                return
            assert time.monotonic() < deadline, (command, step.seen, self._known, done.stdout)
            time.sleep(0.5)

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command at a terminal at which somebody says yes."""
        keyboard, terminal = pty.openpty()
        os.write(keyboard, b"y\n")
        try:
            return subprocess.run(
                ["bash", "-c", command],
                cwd=self.home,
                env=environment(),
                stdin=terminal,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
        finally:
            os.close(keyboard)
            os.close(terminal)

    def _see(self, patterns: list[str], said: Callable[[], str]) -> None:
        """Wait until all of this is said."""
        deadline = time.monotonic() + PATIENCE
        for each in patterns:
            while (after := matches(each, said(), self._known)) is None:
                assert time.monotonic() < deadline, (each, self._known, said())
                time.sleep(0.1)
            self._known = after

    def close(self) -> None:
        for each in self._terminals:
            each.interrupt()
        for each in self._terminals:
            each.close()


@contextmanager
def federation(directory: Path) -> Iterator[Drill]:
    """Run a federation for trying out, on which the procedures are done."""
    home = directory / "federation"
    first = free_ports(OF_THE_FEDERATION + 2 * NEW_PARTIES)
    last = first + OF_THE_FEDERATION
    drill = Drill(home, iter(range(last, last + 2 * NEW_PARTIES, 2)))
    sites = "--clients hospital-a=400 --clients hospital-b=400"
    dictionary = f"--dictionary {HOSPITALS / 'dictionary.toml'}"
    home.parent.joinpath("federation").mkdir()
    made = drill.run(f"shoal quickstart ../new --first-port {first} {sites} {dictionary}")
    assert made.returncode == 0, made.stdout
    home.rmdir()
    home.with_name("new").rename(home)
    shutil.copy(HOSPITALS / "hospital-a.csv", home / "clients/hospital-a/records.csv")
    shutil.copy(HOSPITALS / "policy.toml", home / "clients/hospital-a")
    try:
        terminal = drill.up()
        drill._see(["hospital-a runs at", "Submit a job:"], lambda: terminal.said)
        yield drill
    finally:
        drill.close()


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drill]:
    """A federation on which procedures are done one after another."""
    with federation(tmp_path_factory.mktemp("handbook")) as drill:
        yield drill


def a_job_waits(drill: Drill) -> None:
    who = "--party parties/analyst --consortium consortium"
    task = (HOSPITALS / "blood-pressure.toml").read_text()
    for here, there in {  # 1300 slots are enrolled, but only 800 individuals have records
        "minimum = 700": "minimum = 900",
        "maximum = 800": "maximum = 1000",
        "colluders = 400": "colluders = 500",
        "join = 120": "join = 600",
    }.items():
        task = task.replace(here, there)
    drill.home.joinpath("task.toml").write_text(task)
    submitted = drill.run(f"shoal job submit {who} task.toml")
    assert submitted.returncode == 0, submitted.stdout


def nodes_sign_a_version(drill: Drill) -> None:
    changes = "--authority authority --minimum-cohort 26 --publish"
    changed = drill.run(f"shoal consortium change consortium {changes}")
    assert changed.returncode == 0, changed.stdout


def the_authority_is_where_it_was(drill: Drill) -> None:
    shutil.rmtree(drill.home / "authority")
    (drill.home / "authority-2").rename(drill.home / "authority")


Act = Callable[[Drill], None]
BEFORE: Final[dict[str, Act]] = {"A release is wrong": a_job_waits, "Restore": nodes_sign_a_version}
AFTER: Final[dict[str, Act]] = {
    "Move the authority": the_authority_is_where_it_was,
    "The key of the authority is lost": the_authority_is_where_it_was,
}


EMERGENCY: Final = "Too few nodes are left to sign"


def test_an_emergency_goes_as_the_page_says(tmp_path: Path) -> None:
    with federation(tmp_path) as drill:  # most of its nodes are lost, which no other one survives
        drill.do(EMERGENCY)


@pytest.mark.parametrize("heading", [each for each in procedures() if each != EMERGENCY])
def test_a_procedure_does_what_the_page_says_as_it_is_printed(heading: str, drill: Drill) -> None:
    BEFORE.get(heading, lambda _: None)(drill)
    drill.do(heading)
    AFTER.get(heading, lambda _: None)(drill)
