"""The examples run as they stand, on simulated federations; on a real one by a directory's name."""

import ast
import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from matplotlib import pyplot

from figures import notebooks
from shoal import JobSettings, estimators
from shoal.estimators.parameters import Parameters
from shoal.jobs import analyst, federation

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
PAGES = sorted((EXAMPLES.parent / "docs").glob("*.md"))
WITHOUT_A_FEDERATION = {"planning"}


@pytest.fixture(autouse=True)
def simulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep a real federation out, and close what pictures a failing example leaves."""
    monkeypatch.delenv("SHOAL_FEDERATION", raising=False)
    yield
    pyplot.close("all")


def stem(path: Path) -> str:
    return path.stem


def shape_of(outputs: list[dict[str, Any]]) -> list[Any]:
    """Return what outputs show but for figures, which differ by processor, and pictures' bytes."""
    return [
        re.sub(r"[\s\d.,+-]+", " ", "".join(each["text"])) if "text" in each else [*each["data"]]
        for each in outputs
    ]


@pytest.mark.slow
@pytest.mark.parametrize("path", SCRIPTS, ids=stem)
def test_an_example_runs_and_shows_what_its_notebook_shows(path: Path) -> None:
    cells = notebooks.cells_of(path.read_text("utf-8"))
    kept = json.loads((notebooks.NOTEBOOKS / f"{path.stem}.ipynb").read_text("utf-8"))["cells"]
    assert [("".join(each["source"]), each["cell_type"] == "markdown") for each in kept] == [
        (each.source, each.markdown) for each in cells
    ], "python -m figures.notebooks writes it anew"
    shown = notebooks.run(cells)
    kinds = [output["output_type"] for outputs in shown for output in outputs]
    assert {"stream", "display_data"} == set(kinds)
    for cell, outputs in zip(kept, shown, strict=True):
        assert shape_of(cell.get("outputs", [])) == shape_of(outputs)


def test_every_estimator_has_its_example() -> None:
    shown = [path.read_text("utf-8") for path in SCRIPTS] + [
        block
        for page in PAGES
        for block in re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)
    ]
    used = {
        node.id
        for code in shown
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Name)
    }
    every = {
        name
        for name, each in vars(estimators).items()
        if isinstance(each, type) and issubclass(each, Parameters) and hasattr(each, "task_type")
    }
    assert every <= used


class Opened(Exception):
    """A real federation was opened."""


@pytest.mark.parametrize(
    "path", [each for each in SCRIPTS if each.stem not in WITHOUT_A_FEDERATION], ids=stem
)
def test_an_example_asks_the_real_federation_whose_directory_it_is_given(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(party: str, consortium: str, settings: JobSettings | None = None) -> None:
        raise Opened(party, consortium)

    class Real(federation.Federation):
        open = staticmethod(opened)  # type: ignore[assignment]

    class RealAnalyst(analyst.Analyst):
        open = staticmethod(opened)  # type: ignore[assignment]

    monkeypatch.setattr("shoal.jobs.federation.Federation", Real)
    monkeypatch.setattr("shoal.jobs.analyst.Analyst", RealAnalyst)
    monkeypatch.setattr("shoal_kit.installed_models.digest_of", lambda name: "0" * 64)
    monkeypatch.setenv("SHOAL_FEDERATION", "my-federation")
    with pytest.raises(Opened) as raised:
        runpy.run_path(str(path))
    assert raised.value.args == ("my-federation/parties/analyst", "my-federation/consortium")
