"""Prints how much a data holder's agent loads of the wheel, by the parts of docs/reading.md.

python -m bench.reading
"""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[1] / "docs/reading.md"
AGENT: Final = "shoal_client.agent.__main__"
WHEEL: Final = ("shoal_protocol", "shoal_client", "shoal_hosting")


def loaded_by(module: str) -> set[str]:
    """Return which modules of ours a fresh interpreter has once it imported `module`."""
    program = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return {name for name in json.loads(done.stdout) if name.startswith("shoal_")}


def parts() -> dict[str, list[str]]:
    """Return the modules that the page lists, by the title of their part, in order."""
    _, *pieces = re.split(r"^## (.+)$", PAGE.read_text(), flags=re.MULTILINE)
    listed = dict(zip(pieces[::2], pieces[1::2], strict=True))
    modules = {title: re.findall(r"`(shoal_[\w.]+)`", text) for title, text in listed.items()}
    return {title: names for title, names in modules.items() if names}


def lines_of(module: str) -> int:
    """Return how many lines a module has, documentation and blank lines included.

    Raises:
        ValueError: there is no such module.
    """
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ValueError(f"there is no module {module}: mend the page's list")
    return len(Path(spec.origin).read_text().splitlines())


def lines_of_wheel() -> int:
    """Return how many lines the wheel's three packages have."""
    specs = [find_spec(package) for package in WHEEL]
    roots = [Path(spec.origin).parent for spec in specs if spec is not None and spec.origin]
    return sum(len(path.read_text().splitlines()) for root in roots for path in root.rglob("*.py"))


def main() -> None:
    """Print lines and modules of each part, of the whole, and of the wheel."""
    read = 0
    for title, names in parts().items():
        lines = sum(map(lines_of, names))
        read += lines
        print(f"{lines:7,} lines in {len(names):3} modules  {title}")
    print(f"{read:7,} lines are loaded by an agent, of {lines_of_wheel():,} in the wheel")


if __name__ == "__main__":
    main()
