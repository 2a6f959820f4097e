"""Posteriors in words: tables for terminals and notebooks.

Whatever is put in may come from another party, so text is shown as it is: no markup, no control
characters.
"""

import html
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Summary:
    """A table with a title, and facts about it; prints itself, in notebooks as HTML."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    facts: tuple[tuple[str, str], ...]

    def with_facts(self, *facts: tuple[str, str]) -> "Summary":
        """Return the same table with more facts about it."""
        return Summary(self.title, self.headings, self.rows, (*self.facts, *facts))

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        table = [tuple(map(visible, row)) for row in (self.headings, *self.rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        yield visible(self.title)
        for first, *others in table:
            right = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
            yield "  ".join([first.ljust(widths[0]), *right])
        for what, fact in self.facts:
            yield f"{visible(what)}: {visible(fact)}"

    def _repr_html_(self) -> str:
        """Return the table for a notebook; nothing in it is taken for markup."""
        head = "".join(f"<th>{_escaped(each)}</th>" for each in self.headings)
        body = "".join(
            "<tr>" + "".join(f"<td>{_escaped(cell)}</td>" for cell in row) + "</tr>"
            for row in self.rows
        )
        facts = "<br>".join(f"{_escaped(what)}: {_escaped(fact)}" for what, fact in self.facts)
        return (
            f"<table><caption>{_escaped(self.title)}</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{facts}</p>"
        )


def quantile_headings(level: float, what: str = "quantile") -> tuple[str, str]:
    """Return the headings of the ends of intervals that hold `level`."""
    return f"{what} {0.5 - level / 2.0:.4g}", f"{what} {0.5 + level / 2.0:.4g}"


def visible(text: str) -> str:
    """Return text without control characters, on one line."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _escaped(text: str) -> str:
    return html.escape(visible(text))
