"""`shoal up`: a whole federation in one terminal, from its start to Ctrl-C."""

import os
import re
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.end_to_end.conftest import first_free_port
from tests.world.consoles import HOSTILE_NAME, console

pytestmark = pytest.mark.slow

HOSPITALS = Path(__file__).parents[2] / "examples" / "hospitals"
SHOAL = (sys.executable, "-m", "shoal_command")
PATIENCE = 60.0


class Terminal:
    """A running `shoal up`, as its user sees it."""

    def __init__(self, home: Path, *options: str, said: Path | None = None) -> None:
        self._said = said or home.with_suffix(".terminal")
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                [*SHOAL, "up", str(home), *options],
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        return self._said.read_text()

    def wait_for(self, words: str, *, times: int = 1) -> None:
        deadline = time.monotonic() + PATIENCE
        while self.said.count(words) < times:
            assert self.process.poll() is None and time.monotonic() < deadline, self.said
            time.sleep(0.05)

    def stop(self) -> int:
        """Press Ctrl-C: whoever shares the terminal gets the signal."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(PATIENCE)


@contextmanager
def up(home: Path, *options: str) -> Iterator[Terminal]:
    terminal = Terminal(home, *options)
    try:
        yield terminal
    finally:
        if terminal.process.poll() is None:
            terminal.stop()


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / HOSTILE_NAME
    command = [*SHOAL, "quickstart", str(home), "--first-port", str(first_free_port())]
    sites = [f"--clients={name}=400" for name in ("hospital-a", "hospital-b")]
    subprocess.run([*command, *sites], check=True, capture_output=True)
    return home


@pytest.mark.essential
def test_a_federation_starts_its_agents_once_their_files_are_there_and_ends_at_ctrl_c(
    home: Path,
) -> None:
    with up(home) as terminal:
        terminal.wait_for("hospital-b waits for policy.toml and records")
        assert "5 services run" in terminal.said
        for command in ("shoal console ", "shoal job submit --wait "):
            words = shlex.split(terminal.said.split(command)[1].splitlines()[0])
            assert words[:4] == [
                *("--party", f"{home}/parties/analyst"),
                *("--consortium", f"{home}/consortium"),
            ]
        url = re.search(r"https://127\.0\.0\.1:\d+/console", terminal.said)
        assert url is not None
        context = ssl._create_unverified_context()
        with urllib.request.urlopen(url[0], context=context) as answer:
            assert answer.url == f"{url[0]}/sign-in"
        secret = terminal.said.split("by the token in ")[1].split(":\n")[0]
        assert len(Path(secret.replace("NAME", "trainer")).read_text()) == 65
        for name in ("hospital-a", "hospital-b"):
            site = home / "clients" / name
            shutil.copy(HOSPITALS / f"{name}.csv", site / "records.csv")
            shutil.copy(HOSPITALS / "policy.toml", site)
            terminal.wait_for(f"{name} runs at https://127.0.0.1:")
        said = terminal.said.split("shoal agent console ")[1].splitlines()[0]
        with console(*shlex.split(said), command=("agent", "console")) as (browser, token, _):
            browser.post("/console/sign-in", data={"token": token})
            assert "400 slots" in browser.get("/console/policy", timeout=30).text
        running = children_of(terminal.process.pid)
        assert len(running) == 7
        assert terminal.stop() == 0
        assert terminal.said.endswith("All processes have ended.\n")
        assert not [pid for pid in running if Path(f"/proc/{pid}").exists()]


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", context=ssl._create_unverified_context()):
            return True
    except OSError:
        return False


def test_a_service_that_ends_stays_stopped_until_it_is_started_again_and_the_others_go_on(
    home: Path,
) -> None:
    with up(home) as terminal:
        terminal.wait_for("Submit a job")
        shown = re.findall(r"  (\S+)  (https://\S+)/console  process (\d+)\n", terminal.said)
        urls = {name: url for name, url, _ in shown}
        running = {name: int(process) for name, _, process in shown}
        assert set(running.values()) == set(children_of(terminal.process.pid))
        os.kill(running["compute-0"], signal.SIGKILL)
        terminal.wait_for("compute-0 ended: ")
        again = shlex.join(["shoal", "up", str(home), "--only", "compute-0"]) + "\n"
        assert terminal.said.count(again) == 1
        assert {name for name, url in urls.items() if is_ready(url)} == urls.keys() - {"compute-0"}
        beside = Terminal(home, "--only", "compute-0", said=home.with_suffix(".beside"))
        beside.wait_for("1 service runs")
        assert all(map(is_ready, urls.values()))
        assert beside.stop() == 0
        assert {name for name, url in urls.items() if is_ready(url)} == urls.keys() - {"compute-0"}
        assert terminal.said.count("compute-0 ended: ") == 1
        assert terminal.stop() == 0
        assert not [pid for pid in running.values() if Path(f"/proc/{pid}").exists()]
