"""The figures' data sets: read, scaled and split as the paper's authors did, or read correctly.

Fits nothing. Scaling and centring with the data itself, as in the authors' comparison, is not
private; Figure 3's learner gets its rows as they are in the file.
"""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from figures.gdsc_source import EXPRESSION_FILE, RESPONSES_FILE, fetch_gdsc
from figures.sources import DataUnavailable, Files, digest

Floats = NDArray[np.float64]

RANGE: Final = 10.0
"""Length of every column's range once it is scaled, as in the paper's section 4."""

_NEEDED: Final = (
    "Figure 3 needs two tables of GDSC release 6 (cancerrxgene.org), keyed by COSMIC_ID: expression"
    f" of the genes ({EXPRESSION_FILE}) and ln IC50 with a column DRUG_<id> for each drug"
    f" ({RESPONSES_FILE}); put them into the directory that DATA names, or its folder gdsc"
)

SPLITS: Final = 25
GDSC_TEST, GDSC_TRAIN = 100, 840


@dataclass(frozen=True, kw_only=True)
class UciSet:
    """One of Figure 2's data sets: file, and how many rows a split trains and tests with."""

    file: str
    train: int
    test: int


UCI_SETS: Final = {
    "red_wine": UciSet(file="winequality-red.csv", train=1000, test=500),
    "white_wine": UciSet(file="winequality-white.csv", train=3000, test=1000),
    "abalone": UciSet(file="abalone.data", train=3000, test=1000),
}


@dataclass(frozen=True, kw_only=True)
class Split:
    """Rows with the target last: `train`, shape (n, d + 1), and `test`, shape (m, d + 1)."""

    train: Floats
    test: Floats


def load_uci(name: str, files: Files, *, as_authors: bool) -> Floats:
    """Return a data set's rows, shape (n, d + 1), target last.

    As the authors loaded them, the last wine is a row of zeros and abalone's infants are coded as
    females, in one column; otherwise every wine counts and there is a column for each of the two.

    Raises:
        DataUnavailable: as `Files.uci` does.
    """
    path = files.uci(UCI_SETS[name].file)
    if name != "abalone":
        wines = np.loadtxt(path, delimiter=";", skiprows=1)
        if as_authors:
            wines[-1] = 0.0
        return wines
    sex = np.loadtxt(path, delimiter=",", dtype=str, usecols=0)
    measured = np.loadtxt(path, delimiter=",", usecols=range(1, 9))
    coded = [sex != "M"] if as_authors else [sex == "F", sex == "I"]
    return np.column_stack([*coded, measured]).astype(np.float64)


def scaled(rows: Floats) -> Floats:
    """Centre every column at its mean and scale its range to `RANGE`, with all rows, not privately.

    So Figure 2's authors did; errors are in units of the scaled target.
    """
    centred = rows - rows.mean(axis=0)
    result: Floats = RANGE * centred / np.ptp(centred, axis=0)
    return result


def splits(name: str, rows: Floats, count: int = SPLITS) -> list[Split]:
    """Return the authors' first `count` splits of `rows`, from their seed."""
    sizes = UCI_SETS[name]
    generator = np.random.RandomState(1)
    chosen = [
        generator.choice(np.arange(len(rows)), sizes.train + sizes.test, replace=False)
        for _ in range(count)
    ]
    return [
        Split(train=rows[each[: sizes.train]], test=rows[each[-sizes.test :]]) for each in chosen
    ]


@dataclass(frozen=True, kw_only=True)
class Gdsc:
    """Cell lines in the order of the expression table, and where they were read.

    `expression`, shape (n, d), log2 RMA values of `genes`; `responses`, shape (n, drugs), ln IC50
    of `drugs`, NaN where it was not measured. `digests` are the files' SHA-256 by name.
    """

    genes: tuple[str, ...]
    drugs: tuple[str, ...]
    expression: Floats
    responses: Floats
    digests: dict[str, str]

    def rows(self, drug: str) -> Floats:
        """Return the cell lines with a response to `drug`, shape (m, d + 1), response last."""
        response = self.responses[:, self.drugs.index(drug)]
        known = ~np.isnan(response)
        return np.column_stack([self.expression[known], response[known]])


def load_gdsc(files: Files) -> Gdsc:
    """Return the cell lines that both tables name.

    The tables are comma-separated files with a column COSMIC_ID: one with columns DRUG_…, any
    number of them, and empty fields where nothing was measured; one with genes and no drugs. Where
    there are several, the one with most columns counts. Without any, GDSC's site is asked.

    Raises:
        DataUnavailable: there are no such tables, or they cannot be read.
    """
    genes, drugs = _gdsc_tables(files)
    if not drugs or not genes:
        try:
            fetch_gdsc(files)
        except DataUnavailable as error:
            raise DataUnavailable(f"{_NEEDED} ({error})") from error
        genes, drugs = _gdsc_tables(files)
    response_file = max(drugs, key=lambda path: len(drugs[path]))
    gene_file = max(genes, key=lambda path: len(genes[path]))
    names = [name for name in genes[gene_file] if name not in ("COSMIC_ID", "CELL_LINE")]
    expression = _read(gene_file, names)
    responses = _read(response_file, _drugs(drugs[response_file]))
    both = [line for line in expression if line in responses]
    expressed = np.array([expression[line] for line in both])
    if len(both) < 2 * GDSC_TEST or np.isnan(expressed).any():
        raise DataUnavailable(f"{gene_file} has too few cell lines in common, or misses values")
    return Gdsc(
        genes=tuple(names),
        drugs=tuple(_drugs(drugs[response_file])),
        expression=expressed,
        responses=np.array([responses[line] for line in both]),
        digests={path.name: digest(path.read_bytes()) for path in (gene_file, response_file)},
    )


def gdsc_split(rows: Floats, seed: int) -> Split:
    """Return one split of a drug's rows: 100 test rows, then at most 840 to train on."""
    order = np.random.RandomState(seed).permutation(len(rows))
    test, train = order[:GDSC_TEST], order[GDSC_TEST : GDSC_TEST + GDSC_TRAIN]
    return Split(train=rows[train], test=rows[test])


def normalised(split: Split) -> Split:
    """Centre genes and response, then give every row of genes length 1, as the authors did.

    The means are those of the split's own rows, train and test apart: not private.
    """
    return Split(train=_unit_rows(split.train), test=_unit_rows(split.test))


def _unit_rows(rows: Floats) -> Floats:
    centred = rows - rows.mean(axis=0)
    genes = centred[:, :-1] / np.linalg.norm(centred[:, :-1], axis=1, keepdims=True)
    return np.column_stack([genes, centred[:, -1]])


def _gdsc_tables(files: Files) -> tuple[dict[Path, list[str]], dict[Path, list[str]]]:
    """Return the headers of all tables of genes, and of all tables of drugs, by file."""
    found = [path for folder in files.folders("gdsc") for path in sorted(folder.glob("*.csv"))]
    headers = {path: _header(path) for path in found}
    tables = {path: header for path, header in headers.items() if "COSMIC_ID" in header}
    drugs = {path: header for path, header in tables.items() if _drugs(header)}
    return {path: header for path, header in tables.items() if path not in drugs}, drugs


def _header(path: Path) -> list[str]:
    with path.open(newline="") as file:
        return next(csv.reader(file), [])


def _drugs(header: list[str]) -> list[str]:
    return [name for name in header if name.startswith("DRUG_")]


def _read(path: Path, names: list[str]) -> dict[str, list[float]]:
    """Return the named columns by COSMIC_ID; the first of several rows of a cell line counts."""
    rows: dict[str, list[float]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            try:
                values = [_number(row[name]) for name in names]
            except ValueError as error:
                raise DataUnavailable(f"{path} holds something that is not a number") from error
            rows.setdefault(row["COSMIC_ID"], values)
    return rows


def _number(field: str | None) -> float:
    return float("nan") if field is None or field.strip() in ("", "NA") else float(field)
