"""Reads CSV files that people made, row by row, as texts in one form, and checks what they hold.

A text is in its canonical form, without spaces around it; an empty one is a missing value. Nothing
depends on the machine: neither on its locale, nor its time zone. Errors name file, line and column,
never a value: a message may end in a log.
"""

import csv
import io
import math
import os
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Final

from shoal_protocol.wire.encoding import MISSING_TEXTS, canonical_text, near_text

_NO: Final = frozenset({"no", "n", "false"})
_YES: Final = frozenset({"yes", "y", "true"})
_SEPARATORS: Final = {";": "semicolons", "\t": "tabs", "|": "bars"}
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_ROUNDED_ID: Final = re.compile(r"[0-9]+\.0*|[0-9](\.[0-9]+)?[eE]\+[0-9]+")
_LONGEST_ID: Final = 256


class CsvTable:
    """A CSV file: RFC 4180, UTF-8, commas, names of columns in line 1.

    Lines may end in LF, CR LF or CR, each its own way. Blank lines may only stand at the end.
    """

    def __init__(self, file: Path) -> None:
        """Read the names of columns.

        Raises:
            ValueError: it is no such file.
            OSError: it cannot be read.
        """
        self.file = file
        _, header = next(self._parsed(), (1, list[str]()))
        for number, name in enumerate(header, start=1):
            if found := next((_SEPARATORS[each] for each in name if each in _SEPARATORS), None):
                raise ValueError(
                    f"{file}, line 1: field {number} has {found} in it: save the file with commas "
                    "between fields, or, if it has them, rename the column"
                )
        self.written, self.names = tuple(header), checked_names(header, f"{file}, line 1")

    def rows(self, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
        """Yield each row's line, and its texts in these columns.

        Raises:
            ValueError: there is no such column, or the file cannot be used.
            OSError: it cannot be read.
        """
        rows = self._parsed()
        if checked_names(next(rows, (1, list[str]()))[1], f"{self.file}, line 1") != self.names:
            raise ValueError(f"{self.file} changed while it was read: run the command again")
        places, blank = positions(self.names, tuple(columns), str(self.file)), 0
        for line, row in rows:
            if not row:
                blank = blank or line
            elif blank:
                raise ValueError(
                    f"{self.file}, line {blank}: blank line; a row without values has its commas, "
                    'and in a file of one column ""'
                )
            elif len(row) != len(self.names):
                raise ValueError(
                    f"{self.file}, line {line}: {len(row)} fields, and line 1 has "
                    f"{len(self.names)}; a text with a comma in it needs quotation marks"
                )
            else:
                yield line, [canonical_text(row[place]) for place in places]

    def _parsed(self) -> Iterator[tuple[int, list[str]]]:
        """Yield all rows, the header first, with the lines that they begin in."""
        with self.file.open("rb") as opened:
            before = os.fstat(opened.fileno())
            reader = csv.reader(_lines(self.file, opened), strict=True)
            line = 1
            try:
                for row in reader:
                    yield line, row
                    line = reader.line_num + 1
            except csv.Error as error:
                raise ValueError(
                    f"{self.file}, line {line}: the row that begins there is not CSV: {error}; "
                    "is a quotation mark missing, or one too many?"
                ) from None
            after = os.fstat(opened.fileno())
            if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
                raise ValueError(f"{self.file} changed while it was read: run the command again")


def _lines(file: Path, opened: BinaryIO) -> Iterator[str]:
    """Yield the lines of a file in UTF-8, however each of them ends."""
    count, coding = 0, "utf-8-sig"
    for raw in opened:
        try:
            text = raw.decode(coding)
            bad = text.find("\0")
        except UnicodeDecodeError as error:
            text, bad = "", error.start
        if bad >= 0:
            place = count + 1 + raw.count(b"\r", 0, bad)
            raise ValueError(f"{file}, line {place}: not text in UTF-8: save it as CSV in UTF-8")
        coding = "utf-8"
        for line in io.StringIO(text, newline="") if "\r" in text else (text,):
            count += 1
            yield line


def checked_names(header: Sequence[str], where: str) -> tuple[str, ...]:
    """Return canonical names of columns.

    No message shows one: where a file has no names, they are a person's values.

    Raises:
        ValueError: there is none, one is empty or a number, or two are alike but for their case.
    """
    names = tuple(map(canonical_text, header))
    if not names:
        raise ValueError(f"{where} is empty: it must hold the columns' names")
    first: dict[str, int] = {}
    for number, name in enumerate(names, start=1):
        if not name or _NUMBER.fullmatch(name):
            raise ValueError(
                f"{where}: field {number} is not a column's name; does the file lack names, or "
                "does the line end in a comma?"
            )
        if (same := first.setdefault(name.casefold(), number)) != number:
            raise ValueError(
                f"{where}: fields {same} and {number} are the same name, but for spaces and case: "
                "rename or remove one"
            )
    return names


@lru_cache(maxsize=4)
def positions(header: tuple[str, ...], names: tuple[str, ...], where: str) -> tuple[int, ...]:
    """Return where columns are among those of a `header`, which are canonical.

    Raises:
        ValueError: there is no such column. The message names none that there is, for without a
            line of names they are a person's values, except one that is nearly the same.
    """
    place = {name: index for index, name in enumerate(header)}
    try:
        return tuple(place[canonical_text(name)] for name in names)
    except KeyError as missing:
        near = near_text(missing.args[0], header)
        hint = (
            ""
            if near is None
            else f"; near to it is {near!r}, which differs by more than spaces around it"
        )
        raise ValueError(
            f"{where}: there is no column {missing.args[0]!r}{hint}; look where it is named: in "
            "policy.toml, records.toml, SHOAL_AGENT_ID_COLUMN or --columns"
        ) from None


def id_column_of(names: Sequence[str], named: str | None, where: str) -> str | None:
    """Return the column of ids: the one that is named, or `id` where there is one.

    Raises:
        ValueError: a column is called almost `id`.
    """
    if named is not None:
        return canonical_text(named)
    near = None if "id" in names else near_text("id", names)
    if near is not None:
        raise ValueError(f"{where}: there is no column 'id'; near to it is {near!r}: rename it")
    return "id" if "id" in names else None


def id_fault(text: str) -> str | None:
    """Return what is wrong with an id, a canonical text, or None."""
    if not text or text.casefold() in MISSING_TEXTS:
        return "the row has no id"
    if len(text) > _LONGEST_ID or any(each < " " or "\x7f" <= each < "\xa0" for each in text):
        return f"not an id, which has 1 to {_LONGEST_ID} characters, none of them a control one"
    if _ROUNDED_ID.fullmatch(text):
        return (
            "the id is written as a number with a fraction or an exponent, as spreadsheets and "
            "data frames do, perhaps rounded: export ids as text"
        )
    return None


def number_of(text: str) -> float:
    """Return the number that a canonical text is, or NaN of an empty one.

    Raises:
        ValueError: it is none, or too large.
    """
    if not text:
        return math.nan
    if not _NUMBER.fullmatch(text):
        raise ValueError(
            "not a number: leave the cell empty where a value is missing, write decimals with a "
            "point and no other separator, and have texts mapped by records.toml"
        )
    number = float(text)
    if math.isinf(number):
        raise ValueError("not a finite number")
    return number


def flag_of(text: str) -> float:
    """Return 0 or 1, as a canonical text says in numbers or in English, or NaN of an empty one.

    Raises:
        ValueError: it says neither.
    """
    said = text.lower()
    number = 0.0 if said in _NO else 1.0 if said in _YES else number_of(text)
    if number not in (0.0, 1.0) and text:
        raise ValueError("not a flag")
    return number
