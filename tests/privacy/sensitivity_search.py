"""An adversary who looks for the two records furthest apart after encoding; simulation only.

The search goes through the real `encode`, so rounding, cutting and terms are in it, and knows of a
query only how many columns and records it takes, and where these are cut. It starts from random
rows, corners, axes, extreme floats and rows that are known to be bad, and climbs by pattern search,
which needs no gradient. Neighbours differ by replacement of a client's whole contribution, also by
the number of records: either may have none.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from shoal_protocol.queries import Mechanism

Records = NDArray[np.float64]

EXTREME_FLOATS: Final = (
    *(0.0, -0.0, 5e-324, -5e-324, 2.3e-308, 1e-16, -1e-16),
    *(math.nextafter(1.0, 0.0), 1.0, math.nextafter(1.0, 2.0), -1.0),
    *(1e3, -1e3, 1e154, -1e154, 1.7e308, -1.7e308),
)
_STEPS: Final = (0.5, 0.1, 0.02, 0.004, 0.0008)
_SWEEPS: Final = 4  # of all coordinates, for each size of step


@dataclass(frozen=True)
class Finding:
    """Two neighbours and how far apart their contributions are, exactly."""

    one: Records
    other: Records
    distance: float  # of what is declared: 1 is the declared sensitivity
    exceeds: bool  # decided with fractions, not floats


def search(query: Any, mechanism: Mechanism, *, starts: int, seed: int) -> Finding:
    """Return the worst neighbours that were found for `query`, of `starts` climbs."""
    generator = Generator(PCG64(seed))
    measure = _Measure(query, mechanism)
    best: tuple[float, Records, Records] | None = None
    for one, other in itertools.islice(_starts(query, generator), starts):
        reached = _climb(measure, one, other, generator)
        if best is None or reached[0] > best[0]:
            best = reached
    assert best is not None
    distance, *neighbours = best
    one, other = (in_data_units(query, rows) for rows in neighbours)
    return Finding(one, other, distance, exceeds(query, mechanism, one, other))


def in_data_units(query: Any, rows: Records) -> Records:
    """Return records, shape (r, m), that normalise to `rows`; what overflows is cut to a float."""
    centres, scales = np.array([_units(query, name) for name in query.column_names]).T
    with np.errstate(over="ignore"):
        return np.clip(centres + scales * rows, -1.79e308, 1.79e308)


def _units(query: Any, name: str) -> tuple[float, float]:
    """Return middle and half width of what a variable is cut to where it is read first."""
    for column in query.columns:
        if column.term is None and name in (column.name, *_entries(query)):
            return column.centre, column.scale
        for factor in () if column.term is None else column.term.factors:
            if factor.variable == name:
                if factor.kind == "level":
                    return 0.0, factor.value or 1.0
                return (factor.lower + factor.upper) / 2.0, (factor.upper - factor.lower) / 2.0
    raise AssertionError(name)


def _entries(query: Any) -> tuple[str, ...]:
    """Return the names of a vector's entries, all of the one column."""
    return query.column_names if query.name == "vector_sum" else ()


def exceeds(query: Any, mechanism: Mechanism, one: Records, other: Records) -> bool:
    """Tell whether two neighbours are further apart than declared; no rounding is involved."""
    design = query.design(mechanism)
    scales = [
        Fraction(block.relative_scale) for block in design.blocks for _ in range(block.coordinates)
    ]
    gaps = (query.encode(one) - query.encode(other)).tolist()
    parts = [abs(gap) / scale for gap, scale in zip(gaps, scales, strict=True)]
    declared = Fraction(design.sensitivity)
    if mechanism == "discrete_gaussian":
        return sum(part**2 for part in parts) > declared**2
    return sum(parts) > declared


def distance(query: Any, mechanism: Mechanism, one: Records, other: Records) -> float:
    """Return how far apart two neighbours' contributions are, in the norm that is declared."""
    measure = _Measure(query, mechanism)
    found = measure(query.encode(one), query.encode(other))
    return found * float(query.design(mechanism).sensitivity)


def largest_spread(width: int) -> float:
    """Return the largest sum of |D_ii| + sqrt(2) |D_ij| (i < j) over D = ww' - vv', |w|, |v| <= 1.

    For given signs of D it is the spread of the eigenvalues of a matrix with diagonal +-1 and
    +-1/sqrt(2) off it; all signs are tried. `width` up to 4 is quick.
    """
    pairs = np.triu_indices(width, 1)
    spread = 0.0
    for ones in range(width + 1):
        diagonal = np.where(np.arange(width) < ones, 1.0, -1.0)
        for signs in itertools.product((1.0, -1.0), repeat=len(pairs[0])):
            upper = np.zeros((width, width))
            upper[pairs] = np.array(signs) / math.sqrt(2.0)
            values = np.linalg.eigvalsh(np.diag(diagonal) + upper + upper.T)
            spread = max(spread, max(values[-1], 0.0) - min(values[0], 0.0))
    return spread


def largest_gap_of_squares(width: int, limit: float, norm: int) -> float:
    """Return the largest norm of x - y with 0 <= x_i, y_i <= 1 and sum x, sum y <= `limit`.

    The norm is convex, so corners of the polytope suffice: ones and one remainder.
    """
    rest, reach = limit - int(limit), limit * (1.0 + 1e-12)
    corners = np.array(
        [each for each in itertools.product({0.0, rest, 1.0}, repeat=width) if sum(each) <= reach]
    )
    gaps = np.abs(corners[:, None] - corners[None])
    return float(np.max(np.sum(gaps**norm, axis=2) ** (1.0 / norm)))


class _Measure:
    """Distance of contributions as a fraction of the declared sensitivity, in floats."""

    def __init__(self, query: Any, mechanism: Mechanism) -> None:
        design = query.design(mechanism)
        scales = [block.relative_scale for block in design.blocks]
        self._scales = np.repeat(scales, [block.coordinates for block in design.blocks])
        self._order = 2 if mechanism == "discrete_gaussian" else 1
        self._declared = design.sensitivity
        self._query = query

    def encode(self, rows: Records) -> NDArray[np.int64]:
        """Return the contribution of a client with these rows, in normalised units."""
        code: NDArray[np.int64] = self._query.encode(in_data_units(self._query, rows))
        return code

    def __call__(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
        gap = (one - other) / self._scales
        return float(np.linalg.norm(gap, self._order)) / self._declared


def _starts(query: Any, generator: Generator) -> Iterator[tuple[Records, Records]]:
    most, columns = query.records_per_client, len(query.column_names)
    kinds: list[Callable[[tuple[int, int]], Records]] = [
        np.ones,
        lambda shape: np.tile(np.where(np.arange(columns) % 2, 1.0, -1.0), (shape[0], 1)),
        np.zeros,
        lambda shape: np.tile(np.where(np.arange(columns) < columns // 2, 1.0, 0.0), (shape[0], 1)),
        lambda shape: generator.choice([-1.0, 0.0, 1.0], shape),
        lambda shape: generator.uniform(-1.5, 1.5, shape),
        lambda shape: generator.choice([-5.0, 5.0]) * _axis(shape, generator),
        lambda shape: generator.choice(EXTREME_FLOATS, shape),
        lambda shape: np.tile(generator.choice([-1.0, 1.0], columns), (shape[0], 1)),
    ]

    def rows(kind: int, records: int) -> Records:
        return kinds[kind]((records, columns))

    # First all pairs of kinds that need no luck, either against no record, then whatever comes.
    for one, other in itertools.combinations(range(4), 2):
        yield rows(one, most), rows(other, most)
    yield rows(0, most), rows(0, 0)
    yield rows(0, 0), rows(1, most)
    while True:
        records = [most, int(generator.integers(most + 1))]
        if generator.integers(2):
            records.reverse()
        yield (
            rows(int(generator.integers(len(kinds))), records[0]),
            rows(int(generator.integers(len(kinds))), records[1]),
        )


def _axis(shape: tuple[int, int], generator: Generator) -> Records:
    axis = np.zeros(shape)
    axis[:, generator.integers(shape[1])] = 1.0
    return axis


def _climb(
    measure: _Measure, one: Records, other: Records, generator: Generator
) -> tuple[float, Records, Records]:
    """Change one number at a time as long as the distance does not fall, by ever smaller steps."""
    pair = [one.copy(), other.copy()]
    codes = [measure.encode(records) for records in pair]
    best = measure(*codes)
    seen = {_together(pair)}  # none of which was better than the best so far
    for step in _STEPS:
        for _ in range(_SWEEPS):
            before = best
            for side in generator.permutation(2):
                for place in generator.permutation(pair[side].size):
                    best = _improve(measure, pair, codes, seen, int(side), int(place), step, best)
            if best <= before:
                break
    return best, pair[0], pair[1]


def _together(pair: list[Records]) -> bytes:
    return pair[0].tobytes() + pair[1].tobytes()


def _improve(
    measure: _Measure,
    pair: list[Records],
    codes: list[NDArray[np.int64]],
    seen: set[bytes],
    side: int,
    place: int,
    step: float,
    best: float,
) -> float:
    where = np.unravel_index(place, pair[side].shape)
    start = float(pair[side][where])
    kept = start
    for value in (1.0, -1.0, 0.0, -start, start + step, start - step, start * (1.0 + step)):
        if not math.isfinite(value):
            continue
        pair[side][where] = value
        if (together := _together(pair)) in seen:
            continue
        seen.add(together)
        code = measure.encode(pair[side])
        found = measure(code, codes[1 - side])
        if found > best:
            best, kept, codes[side] = found, value, code
    pair[side][where] = kept
    return best


def largest_distance(query, mechanism, clients):
    """Return the largest distance of clients' records, of coordinates in units of their noise."""
    codes = np.unique([query.encode(records) for records in clients], axis=0)
    blocks = query.design(mechanism).blocks
    scales = np.repeat([each.relative_scale for each in blocks], [b.coordinates for b in blocks])
    gaps = np.abs(codes[:, None] - codes[None]) / query.grid / scales
    return np.linalg.norm(gaps, 2 if mechanism == "discrete_gaussian" else 1, axis=2).max()
