"""The data sets are read and split as the authors did: exact fits score what theirs score."""

from pathlib import Path

import numpy as np
import pytest

from figures.authors import MEAN_RANK_CORRELATION, MEDIAN_ERROR
from figures.datasets import (
    UCI_SETS,
    gdsc_split,
    load_gdsc,
    load_uci,
    normalised,
    scaled,
    splits,
)
from figures.scores import rank_correlation
from figures.sources import Files
from tests.figures.shared import DATA, with_data


def files(data: Path) -> Files:
    return Files(data=data, cache=data / "no such directory")


def ridge(rows: np.ndarray) -> np.ndarray:
    x, y = rows[:, :-1], rows[:, -1]
    return np.linalg.solve(x.T @ x + np.eye(x.shape[1]), x.T @ y)


@with_data
@pytest.mark.parametrize("name", UCI_SETS)
def test_without_privacy_the_median_error_is_the_authors_to_the_last_digit(name: str):
    rows = scaled(load_uci(name, files(DATA), as_authors=True))
    errors = [
        np.abs(each.test[:, :-1] @ ridge(each.train) - each.test[:, -1]).mean()
        for each in splits(name, rows)
    ]
    assert round(float(np.median(errors)), 5) == MEDIAN_ERROR[name]["np"][0]


@with_data
def test_read_correctly_no_row_is_zero_and_infants_are_not_females():
    wine, abalone = (
        load_uci(name, files(DATA), as_authors=False) for name in ("red_wine", "abalone")
    )
    assert wine.shape == (1599, 12)
    assert wine[-1, -1] > 0.0
    assert abalone.shape == (4177, 10)
    assert abalone[:, :2].sum(axis=0).tolist() == [1307, 1342]


@pytest.mark.slow
@with_data
def test_without_privacy_the_rank_correlation_is_the_authors():
    data = load_gdsc(files(DATA))
    if len(data.drugs) != 89:
        pytest.skip("the authors' figure is for 89 drugs")
    found = []
    for drug in data.drugs:
        rows = data.rows(drug)
        for seed in range(25):
            split = normalised(gdsc_split(rows, seed))
            predicted = split.test[:, :-1] @ ridge(split.train)
            found.append(rank_correlation(predicted, split.test[:, -1]))
    assert round(float(np.mean(found)), 4) == MEAN_RANK_CORRELATION["np"][0]


def write_gdsc(directory: Path, *, lines: int, drugs: int) -> None:
    """Write tables of which one is in reverse; drug j misses every (j + 2)-th line."""
    directory.mkdir(exist_ok=True)
    names = [str(700_000 + line) for line in range(lines)]
    genes = ["COSMIC_ID,CELL_LINE,JAK2,KRAS"]
    responses = [",".join(["COSMIC_ID", *(f"DRUG_{number}" for number in range(drugs))])]
    for place, name in enumerate(names):
        genes.append(f"{name},line {name},{3 + place % 7},{place}")
    for place in reversed(range(lines)):
        values = [
            "" if place % (drug + 2) == 0 else f"{place + drug / 10:.4f}" for drug in range(drugs)
        ]
        responses.append(",".join([names[place], *values]))
    (directory / "expression.csv").write_text("\n".join(genes) + "\n")
    (directory / "responses.csv").write_text("\n".join(responses) + "\n")


def test_any_number_of_drugs_and_cell_lines_is_read_with_gaps_and_in_any_order(tmp_path: Path):
    write_gdsc(tmp_path / "gdsc", lines=250, drugs=7)
    data = load_gdsc(files(tmp_path))
    assert data.expression.shape == (250, 2)
    assert data.drugs == tuple(f"DRUG_{number}" for number in range(7))
    rows = data.rows("DRUG_1")
    assert len(rows) == sum(place % 3 != 0 for place in range(250))
    assert rows[:, 2] == pytest.approx(rows[:, 1] + 0.1)
