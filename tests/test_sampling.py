"""The enumerations of which a run takes every so many cases are there."""

import ast
from pathlib import Path

import pytest

from tests.sampling import EVERY

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", EVERY)
def test_a_test_of_which_cases_are_left_out_exists(name: str) -> None:
    path, _, function = name.partition("::")
    tree = ast.parse((ROOT / path).read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    assert function in {each.name for each in tree.body if isinstance(each, functions)}
