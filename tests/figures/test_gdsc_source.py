"""GDSC's own files become the tables that are read; another release, or a page, does not.

The files are made here in the form that the site offers them in.
"""

import io
import zipfile
from pathlib import Path
from xml.sax.saxutils import escape

import httpx
import numpy as np
import pytest

from figures import gdsc_source
from figures.datasets import load_gdsc
from figures.gdsc_source import EXPRESSION_URL, GENES, PROBED_DRUGS, PROBED_LINES, probe
from figures.sources import Files

LINES = [*PROBED_LINES, *(str(900_000 + number) for number in range(220))]
DRUGS = [*PROBED_DRUGS, "1001"]
SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"


def expression(line: str, gene: int) -> float:
    return 3.0 + int(line) % 7 + gene / 8


def response(line: str, drug: int) -> float | None:
    return None if (int(line) + drug) % 11 == 0 else int(line) % 5 - drug / 4


def packed(**files: str) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as made:
        for name, text in files.items():
            made.writestr(name, text)
    return archive.getvalue()


def rma_archive() -> bytes:
    header = ["GENE_SYMBOLS", "GENE_title", *(f"DATA.{line}" for line in LINES)]
    rows = [[*header, f"DATA.{LINES[0]}.1"]]
    for place, gene in enumerate((*GENES, "UNUSED")):
        values = [f"{expression(line, place):.12f}" for line in LINES]
        rows.append([gene, f'a "quoted title of {gene}', *values, "0.0"])
    return packed(**{"Cell_line.txt": "\n".join("\t".join(row) for row in rows)})


def workbook() -> bytes:
    """Write as spreadsheets are: header in the shared strings, numbers in place."""
    names = ["DATASET_VERSION", "COSMIC_ID", "DRUG_ID", "LN_IC50"]
    cells = "".join(f'<c r="{"ABCD"[i]}1" t="s"><v>{i}</v></c>' for i in range(len(names)))
    rows = [f'<row r="1">{cells}</row>']
    for line in LINES:
        for place, drug in enumerate(DRUGS):
            if (value := response(line, place)) is not None:
                number = len(rows) + 1
                rows.append(
                    f'<row r="{number}"><c r="A{number}"><v>17</v></c><c r="B{number}"><v>{line}'
                    f'</v></c><c r="C{number}"><v>{drug}</v></c><c r="D{number}"><v>{value}</v>'
                    "</c></row>"
                )
    strings = "".join(f"<si><t>{escape(name)}</t></si>" for name in names)
    return packed(
        **{
            "xl/sharedStrings.xml": f'<sst xmlns="{SHEET}">{strings}</sst>',
            "xl/worksheets/sheet1.xml": (
                f'<worksheet xmlns="{SHEET}"><sheetData>{"".join(rows)}</sheetData></worksheet>'
            ),
        }
    )


def site(request: httpx.Request) -> httpx.Response:
    wanted = rma_archive() if str(request.url) == EXPRESSION_URL else workbook()
    return httpx.Response(200, content=wanted)


def files(cache: Path) -> Files:
    return Files(data=None, cache=cache, transport=httpx.MockTransport(site))


@pytest.fixture
def probes_of_these(monkeypatch: pytest.MonkeyPatch) -> None:
    genes = {
        line: {gene: f"{expression(line, place):.6f}" for place, gene in enumerate(GENES)}
        for line in PROBED_LINES
    }
    drugs = {
        line: {
            drug: f"{value:.4f}"
            for place, drug in enumerate(DRUGS)
            if (value := response(line, place)) is not None
        }
        for line in PROBED_LINES
    }
    monkeypatch.setattr(gdsc_source, "EXPRESSION_PROBE", probe(genes, GENES))
    monkeypatch.setattr(gdsc_source, "RESPONSES_PROBE", probe(drugs, PROBED_DRUGS))


@pytest.mark.usefixtures("probes_of_these")
def test_without_tables_the_sites_files_are_fetched_and_read(tmp_path: Path):
    data = load_gdsc(files(tmp_path))
    assert data.genes == GENES
    assert data.drugs == tuple(f"DRUG_{drug}" for drug in sorted(DRUGS, key=int))
    assert data.expression.shape == (len(LINES), len(GENES))
    lines = sorted(LINES, key=int)
    assert data.expression[3, 2] == pytest.approx(expression(lines[3], 2))
    found = data.responses[:, data.drugs.index("DRUG_1001")]
    expected = [response(line, len(DRUGS) - 1) for line in lines]
    missing = [value is None for value in expected]
    assert np.array_equal(np.isnan(found), missing)
    assert found[~np.isnan(found)] == pytest.approx([each for each in expected if each is not None])
