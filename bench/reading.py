"""Prints how much a data holder's vault loads of the wheel, by the parts of docs/reading.md.

python -m bench.reading
"""

import itertools
import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[1] / "docs/reading.md"
AGENT: Final = "shoal_agent.__main__"
WHEEL: Final = ("shoal_protocol", "shoal_holder", "shoal_agent", "shoal_kit")


def loaded_by(*modules: str) -> set[str]:
    """Return which modules of ours a fresh interpreter has once it imported `modules`."""
    program = f"import json, sys, {', '.join(modules)}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return {name for name in json.loads(done.stdout) if name.startswith("shoal_")}


def of_the_vault() -> list[str]:
    """Return every module of the vault's package; what is below one of its rooms is not loaded."""
    spec = find_spec("shoal_holder")
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    names = sorted(path.stem for place in places for path in Path(place).glob("*.py"))
    return [f"shoal_holder.{name}" for name in names if not name.startswith("__")]


def parts() -> dict[str, list[str]]:
    """Return the modules that the page lists, by the title of their part, in order."""
    listed = _texts()
    modules = {title: re.findall(r"`(shoal_[\w.]+)`", text) for title, text in listed.items()}
    return {title: names for title, names in modules.items() if names}


def on_demand() -> dict[str, list[str]]:
    """Return the modules that only some owners' rules load, by the title of their part."""
    return {
        title: [f"{package}.{name}" for package, names in found for name in names.split()]
        for title, text in _texts().items()
        if (found := re.findall(r"^    (shoal_[\w.]+): (.+(?:\n      .+)*)", text, re.MULTILINE))
    }


def _texts() -> dict[str, str]:
    """Return what stands under each title of the page."""
    _, *pieces = re.split(r"^## (.+)$", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(pieces[::2], pieces[1::2], strict=True))


def file_of(module: str) -> Path:
    """Return the file of a module.

    Raises:
        ValueError: there is no such module.
    """
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ValueError(f"there is no module {module}: mend the page's list")
    return Path(spec.origin)


def lines_of(module: str) -> int:
    """Return how many lines a module has, documentation and blank lines included."""
    return len(file_of(module).read_text().splitlines())


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
    print(f"{read:7,} lines are loaded by a vault, of {lines_of_wheel():,} in the wheel")
    courier = loaded_by(AGENT) - set(itertools.chain(*parts().values()))
    print(
        f"{sum(map(lines_of, courier)):7,} lines in {len(courier):3} modules by its courier alone"
    )
    for title, names in on_demand().items():
        print(f"{sum(map(lines_of, names)):7,} lines more in {len(names):2} modules  {title}")


if __name__ == "__main__":
    main()
