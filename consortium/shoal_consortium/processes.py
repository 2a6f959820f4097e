"""A federation's services and agents as processes of one machine: starts, kills and ends them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from shoal_kit.probe import is_ready

START_SECONDS = 60.0
STOP_SECONDS = 10.0


@dataclass
class Process:
    """One service in a process of its own, its output in a file."""

    name: str
    module: str
    environment: Mapping[str, str]
    log: Path
    url: str = ""
    _running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, or start it again after a kill."""
        with self.log.open("ab") as output:
            self._running = subprocess.Popen(
                [sys.executable, "-m", self.module],
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches who started it, and that one ends it
            )

    @property
    def exit_status(self) -> int | None:
        """Return how it ended by itself, or None while it runs or was never started."""
        return None if self._running is None else self._running.poll()

    @property
    def is_over(self) -> bool:
        """Tell whether it was stopped, or never started."""
        return self._running is None

    def ending(self) -> str:
        """Say why it ended: its last line, or with which status if that is a line of its log."""
        lines = self.log.read_text(errors="replace").split("\n") if self.log.exists() else []
        words = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"with status {self.exit_status}" if words.startswith("{") else words

    def wait_until_ready(self) -> None:
        """Wait until it answers.

        Raises:
            RuntimeError: it ended, or did not answer in time.
        """
        deadline = time.monotonic() + START_SECONDS
        while not is_ready(self.environment):
            if self._running is None or self._running.poll() is not None:
                raise RuntimeError(
                    f"{self.name} ended while starting: {self.ending()} (see {self.log})"
                )
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} did not answer in time: see {self.log}")
            time.sleep(0.05)

    def kill(self) -> None:
        """End it with SIGKILL, as a power cut would."""
        self._end(signal.SIGKILL)

    @property
    def pid(self) -> int:
        """Return the id of the running process.

        Raises:
            RuntimeError: it does not run.
        """
        if self._running is None:
            raise RuntimeError(f"{self.name} does not run")
        return self._running.pid

    def ask_to_stop(self) -> None:
        """Send SIGTERM if it runs."""
        if self._running is not None:
            self._running.terminate()

    def stop(self) -> None:
        """Ask it to end; insist if it does not."""
        try:
            self._end(signal.SIGTERM)
        except subprocess.TimeoutExpired:
            self.kill()

    def _end(self, how: signal.Signals) -> None:
        if self._running is not None:
            self._running.send_signal(how)
            self._running.wait(STOP_SECONDS)
            self._running = None


@dataclass
class Federation:
    """All processes; leaving the context ends every one of them."""

    processes: dict[str, Process] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self.processes.values():
            process.ask_to_stop()  # all at once: one after another would take as long as their sum
        for process in self.processes.values():
            process.stop()

    def start(self, *processes: Process) -> None:
        """Start processes together and wait until all of them answer."""
        for process in processes:
            self.processes[process.name] = process
            process.start()
        for process in processes:
            process.wait_until_ready()

    def __getitem__(self, name: str) -> Process:
        return self.processes[name]
