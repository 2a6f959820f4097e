"""GDSC's tables from its own site, in the form that `figures.datasets` reads; fits nothing.

Expression comes from the project's RMA-normalised table, responses from release 6's fitted curves
(v17). Values of some cell lines are compared with a digest, so that another release is refused.
"""

import csv
import io
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Final
from xml.etree.ElementTree import Element, ParseError, iterparse

from figures.sources import DataUnavailable, Files, digest

GENES: Final = ("JAK2", "BRAF", "KRAS", "TP53", "EGFR", "FLT3", "PIK3CA", "IDH1", "KIT", "CTNNB1")
EXPRESSION_URL: Final = (
    "https://www.cancerrxgene.org/gdsc1000/GDSC1000_WebResources/Data/preprocessed/"
    "Cell_line_RMA_proc_basalExp.txt.zip"
)
RESPONSES_URL: Final = (
    "https://ftp.sanger.ac.uk/pub/project/cancerrxgene/releases/release-6.0/"
    "v17_fitted_dose_response.xlsx"
)
EXPRESSION_FILE: Final = "gdsc_expression_10genes.csv"
RESPONSES_FILE: Final = "gdsc_ln_ic50_v17.csv"

PROBED_LINES: Final = ("683665", "684055", "684057", "684059", "684062")
PROBED_DRUGS: Final = ("1", "6", "17", "32", "37")
EXPRESSION_PROBE: Final = "6a7497baba0c09df5fb6364a65c9cf9cdd2921eb7791d781976d6823d1c6b699"
RESPONSES_PROBE: Final = "c81107c2a67e1d01e4a0ad740a02fb3b573004d26d91e7067ade3b28ae10ebfa"

_SHEET: Final = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_TEXTS: Final = (f"{_SHEET}v", f"{_SHEET}t")

Table = dict[str, dict[str, str]]
"""Numbers as text by cell line (COSMIC_ID) and column."""


def fetch_gdsc(files: Files) -> None:
    """Fetch both tables and write them into the cache.

    Raises:
        DataUnavailable: they cannot be had, cannot be read, or are not of release 6.
    """
    expression = _expression(files.fetch(EXPRESSION_URL, EXPRESSION_FILE))
    check_probe(expression, GENES, EXPRESSION_PROBE, EXPRESSION_FILE)
    responses = _responses(files.fetch(RESPONSES_URL, RESPONSES_FILE))
    check_probe(responses, PROBED_DRUGS, RESPONSES_PROBE, RESPONSES_FILE)
    drugs = sorted({drug for line in responses.values() for drug in line}, key=int)
    folder = files.cache / "gdsc"
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / EXPRESSION_FILE, expression, GENES, "")
    _write(folder / RESPONSES_FILE, responses, drugs, "DRUG_")


def check_probe(table: Table, columns: tuple[str, ...], expected: str, file: str) -> None:
    """Refuse a table in which the probed cell lines have other values.

    Raises:
        DataUnavailable: they have, or are missing.
    """
    if probe(table, columns) != expected:
        raise DataUnavailable(
            f"what the source gives for {file} is not GDSC's release 6: get that release, and put"
            f" {file} into the directory that DATA names"
        )


def probe(table: Table, columns: tuple[str, ...]) -> str:
    """Return the SHA-256 of the probed cell lines' values in these columns."""
    lines = [
        ",".join([line, *(table.get(line, {}).get(column, "") for column in columns)])
        for line in PROBED_LINES
    ]
    return digest("\n".join(lines).encode())


def _expression(archive: bytes) -> Table:
    """Read the zipped, tab-separated table of which each row is a gene and each column a line."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as unpacked:
            [name] = [each for each in unpacked.namelist() if each.endswith(".txt")]
            text = io.TextIOWrapper(unpacked.open(name), encoding="utf-8")
            rows = csv.reader(text, delimiter="\t", quoting=csv.QUOTE_NONE)
            lines = [each.removeprefix("DATA.") for each in next(rows)[2:]]
            genes = {row[0]: row[2:] for row in rows if row[0] in GENES}
        table: Table = {}
        for place, line in enumerate(lines):
            if line.isdigit():  # a second sample of a line has a suffix
                values = {gene: f"{float(genes[gene][place]):.6f}" for gene in GENES}
                table.setdefault(line, values)
    except (zipfile.BadZipFile, KeyError, ValueError, IndexError, StopIteration) as error:
        raise DataUnavailable(f"{EXPRESSION_URL} does not give the table expected") from error
    return table


def _responses(workbook: bytes) -> Table:
    """Read the workbook of which each row is one fitted curve of a cell line and a drug."""
    table: Table = {}
    try:
        with zipfile.ZipFile(io.BytesIO(workbook)) as unpacked:
            rows = _rows(unpacked)
            places = {name: place for place, name in next(rows).items()}
            for row in rows:
                line, drug, response = (
                    float(row[places[name]]) for name in ("COSMIC_ID", "DRUG_ID", "LN_IC50")
                )
                table.setdefault(f"{line:.0f}", {}).setdefault(f"{drug:.0f}", f"{response:.4f}")
    except (zipfile.BadZipFile, ParseError, KeyError, ValueError, StopIteration) as error:
        raise DataUnavailable(f"{RESPONSES_URL} does not give the table expected") from error
    return table


def _rows(workbook: zipfile.ZipFile) -> Iterator[dict[str, str]]:
    """Yield the rows of a workbook's first sheet: text by the letters of its column."""
    shared: list[str] = []
    if "xl/sharedStrings.xml" in workbook.namelist():
        with workbook.open("xl/sharedStrings.xml") as file:
            shared = ["".join(each.itertext()) for each in _elements(file, "si")]
    with workbook.open("xl/worksheets/sheet1.xml") as file:
        for row in _elements(file, "row"):
            cells = {}
            for cell in row.iter(f"{_SHEET}c"):
                text = "".join(part.text or "" for part in cell.iter() if part.tag in _TEXTS)
                column = cell.attrib["r"].rstrip("0123456789")
                cells[column] = shared[int(text)] if cell.attrib.get("t") == "s" else text
            yield cells


def _elements(file: IO[bytes], name: str) -> Iterator[Element]:
    for _, element in iterparse(file):  # an archive from GDSC itself, over TLS
        if element.tag == f"{_SHEET}{name}":
            yield element
            element.clear()


def _write(path: Path, table: Table, columns: Sequence[str], prefix: str) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["COSMIC_ID", *(prefix + column for column in columns)])
        for line, values in sorted(table.items(), key=lambda item: int(item[0])):
            writer.writerow([line, *(values.get(column, "") for column in columns)])
