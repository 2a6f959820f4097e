"""Cohort cards from noisy tables: each variable's counts at several widths are put together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from shoal_protocol.queries import Tables
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.sums import tables_from
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue.cohort_card import (
    CategoryCard,
    CategoryVariable,
    CohortCardPosterior,
    CohortCardTask,
    CrossCard,
    NumberCard,
    NumberVariable,
    bin_labels,
)
from shoal_studies.catalogue.measurements import noisy_count, query_of
from shoal_studies.catalogue.study import and_others
from shoal_studies.families.one_round import OneRound, shown_count, tells_quantiles
from shoal_studies.posteriors.base import LEVEL
from shoal_studies.posteriors.forms import (
    Known,
    KnownQuantile,
    Tails,
    quantile_points,
    reach_of,
    tails_of,
)

# What nested noisy counts of one variable tell of every sum of its bins; exact for normal noise.
#
# Bins 0 to K - 1 are counted at several widths, a power of the others each, and so are the records
# without a value; all records together are counted, too. Weighed least squares of all of it has a
# closed form: the design's eigenspaces are the contrasts within the nodes of one width that the
# next finer width tells apart. Proof: docs/mathematics.md, proposition 7.2.


@dataclass(frozen=True, kw_only=True)
class NoisyLevel:
    """Counts of nodes of `width` bins each, and last of records without a value; noise of `sd`."""

    width: int
    counts: Floats
    sd: float


@dataclass(frozen=True)
class CountTree:
    """The law of the true counts given `levels`, coarse ones first, and a noisy `total`.

    The last level's nodes are the bins; each level's width is a multiple of the next one's. The law
    is normal. It knows nothing of counts not being negative: that would pull sums of many bins.
    """

    levels: Sequence[NoisyLevel]
    total: float
    total_sd: float

    @cached_property
    def _precisions(self) -> list[float]:
        """The precision of a unit vector in each level's space of contrasts."""
        parts = [level.width / level.sd**2 for level in self.levels]
        return [sum(parts[place:]) for place in range(len(parts))]

    @property
    def size(self) -> int:
        """K, the number of bins."""
        return len(self.levels[-1].counts) - 1

    @cached_property
    def _fit(self) -> tuple[Floats, float]:
        """The mean of the bins, shape (K,), and of the records without a value."""
        weighed = sum(np.repeat(each.counts[:-1], each.width) / each.sd**2 for each in self.levels)
        bins, coarser = np.zeros(self.size), np.zeros(self.size)
        for level, precision in zip(self.levels, self._precisions, strict=True):
            means = np.repeat(np.mean(np.reshape(weighed, (-1, level.width)), axis=1), level.width)
            bins += (means - coarser) / precision
            coarser = means
        missing = self._missing_variance * sum(each.counts[-1] / each.sd**2 for each in self.levels)
        gap = (self.total - bins.sum() - missing) / self._total_variance
        return bins + gap / self._precisions[0], float(missing + gap * self._missing_variance)

    @cached_property
    def _missing_variance(self) -> float:
        return 1.0 / sum(1.0 / each.sd**2 for each in self.levels)

    @cached_property
    def _total_variance(self) -> float:
        """Of the total less what the tables say it is."""
        return self.size / self._precisions[0] + self._missing_variance + self.total_sd**2

    @property
    def bins(self) -> Floats:
        """Means of the bins' counts, shape (K,)."""
        return self._fit[0]

    @property
    def missing(self) -> float:
        """Mean of how many records have no value."""
        return self._fit[1]

    @property
    def missing_sd(self) -> float:
        """Its standard deviation."""
        variance = self._missing_variance - self._missing_variance**2 / self._total_variance
        return float(np.sqrt(variance))

    def sd(self, weights: Floats) -> float:
        """Return the standard deviation of a sum of the bins with these `weights`, shape (K,)."""
        variance, coarser = 0.0, 0.0
        for level, precision in zip(self.levels, self._precisions, strict=True):
            means = np.mean(np.reshape(weights, (-1, level.width)), axis=1)
            squares = level.width * float(means @ means)
            variance += (squares - coarser) / precision
            coarser = squares
        shared = float(np.sum(weights)) / self._precisions[0]
        return float(np.sqrt(max(variance - shared**2 / self._total_variance, 0.0)))

    def below(self, share: float) -> tuple[Floats, Floats]:
        """Return how many more records are below each edge than `share` of those with a value.

        Means and standard deviations, shapes (K + 1,).
        """
        edges = np.arange(self.size + 1)
        means = np.concatenate([[0.0], np.cumsum(self.bins)]) - share * self.bins.sum()
        variance, coarser = np.zeros(self.size + 1), np.zeros(self.size + 1)
        for level, precision in zip(self.levels, self._precisions, strict=True):
            nodes, part = np.divmod(edges, level.width)
            split = np.where(part > 0, (part / level.width - share) ** 2, 0.0)
            rest = self.size // level.width - nodes - (part > 0)
            squares = level.width * (nodes * (1.0 - share) ** 2 + split + rest * share**2)
            variance += (squares - coarser) / precision
            coarser = squares
        shared = (edges - share * self.size) / self._precisions[0]
        variance -= shared**2 / self._total_variance
        return means, np.sqrt(np.maximum(variance, 0.0))


_BARS: Final = 16


class CohortCard(OneRound[CohortCardTask, CohortCardPosterior]):
    """The learner of one `CohortCardTask`."""

    def posterior(self, released: ReleasedSum) -> CohortCardPosterior:
        return _Card(self.task, released).posterior()


class _Card:
    def __init__(self, task: CohortCardTask, released: ReleasedSum) -> None:
        query = query_of(released, Tables)
        self._task, self._query = task, query
        self._total, self._total_sd = noisy_count(released)
        sds = tables_from(query, released.noise_sd)
        self._counts = [
            (counts, float(sd[0]))
            for counts, sd in zip(
                tables_from(query, released.values.astype(float)), sds, strict=True
            )
        ]
        self._tails: Tails = tails_of(released.mechanism)
        self._reach = reach_of(LEVEL, self._tails)

    def posterior(self) -> CohortCardPosterior:
        cards: list[NumberCard | CategoryCard] = []
        rest = iter(self._counts)
        for variable in self._task.variables:
            tree = self._tree([(width, *next(rest)) for width in variable.widths])
            if isinstance(variable, NumberVariable):
                cards.append(self._number(variable, tree))
            else:
                cards.append(self._category(variable, tree))
        return CohortCardPosterior.of(
            cards=tuple(cards),
            crosses=tuple(
                self._cross(names, self._tree([(1, *found)]))
                for names, found in zip(self._task.crosses, rest, strict=True)
            ),
            records=max(1, round(self._total)),
            total=Known(mean=self._total, sd=self._total_sd),
            tails=self._tails,
            columns=tuple(each.name for each in self._task.columns),
            smallest_cell=self._task.smallest_cell,
        )

    def _tree(self, levels: Sequence[tuple[int, Floats, float]]) -> CountTree:
        noisy = [NoisyLevel(width=width, counts=counts, sd=sd) for width, counts, sd in levels]
        return CountTree(noisy, self._total, self._total_sd)

    def _shown(self, mean: float, sd: float) -> Known | None:
        return shown_count(mean, sd, reach=self._reach, smallest=self._task.smallest_cell)

    def _cells(self, tree: CountTree, width: int = 1) -> tuple[Known | None, ...]:
        """Return the counts of nodes of so many bins each."""
        weights = np.zeros(tree.size)
        weights[:width] = 1.0
        sd = tree.sd(weights)  # that of all of them
        means = tree.bins.reshape(-1, width).sum(axis=1)
        return tuple(self._shown(mean, sd) for mean in means.tolist())

    def _category(self, variable: CategoryVariable, tree: CountTree) -> CategoryCard:
        return CategoryCard(
            name=variable.name,
            present=_present(tree),
            missing=self._shown(tree.missing, tree.missing_sd),
            levels=variable.levels,
            labels=variable.labels,
            counts=self._cells(tree),
        )

    def _number(self, variable: NumberVariable, tree: CountTree) -> NumberCard:
        edges, present = np.array(variable.edges), _present(tree)
        average, variance = _moments(tree, edges)
        width = max(variable.bins // _BARS, 1)
        is_told = tells_quantiles(present, reach=self._reach, smallest=self._task.smallest_cell)
        return NumberCard(
            name=variable.name,
            present=present,
            missing=self._shown(tree.missing, tree.missing_sd),
            average=average if is_told else None,
            variance=variance if is_told else None,
            quantiles=tuple(
                KnownQuantile(level=level, points=quantile_points(edges, *tree.below(level)))
                for level in self._task.quantiles
                if is_told
            ),
            edges=tuple(edges[::width].tolist()),
            bars=self._cells(tree, width),
        )

    def _cross(self, names: tuple[str, ...], tree: CountTree) -> CrossCard:
        labels = []
        for axis in self._query.tables[-1 - self._task.crosses[::-1].index(names)].axes:
            variable = self._task.variables[axis.cut]
            labels.append(
                bin_labels(variable.edges[:: axis.merged])
                if isinstance(variable, NumberVariable)
                else and_others(variable.names)
            )
        return CrossCard(
            variables=names, labels=tuple(map(tuple, labels)), counts=self._cells(tree)
        )


def _present(tree: CountTree) -> Known:
    return Known(mean=float(tree.bins.sum()), sd=tree.sd(np.ones(tree.size)))


def _moments(tree: CountTree, edges: Floats) -> tuple[Known, Known]:
    """Return mean and variance of the values, outer ones cut to the bounds.

    A record is anywhere in its bin: of that too there is a standard deviation, as if all were off
    their bins' middles together, by an amount that is as likely as any.
    """
    middles, within = (edges[1:] + edges[:-1]) / 2.0, float(edges[1] - edges[0]) / math.sqrt(12.0)
    records = max(float(tree.bins.sum()), 1.0)
    mean = float(middles @ tree.bins) / records
    mean = min(max(mean, float(edges[0])), float(edges[-1]))
    mean_sd = tree.sd((middles - mean) / records)
    squares = (middles - mean) ** 2
    variance = float(squares @ tree.bins) / records
    variance_sd = tree.sd((squares - variance) / records)
    return (
        Known(mean=mean, sd=math.hypot(mean_sd, within)),
        Known(mean=variance + mean_sd**2, sd=math.hypot(variance_sd, within**2)),
    )
