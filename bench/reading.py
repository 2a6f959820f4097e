"""Prints how much a data holder's vault loads of the wheel, by the parts of docs/reading.md.

python -m bench.reading

Modules that are imported within functions count, too. A statement is one of Python's, however many
lines it takes; imports and docstrings are none.
"""

import ast
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[1] / "docs/reading.md"
AGENT: Final = "shoal_agent.__main__"
LINES_IN_AN_HOUR: Final = 400  # as a careful reader manages


def loaded_by(*modules: str) -> set[str]:
    """Return which modules of ours a fresh interpreter has once it imported `modules`."""
    program = f"import json, sys, {', '.join(modules)}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return {name for name in json.loads(done.stdout) if name.startswith("shoal_")}


def of_the_vault() -> list[str]:
    """Return every module of the vault's package, without those of packages within it."""
    spec = find_spec("shoal_holder")
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    names = sorted(path.stem for place in places for path in Path(place).glob("*.py"))
    return [f"shoal_holder.{name}" for name in names if name != "__init__"]


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


def statements(source: str) -> int:
    """Return how many statements a module has."""
    return sum(
        isinstance(node, ast.stmt)
        and not isinstance(node, ast.Import | ast.ImportFrom)
        and not _is_text(node)
        for node in ast.walk(ast.parse(source))
    )


def _is_text(node: ast.stmt) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def size_of(modules: Iterable[str]) -> str:
    """Return how much these modules are, in words."""
    texts = [file_of(module).read_text() for module in modules]
    lines = sum(len(text.splitlines()) for text in texts)
    return (
        f"{sum(map(statements, texts)):6,} statements, {lines:6,} lines, {len(texts):3} modules, "
        f"{lines / LINES_IN_AN_HOUR:4.0f} hours"
    )


def main() -> None:
    """Print the size of each part, of the whole, and of what the agent loads besides."""
    listed, sometimes = parts(), on_demand()
    for title, names in (listed | sometimes).items():
        print(f"{size_of(names)}  {title}")
    always = list(itertools.chain(*listed.values()))
    print(f"{size_of(always)}  Always")
    print(f"{size_of([*always, *itertools.chain(*sometimes.values())])}  Whatever the rules allow")
    print(f"{size_of(loaded_by(AGENT) - set(always))}  The courier besides")


if __name__ == "__main__":
    main()
