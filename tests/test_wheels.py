"""Both wheels, built and unpacked into empty directories: what is in them, and that they work."""

import ast
import os
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import files, packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.test_packaging import distributions
from tests.world.certified import TWO_ROUNDS

ROOT = Path(__file__).parents[1]
SITE = Path(sysconfig.get_path("purelib"))
HOLDER, ANALYSIS = (
    tomllib.loads((ROOT / each / "pyproject.toml").read_text()) for each in (".", "analysis")
)
PAGES = {"jinja2"}  # of certificates, which analysts' commands write by templates of the holder's
RUN_BY_THE_IMAGE = {"shoal_kit.probe"}


@dataclass(frozen=True)
class Wheel:
    """A wheel that was built, and where it is unpacked."""

    project: dict[str, Any]
    files: frozenset[str]
    unpacked: Path

    @property
    def packages(self) -> set[str]:
        """Return the names of its packages."""
        return {each.partition("/")[0] for each in self.files if ".dist-info/" not in each}

    @property
    def modules(self) -> list[str]:
        """Return its modules by their dotted names, except each `__main__`."""
        sources = [each for each in self.files if each.endswith(".py")]
        names = [each[:-3].replace("/", ".").removesuffix(".__init__") for each in sources]
        return sorted(each for each in names if not each.endswith("__main__"))

    @property
    def extras(self) -> dict[str, list[str]]:
        """Return what its extras add, by their names."""
        return self.project["project"]["optional-dependencies"]


@dataclass(frozen=True)
class Installed:
    """Wheels beside what they declare, and nothing else: neither ours nor anybody's."""

    path: tuple[Path, ...]
    home: Path

    def run(self, *arguments: object, status: int = 0) -> str:
        """Run Python in an empty directory; return what it printed."""
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(map(str, self.path)),
            "COLUMNS": "100",
        }
        command = [sys.executable, "-S", *map(str, arguments)]  # -S: no .pth names our folders
        done = subprocess.run(
            command, env=environment, cwd=self.home, capture_output=True, text=True
        )
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    def shoal(self, *arguments: object, status: int = 0) -> str:
        """Run the `shoal` command; return what it printed."""
        said = self.run(
            "-c", "import shoal_command; shoal_command.main()", *arguments, status=status
        )
        return " ".join(said.replace("│", " ").split())


def build(folder: Path, out: Path) -> Wheel:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run([*command, "--directory", str(out)], cwd=folder, check=True, capture_output=True)
    [path] = out.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        archive.extractall(out / "unpacked")
        names = frozenset(archive.namelist())
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    return Wheel(project, names, out / "unpacked")


@pytest.fixture(scope="module")
def holder(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    return build(ROOT, tmp_path_factory.mktemp("holder"))


@pytest.fixture(scope="module")
def analysis(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    return build(ROOT / "analysis", tmp_path_factory.mktemp("analysis"))


def install(home: Path, requirements: list[str], *wheels: Wheel) -> Installed:
    """Lay links to the distributions that `requirements` bring beside the wheels."""
    links = home / "packages"
    links.mkdir()
    for name in distributions(requirements) - {"shoal", "shoal-holder"}:
        for part in {each.parts[0] for each in files(name) or []} - {"..", "__pycache__"}:
            if not (links / part).exists():
                (links / part).symlink_to(SITE / part)
    (home / "empty").mkdir()
    return Installed((*(each.unpacked for each in wheels), links), home / "empty")


@pytest.fixture(scope="module")
def at_a_holders(holder: Wheel, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install(tmp_path_factory.mktemp("first"), HOLDER["project"]["dependencies"], holder)


@pytest.fixture(scope="module")
def at_an_analysts(
    holder: Wheel, analysis: Wheel, tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    needed = ANALYSIS["project"]["dependencies"] + HOLDER["project"]["dependencies"]
    return install(tmp_path_factory.mktemp("both"), needed, holder, analysis)


def imported(wheel: Wheel) -> Iterator[str]:
    """Yield the top-level names of what any line of a wheel's sources imports."""
    for name in wheel.files:
        if not name.endswith(".py"):
            continue
        for node in ast.walk(ast.parse((wheel.unpacked / name).read_text())):
            if isinstance(node, ast.Import):
                yield from (each.name.partition(".")[0] for each in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module.partition(".")[0]


@pytest.mark.slow
def test_no_file_is_in_both_wheels(holder: Wheel, analysis: Wheel) -> None:
    assert holder.files & analysis.files == frozenset()
    assert holder.packages == {
        *("shoal_agent", "shoal_command", "shoal_holder", "shoal_kit"),
        *("shoal_loader", "shoal_protocol"),
    }
    assert analysis.packages == {
        *("shoal", "shoal_command_groups", "shoal_consortium", "shoal_studies")
    }


@pytest.mark.slow
def test_a_wheel_carries_every_module_of_its_packages(holder: Wheel, analysis: Wheel) -> None:
    targets = HOLDER["tool"]["hatch"]["build"]["targets"]["wheel"]
    own = ANALYSIS["tool"]["hatch"]["build"]["targets"]["wheel"]
    for wheel, base, folders in (
        (holder, ROOT, targets["packages"]),
        (analysis, ROOT / "analysis", own["packages"] + own["hooks"]["custom"]["beside"]),
    ):
        expected = {
            f"{path.relative_to((base / each).parent)}"
            for each in folders
            for path in (base / each).rglob("*.py")
        }
        assert {name for name in wheel.files if name.endswith(".py")} == expected


@pytest.mark.slow
def test_all_that_a_holder_installs_of_the_kit_is_used_there(holder: Wheel, tmp_path: Path) -> None:
    of_kit = {each for each in holder.modules if each.startswith("shoal_kit")}
    others = sorted(set(holder.modules) - of_kit)
    program = "import importlib, sys\n" + (
        "for name in sys.argv[1:]: importlib.import_module(name)\n"
        "print(*(name for name in sys.modules if name.startswith('shoal_kit')))"
    )
    needed = HOLDER["project"]["dependencies"] + holder.extras["agent"] + holder.extras["loader"]
    there = install(tmp_path, needed, holder)
    loaded = there.run("-c", program, *others, "shoal_agent.__main__").split()
    lazily = {"shoal_kit.installed_models"}
    assert of_kit - RUN_BY_THE_IMAGE - lazily <= set(loaded)
    there.run("-c", program, *(RUN_BY_THE_IMAGE | lazily))


@pytest.mark.slow
@pytest.mark.parametrize("which", ["holder", "analysis"])
def test_a_wheel_names_what_it_imports_and_nothing_else(
    which: str, request: pytest.FixtureRequest
) -> None:
    wheel: Wheel = request.getfixturevalue(which)
    owners = packages_distributions()
    ours = request.getfixturevalue("holder").packages | wheel.packages
    needed = {
        canonicalize_name(owner)
        for name in set(imported(wheel)) - ours - sys.stdlib_module_names
        for owner in owners[name]
    }
    extras = [each for extra in wheel.extras.values() for each in extra]
    requirements = [*wheel.project["project"]["dependencies"], *extras]
    named = {canonicalize_name(Requirement(each).name) for each in requirements}
    # uvicorn takes httptools by its name; the others come with pydantic and fastapi
    assert named - {"httptools", "shoal-holder"} | PAGES == (
        needed - {"pydantic-core", "starlette"} | PAGES
    )


@pytest.mark.slow
def test_modules_of_a_holder_load_without_extras(holder: Wheel, at_a_holders: Installed) -> None:
    modules = [
        each
        for each in holder.modules
        if each.partition(".")[0] in ("shoal_protocol", "shoal_holder", "shoal_command")
    ]
    program = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"
    at_a_holders.run("-c", program, *modules)


@pytest.mark.slow
def test_modules_of_an_analyst_load_without_extras(
    analysis: Wheel, at_an_analysts: Installed
) -> None:
    of_extras = {"shoal_command_groups.console.pages"}
    modules = sorted(set(analysis.modules) - of_extras)
    program = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"
    at_an_analysts.run("-c", program, *modules)
    said = at_an_analysts.shoal("console", "--party", ".", "--consortium", ".", status=1)
    assert "pip install 'shoal[console]'" in said


@pytest.mark.slow
def test_a_program_takes_part_with_the_first_wheel_alone(
    at_a_holders: Installed, tmp_path: Path
) -> None:
    (tmp_path / "records.csv").write_text("id,age\na,40\nb,50\n")
    program = (
        "import sys\n"
        "from shoal_agent.data_holder import DataHolder\nfrom shoal_holder.policy import Policy\n"
        "from shoal_holder.record_files import read_records\n"
        "print(len(read_records(sys.argv[1], ['age'])), Policy.__name__, DataHolder.__name__)"
    )
    said = at_a_holders.run("-c", program, tmp_path / "records.csv")
    assert said.split() == ["2", "Policy", "DataHolder"]


@pytest.mark.slow
def test_a_holders_commands_work_with_the_first_wheel_alone(
    at_a_holders: Installed, tmp_path: Path
) -> None:
    certificate, manifest, records = (
        tmp_path / each for each in ("certificate.json", "manifest.json", "records.csv")
    )
    certificate.write_bytes(TWO_ROUNDS.encode())
    manifest.write_bytes(TWO_ROUNDS.manifest)
    records.write_text("id,age\na,40\nb,50\n")
    shoal = at_a_holders.shoal
    verify = ("certificate", "verify", certificate, "--manifest", manifest)
    assert "The certificate holds." in shoal(*verify)
    certificate.write_bytes(TWO_ROUNDS.encode().replace(b"age", b"aga", 1))
    shoal(*verify, status=1)
    assert "2 clients with 2 rows" in shoal("records", "check", records, "--columns", "age")
    shoal("party", "pin", tmp_path, "ab" * 32)
    assert (tmp_path / "pin").read_text() == f"{'ab' * 32}\n"
    assert "private key for 2 slots" in shoal("agent", "new", tmp_path / "site", "--slots", 2)
    assert "not installed here" in shoal("model", "digest", "absent", status=1)


@pytest.mark.slow
def test_the_first_wheel_says_how_to_get_the_other_commands(
    at_a_holders: Installed, at_an_analysts: Installed
) -> None:
    alone, both = at_a_holders.shoal("--help"), at_an_analysts.shoal("--help")
    assert "pip install shoal." in alone and "pip install shoal." not in both
    assert "quickstart" in both and "quickstart" not in alone
    assert "No such command 'job'" in at_a_holders.shoal("job", "list", status=2)
    assert "new" in at_an_analysts.shoal("party", "--help")
    at_an_analysts.shoal("certificate", "fetch", "--help")


@pytest.mark.slow
def test_an_analyst_learns_with_both_wheels(at_an_analysts: Installed) -> None:
    program = """
import numpy as np
from shoal import Analyst, Federation, SimulatedFederation, estimators
dose = np.linspace(0, 10, 2_000)
simulated = SimulatedFederation(
    {"dose": dose, "effect": 2 * dose}, epsilon=8.0, delta=1e-5, dropouts=0, colluders=0, seed=1
)
model = estimators.LinearRegression(features={"dose": (0, 10)}, target={"effect": (0, 20)})
print(Analyst.__name__, Federation.__name__, model.fit(simulated).coef_[0])
"""
    *names, slope = at_an_analysts.run("-c", program).split()
    assert names == ["Analyst", "Federation"]
    assert abs(float(slope) - 2) < 0.5
