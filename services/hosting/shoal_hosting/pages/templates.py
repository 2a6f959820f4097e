"""Templates of pages: those of a package, over what all pages share."""

import re
from collections.abc import Sequence
from html import escape
from typing import Final

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

_BEGINS: Final = re.compile("<(tr|td|th)(?= |>)")


def templates(package: str) -> Environment:
    """Return the templates of a package, over those of this one, which they extend.

    All values are escaped. A value that is missing is an error.
    """
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package, "."), PackageLoader(__package__, ".")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["labelled"] = _labelled
    return environment


def _labelled(rows: str, headings: Sequence[str]) -> str:
    """Return a table's rows, in which values are escaped, with roles and headings in each cell.

    A row that a style sheet shows as a block is a table's to screen readers by its role alone, and
    its cells have no heading above them.
    """
    heading = iter(headings)

    def said(tag: re.Match[str]) -> str:
        nonlocal heading
        if tag[1] == "tr":
            heading = iter(headings)
            return '<tr role="row"'
        role = "cell" if tag[1] == "td" else "rowheader"
        return f'{tag[0]} role="{role}" data-label="{escape(next(heading))}"'

    return _BEGINS.sub(said, rows)
