"""The data dictionary on disk: a draft for people, and signed versions beside the manifests.

A draft is made from a table and handed to others: it has the names and types of columns, and no
value. `history/000001-dictionary.json`, ... are written once and never change; `dictionary.json`
repeats the newest version.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from nacl.signing import SigningKey
from pydantic import TypeAdapter

from shoal_holder.tables import CsvTable, flag_of, number_of
from shoal_holder.toml_files import read_toml
from shoal_kit.manifest_book import HISTORY
from shoal_kit.manifest_chain import open_chain
from shoal_kit.private_files import write_new
from shoal_kit.startup import replace
from shoal_protocol.trust.dictionary import DataDictionary, Variable, open_dictionary
from shoal_protocol.trust.manifest import AUTHORITY_NAME
from shoal_protocol.wire.documents import Model, Signed, decode, sign
from shoal_protocol.wire.encoding import MISSING_TEXTS
from shoal_protocol.wire.errors import ProtocolError

DICTIONARY: Final = "dictionary.json"
FILL_IN: Final = "?"

_NUMBER_LIKE: Final = re.compile(r"[<>≤≥=~+-]* ?\d[\d.,'\s]*( ?%| [^\W\d]+(/[^\W\d]+)?)?")
_DAY_LIKE: Final = re.compile(
    r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}\b.*|.*\d:\d\d.*"
    r"|(?=.*\d).*\b(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b.*",
    re.IGNORECASE,
)
_NO_NAME: Final = re.compile(
    r"@|\d{6}|\b(dr|prof|mr|mrs|ms|miss|sir|herr|frau|mme|mlle|sr|sra)\b", re.IGNORECASE
)
_OF_PERSONS: Final = re.compile(
    r"(patient(en)?|pat|person|u?subj(ect|ekt)?|participant|proband|individual|client|respondent)s?"
    r"[ _.-]*(ids?|no|nr|num|number|nummer|code|pseudonym|kennung)?|ids?|pid|mrn|nhs|ssn",
    re.IGNORECASE,
)
_IS_A_VALUE: Final = "its name"


class _Written(Model):
    variables: dict[str, dict[str, Any]]


def read_variables(path: Path) -> tuple[Variable, ...]:
    """Read the variables of a dictionary that a person wrote: `[variables.NAME]` in TOML.

    Raises:
        ValueError: the file is not TOML, or something in it is missing, unknown or not filled in.
        OSError: it cannot be read.
    """

    def parse(content: dict[str, Any]) -> tuple[Variable, ...]:
        written = _Written.model_validate(content).variables.items()
        for name, each in written:
            if blank := [key for key, said in each.items() if said in (FILL_IN, [FILL_IN])]:
                raise ValueError(f"fill in {', '.join(blank)} of {name}")
        named = {name: {"name": name} | each for name, each in written}
        return tuple(TypeAdapter(dict[str, Variable]).validate_python(named).values())

    return read_toml(path, parse)


def versions(directory: Path) -> list[Signed[DataDictionary]]:
    """Return the signed versions of a consortium directory, oldest first, each one checked.

    Raises:
        ValueError: one is broken, forged or missing.
    """
    parties = open_chain(directory)[-1]
    signed: list[Signed[DataDictionary]] = []
    for path in sorted((directory / HISTORY).glob(f"??????-{DICTIONARY}")):
        earlier = signed[-1].body if signed else None
        try:
            signed.append(open_dictionary(path.read_bytes(), parties, earlier))
        except ProtocolError as error:
            raise ValueError(f"{path}: {error}") from error
    return signed


def sign_again(directory: Path, authority: SigningKey) -> None:
    """Have the authority's present key sign all versions; what they say, and digests, stay.

    Raises:
        ValueError: a version is broken, or not of this consortium.
    """
    for path in [*(directory / HISTORY).glob(f"??????-{DICTIONARY}"), directory / DICTIONARY]:
        if path.exists():
            try:
                body = decode(path.read_bytes(), DataDictionary).body
            except ProtocolError as error:
                raise ValueError(f"{path}: {error}") from error
            replace(path, sign(body, AUTHORITY_NAME, authority).encode())
    versions(directory)


def add_version(
    directory: Path, variables: tuple[Variable, ...], authority: SigningKey
) -> Signed[DataDictionary]:
    """Sign and write the version that follows the newest one of a consortium directory.

    Raises:
        ValueError: a variable of the earlier version is gone or changed, or it is another's key.
        FileExistsError: somebody else added that version meanwhile.
    """
    before, parties = versions(directory), open_chain(directory)[-1]
    earlier = before[-1].body if before else None
    try:
        body = DataDictionary(
            consortium=parties.manifest.consortium,
            authority=parties.manifest.identity,
            sequence=1 if earlier is None else earlier.sequence + 1,
            previous=None if earlier is None else earlier.digest,
            variables=variables,
        )
        signed = open_dictionary(sign(body, AUTHORITY_NAME, authority).encode(), parties, earlier)
    except ProtocolError as error:
        raise ValueError(str(error)) from error
    path = directory / HISTORY / f"{signed.body.sequence:06d}-{DICTIONARY}"
    write_new(path, signed.encode(), private=False)
    replace(directory / DICTIONARY, signed.encode())
    return signed


def draft(path: Path) -> str:
    """Return a dictionary in TOML for a person to finish: the names and types of a table's columns.

    Raises:
        ValueError: the file cannot be read as a table, or its first line may be a record.
        OSError: it cannot be read.
    """
    table = CsvTable(path)
    if len(table.names) == 1 and re.search(r"[^\w-]", table.names[0]):
        raise ValueError(f"{path}: commas must separate fields, and its first line has none")
    kinds = {name: set[str]() for name in table.names}
    for _, row in table.rows(table.names):
        for name, text in zip(table.names, row, strict=True):
            kinds[name].add(_IS_A_VALUE if _is_alike(name, text) else _kind(text))
    _check_names(path, kinds)
    return "\n".join(
        [
            "# Finish this by hand, and remove columns that no job needs, such as ids. Bounds come",
            "# from general knowledge, never from data. missing: complete_case leaves out a record",
            "# without a value; with indicator it counts, with the middle of the bounds (a flag",
            "# 0, a category its first level), and NAME_missing, which models then need, is 1.",
            *(_drafted(name, each - {"missing"}) for name, each in kinds.items()),
        ]
    )


def _check_names(path: Path, kinds: Mapping[str, set[str]]) -> None:
    """Check that the first line has names: none looks like a value or stands over its like."""
    for number, (name, of_texts) in enumerate(kinds.items(), start=1):
        digits, letters = len(re.findall(r"\d", name)), len(re.findall(r"[^\W\d_]", name))
        if (
            not name.isprintable()
            or _kind(name) != "text"
            or _NO_NAME.search(name)
            or _IS_A_VALUE in of_texts
            or (of_texts <= {"text", "missing"} and digits >= max(3, letters))
        ):
            raise ValueError(
                f"{path}: field {number} of the first line may be a person's value: the file needs "
                "a line of columns' names first, none of which is also a value"
            )
    texts = sum("text" in each or each <= {"missing"} for each in kinds.values())
    if not any(map(_OF_PERSONS.fullmatch, kinds)) and 2 * texts >= len(kinds):
        raise ValueError(
            f"{path}: the first line may be a person's values, for no column in it is called id or "
            "patient_id and few hold numbers, days or flags: give the file a line of columns' "
            "names first, and name the column of ids patient_id"
        )


def _drafted(name: str, kinds: set[str]) -> str:
    lines = ["", f"[variables.{json.dumps(name, ensure_ascii=False)}]", f'meaning = "{FILL_IN}"']
    if kinds == {"flag"}:
        lines.append('type = "flag"')
    elif kinds & {"number", "number-like"} or not kinds:
        if not kinds <= {"number", "flag"}:
            lines.append("# Some texts are no numbers, for a unit, a comma or a code in them.")
        lines += ['type = "number"', 'unit = ""', f'lower = "{FILL_IN}"', f'upper = "{FILL_IN}"']
    elif "day" in kinds:
        lines += ['type = "date"', f'earliest = "{FILL_IN}"', f'latest = "{FILL_IN}"']
    else:
        lines += ['type = "category"', f'levels = ["{FILL_IN}"]']
    return "\n".join([*lines, 'missing = "complete_case"'])


def _kind(text: str) -> str:
    """Return what a text looks like."""
    if text.casefold() in {"", *MISSING_TEXTS}:
        return "missing"
    for kind, read in (("flag", flag_of), ("number", number_of)):
        try:
            read(text)
        except ValueError:
            continue
        return kind
    if _DAY_LIKE.fullmatch(text):
        return "day"
    return "number-like" if _NUMBER_LIKE.fullmatch(text) else "text"


def _is_alike(name: str, text: str) -> bool:
    """Tell whether a text is a column's name, or differs from it in its numbers alone."""
    shapes = [re.sub(r"[^\W\d_]+", "a", re.sub(r"\d+", "9", each)) for each in (name, text)]
    is_shaped = len(shapes[0]) > 2 and "9" in shapes[0]
    return text.casefold() == name.casefold() or (is_shaped and shapes[0] == shapes[1])
