"""Drafts a data dictionary from a table, and shows no value that may be a person's.

A draft is handed to others. It has names of columns and types; texts of a column only where they
are clearly codes: few, short, each of several persons, and in a column that nothing says identifies
anybody. It has no number and no day: bounds come from general knowledge.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from shoal_consortium.dictionary_files import FILL_IN
from shoal_holder.tables import flag_of, number_of, open_table
from shoal_protocol.wire.texts import MISSING_TEXTS

MOST_LEVELS: Final = 20
FEWEST_PERSONS: Final = 5
"""A text is shown only if so many persons have it, or rows where no column says whose they are."""

_LONGEST_LEVEL: Final = 30
_MOST_NUMBERED: Final = 6  # texts that differ by their numbers alone may be persons
_NUMBER_LIKE: Final = re.compile(r"[<>≤≥=~+-]* ?\d[\d.,'\s]*( ?%| [^\W\d]+(/[^\W\d]+)?)?")
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
_TIME_LIKE: Final = re.compile(
    r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}\b.*|.*\d:\d\d.*"
    r"|(?=.*\d).*\b(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b.*",
    re.IGNORECASE,
)
_IDENTIFYING: Final = re.compile(r"@|\d{4}|\S\s+\S+\s+\S+\s+\S")
_NAMES: Final = re.compile(
    r"id|ids|.*name|.*names|nom|prenom|(patient|person|subj|partic|proband|case|birth|geb|natal).*"
    r"|pat|pid|mrn|nhs|ssn|nino|dob|born|ip|e?mail|phone|tel|telephone|mobile|fax|address|street"
    r"|adresse|strasse|city|town|zip|plz|post.*|comments?|notes?|remarks?|text|free.*|doctor"
    r"|physician|gp|insur.*|passport|account|iban|login|user.*"
)


@dataclass
class _Column:
    """What is remembered of a column: kinds of its texts, and some texts with who has them."""

    name: str
    kinds: set[str] = field(default_factory=set)
    persons: dict[str, set[str]] = field(default_factory=dict)
    shapes: set[str] = field(default_factory=set)

    @property
    def identifies(self) -> bool:
        """Tell whether its name says that it may identify persons."""
        words = re.findall(r"[^\W\d_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", self.name))
        return any(_NAMES.fullmatch(each.lower()) for each in words)

    def add(self, text: str, person: str) -> None:
        """Take note of a text."""
        self.kinds.add(kind := _kind(text))
        if kind == "missing":
            return
        if len(self.shapes) < 2:  # two of them are no shape of all
            self.shapes.add(_shape(text))
        if len(self.persons) <= MOST_LEVELS or text in self.persons:
            having = self.persons.setdefault(text, set())
            if len(having) < FEWEST_PERSONS:
                having.add(person)

    def hides(self) -> str | None:
        """Return why its texts are not shown, or None."""
        numbered = len(self.shapes) == 1 and "a" in min(self.shapes) and "9" in min(self.shapes)
        if (
            self.identifies
            or "identifying" in self.kinds
            or (numbered and len(self.persons) > _MOST_NUMBERED)
        ):
            return "the column may identify persons"
        if len(self.persons) > MOST_LEVELS:
            return f"there are more than {MOST_LEVELS}"
        if any(len(each) < FEWEST_PERSONS for each in self.persons.values()):
            return f"fewer than {FEWEST_PERSONS} persons have one of them"
        return None


def draft(path: Path) -> str:
    """Return a dictionary in TOML for a person to finish: names, types and clear codes of a table.

    Raises:
        ValueError: the file cannot be read as a table, or its first line may be a record.
        OSError, ImportError: it cannot be read.
    """
    table = open_table(path)
    if len(table.names) == 1 and re.search(r"[^\w-]", table.names[0]):
        raise ValueError(f"{path}: commas must separate fields, and its first line has none")
    columns = [_Column(name) for name in table.names]
    owner = table.names.index("id") if "id" in table.names else 0
    has_owner = columns[owner].identifies
    for number, name in enumerate(table.names, start=1):
        if not name.isprintable():
            raise ValueError(f"{path}: the name in field {number} has a line break or the like")
        if _kind(name) in ("number", "day", "missing") or re.search(r"@|\d{6}", name):
            raise ValueError(_no_names(path, number))
    for place, row in table.rows(table.names):
        person = row[owner] if has_owner else str(place)
        for number, (column, text) in enumerate(zip(columns, row, strict=True), start=1):
            if text.casefold() == column.name.casefold():
                raise ValueError(_no_names(path, number))
            if text:
                column.add(text, person)
    for number, column in enumerate(columns, start=1):
        shape = _shape(column.name)
        if len(shape) > 2 and "9" in shape and column.shapes == {shape}:
            raise ValueError(_no_names(path, number))
    return "\n".join(
        [
            "# Finish this by hand, and remove columns that no job needs, such as ids. Bounds come",
            "# from general knowledge, never from data. missing: complete_case or indicator.",
            "# Read every level below before you hand this on: none may name a person.",
            *map(_drafted, columns),
        ]
    )


def _no_names(path: Path, number: int) -> str:
    return (
        f"{path}: field {number} of the first line may be a person's value: the file needs a line "
        "of columns' names first, none of which is also a value"
    )


def _drafted(column: _Column) -> str:
    lines = ["", f"[variables.{json.dumps(column.name, ensure_ascii=False)}]"]
    lines.append(f'meaning = "{FILL_IN}"')
    kinds = column.kinds - {"missing"}
    if kinds < column.kinds:
        lines.append("# Some texts stand for missing values: map them to NULL in records.toml.")
    if kinds and kinds <= {"flag"}:
        lines.append('type = "flag"')
    elif kinds & {"number", "number-like"} or not kinds:
        if not kinds <= {"number", "flag"}:
            lines.append("# Some texts are no numbers, for a unit, a comma or a code in them.")
        lines += ['type = "number"', 'unit = ""', f'lower = "{FILL_IN}"', f'upper = "{FILL_IN}"']
    elif "day" in kinds:
        lines += ['type = "date"', f'earliest = "{FILL_IN}"', f'latest = "{FILL_IN}"']
    elif (why := column.hides()) is not None:
        lines += [f"# Its texts are not shown: {why}.", 'type = "category"']
        lines.append(f'levels = "{FILL_IN}"')
    else:
        levels = json.dumps(sorted(column.persons), ensure_ascii=False)
        lines += ['type = "category"', f"levels = {levels}"]
    return "\n".join([*lines, 'missing = "complete_case"'])


def _kind(text: str) -> str:
    """Return what a text, which is not empty, looks like."""
    if text.casefold() in MISSING_TEXTS:
        return "missing"
    for kind, read in (("flag", flag_of), ("number", number_of)):
        try:
            read(text)
        except ValueError:
            continue
        return kind
    if _DAY.match(text) or _TIME_LIKE.fullmatch(text):
        return "day"
    if _NUMBER_LIKE.fullmatch(text):
        return "number-like"
    if len(text) > _LONGEST_LEVEL or _IDENTIFYING.search(text):
        return "identifying"
    return "text"


def _shape(text: str) -> str:
    """Return a text with one `9` for each number, and one `a` for each run of letters."""
    return re.sub(r"[^\W\d_]+", "a", re.sub(r"\d+", "9", text))
