"""Tells whether a test that a page or a table names is there."""

import ast
from functools import cache
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]


def exists(test: str) -> bool:
    """Tell whether there is a test, such as `tests/test_reading.py::test_a_thing`."""
    path, _, name = test.partition("::")
    is_test = name.startswith("test_")
    return is_test and (_ROOT / path).is_file() and name in _defined_in(_ROOT / path)


@cache
def _defined_in(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in tree.body if isinstance(node, functions))
