"""`make demo`: real processes learn from real patients, and lose some of both on the way."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from demo.diabetes import load
from demo.federation import Federation
from demo.report import Fit, Summary, draw, mean_absolute_error, show
from demo.scenario import (
    CERTIFICATE,
    CLINIC_PATIENTS,
    COMPUTE_NODES,
    MANIFEST,
    Outcome,
    Scenario,
)
from shoal_protocol.posteriors import LinearRegressionPosterior

DIRECTORY = Path("build/demo")


def main() -> int:
    """Play the scenario, show and keep what came of it. Return the process's exit status."""
    console = Console()
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
    _finish(console, scenario.clients, outcome)
    return _verify(console)


def _finish(console: Console, clients: int, outcome: Outcome) -> None:
    data, report = load(), outcome.report
    rows, truth = data.training[:, :-1], data.training[:, -1]
    fit = Fit.of(rows, truth)
    unseen, unseen_truth = data.held_out[:, :-1], data.held_out[:, -1]
    if not isinstance(report.posterior, LinearRegressionPosterior):
        raise TypeError("the demonstration learns a linear regression")
    prediction, _ = report.posterior.predict(unseen)
    summary = Summary(
        clients=clients,
        compute_nodes=COMPUTE_NODES,
        dropped_clients=CLINIC_PATIENTS,
        cohort_size=report.cohort_sizes[-1],
        epsilon=report.privacy.epsilon,
        delta=report.privacy.delta,
        mae_private=mean_absolute_error(prediction, unseen_truth),
        mae_nonprivate=mean_absolute_error(fit.predict(unseen), unseen_truth),
        mae_trivial=mean_absolute_error(truth.mean(keepdims=True), unseen_truth),
        seconds=round(sum(outcome.timings.values()), 1),
    )
    posterior = report.posterior
    if not isinstance(posterior, LinearRegressionPosterior):
        raise TypeError("the demonstration's job is a linear regression")
    show(console, posterior, fit, summary, outcome.timings)
    summary.write(DIRECTORY / "summary.json")
    draw(posterior, fit, DIRECTORY / "posterior.png")
    console.print(f"written: {DIRECTORY}/summary.json, {DIRECTORY}/posterior.png")


def _verify(console: Console) -> int:
    """Check the release certificate as any sceptic would; return the command's exit status."""
    files = [str(DIRECTORY / CERTIFICATE), "--manifest", str(DIRECTORY / MANIFEST)]
    shoal = os.path.relpath(Path(sys.executable).with_name("shoal"))
    told = f"\n$ {shoal} certificate verify {' '.join(files)}"
    console.print(told, style="bold", highlight=False)
    command = [sys.executable, "-m", "shoal_client", "certificate", "verify", *files]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
