"""`make audit`: plays the distinguishing game against the code and says what privacy costs.

    python -m audit [--quick] [--only crowd] [--output build/audit.json]

Exit status 1 if an honest round costs more than it claims, if the audit proves less than half of
an honest round's claim (then it would see nothing), or if a planted fault is not caught. Half must
be proved whatever the mechanism is; with --quick the bound for Gaussians is enough.
"""

import argparse
import json
import sys
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from audit import crowd_scenarios, scenarios
from audit.report import problems, summary, table
from audit.running import Outcome, processes, run
from audit.scenarios import Scenario

FAILURE = 1e-6  # of each adversary's bounds in each scenario


def plan(*, quick: bool) -> list[Scenario]:
    """Return what is played."""
    many, some, few = (100_000, 40_000, 40_000) if quick else (1_000_000, 300_000, 100_000)
    return [
        scenarios.honest(1.0, many),
        scenarios.honest(3.0, some),
        scenarios.honest_matrix(3.0, some),
        scenarios.honest_holders(3.0, some),
        scenarios.honest_laplace(1.0, few),
        scenarios.honest_laplace(3.0, few),
        scenarios.noise_divided_by_root_two(1.0, few),
        scenarios.classical_sigma(31.6, few),
        scenarios.missing_noise(1.0, few),
        scenarios.uncounted_holder(1.0, few),
        scenarios.missing_laplace_noise(1.0, few),
        scenarios.fresh_noise_on_retry(1.0, few),
        scenarios.sensitivity_of_values(1.0, few),
        crowd_scenarios.honest(1.0, few),
        crowd_scenarios.honest(4.0, few),
        crowd_scenarios.honest(3.0, few, variant="feature"),
        crowd_scenarios.honest(3.0, few, variant="all"),
        crowd_scenarios.half_the_noise(1.0, few),
        crowd_scenarios.half_the_noise(3.0, few, variant="feature"),
        crowd_scenarios.price_of_one_weight(3.0, few),
        crowd_scenarios.noise_for_one_weight(3.0, few),
    ]


def play_all(planned: list[Scenario], console: Console) -> list[Outcome]:
    """Play scenarios one after another, and show how far it is."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    outcomes = []
    with processes() as pool, Progress(*columns, console=console) as progress:
        for scenario in planned:
            task = progress.add_task(scenario.name, total=2 * scenario.runs)
            advance = partial(progress.advance, task)
            outcomes.append(run(scenario, pool, failure=FAILURE, advance=advance))
            if not console.is_terminal:  # there bars are shown at the end only
                console.print(f"played: {scenario.name}")
    return outcomes


def main(arguments: list[str] | None = None) -> int:
    """Run the audit; return the process's exit status."""
    parser = argparse.ArgumentParser(prog="python -m audit", description="measure privacy")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="fewer runs: too few for the bound for any mechanism to show half of a claim",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("build/audit.json"),
        help="where to write all figures, as JSON (default: build/audit.json)",
    )
    parser.add_argument(
        "--only", default="", metavar="WORD", help="play what has this word in its name"
    )
    options = parser.parse_args(arguments)
    planned = [each for each in plan(quick=options.quick) if options.only in each.name]
    if not planned:
        parser.error("nothing that is played has this word in its name")
    outcomes = play_all(planned, Console(stderr=True))
    print(f"Lower bounds on epsilon, each too high with a probability of {FAILURE:.0e} at most:\n")
    print(table(outcomes))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(
        json.dumps(summary(outcomes, failure=FAILURE, quick=options.quick), indent=2) + "\n"
    )
    print(f"\nwritten: {options.output}")
    found = problems(outcomes, quick=options.quick)
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
