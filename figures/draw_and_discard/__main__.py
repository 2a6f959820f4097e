"""`make figures-draw-and-discard`: simulates, writes figures, pictures and notes, and checks them.

    python -m figures.draw_and_discard [--out build/figures] [--processes N]

Needs no data. Exits with 1 if a figure does not show what it must.
"""

import argparse
import os
import platform
import sys
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from figures.authors import key
from figures.draw_and_discard import checks, experiments, pictures
from figures.draw_and_discard.checks import EpsilonT
from figures.draw_and_discard.experiments import Accuracy, Discards, Size, Spread, Turn
from figures.draw_and_discard.later_noise import epsilon_t_table
from figures.report import Report

DELTA: Final = 1e-5
EPSILONS: Final = (1.0, 2.0, 4.0, 8.0)
ADDITIONS: Final = (10, 20, 30, 50, 100, 200, 300, 1000, 3000)


def as_json(
    spreads: dict[int, Spread],
    discards: dict[int, Discards],
    epsilon_t: EpsilonT,
    accuracies: list[Accuracy],
    turns: list[Turn],
) -> dict[str, Any]:
    """Return the file's content: numbers by k, epsilon, T and family."""
    rmse: dict[str, dict[str, dict[str, float]]] = {}
    for each in accuracies:
        by_epsilon = rmse.setdefault(each.family, {})
        by_epsilon.setdefault(key(each.epsilon), {})[str(each.instances)] = each.median
    return {
        "variance": {
            str(k): {"measured": each.measured, "formula": each.expected}
            for k, each in spreads.items()
        },
        "discarded": {
            str(k): {"measured": each.measured, "formula": each.expected}
            for k, each in discards.items()
        },
        "epsilon_T": {
            key(epsilon): {str(t): dict(each) for t, each in by_additions.items()}
            for epsilon, by_additions in epsilon_t.items()
        },
        "glm_rmse": rmse,
        "turn": [
            {"instances": each.instances, "learning_rate": each.learning_rate}
            | {str(n): error for n, error in zip(each.contributions, each.errors, strict=True)}
            for each in turns
        ],
    }


def run(report: Report, size: Size, *, processes: int) -> None:
    """Simulate, write and judge.

    Raises:
        OSError: a file cannot be written.
    """
    begun = time.monotonic()
    spreads, discards, accuracies, turns = experiments.run(size, processes=processes)
    epsilon_t = epsilon_t_table(EPSILONS, ADDITIONS, delta=DELTA)
    report.write("draw_and_discard.json", as_json(spreads, discards, epsilon_t, accuracies, turns))
    directory = report.directory
    pictures.draw_spread(spreads, directory / "draw_and_discard_variance.png")
    pictures.draw_discards(discards, directory / "draw_and_discard_discards.png")
    pictures.draw_epsilon_t(epsilon_t, directory / "draw_and_discard_epsilon_T.png")
    pictures.draw_accuracy(accuracies, directory / "draw_and_discard_rmse.png")
    pictures.draw_turns(turns, directory / "draw_and_discard_turn.png")
    report.console.print(_accuracies(accuracies))
    report.judge(checks.findings(spreads, discards, epsilon_t, accuracies, turns))
    report.write(
        "draw_and_discard_notes.json",
        {
            "size": asdict(size),
            "seed": experiments.SEED,
            "spread": {str(k): asdict(each) for k, each in spreads.items()},
            "discards": {str(k): asdict(each) for k, each in discards.items()},
            "accuracy": [asdict(each) for each in accuracies],
            "turns": [asdict(each) for each in turns],
            "versions": {"numpy": version("numpy"), "python": platform.python_version()},
            "machine": f"{platform.machine()}, {processes} processes",
            "seconds": round(time.monotonic() - begun, 1),
            "findings": [asdict(each) for each in report.findings],
        },
    )


def _accuracies(found: list[Accuracy]) -> Table:
    table = Table(title="Error of averaged coefficients, 200,000 contributions")
    for heading in ("family", "epsilon", "k", "median", "quartiles", "root mean square", "formula"):
        table.add_column(heading, justify="right")
    for each in found:
        table.add_row(
            each.family,
            key(each.epsilon),
            str(each.instances),
            f"{each.median:.3f}",
            "{:.3f} {:.3f}".format(*each.quartiles),
            f"{each.root_mean_square:.3f}",
            f"{each.formula:.3f}",
        )
    return table


def main() -> int:
    """Run all of it; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m figures.draw_and_discard", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/figures"))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    report = Report(arguments.out, Console())
    run(report, Size(), processes=arguments.processes)
    return report.conclude()


if __name__ == "__main__":
    sys.exit(main())
