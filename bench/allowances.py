"""Holds the time that answers are allowed against what they take: when one leaves tells no records.

    python -m bench.allowances [--quick] [--warn]

For each query, over rows a slot from 1 to `MOST_ROWS`, records that count, and columns of a wider
table: the least of several times of choosing and encoding, over what is allowed
(`release_timing.encoding_seconds`) if nothing fails. Crowds choose records by the same code. Prints
the worst of each query, and fails where one is above `TOLERATED`. Times are of the processor, so
that other work on the machine matters little.
"""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, cast

import numpy as np
from numpy.random import PCG64, Generator
from pyroaring import BitMap

from bench.command import options
from shoal_holder.faults import Faults
from shoal_holder.records import MOST_ROWS, Identity, Records
from shoal_holder.rounds import Answers, encoding_allowed
from shoal_holder.status import silent
from shoal_kit.clock import system_clock
from shoal_protocol.queries import (
    ClassScoreSum,
    Column,
    ColumnMoments,
    Counts,
    EdgeCut,
    FirstMoments,
    GradientSum,
    HazardScoreSum,
    LevelCut,
    NormCounts,
    PredictionScores,
    Query,
    ScoreSum,
    SecondMomentMatrix,
    SecondMoments,
    Tables,
    VectorSum,
    WeightedRowMatrix,
)
from shoal_protocol.queries.columns import Level, Spline, Term
from shoal_protocol.queries.models import LogisticRegressionModel
from shoal_protocol.queries.moments import LONGEST_VECTOR

TOLERATED: Final = 0.9
RUNS: Final = 2
CELLS: Final = 1 << 22  # of the table of records
TABLE: Final = 300  # columns at least
MOST_COLUMNS: Final = 512  # of a query, but for vectors
MOST_AMONG: Final = 1000
MOST_LEVELS: Final = 1 << 18  # in all lists of levels of one round's spec
COLUMNS: Final = (1, 10, 100, MOST_COLUMNS, LONGEST_VECTOR)
ROWS: Final = (1, 50, MOST_ROWS)
MOST_COUNTED: Final = 10_000  # records in one answer
COUNTED: Final = (1, 1000)  # records of a slot that count at most


def queries(columns: int, records: int) -> Iterator[Query]:
    """Yield a query of each kind, of so many columns if it takes them."""
    named = tuple(Column(name=f"x_{each}", centre=0.5, scale=0.5) for each in range(columns))
    rows: dict[str, Any] = {"grid_bits": 10, "records_per_client": records}
    box, ball = {"intercept": 0.0, "radius": None} | rows, {"intercept": 0.3, "radius": 1.0} | rows
    if columns == 1:
        for levels in (2, 256):
            places = tuple(float(each) for each in range(levels))
            yield Counts(columns=named, cut=LevelCut(column=0, levels=places), **rows)
            yield Counts(columns=named, cut=EdgeCut(column=0, edges=(-1.0, *places)), **rows)
    yield VectorSum(columns=(Column(name="x", centre=0.5, scale=0.5),), entries=columns, **box)
    if columns > MOST_COLUMNS:
        return
    yield FirstMoments(columns=named, **box)
    yield SecondMoments(columns=named, **ball)
    yield SecondMomentMatrix(columns=named, **ball)
    yield ColumnMoments(columns=named, **box)
    yield NormCounts(columns=named, **ball)
    yield _tables(named, rows)
    if columns == 1:
        return
    spline = {"variable": "x_0", "lower": 0.0, "upper": 1.0, "knots": [0.3, 0.5, 0.7]}
    splines = tuple(
        named[0].model_copy(
            update={
                "name": f"term {each}",
                "term": Term(factors=(Spline.model_validate(spline | {"place": each % 7}),) * 4),
            }
        )
        for each in range(columns - 1)
    )
    yield SecondMomentMatrix(columns=(*splines, named[1]), **ball)
    yield FirstMoments(columns=_levels(min(columns, MOST_LEVELS // MOST_AMONG // 4)), **box)
    yield WeightedRowMatrix(columns=named, **ball)
    yield ScoreSum(
        columns=named,
        family="negative_binomial",
        point=(0.1,) * columns,
        dispersion=1.0,
        residual_cut=2.0,
        basis=_basis(columns),
        **ball,
    )
    yield GradientSum(
        model=LogisticRegressionModel(intercept=1.0),
        columns=named,
        point=(0.1,) * columns,
        clip=1.0,
        **rows,
    )
    if columns < 10:
        return
    edges = tuple(float(each) for each in range(21))
    yield HazardScoreSum(
        columns=named,
        edges=edges,
        point=(0.1,) * (len(edges) - 1 + columns - 2),
        hazard_cut=2.0,
        basis=_basis(columns - 2),
        **ball,
    )
    sites = min(64, columns // 2 - 1)
    yield PredictionScores(
        columns=named,
        family="logistic",
        points=((0.1,) * (columns - sites),) * sites,
        score_limit=3.0,
        bins=20,
        **box | {"intercept": 1.0},
    )
    classes = min(16, columns // 2)
    width = classes * (columns - classes + 1)
    basis = _basis(columns - classes + 1)
    yield ClassScoreSum(columns=named, classes=classes, point=(0.1,) * width, basis=basis, **ball)


def _levels(columns: int) -> tuple[Column, ...]:
    """Return columns of four factors each, whose every level is one of as many as may be."""
    among = tuple(float(each) for each in range(MOST_AMONG))
    factors = tuple(Level(variable="x_0", value=each, among=among) for each in among[:4])
    term = Term(factors=factors)
    return tuple(
        Column(name=f"level {each}", centre=0.5, scale=0.5, term=term) for each in range(columns)
    )


def _basis(coordinates: int) -> tuple[tuple[float, ...], ...]:
    return tuple((0.1,) * row for row in range(1, coordinates + 1))


def _tables(columns: tuple[Column, ...], rows: dict[str, Any]) -> Tables:
    cuts = [
        {"kind": "edges", "column": each, "edges": [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]}
        for each in range(len(columns))
    ]
    tables = [{"axes": [{"cut": each}]} for each in range(len(columns))]
    return Tables.model_validate({"columns": columns, "cuts": cuts, "tables": tables, **rows})


@dataclass
class Place:
    """What `Answers` asks of a site: slots with so many rows each."""

    records: Records

    def positions(self) -> dict[int, int]:
        """Return {slot: position}."""
        return {each: each for each in range(len(self.records))}


def place(columns: int, rows: int, *, lacking: bool) -> Place:
    """Return slots with so many rows; `lacking`: of whom only every other counts."""
    width = max(TABLE, columns)
    slots = max(1, min(400, CELLS // (rows * width)))
    values = Generator(PCG64(1)).random((slots * rows, width))
    if lacking:
        values[::2] = np.nan
    names = tuple(f"x_{each}" for each in range(width))
    ids = tuple(map(str, range(slots)))
    starts = np.arange(slots + 1) * rows
    return Place(Records(names, values, starts, Identity("id", ids, MOST_ROWS)))


def took(work: Answers, query: Query, slots: int) -> float:
    """Return the seconds of a processor that an answer takes, in the quickest run."""
    every, found = list(range(slots)), []
    for _ in range(RUNS):
        began = time.process_time()
        work.encoded("", query, every, BitMap(every))
        found.append(time.process_time() - began)
    return min(found)


def main() -> None:
    """Measure, print, and fail if an answer takes longer than it is allowed."""
    asked = options(__doc__, quick=False, warn=False)
    worst: dict[str, tuple[float, str]] = {}
    for columns in COLUMNS[:2] if asked.quick else COLUMNS:
        for rows in ROWS:
            here = place(columns, rows, lacking=rows > 1)
            for records in COUNTED if columns <= 100 else COUNTED[:1]:
                for query in queries(columns, records):
                    _measure(here, query, rows, worst)
    for name, (share, at) in sorted(worst.items(), key=lambda each: -each[1][0]):
        print(f"{name:24} {share:5.2f} of what is allowed  {at}")
    if max(share for share, _ in worst.values()) > TOLERATED and not asked.warn:
        sys.exit("an answer takes longer than it is allowed: see shoal_holder.release_timing")


def _measure(here: Place, query: Query, rows: int, worst: dict[str, tuple[float, str]]) -> None:
    slots = max(1, min(len(here.records), MOST_COUNTED // query.records_per_client))
    with TemporaryDirectory() as directory:
        faults = Faults(Path(directory), system_clock)
        work = Answers(cast(Any, here), cast(Any, None), silent, faults)
        seconds = took(work, query, slots)
    share = seconds / encoding_allowed(query, slots, failing=0)
    at = f"{rows} rows, {query.records_per_client} count, {len(query.column_names)} columns"
    if share > worst.get(query.name, (0.0, ""))[0]:
        worst[query.name] = share, f"{1e3 * seconds:,.1f} ms: {slots} slots, {at}"


if __name__ == "__main__":
    main()
