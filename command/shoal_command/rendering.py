"""Shows any document, status or ledger page as tables of its own fields.

A field's title is its name in words; a unit at the end of the name follows the number. A mapping
becomes a list of facts, and a sequence of documents a table. Values may come from another party:
they are shown without markup and control characters.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pydantic_core
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

_UNITS: Final = {"seconds": "s", "bytes": "bytes"}


def plain(text: str) -> Text:
    """Return text that a terminal shows as it is: no markup, no control characters."""
    return Text(
        "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)
    )


def rendered(value: Any) -> RenderableType:
    """Return tables of a document's fields, or one table of several documents."""
    value = pydantic_core.to_jsonable_python(value)
    if _are_documents(value):
        return _table(value)
    facts, parts = Table.grid(padding=(0, 2)), list[RenderableType]()
    for name, each in value.items() if isinstance(value, dict) else ():
        if _are_documents(each) or (each and isinstance(each, dict)):
            parts += [Text.assemble("\n", _title(name), style="bold"), rendered(each)]
        elif each != {}:
            facts.add_row(_title(name), _cell(name, each))
    return Group(*([facts] if facts.row_count else []), *parts)


def _table(documents: Sequence[Mapping[str, Any]]) -> Table:
    names = list(dict.fromkeys(name for each in documents for name in each))
    table = Table()
    for name in names:
        numbers = all(isinstance(each.get(name), int | float | None) for each in documents)
        table.add_column(plain(name.replace("_", " ")), "", justify="right" if numbers else "left")
        table.columns[-1].overflow = "fold"
    for each in documents:
        table.add_row(*(_cell(name, each.get(name)) for name in names))
    return table


def _are_documents(value: Any) -> bool:
    return isinstance(value, list) and value != [] and all(isinstance(each, dict) for each in value)


def _title(name: str) -> Text:
    """Return a field's name in words, without the unit that its value is shown with."""
    rest, _, last = name.rpartition("_")
    words = rest if rest and last in _UNITS else name
    return plain(words[:1].upper() + words[1:].replace("_", " "))


def _cell(name: str, value: Any) -> Text:
    """Return a value in words, with the unit that ends its field's name."""
    unit = _UNITS.get(name.rpartition("_")[2])
    return plain(f"{_words(value)} {unit}" if unit and value is not None else _words(value))


def _words(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.4g}" if math.isfinite(value) else "infinite"
        case str():
            return value
        case dict():
            return ", ".join(f"{_words(each)} {name}" for name, each in value.items()) or "none"
    if _are_documents(value):
        return f"{len(value):,}"
    return ", ".join(map(_words, value)) or "none"
