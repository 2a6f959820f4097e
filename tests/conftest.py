"""What all tests share: the same examples in each run, three tiers, no verdict by the clock."""

import gc
import os
import shutil
import sys
from collections import Counter
from collections.abc import Generator
from typing import Any, Final

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from tests import sampling
from tests.world import published

pytest_plugins = ["tests.world.databases"]  # one server of PostgreSQL, not one for each module

settings.register_profile("the same every time", derandomize=True, deadline=None)
settings.load_profile("the same every time")
published.watch()

# Two of httpx's transports look for this package at each request, which takes a walk along the
# whole path where it is not installed; this says at once that it is not.
sys.modules.setdefault("sniffio", None)  # type: ignore[arg-type]


# Where workers share the tests, each of these groups is for one of them.
GROUPS = {
    "tests/containers/": "containers",
    # One worker compiles models, and holds the half gibibyte that this takes.
    "tests/studies/test_numpyro_learning.py": "compiled models",
    "tests/protocol/test_numpyro_models.py": "compiled models",
    "tests/federation/test_numpyro_job.py": "compiled models",
    "tests/kit/test_installed_models.py": "compiled models",
}
# All tests of a file here are for one worker: they share processes, or tell one story in order.
WHOLE_FILES = "tests/end_to_end/"

# What starts processes or servers, and whole jobs of one service or of all: `make test` leaves most
# of them to `make test-all`. Other tests that take more than a second say so themselves.
SLOW_PATHS = (
    "tests/containers/",
    "tests/end_to_end/",
    *sampling.SCENARIOS,
    "tests/redteam/",
    "tests/client/test_crowd_analyst.py",
    "tests/client/test_crowd_lies.py",
    "tests/client/test_crowds.py",
    "tests/compute/test_rounds.py",
    "tests/test_hostile_answers.py",
    "tests/trainer/test_crowds.py",
    "tests/trainer/test_jobs.py",
    "tests/trainer/test_partial_sums.py",
)
# A test that is not marked slow takes a second at most on an idle core. One that takes more than
# this is named at the end, and fails nothing: how fast the machine is says nothing of the code.
MOST_SECONDS = 4.0

MAKE_TEST: Final = "not rest and not exhaustive"  # what `make test` asks pytest for
COVERS: Final = """\
make test runs each rule of each room, some forty scenarios of a whole federation in one process,
and ten of real processes. Of a test with many cases it runs eight, spread evenly."""
ADDS: Final = """\
make test-all adds the other cases, the other scenarios of a whole federation (crashes at each
step, lost and late messages, parties that lie, clocks, replicas), the procedures of the handbook
and drills by real processes, and containers where there is an engine. make exhaustive goes through
every case of enumerations of which these take samples."""


def pytest_xdist_auto_num_workers() -> int:
    """Have one worker more than processors: two groups wait for clocks more than they compute."""
    return (os.cpu_count() or 1) + 1


class Scheduling(LoadScopeScheduling):
    """Gives a worker one test at a time, but a whole group where there is one.

    The plugin's own groups write the name of the group into the test's id, which this version of
    pytest does not allow: they have no effect.
    """

    def _split_scope(self, nodeid: str) -> str:
        for start, group in GROUPS.items():
            if nodeid.startswith(start):
                return group
        return nodeid.split("::")[0] if nodeid.startswith(WHOLE_FILES) else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    """Share out the tests by groups."""
    return Scheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    sampling.mark_the_others(items)
    for item in items:
        if item.nodeid.startswith(SLOW_PATHS) or _needs_postgresql(item):
            item.add_marker(pytest.mark.slow)
    sampling.mark_the_rest(items)
    if shutil.which("docker") is None:
        for item in items:
            if item.get_closest_marker("docker"):
                item.add_marker(pytest.mark.skip(reason="there is no container engine here"))


def pytest_collection_finish() -> None:
    """Have the collector of garbage pass over what stays until the end: some million objects."""
    gc.collect()
    gc.freeze()


def _needs_postgresql(item: pytest.Item) -> bool:
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return "postgresql" in getattr(item, "fixturenames", ()) or any(
        isinstance(each, str) and each == "postgresql" for each in parameters
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Fail a test that got an answer nobody declared, and note one that is slow and not marked."""
    before = _processor_seconds()
    published.UNDECLARED.clear()
    yield
    assert not published.UNDECLARED, sorted(set(published.UNDECLARED))
    taken = _processor_seconds() - before
    if taken > MOST_SECONDS and item.get_closest_marker("slow") is None:
        item.user_properties.append(("unmarked slow seconds", taken))


def pytest_report_header(config: pytest.Config) -> str | None:
    return COVERS if config.option.markexpr == MAKE_TEST else None


LEFT: Counter[str] = Counter()  # tests by room that this run leaves to `make test-all`


def pytest_deselected(items: list[pytest.Item]) -> None:
    LEFT.update(_room(item.nodeid) for item in items if item.get_closest_marker("rest"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left"] = dict(LEFT)


def pytest_testnodedown(node: Any) -> None:
    """Take over what a worker left out: all of them collect the same."""
    LEFT.update(getattr(node, "workeroutput", {}).get("left", {}) if not LEFT else {})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what was run room by room, and name the tests that should be marked slow."""
    passed = [each for each in terminalreporter.getreports("passed") if each.when == "call"]
    slow = [
        (taken, report.nodeid)
        for report in passed
        for name, taken in report.user_properties
        if name == "unmarked slow seconds"
    ]
    if slow:
        terminalreporter.section("not marked slow, and are")
        for taken, name in sorted(slow, reverse=True):
            terminalreporter.line(f"{taken:5.1f} s of processor time: {name}")
    if terminalreporter.config.option.markexpr == MAKE_TEST:
        terminalreporter.section("passed, by room, and left to make test-all")
        tests = Counter(_room(each.nodeid) for each in passed)
        for room in sorted(tests | LEFT):
            terminalreporter.line(f"{tests[room]:6d} {LEFT[room]:6d}  {room}")
        terminalreporter.line(ADDS)


def _room(nodeid: str) -> str:
    """Return the folder below `tests`, or the file there, that a test is in."""
    return nodeid.split("::")[0].split("/")[1]


def _processor_seconds() -> float:
    """Return what this process and its ended children have used."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system
