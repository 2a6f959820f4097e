"""Counts the code of each room and compares it with budgets.toml: no room may grow.

python -m tests.budgets            prints the way to go; fails where a room is above its budget
python -m tests.budgets --lower    writes the present numbers where they are below their budget

A statement is one of Python's, however many lines it takes; imports and docstrings are none.
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from bench import reading

ROOT: Final = Path(__file__).parents[1]
BUDGETS: Final = ROOT / "budgets.toml"
VAULT: Final = "the vault"  # the room that is no folder: the modules that docs/reading.md lists
PRODUCT: Final = (
    *(
        "protocol",
        "studies",
        "services/client",
        "services/kit",
        "services/service",
        "services/compute",
    ),
    *("services/aggregator", "services/trainer", "analysis", "consortium", "command"),
)
ROOMS: Final = (*PRODUCT, VAULT, "redteam", "bench", "tests")


class Size(NamedTuple):
    """How much code there is."""

    statements: int
    files: int

    def __str__(self) -> str:
        return f"{self.statements:,} statements in {self.files} files"


class Budget(NamedTuple):
    """How much code a room may have at present, and how much it is to have."""

    now: Size
    goal: Size


def size_of(files: Iterable[Path]) -> Size:
    """Return the size of these modules."""
    counts = [reading.statements(file.read_text()) for file in files]
    return Size(sum(counts), len(counts))


def files_of(room: str) -> list[Path]:
    """Return the modules of a room."""
    if room != VAULT:
        return [file for file in (ROOT / room).rglob("*.py") if ".venv" not in file.parts]
    listed = [*reading.parts().values(), *reading.on_demand().values()]
    return [reading.file_of(module) for module in {name for names in listed for name in names}]


def read(text: str) -> dict[str, Budget]:
    """Return the budget of each room in the text of budgets.toml.

    Raises:
        ValueError: the rooms are not those that are counted.
    """
    tables = tomllib.loads(text)
    if sorted(tables) != sorted(ROOMS):
        raise ValueError(f"budgets.toml must have exactly the rooms {', '.join(ROOMS)}")
    return {
        room: Budget(Size(**tables[room]["now"]), Size(**tables[room]["goal"])) for room in ROOMS
    }


def growths(budgets: Mapping[str, Budget], sizes: Mapping[str, Size]) -> list[str]:
    """Return a sentence for each room that has more code than its budget."""
    return [
        f"{room} has {sizes[room]}, more than its budget of {budget.now}: take code out, or raise "
        "the budget and say why in a comment there"
        for room, budget in budgets.items()
        if sizes[room].statements > budget.now.statements or sizes[room].files > budget.now.files
    ]


def lowered(text: str, sizes: Mapping[str, Size]) -> str:
    """Return the text of budgets.toml with the present size of every room that is smaller now."""
    for room, budget in read(text).items():
        least = Size(*map(min, budget.now, sizes[room]))
        line = f"now = {{ statements = {least.statements}, files = {least.files} }}"
        header = re.escape(f'["{room}"]')
        text = re.sub(rf"({header}\n(?:#.*\n)*)now = .*", rf"\g<1>{line}", text)
    return text


def main() -> None:
    """Print the rooms, and fail if one of them has grown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lower", action="store_true", help="write what is smaller now")
    asked = parser.parse_args()
    sizes = {room: size_of(files_of(room)) for room in ROOMS}
    if asked.lower:
        BUDGETS.write_text(lowered(BUDGETS.read_text(), sizes))
    budgets = read(BUDGETS.read_text())
    print(f"{'':20}statements budget  to go   files budget  to go")
    for room, budget in budgets.items():
        _print_row(room, sizes[room], budget)
    _print_row(
        "the product",
        _sum(sizes[room] for room in PRODUCT),
        Budget(
            _sum(budgets[room].now for room in PRODUCT),
            _sum(budgets[room].goal for room in PRODUCT),
        ),
    )
    smaller = [room for room, budget in budgets.items() if is_smaller(budget.now, sizes[room])]
    if smaller:
        print(f"Smaller than budgeted: {', '.join(smaller)}. Run python -m tests.budgets --lower")
    if sentences := growths(budgets, sizes):
        sys.exit("\n".join(sentences))


def is_smaller(budget: Size, size: Size) -> bool:
    """Tell whether a budget can be lowered to a size, in statements or in files."""
    return size.statements < budget.statements or size.files < budget.files


def _sum(sizes: Iterable[Size]) -> Size:
    return Size(*map(sum, zip(*sizes, strict=True)))


def _print_row(room: str, size: Size, budget: Budget) -> None:
    numbers = (
        f"{count:{width},} {most:6,} {max(0, count - goal):6,}"
        for width, count, most, goal in zip((9, 7), size, budget.now, budget.goal, strict=True)
    )
    print(f"{room:20}", *numbers)


if __name__ == "__main__":
    main()
