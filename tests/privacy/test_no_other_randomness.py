"""No part that is shipped draws from a generator that is not meant for secrets."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHIPPED = sorted((ROOT / "protocol").rglob("*.py")) + sorted((ROOT / "services").rglob("*.py"))
DRAWING = {"default_rng", "RandomState", "seed", "normal", "uniform", "integers", "choice", "rand"}


def drawn_from(source: str) -> list[str]:
    """Return what of `random` or `numpy.random` a module's source makes or imports."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [each.name for each in node.names if each.name in ("random", "numpy.random")]
        elif isinstance(node, ast.ImportFrom):
            if node.module in ("random", "numpy.random"):
                found.append(str(node.module))
            elif node.module == "numpy":
                found += [each.name for each in node.names if each.name == "random"]
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) in (
            "np.random",
            "numpy.random",
        ):
            found += [node.attr] if node.attr in DRAWING else []
    return found


def test_nothing_shipped_draws_from_a_statistical_generator() -> None:
    assert len(SHIPPED) > 100
    assert [path.name for path in SHIPPED if drawn_from(path.read_text())] == []


@pytest.mark.parametrize(
    "line",
    [
        "import random",
        "from random import random",
        "import numpy.random",
        "from numpy import random",
        "from numpy.random import default_rng",
        "noise = np.random.normal(0, 1)",
        "np.random.seed(1)",
    ],
)
def test_a_planted_generator_is_found(line: str) -> None:
    assert drawn_from(line)


def test_a_generator_in_an_annotation_is_none() -> None:
    assert not drawn_from("def draws(generator: np.random.Generator) -> None: ...")
