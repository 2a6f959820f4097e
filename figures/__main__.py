"""`make figures`: runs the experiments, writes figures, pictures and notes, and checks them.

    python -m figures [--data DIRECTORY] [--out build/figures] [--processes N] [--splits 25]
        [figure2] [figure3] [efficiency] [services]

Exits with 1 if a figure does not show what it must, with 2 if its data cannot be had.
"""

import argparse
import os
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Final

from rich.console import Console

from figures import efficiency, figure2, figure3, notes, ours, pictures, services
from figures.authors import DELTA, key
from figures.checks import figure2_findings, figure3_findings
from figures.datasets import SPLITS, UCI_SETS, load_gdsc
from figures.report import Report
from figures.scores import mean_and_sd, quartiles
from figures.sources import UCI, DataUnavailable, Files

PARTS: Final = ("figure2", "figure3", "efficiency", "services")


def _figure2(files: Files, report: Report, processes: int, splits: int) -> None:
    said = notes.about_figure2()
    size = figure2.Size(splits=splits)
    for as_authors, suffix in ((True, ""), (False, "_correct_loading")):
        found = figure2.run(files, as_authors=as_authors, size=size, processes=processes)
        curves = {name: quartiles(each.scores) for name, each in found.items()}
        for name, each in curves.items():
            report.show(f"Median absolute error, {name}{suffix}", each, "median")
        report.write(f"figure2{suffix}.json", curves)
        lines = said if as_authors else [notes.CORRECT_LOADING, *said]
        pictures.draw_figure2(curves, report.directory / f"figure2{suffix}.png", lines)
        report.said[f"figure2{suffix}"] = {
            "error of predicting zero": {name: round(each.zero, 5) for name, each in found.items()},
            "thresholds searched, features and target": {
                name: {key(price): pairs for price, pairs in each.thresholds.items()}
                for name, each in found.items()
            },
            "said": lines,
            "services would run ours": _would_run(size.epsilons),
            "splits": size.splits,
            "draws of noise for each split": size.draws,
        }
        if as_authors:
            report.judge(figure2_findings({name: each.scores for name, each in found.items()}))
    report.said["files"] = {
        UCI[each.file].file: UCI[each.file].citation for each in UCI_SETS.values()
    }
    for line in said:
        report.console.print(line)


def _would_run(epsilons: tuple[float, ...]) -> dict[str, bool]:
    """Tell for each price whether red wine's job fits the services' rules, not the simulator's."""
    task, clients = ours.uci_task(11), UCI_SETS["red_wine"].train
    return {
        key(epsilon): ours.services_would_run(
            task, population=clients, epsilon=epsilon, delta=DELTA
        )
        for epsilon in epsilons
    }


def _figure3(files: Files, report: Report, processes: int, splits: int) -> None:
    data = load_gdsc(files)
    size = figure3.Size(splits=splits)
    found = figure3.run(data, size=size, processes=processes)
    curves = mean_and_sd(found.scores)
    report.show(f"Mean rank correlation, {len(found.drugs)} drugs", curves, "mean")
    report.write("figure3.json", {"gdsc": curves})
    said = notes.about_figure3(found, data)
    pictures.draw_figure3(curves, len(found.drugs), report.directory / "figure3.png", said)
    report.said["figure3"] = {
        "drugs": found.drugs,
        "left out": found.left_out,
        "cell lines": len(data.expression),
        "one direction for all drugs, not private": round(found.one_direction, 4),
        "thresholds searched, features and target": {
            key(price): pairs for price, pairs in found.thresholds.items()
        },
        "files": data.digests,
        "said": said,
        "splits": size.splits,
        "draws of noise for each split": size.draws,
    }
    report.judge(figure3_findings(found.scores, len(found.drugs)))
    for line in said:
        report.console.print(line)


def _efficiency(files: Files, report: Report, processes: int, splits: int) -> None:
    """Needs no data: records are simulated."""
    found = efficiency.run()
    curves = efficiency.medians(found)
    report.write("efficiency.json", curves)
    pictures.draw_efficiency(curves, report.directory / "efficiency.png")
    report.judge(efficiency.efficiency_findings(found))


def _services(files: Files, report: Report, processes: int, splits: int) -> None:
    """Run one point of each figure over real services, in a directory that is thrown away."""
    points = [services.red_wine(files), services.one_drug(load_gdsc(files))]
    with tempfile.TemporaryDirectory() as directory:
        written, findings = services.run(
            Path(directory) / "services", points, processes=processes, say=report.console.print
        )
    report.write("services.json", written)
    report.judge(findings)


def main() -> int:
    """Run what is asked for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m figures", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; or all")
    parser.add_argument("--data", type=Path, help="directory of the data files")
    parser.add_argument("--out", type=Path, default=Path("build/figures"))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--splits", type=int, default=SPLITS, help="fewer are quicker and rougher")
    arguments = parser.parse_args()
    parts = arguments.parts or PARTS
    if not set(parts) <= set(PARTS):
        parser.error(f"a part is one of {', '.join(PARTS)}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    console = Console()
    report = Report(arguments.out, console)
    files = Files(data=arguments.data, cache=arguments.out / "data")
    run = {
        "figure2": _figure2,
        "figure3": _figure3,
        "efficiency": _efficiency,
        "services": _services,
    }
    for part in parts:
        begun = time.monotonic()
        try:
            run[part](files, report, arguments.processes, arguments.splits)
        except DataUnavailable as error:
            console.print(f"{part}: {error}", style="red")
            return 2
        except RuntimeError as error:
            console.print(f"{part} failed: {error}", style="red")
            return 1
        report.seconds[part] = time.monotonic() - begun
    report.write(
        "notes.json",
        report.said
        | notes.circumstances(report.seconds, arguments.processes)
        | {"findings": [asdict(each) for each in report.findings]},
    )
    return report.conclude()


if __name__ == "__main__":
    sys.exit(main())
