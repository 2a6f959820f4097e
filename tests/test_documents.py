"""Links in the documents lead to files that exist, and the code that documents show runs."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import numpy as np
import pytest

import shoal
import shoal.estimators
from shoal.estimators import LinearRegression
from shoal_agent.data_holder import DataHolder
from shoal_studies.simulation import SimulatedFederation
from tests.command.running import parser

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
OTHERS = [ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CONTRIBUTING", "SECURITY")]
EVERYWHERE = [*OTHERS, ROOT / "examples/README.md", *PAGES]
SOURCES = ("*.py", "*.toml", "*.yml", "*.md", "*.env", "Makefile")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def code(path: Path) -> list[str]:
    """Return the Python that a page shows, block by block."""
    return re.findall(r"^```python\n(.*?)^```", path.read_text(), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", EVERYWHERE, ids=name)
def test_a_link_leads_to_a_file(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if not link.startswith("http"):
            assert (page.parent / link).exists(), link


def test_a_page_that_anything_names_is_there() -> None:
    """Code and documents point to pages by `docs/….md`."""
    listed = ["git", "ls-files", "-z", *SOURCES]
    files = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for each in files.split("\0")[:-1]:
        if (path := ROOT / each).exists():
            for page in re.findall(r"(?<![\w/])docs/[\w/-]+\.md", path.read_text()):
                assert (ROOT / page).exists(), f"{each} names {page}"


def test_a_proof_that_code_points_to_is_in_the_mathematics() -> None:
    """Docstrings and comments say "docs/mathematics.md, proposition 2.2", or several numbers."""
    page = (ROOT / "docs/mathematics.md").read_text()
    pointer = re.compile(
        r"docs/mathematics\.md[`,]*\s+#?\s*(proposition|theorem|lemma|section)s?\s+#?\s*"
        r"(\d+(?:\.\d+)?)(?:\s+(?:and|to)\s+(\d+(?:\.\d+)?))?"
    )
    listed = ["git", "ls-files", "-z", "*.py"]
    files = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    found = 0
    for each in files.split("\0")[:-1]:
        if not (path := ROOT / each).exists():
            continue
        for kind, *numbers in pointer.findall(path.read_text()):
            for number in filter(None, numbers):
                titled = rf"(?:### |\*\*){kind.title()} {number}"
                heading = f"## {number}" if kind == "section" else titled
                assert re.search(rf"^{heading}[ .]", page, re.MULTILINE), f"{each}: {kind} {number}"
                found += 1
    assert found > 20


@pytest.mark.parametrize("page", EVERYWHERE, ids=name)
def test_what_shown_code_imports_is_there(page: Path) -> None:
    for block in code(page):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom):
                module = importlib.import_module(str(node.module))
                assert all(hasattr(module, each.name) for each in node.names)


def spoken(page: Path) -> list[list[str]]:
    """Return the words after each `shoal` that a page shows as a command, in text or in a block."""
    text = page.read_text().replace("\\\n", " ")
    blocks = re.findall(
        r"^(?:    )?(?:\$ |docker compose run .*)?shoal (.*)$", text, flags=re.MULTILINE
    )
    commands = re.findall(r"`shoal (?!enrolment 1)([^`\n]+)`", text) + blocks  # a file's first line
    return [re.split(r"\s#|[;|>&]", each)[0].split() for each in commands]


@pytest.mark.parametrize("page", EVERYWHERE, ids=name)
def test_a_command_that_a_page_shows_is_there_with_its_options(page: Path) -> None:
    for words_of in spoken(page):
        command = parser()
        rest = list(words_of)
        while hasattr(command, "commands") and rest and re.fullmatch(r"[a-z-]+", rest[0]):
            assert rest[0] in command.commands, f"shoal {' '.join(words_of)}"
            command = command.commands[rest.pop(0)]
        known = {option for each in command.params for option in each.opts}
        asked = {each.partition("=")[0] for each in rest if re.fullmatch(r"--[a-z-]+.*", each)}
        assert asked <= known | {"--help"}, f"shoal {' '.join(words_of)}"


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `Federation.open` check its arguments, and give a simulated federation instead."""
    promised = inspect.signature(shoal.Federation.open)

    def simulate(*given: Any) -> SimulatedFederation:
        settings = promised.bind(*given).arguments["settings"]
        generator = np.random.default_rng(1)
        age = generator.uniform(18, 90, 600)
        pressure = 100 + 0.4 * age + generator.normal(0, 10, 600)
        price = {
            each: getattr(settings, each) for each in ("epsilon", "delta", "dropouts", "colluders")
        }
        return SimulatedFederation({"age": age, "systolic_pressure": pressure}, seed=1, **price)

    monkeypatch.setattr(shoal.Federation, "open", simulate)
    monkeypatch.setattr(LinearRegression, "certificate", lambda model: model.report_)
    monkeypatch.setattr(LinearRegression, "plot", lambda model: model.posterior_)


@pytest.mark.parametrize("page", ["README.md", "docs/analysts.md"])
def test_the_regression_that_a_page_shows_runs(
    page: str, simulated: None, capsys: pytest.CaptureFixture[str]
) -> None:
    block, *others = code(ROOT / page)
    exec(block, {"frame": {"age": np.linspace(18, 90, 600)}})
    assert "systolic_pressure" in capsys.readouterr().out
    for each in others:
        exec(each, dict(vars(shoal.estimators)))


def test_the_crowd_job_that_a_page_shows_asks_for_what_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = create_autospec(shoal.CrowdJob, instance=True)
    job.wait.return_value = create_autospec(shoal.CrowdModel, instance=True)
    analyst = create_autospec(shoal.Analyst, instance=True)
    analyst.open_crowd.return_value = job
    promised = inspect.signature(shoal.Analyst.open)
    monkeypatch.setattr(shoal.Analyst, "open", lambda *where: promised.bind(*where) and analyst)
    [block] = [each for each in code(ROOT / "docs/draw-and-discard.md") if "open_crowd" in each]
    exec(block, {})
    assert job.verify.called


def test_the_data_holder_that_a_page_shows_asks_for_what_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    holder = create_autospec(DataHolder, instance=True)
    opened = create_autospec(DataHolder.open, return_value=holder)
    monkeypatch.setattr(DataHolder, "open", opened)
    [block] = code(ROOT / "docs/data-holders.md")
    exec(block, {})
    assert holder.run.called


@pytest.mark.slow
def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir"]
    done = subprocess.run([*build, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > len(PAGES)
    for path in [*pages, *tmp_path.rglob("*.css")]:
        loaded = re.findall(
            r"""(?:\ssrc=|<link[^>]*\shref=|url\()["']?([^"')>]+)""", path.read_text()
        )
        assert "<p>|" not in path.read_text(), f"a row outside its table: {path.name}"
        assert not [each for each in loaded if re.match(r"(https?:)?//", each)], path.name
