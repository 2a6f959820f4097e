"""Runs the examples cell by cell and writes them as Jupyter notebooks with their outputs.

    python -m figures.notebooks [NAME …]       # without names all of them; some minutes

The scripts in `examples` are the source; the notebooks are for reading where nothing is installed.
"""

import argparse
import ast
import base64
import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest import mock

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

EXAMPLES: Final = Path(__file__).parents[1] / "examples"
NOTEBOOKS: Final = EXAMPLES / "notebooks"
DOTS_PER_INCH: Final = 70
_MARKDOWN, _CODE = "# %% [markdown]", "# %%"


class Cell(NamedTuple):
    """A cell of a script in the percent format."""

    markdown: bool
    source: str


def cells_of(script: str) -> list[Cell]:
    """Return the cells of a script in the percent format, in order.

    Raises:
        ValueError: the script does not begin with a cell.
    """
    found: list[tuple[bool, list[str]]] = []
    for line in script.splitlines():
        if line in (_MARKDOWN, _CODE):
            found.append((line == _MARKDOWN, []))
        elif not found:
            raise ValueError("the script does not begin with a cell")
        else:
            markdown, lines = found[-1]
            lines.append(line.removeprefix("#").removeprefix(" ") if markdown else line)
    return [Cell(markdown, "\n".join(lines).strip("\n")) for markdown, lines in found]


def run(cells: list[Cell]) -> list[list[dict[str, Any]]]:
    """Run the cells' code one after another; return each one's outputs as nbformat has them."""
    names: dict[str, Any] = {"__name__": "__main__"}
    return [[] if cell.markdown else _outputs(cell.source, names) for cell in cells]


def _outputs(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    pictures: list[bytes] = []

    def show() -> None:
        picture = io.BytesIO()
        pyplot.gcf().savefig(picture, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
        pictures.append(picture.getvalue())
        pyplot.close("all")

    printed = io.StringIO()
    with redirect_stdout(printed), mock.patch.object(pyplot, "show", show):
        exec(compile(ast.parse(source), "cell", "exec"), names)  # noqa: S102 - the examples
    outputs: list[dict[str, Any]] = []
    if text := printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(text)})
    for picture in pictures:
        data = {"image/png": base64.b64encode(picture).decode()}
        outputs.append({"output_type": "display_data", "data": data, "metadata": {}})
    return outputs


def notebook(cells: list[Cell], outputs: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """Return a notebook of nbformat 4.5."""
    return {
        "cells": [
            {"id": f"cell-{number}", "metadata": {}, "source": _lines(cell.source)}
            | (
                {"cell_type": "markdown"}
                if cell.markdown
                else {"cell_type": "code", "execution_count": None, "outputs": shown}
            )
            for number, (cell, shown) in enumerate(zip(cells, outputs, strict=True))
        ],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    """Write the notebooks that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m figures.notebooks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a script in examples")
    NOTEBOOKS.mkdir(exist_ok=True)
    for name in parser.parse_args().names or sorted(path.stem for path in EXAMPLES.glob("*.py")):
        cells = cells_of((EXAMPLES / f"{name}.py").read_text("utf-8"))
        written = json.dumps(notebook(cells, run(cells)), ensure_ascii=False, indent=1)
        (NOTEBOOKS / f"{name}.ipynb").write_text(written + "\n", "utf-8")
        print(name, flush=True)


if __name__ == "__main__":
    main()
