"""How well regressions do in at most five rounds of everybody, on real columns, by simulation.

    python -m bench.five_rounds [--data DIR] [--repeats 40] [--json FILE]

What it prints is told in `bench.five_rounds.measuring`. `DIR` has UCI's files, as `make figures`
takes them.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from bench.five_rounds.measuring import measured, shown


def main() -> None:
    """Print a line for each setting, and write all figures where `--json` says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    figures: dict[str, list[dict[str, Any]]] = {}
    for part, row in measured(arguments.data, arguments.repeats):
        figures.setdefault(part, []).append(row)
        print(shown(row), flush=True)
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
