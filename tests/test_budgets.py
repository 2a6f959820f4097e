"""The counter of statements, and the file of budgets that it lowers."""

from bench.reading import statements
from tests.budgets import BUDGETS, Size, growths, read

TEXT = BUDGETS.read_text()


def test_imports_docstrings_and_comments_are_no_statements() -> None:
    assert statements('"""Says."""\nimport os\nfrom sys import path\n# why\nx = (\n 1\n)\n') == 1
    assert statements("def f():\n    '''Says.'''\n    if x:\n        return 1\n") == 3


def test_a_room_that_grew_is_named_and_others_are_not() -> None:
    budgets = read(TEXT)
    sizes = {room: budget.now for room, budget in budgets.items()}
    assert growths(budgets, sizes) == []
    statements_now, files_now = sizes["bench"]
    for grown in (Size(statements_now + 1, files_now), Size(statements_now, files_now + 1)):
        [sentence] = growths(budgets, sizes | {"bench": grown})
        assert sentence.startswith("bench has")
