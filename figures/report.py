"""Collects what a run of the figures writes, prints and finds."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from figures import pictures
from figures.checks import Finding


class Report:
    """What is written beside the figures, collected part by part."""

    def __init__(self, directory: Path, console: Console) -> None:
        """Write into `directory`."""
        self.directory = directory
        self.console = console
        self.said: dict[str, Any] = {}
        self.findings: list[Finding] = []
        self.seconds: dict[str, float] = {}

    def write(self, name: str, content: Any) -> None:
        """Write one file as JSON."""
        path = self.directory / name
        path.write_text(json.dumps(content, indent=1) + "\n")
        self.console.print(f"written: {path}")

    def judge(self, findings: list[Finding]) -> None:
        """Print each rule and whether it holds, and remember."""
        table = Table(title="What the figures must show", show_lines=False)
        for heading in ("rule", "holds", "found"):
            table.add_column(heading)
        for each in findings:
            verdict = "yes" if each.holds else "NO"
            table.add_row(each.rule, verdict, each.detail, style=None if each.holds else "red")
        self.console.print(table)
        self.findings += findings

    def show(self, title: str, curves: dict[str, dict[str, dict[str, float]]], what: str) -> None:
        """Print one number for each method and price."""
        table = Table(title=title)
        table.add_column("epsilon")
        for price in curves["ours"]:
            table.add_column(price, justify="right")
        for method, points in curves.items():
            label = pictures.STYLES[method][0]
            table.add_row(label, *(f"{each[what]:.3f}" for each in points.values()))
        self.console.print(table)

    def conclude(self) -> int:
        """Print how many rules hold; return the exit status, 1 if one does not."""
        failed = [each for each in self.findings if not each.holds]
        self.console.print(f"{len(self.findings) - len(failed)} rules hold, {len(failed)} do not")
        return 1 if failed else 0
