"""Explores the rounds that are too large for the tests, and prints what it finds.

`python -m tests.scenarios.model` runs all, `python -m tests.scenarios.model M=3` those with "M=3".
"""

import sys
import time

from tests.scenarios.model.configurations import LARGE, LIMITS, PLANTED, SMALL, Configuration
from tests.scenarios.model.machine import Machine
from tests.scenarios.model.search import Found, Search


def main(wanted: list[str]) -> int:
    """Explore, print a row for each round, and return how many are not as expected."""
    surprises = 0
    print("| round | states | steps | decisions | seconds | broken |\n|---|---|---|---|---|---|")
    for configuration in [*SMALL, *LARGE, *LIMITS, *PLANTED]:
        if all(word in str(configuration) for word in wanted):
            surprises += not _explored(configuration)
    return surprises


def _explored(configuration: Configuration) -> bool:
    began = time.perf_counter()
    search = Search(Machine(configuration.world, configuration.fault))
    expected = configuration.breaks
    found = search.run(
        stop=lambda so_far: bool(expected) and expected <= so_far.broken.keys(),
        progress=lambda states: print(f"  {states:,} …", file=sys.stderr),
    )
    seconds = time.perf_counter() - began
    broken = "; ".join(sorted(found.broken)) or "none"
    print(
        f"| {configuration} | {found.states:,} | {found.steps:,} "
        f"| {configuration.world.decisions:,} | {seconds:.0f} | {broken} |",
        flush=True,
    )
    _explain(search, found)
    return found.broken.keys() == expected


def _explain(search: Search, found: Found) -> None:
    for name, key in found.broken.items():
        print(f"\n{name}:")
        for action, _ in search.path(key):
            print(f"- {action}")
        print(flush=True)


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
