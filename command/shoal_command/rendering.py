"""Shows any document, status or ledger page as tables of its own fields.

A field's title is its name in words; a unit at the end of the name follows the number. A mapping
becomes a list of facts, and a sequence of documents a table. Values may come from another party:
they are shown without markup and control characters.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any, Final

import pydantic
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
    if (documents := _documents(value)) is not None:
        return _table(documents)
    facts, parts = Table.grid(padding=(0, 2)), list[RenderableType]()
    for name, each in (_fields(value) or {}).items():
        inner = _fields(each)
        if each and (inner or _documents(each)):
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


def _fields(value: Any) -> dict[str, Any] | None:
    """Return a document's fields by their titles, None if a value is no document."""
    if isinstance(value, pydantic.BaseModel):
        named = type(value).model_fields.items()
        return {field.title or name: getattr(value, name) for name, field in named}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    return dict(value) if isinstance(value, Mapping) else None


def _documents(value: Any) -> list[dict[str, Any]] | None:
    """Return the fields of several documents, None if a value is something else."""
    if not isinstance(value, list | tuple) or not value:
        return None
    found = [_fields(each) for each in value]
    return None if None in found else [each for each in found if each is not None]


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
        case Enum():
            return str(value.value)
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.4g}" if math.isfinite(value) else "infinite"
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S} UTC"
        case str():
            return value
    if (documents := _documents(value)) is not None:
        return f"{len(documents):,}"
    if (fields := _fields(value)) is not None:
        return ", ".join(f"{_words(each)} {name}" for name, each in fields.items()) or "none"
    return ", ".join(map(_words, value)) or "none"
