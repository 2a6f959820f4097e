"""Drafts a data dictionary from a table, and shows no value that may be a person's.

A draft is handed to others. It has names of columns and types; texts of a column only where they
are clearly codes: few, short, each of several persons, and in a column that nothing says identifies
anybody. A column's name must say whose the rows are, and each column that might tell persons apart
counts them. The draft has no number and no day: bounds come from general knowledge.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from shoal_consortium.dictionary_files import FILL_IN
from shoal_holder.record_files import open_table
from shoal_holder.tables import flag_of, number_of
from shoal_protocol.wire.encoding import MISSING_TEXTS

MOST_LEVELS: Final = 20
FEWEST_PERSONS: Final = 5
"""A text is shown only if each column that may tell persons apart has so many values beside it."""

_LONGEST_LEVEL: Final = 30
_MOST_NUMBERED: Final = 4  # more texts that all have letters and digits may be persons
_NUMBER_LIKE: Final = re.compile(r"[<>≤≥=~+-]* ?\d[\d.,'\s]*( ?%| [^\W\d]+(/[^\W\d]+)?)?")
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
_TIME_LIKE: Final = re.compile(
    r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}\b.*|.*\d:\d\d.*"
    r"|(?=.*\d).*\b(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b.*",
    re.IGNORECASE,
)
_NO_OWNER: Final = "no column called id or patient_id says whose the rows are"
_TITLE: Final = r"\b(dr|prof|mr|mrs|ms|miss|sir|herr|frau|mme|mlle|sr|sra)\b"
_IDENTIFYING: Final = re.compile(
    rf"@|\d{{3}}|\S\s+\S+\s+\S+\s+\S|(?i:{_TITLE})"
    r"|\b[^\W\d_a-z][\w'’-]*\.?,? +[^\W\d_a-z][\w'’-]*[^\W\dA-Z_]"  # Ada Byron; Byron, Ada
    r"|\b[^\W\d_a-z]\. *[^\W\d_a-z]|\w, *[^\W\d_a-z]\b"  # A. Byron; Byron, A
    r"|\b[^\W\d_a-z]{2,},? +[^\W\d_a-z]{3,}\b|[^\W\d_]{2}\.[^\W\d_]{2}"  # ADA BYRON; ada.byron
)
_NUMBER_WORD: Final = r"ids?|keys?|no|nr|num|number|nummer|code|hash|pseudonym|kennung"
_PERSON: Final = re.compile(
    r"(patient(en)?|pat|person|u?subj(ect|ekt)?|participant|proband|individual|client|respondent)s?"
    rf"({_NUMBER_WORD})?|pid|mrn|nhs|ssn"
)
_NUMBERING: Final = re.compile(_NUMBER_WORD)
_RECORD: Final = re.compile(rf"(record|case|fall|entry)s?({_NUMBER_WORD})?|(sur|last|family)?name")
_ALIKE: Final = re.compile(r"\.0*$|[\W_]|(?<!\d)0+(?=\d)")  # how one id may be written otherwise
_NAMES: Final = re.compile(
    r"ids?|keys?|no|nr|num|number.*|.*nummer|records?.*|.*names?|nom|prenom|mrn|nhs|ssn|nino|dob|born"
    r"|(patient|person|u?subj|partic|proband|case|fall|birth|geb|natal|individual|client|respond).*"
    r"|pat|pid|ip|e?mail|phone|tel|telephone|mobile|fax|address|street|adresse|strasse|city|town"
    r"|village|parish|zip|plz|post.*|comments?|notes?|remarks?|text|free.*|insur.*|passport|account"
    r"|iban|login|user.*|staff.*|employe.*|worker|occupation|profession|beruf|visitor.*|lead|leader"
    r"|head|doctor.*|dr|physician.*|gp|arzt|surgeon.*|nurse.*|midwi.*|clinician.*|consultant.*"
    r"|therapist.*|operator|author|investigator.*|interviewer.*|provider.*|referr.*|carer.*|kin"
    r"|relative.*|spouse|partner|mother|father|guardian|contact.*|signed|by"
)


@dataclass
class _Column:
    """What is remembered of a column: kinds and some of its texts, and who has those."""

    name: str
    kinds: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    shapes: set[str] = field(default_factory=set)
    has_gaps: bool = False
    beside: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """Of a text and the name of a column that may tell persons apart, its values there: some."""

    @property
    def _words(self) -> list[str]:
        apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", self.name)
        return [each.lower() for each in re.findall(r"[^\W\d_]+", apart)]

    @property
    def identifies(self) -> bool:
        """Tell whether its name says that it may identify persons."""
        return any(map(_NAMES.fullmatch, self._words))

    @property
    def is_persons(self) -> bool:
        """Tell whether its name says that its values are persons: whose the rows are."""
        persons = any(map(_PERSON.fullmatch, self._words))
        known = all(_PERSON.fullmatch(each) or _NUMBERING.fullmatch(each) for each in self._words)
        return self._words == ["id"] or (persons and known)

    @property
    def tells_apart(self) -> bool:
        """Tell whether its values may be persons, by its name or what they are."""
        if self.is_persons or {"id", "ids", "key", "pseudonym", "kennung"} & {*self._words}:
            return True
        if self._words and all(map(_RECORD.fullmatch, self._words)):
            return not self.kinds <= {"flag", "missing"}
        is_key = len(self.texts) >= FEWEST_PERSONS and len(self.shapes) == 1 and "9" in self.shape
        return not self.has_gaps and (is_key or len(self.texts) > MOST_LEVELS)

    @property
    def shape(self) -> str:
        """Return the shape of its texts, if they have one."""
        return min(self.shapes, default="")

    @property
    def holds_texts(self) -> bool:
        """Tell whether it may hold what its name could be, too: texts, or nothing that is known."""
        return self.kinds <= {"missing"} or bool(self.kinds & {"text", "identifying"})

    def add(self, text: str) -> None:
        """Take note of a text, which may be empty."""
        kind = _kind(text) if text else "missing"
        self.has_gaps |= kind == "missing"
        if text:
            self.kinds.add(kind)
        if kind != "missing":
            if len(self.shapes) < 2:  # two of them are no shape of all
                self.shapes.add(_shape(text))
            if len(self.texts) <= MOST_LEVELS:
                self.texts.add(text)

    def hides(self) -> str | None:
        """Return why its texts are not shown whoever has them, or None."""
        numbered = all(re.search(r"\d", each) for each in self.texts)
        if (
            self.identifies
            or "identifying" in self.kinds
            or (numbered and len(self.texts) > _MOST_NUMBERED)
        ):
            return "the column may identify persons"
        if len(self.texts) > MOST_LEVELS:
            return f"there are more than {MOST_LEVELS}"
        return None

    def rare(self, apart: Sequence[str]) -> str | None:
        """Return why its texts are not shown for those who have them, or None."""
        for other in apart:
            if any(len(self.beside.get((each, other), ())) < FEWEST_PERSONS for each in self.texts):
                name = json.dumps(other, ensure_ascii=False)
                return f"one of them is beside fewer than {FEWEST_PERSONS} values of {name}"
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
    for _, row in table.rows(table.names):
        for column, text in zip(columns, row, strict=True):
            column.add(text)
            if text.casefold() == column.name.casefold():
                column.kinds.add("its name")
    _check_names(path, columns)
    apart = [each for each in columns if each.tells_apart]
    coded = [each for each in columns if each.hides() is None]
    read = [each.name for each in (*coded, *apart)]
    for _, row in table.rows(read):
        persons = row[len(coded) :]
        for column, text in zip(coded, row, strict=False):
            for other, person in zip(apart, persons, strict=True):
                having = column.beside.setdefault((text, other.name), set())
                if len(having) < FEWEST_PERSONS and person.casefold() not in {"", *MISSING_TEXTS}:
                    having.add(_ALIKE.sub("", person.casefold()))
    has_owner = any(each.is_persons for each in columns)
    return "\n".join(
        [
            "# Finish this by hand, and remove columns that no job needs, such as ids. Bounds come",
            "# from general knowledge, never from data. missing: complete_case or indicator.",
            "# Read every level below before you hand this on: none may name a person.",
            *(_drafted(each, [other.name for other in apart], has_owner) for each in columns),
        ]
    )


def _check_names(path: Path, columns: Sequence[_Column]) -> None:
    """Check that the first line has names: one says so, or stands over what is of another kind."""
    for number, column in enumerate(columns, start=1):
        name, shape = column.name, _shape(column.name)
        if not name.isprintable():
            raise ValueError(f"{path}: the name in field {number} has a line break or the like")
        digits = len(re.findall(r"\d", name))
        many_digits = digits >= max(3, len(re.findall(r"[^\W\d_]", name)))
        if (
            _kind(name) in ("number", "number-like", "day", "flag", "missing")
            or re.search(rf"@|\d{{6}}|(?i:{_TITLE})", name)
            or "its name" in column.kinds
            or (column.holds_texts and many_digits)
            or (len(shape) > 2 and "9" in shape and column.shapes == {shape})
        ):
            raise ValueError(_no_names(path, number))
    of_texts = sum(column.holds_texts for column in columns)
    if not any(column.is_persons for column in columns) and 2 * of_texts >= len(columns):
        raise ValueError(
            f"{path}: the first line may be a person's values, for no column in it is called id or "
            "patient_id and few hold numbers, days or flags: give the file a line of columns' "
            "names first, and name the column of ids patient_id"
        )


def _no_names(path: Path, number: int) -> str:
    return (
        f"{path}: field {number} of the first line may be a person's value: the file needs a line "
        "of columns' names first, none of which is also a value"
    )


def _drafted(column: _Column, apart: Sequence[str], has_owner: bool) -> str:
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
    elif (why := column.hides() or (column.rare(apart) if has_owner else _NO_OWNER)) is not None:
        lines += [f"# Its texts are not shown: {why}.", 'type = "category"']
        lines.append(f'levels = "{FILL_IN}"')
    else:
        levels = json.dumps(sorted(column.texts), ensure_ascii=False)
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
