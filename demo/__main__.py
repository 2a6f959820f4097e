"""`make demo`: real processes learn from real patients, and lose some of both on the way."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from rich.console import Console

from demo.diabetes import load
from demo.report import Summary
from demo.scenario import (
    CERTIFICATE,
    CLINIC_PATIENTS,
    COMPUTE_NODES,
    MANIFEST,
    Scenario,
)
from shoal_command.terminal import shell_command
from shoal_consortium.processes import Federation

DIRECTORY: Final = Path("build/demo")
PAGE: Final = "certificate.html"


def main() -> int:
    """Play the scenario, show and keep what came of it. Return the process's exit status."""
    console = Console(highlight=False, soft_wrap=True)
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    DIRECTORY.mkdir(parents=True)
    data = load()
    with console.status("preparing …") as status:

        def say(turn: str) -> None:
            console.print(f"• {turn}")
            status.update("working …")

        scenario = Scenario(DIRECTORY.resolve(), data, say)
        try:
            with Federation() as federation:
                outcome = scenario.run(federation)
        except RuntimeError as error:
            console.print(f"the demo failed: {error}", style="red")
            return 1
    summary = Summary.of(
        data,
        outcome.report,
        compute_nodes=COMPUTE_NODES,
        dropped_clients=CLINIC_PATIENTS,
        timings=outcome.timings,
    )
    summary.write(DIRECTORY / "summary.json")
    summary.draw(DIRECTORY / "posterior.png")
    console.print("", *summary.lines(), sep="\n", markup=False)
    status_of_certificate = _verify(console)
    console.print(f"Picture and figures: {DIRECTORY}/posterior.png, {DIRECTORY}/summary.json")
    return status_of_certificate


def _verify(console: Console) -> int:
    """Check the release certificate as any sceptic would; return the command's exit status."""
    files = [str(DIRECTORY / CERTIFICATE), "--manifest", str(DIRECTORY / MANIFEST)]
    page = ["certificate", "page", *files, "--out", str(DIRECTORY / PAGE)]
    subprocess.run([sys.executable, "-m", "shoal_command", *page], check=False, capture_output=True)
    command = [sys.executable, "-m", "shoal_command", "certificate", "verify", *files]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    shoal = os.path.relpath(Path(sys.executable).with_name("shoal"))
    verdict = "holds" if done.returncode == 0 else f"DOES NOT HOLD: {done.stderr.strip()}"
    console.print(f"The certificate as a page to read: {DIRECTORY / PAGE}")
    again = shell_command(shoal, "certificate", "verify", *files)
    console.print(f"Certificate {verdict} ($ {again})")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
