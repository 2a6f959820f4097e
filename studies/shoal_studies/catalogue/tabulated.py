"""Shared code of the studies that ask tables: what noisy counts of nested bins tell together.

Noisy tables of records of which the number is seen, too, fit together by weighed least squares.
Counts are not kept from being negative: that would pull sums of many of them.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Final

import numpy as np
from pydantic import Field

from shoal_protocol.jobs.job_request import Terms
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.queries.design import Floats
from shoal_studies.catalogue.study import WholeStudy
from shoal_studies.posteriors.forms import Known, KnownQuantile, quantile_points

TABLE_BITS: Final = 22
"""Of the grid of tables."""

_TOLD: Final = 4.0  # standard deviations from none: of fewer records no quantile is told


class TabulatingStudy(WholeStudy):
    """A study of tables, which count records with missing values, too.

    Numbers of records are not shown where fewer than `smallest_cell` may be behind them: where the
    lower end of a 95 % interval is below it. A data holder refuses less than its owner demands.
    """

    smallest_cell: Annotated[int, Field(ge=0, le=1_000_000, strict=True)] = 0

    def terms(self, *, least: int, most: int) -> Terms:
        stated = super().terms(least=least, most=most)
        return stated.model_copy(update={"smallest_cell": self.smallest_cell})

    def shown(self, mean: float, sd: float, *, reach: float) -> Known | None:
        """Return a count, or None where fewer records than are to be shown may be behind it."""
        is_hidden = self.smallest_cell and mean - reach * sd < self.smallest_cell
        return None if is_hidden else Known(mean=mean, sd=sd)


def indicator_of(name: str) -> ColumnBounds:
    """Return the column that is 1 where a variable of the data dictionary has no value."""
    return ColumnBounds(name=f"{name}_missing", lower=0.0, upper=1.0)


def fitted(
    cells: Floats, sd: float, total: Floats | float, total_sd: float
) -> tuple[Floats, float]:
    """Return tables of noisy cells, shape (..., k), moved to fit their noisy totals, shape (...).

    By least squares; cells and totals have noise of `sd` and `total_sd`. Then the noise that is
    left in each cell.
    """
    share = sd**2 / (cells.shape[-1] * sd**2 + total_sd**2)
    gap = np.asarray(total - cells.sum(axis=-1))
    return cells + share * gap[..., None], sd * math.sqrt(1.0 - share)


@dataclass(frozen=True)
class Below:
    """How many records are below each of `edges`, shape (k + 1,): a normal law.

    Below the first edge are none, as the outer bins hold all beyond; `mean` and `covariance`,
    shapes (k,) and (k, k), are of the others. The last one's is of all records with a value.
    """

    edges: Floats
    mean: Floats
    covariance: Floats

    @property
    def bins(self) -> Floats:
        """Means of how many records are in each bin, shape (k,)."""
        return np.diff(self.mean, prepend=0.0)

    def sd(self, weights: Floats) -> float:
        """Return the standard deviation of the sum of all bins times `weights`, shape (k,)."""
        by_edge = weights - np.append(weights[1:], 0.0)
        return math.sqrt(max(float(by_edge @ self.covariance @ by_edge), 0.0))

    @property
    def present(self) -> Known:
        """How many records have a value."""
        variance = float(self.covariance[-1, -1])
        return Known(mean=float(self.mean[-1]), sd=math.sqrt(variance))

    def with_present(self, seen: float, sd: float) -> "Below":
        """Return the law if `seen` records have a value besides, with noise of `sd`."""
        last = self.covariance[-1]
        gain = last / (last[-1] + sd**2)
        return replace(
            self,
            mean=self.mean + gain * (seen - self.mean[-1]),
            covariance=self.covariance - np.outer(gain, last),
        )

    def tells(self, *, reach: float, smallest: int) -> bool:
        """Tell whether enough records have a value to tell of quantiles, and to show them."""
        present = self.present
        is_seen = present.mean > max(_TOLD * present.sd, 1.0)
        return is_seen and present.mean - reach * present.sd >= smallest

    def quantiles(self, levels: Iterable[float]) -> tuple[KnownQuantile, ...]:
        """Return the quantiles at `levels`."""
        return tuple(KnownQuantile(level=each, points=self.points(each)) for each in levels)

    def points(self, share: float) -> tuple[float, ...]:
        """Return where the `share` quantile is, at each of `REACHES`."""
        mean = np.append(0.0, self.mean) - share * self.mean[-1]
        last = np.append(0.0, self.covariance[-1])
        spread = np.append(0.0, np.diagonal(self.covariance)) - 2.0 * share * last
        spread += share**2 * last[-1]
        return quantile_points(self.edges, mean, np.sqrt(np.maximum(spread, 0.0)))


def updated(before: Below | None, edges: Floats, bins: Floats, sd: float) -> Below:
    """Return the law after one more histogram: counts of `bins` between `edges` with noise of `sd`.

    An edge of those before that is none of this one's tells nothing more, and is let go.
    """
    step = np.eye(len(bins)) - np.eye(len(bins), k=-1)  # from records below to records in a bin
    precision = step.T @ step / sd**2
    pull = step.T @ bins / sd**2
    if before is not None:
        kept = np.flatnonzero(np.isin(before.edges[1:], edges))
        here = np.searchsorted(edges[1:], before.edges[1:][kept])
        known = np.linalg.inv(before.covariance[np.ix_(kept, kept)])
        precision[np.ix_(here, here)] += known
        pull[here] += known @ before.mean[kept]
    covariance = np.linalg.inv(precision)
    return Below(edges, covariance @ pull, (covariance + covariance.T) / 2.0)


def nested(
    histograms: Iterable[tuple[Floats, Floats, float]], total: float, total_sd: float
) -> tuple[Below, Known]:
    """Return the law of one variable's counts, and how many records have no value.

    Of each of the `histograms`, coarse ones first: edges, counts of the bins and then of records
    without a value, and the noise. All records are `total`, with noise of `total_sd`.
    """
    law, missing, precision = None, 0.0, 0.0
    for edges, cells, sd in histograms:
        law = updated(law, edges, cells[:-1], sd)
        missing, precision = missing + float(cells[-1]) / sd**2, precision + sd**-2
    assert law is not None  # noqa: S101 - a number has a histogram
    missing, variance = missing / precision, 1.0 / precision
    share = variance / (law.present.sd**2 + variance + total_sd**2)
    gap = total - law.present.mean - missing
    known = Known(mean=missing + share * gap, sd=math.sqrt(variance * (1.0 - share)))
    return law.with_present(total - missing, math.hypot(total_sd, math.sqrt(variance))), known
