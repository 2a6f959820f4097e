"""What is installed where: locks are complete and agree; services and demo need what they say."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCKS = ("dev", "build", "services", "trainer", "dask", "client", "analyst", "numpyro")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ANALYSIS = tomllib.loads((ROOT / "analysis/pyproject.toml").read_text())


def group(name: str) -> list[str]:
    """Return the requirements of a dependency group, with those of the groups that it includes."""
    whole: list[str] = []
    for each in PROJECT["dependency-groups"][name]:
        whole += [each] if isinstance(each, str) else group(each["include-group"])
    return whole


def entries(lock: str) -> list[str]:
    """Return each requirement of a lock with its hashes, on one line."""
    text = (ROOT / f"requirements/{lock}.lock").read_text().replace("\\\n", " ")
    return [line for line in text.splitlines() if line.strip()]


def pins(lock: str) -> dict[str, str]:
    return {
        requirement.name: str(requirement.specifier)
        for requirement in (Requirement(line.split(" --hash=")[0]) for line in entries(lock))
    }


def needs(requirement: str, seen: set[str]) -> None:
    """Add to `seen` the installed distributions that `requirement` brings, at any depth."""
    parsed = Requirement(requirement)
    name = canonicalize_name(parsed.name)
    if parsed.marker is not None and not parsed.marker.evaluate({"extra": ""}):
        return
    if name in seen:
        return
    seen.add(name)
    try:
        inner = requires(name) or []
    except PackageNotFoundError:
        return
    for each in inner:
        needs(each, seen)


def distributions(requirements: list[str]) -> set[str]:
    seen: set[str] = set()
    for requirement in requirements:
        needs(requirement, seen)
    return seen


@pytest.mark.parametrize("lock", LOCKS)
def test_every_entry_of_a_lock_is_one_version_with_its_hashes(lock: str) -> None:
    for entry in entries(lock):
        assert re.match(r"^[a-z0-9._-]+==[^ ;]+ ", entry), entry[:60]
        assert re.search(r"--hash=sha256:[0-9a-f]{64}( |$)", entry), entry[:60]


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_host(lock: str) -> None:
    assert re.search(r"://|index-url|find-links|trusted-host", "\n".join(entries(lock))) is None


@pytest.mark.parametrize("lock", LOCKS[1:])
def test_the_smaller_locks_are_parts_of_the_first(lock: str) -> None:
    assert pins(lock).items() <= pins("dev").items()


@pytest.mark.parametrize(
    ("lock", "requirements"),
    [
        ("services", group("services")),
        ("trainer", group("trainer")),
        ("dask", group("services") + group("dask")),
        ("numpyro", PROJECT["project"]["optional-dependencies"]["numpyro"] + group("trainer")),
        (
            "client",
            PROJECT["project"]["dependencies"]
            + PROJECT["project"]["optional-dependencies"]["agent"],
        ),
        (
            "analyst",
            [each for each in ANALYSIS["project"]["dependencies"] if "shoal" not in each]
            + PROJECT["project"]["dependencies"],
        ),
        ("build", group("build")),
    ],
)
def test_a_lock_holds_all_that_it_is_for(lock: str, requirements: list[str]) -> None:
    assert {canonicalize_name(Requirement(each).name) for each in requirements} <= set(pins(lock))


IMPORTED_WITHOUT_THE_REST = """
import importlib, importlib.abc, sys

blocked, modules = set(sys.argv[1].split(",")), sys.argv[2].split(",")

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError("not installed here: " + name, name=name)

sys.meta_path.insert(0, Absent())
for module in modules:
    importlib.import_module(module)
"""


def import_without_the_rest(modules: list[str], requirements: list[str]) -> str:
    """Import `modules` where only `requirements` seem installed; return what went wrong."""
    present = distributions(requirements) | {"shoal", "shoal-holder"}
    blocked = [
        name
        for name, owners in packages_distributions().items()
        if present.isdisjoint(map(canonicalize_name, owners))
    ]
    command = [sys.executable, "-c", IMPORTED_WITHOUT_THE_REST, ",".join(blocked)]
    return subprocess.run([*command, ",".join(modules)], capture_output=True, text=True).stderr


def modules_below(folder: str) -> list[str]:
    """Return every module in a package's folder, by its dotted name, except `__main__`."""
    base = (ROOT / folder).parent
    paths = sorted((ROOT / folder).rglob("*.py"))
    return [
        ".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__")
        for path in paths
        if path.stem != "__main__"
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("service", "installed"),
    [("compute", "services"), ("aggregator", "services"), ("trainer", "trainer")],
)
def test_a_service_needs_only_what_its_image_installs(service: str, installed: str) -> None:
    modules = modules_below(f"services/{service}/shoal_{service}")
    assert import_without_the_rest(modules, group(installed)) == ""


@pytest.mark.slow
def test_learners_need_only_what_the_trainers_image_installs() -> None:
    modules = modules_below("studies/shoal_studies")
    assert import_without_the_rest(modules, group("trainer")) == ""


@pytest.mark.parametrize("lock", ["services", "dask", "client"])
def test_scipy_is_installed_only_where_models_are_learned(lock: str) -> None:
    assert "scipy" not in pins(lock)


@pytest.mark.slow
def test_the_demo_needs_only_what_is_installed_for_it() -> None:
    installed = group("demo") + PROJECT["project"]["dependencies"]
    modules = [*modules_below("demo"), "demo.__main__"]
    assert import_without_the_rest(modules, installed) == ""


def test_a_missing_dependency_would_be_noticed() -> None:
    assert "not installed here: httpx" in import_without_the_rest(["httpx"], ["numpy"])
