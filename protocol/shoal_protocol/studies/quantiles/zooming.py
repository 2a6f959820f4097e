"""What rounds of counts tell of how many records are below an edge, and where to look next.

The learner that makes the next round and the auditor that checks it compute the same edges.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.posteriors.known import REACHES, quantile_points
from shoal_protocol.queries import EdgeCut, Tables
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.queries.sums import tables_from
from shoal_protocol.rounds.released_sum import ReleasedSum
from shoal_protocol.studies.measurements import noisy_count

Floats = NDArray[np.float64]

_REACH: Final = 4.0  # standard deviations: where a quantile may be the next round looks
_FINEST: Final = 2.0**-48  # of the range or of the largest magnitude: a float tells edges apart


@dataclass(frozen=True)
class Below:
    """How many records are below each of `edges`, shape (k + 1,): a normal law.

    Below the first edge are none, as the outer bins hold all beyond; `mean` and `covariance`,
    shapes (k,) and (k, k), are of the others. The last one's is of all records with a value.
    """

    edges: Floats
    mean: Floats
    covariance: Floats

    def quantile(self, share: float) -> tuple[Floats, Floats]:
        """Return how many more records are below each edge than `share` of those with a value.

        Means and standard deviations, shapes (k + 1,).
        """
        mean = np.concatenate([[0.0], self.mean]) - share * self.mean[-1]
        last = np.append(0.0, self.covariance[-1])
        spread = np.append(0.0, np.diagonal(self.covariance)) - 2.0 * share * last
        spread += share**2 * last[-1]
        return mean, np.sqrt(np.maximum(spread, 0.0))

    def points(self, share: float) -> tuple[float, ...]:
        """Return where a quantile is, at each of `REACHES`."""
        return quantile_points(self.edges, *self.quantile(share))


def laws(sums: Sequence[ReleasedSum]) -> list[Below]:
    """Return what all rounds together tell of each of the query's tables, one for each cut.

    Raises:
        ValueError: a sum is none of tables over one cut each.
    """
    found: list[Below | None] = [None] * len(_query(sums[-1]).tables)
    for released in sums:
        query = _query(released)
        total, total_sd = noisy_count(released)
        counts = tables_from(query, released.values.astype(np.float64))
        sds = tables_from(query, released.noise_sd)
        for place, table in enumerate(query.tables):
            cut = query.cuts[table.axes[0].cut]
            if not isinstance(cut, EdgeCut):
                raise ValueError("quantiles are found between edges")
            sd, (*bins, missing) = float(sds[place][0]), counts[place].tolist()
            seen = (total - missing, float(np.hypot(total_sd, sd)))
            found[place] = _updated(found[place], np.array(cut.edges), np.array(bins), sd, seen)
    return [each for each in found if each is not None]


def _query(released: ReleasedSum) -> Tables:
    if not isinstance(released.query, Tables):
        raise ValueError("quantiles are found from tables")
    return released.query


def _updated(
    before: Below | None, edges: Floats, bins: Floats, sd: float, present: tuple[float, float]
) -> Below:
    """Return the law after one more round: `bins` with noise of `sd`, and `present` with its own.

    An edge of the round before that is none of this one's tells nothing more, and is let go.
    """
    size = len(bins)
    step = np.eye(size) - np.eye(size, k=-1)  # from records below to records in a bin
    precision = step.T @ step / sd**2
    pull = step.T @ bins / sd**2
    seen, seen_sd = present
    precision[-1, -1] += 1.0 / seen_sd**2
    pull[-1] += seen / seen_sd**2
    if before is not None:
        kept = np.flatnonzero(np.isin(before.edges[1:], edges))
        here = np.searchsorted(edges[1:], before.edges[1:][kept])
        known = np.linalg.inv(before.covariance[np.ix_(kept, kept)])
        precision[np.ix_(here, here)] += known
        pull[here] += known @ before.mean[kept]
    covariance = np.linalg.inv(precision)
    return Below(edges, covariance @ pull, (covariance + covariance.T) / 2.0)


def first_edges(bounds: ColumnBounds, bins: int) -> tuple[float, ...]:
    """Return the edges of bins of one width."""
    return tuple(np.linspace(bounds.lower, bounds.upper, bins + 1).tolist())


def next_edges(law: Below, shares: Sequence[float], bins: int) -> tuple[float, ...]:
    """Return the edges of at most so many bins: narrow where quantiles may be, one in between.

    Where quantiles may be in the same bins they share them.
    """
    windows: list[list[float]] = []  # lower and upper edge, and how many quantiles are within
    for share in sorted(shares):
        ends = np.interp([-_REACH, _REACH], REACHES, law.points(share))
        low = float(law.edges[np.searchsorted(law.edges, ends[0], side="right") - 1])
        high = float(law.edges[np.searchsorted(law.edges, ends[1], side="left")])
        if windows and low <= windows[-1][1]:
            windows[-1] = [windows[-1][0], max(high, windows[-1][1]), windows[-1][2] + 1]
        else:
            windows.append([low, high, 1])
    first, last = float(law.edges[0]), float(law.edges[-1])
    finest = _FINEST * max(abs(first), abs(last), last - first)
    inner = bins - len(windows) - 1
    edges = [first, last]
    for low, high, within in windows:
        parts = int(inner * within / len(shares))
        parts = max(min(parts, int((high - low) / finest)), 1)
        edges += np.linspace(low, high, parts + 1).tolist()
    found = np.unique(edges)
    if len(found) == 2:  # a cut has two bins or more
        found = np.array([first, (first + last) / 2.0, last])
    return tuple(found.tolist())
