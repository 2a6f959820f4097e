"""Cohort cards from noisy tables: each variable's counts at several widths are put together."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from shoal_learning.families.count_trees import CountTree, Floats, NoisyLevel
from shoal_learning.families.round import OneRound
from shoal_protocol.posteriors.base import LEVEL
from shoal_protocol.posteriors.known import (
    Known,
    KnownQuantile,
    Tails,
    quantile_points,
    reach_of,
    tails_of,
)
from shoal_protocol.queries import Tables
from shoal_protocol.queries.sums import tables_from
from shoal_protocol.rounds.released_sum import ReleasedSum
from shoal_protocol.studies.cohort_card import CategoryVariable, CohortCardTask, NumberVariable
from shoal_protocol.studies.cohort_card.posterior import (
    CategoryCard,
    CohortCardPosterior,
    CrossCard,
    NumberCard,
    bin_labels,
)
from shoal_protocol.studies.measurements import noisy_count
from shoal_protocol.studies.one_round import and_others

_BARS: Final = 16
_TOLD: Final = 4.0  # standard deviations from none: fewer records tell no mean


class CohortCard(OneRound[CohortCardTask, CohortCardPosterior]):
    """The learner of one `CohortCardTask`."""

    def posterior(self, released: ReleasedSum) -> CohortCardPosterior:
        return _Card(self.task, released).posterior()


class _Card:
    def __init__(self, task: CohortCardTask, released: ReleasedSum) -> None:
        query = released.query
        assert isinstance(query, Tables)  # noqa: S101 - by `OneRound.next`
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
        crosses = [
            self._cross(names, self._tree([(1, *found)]))
            for names, found in zip(self._task.crosses, rest, strict=True)
        ]
        return CohortCardPosterior.of(
            cards,
            crosses,
            total=Known(mean=self._total, sd=self._total_sd),
            tails=self._tails,
            columns=tuple(each.name for each in self._task.columns),
            smallest_cell=self._task.smallest_cell,
        )

    def _tree(self, levels: Sequence[tuple[int, Floats, float]]) -> CountTree:
        noisy = [NoisyLevel(width=width, counts=counts, sd=sd) for width, counts, sd in levels]
        return CountTree(noisy, self._total, self._total_sd)

    def _shown(self, mean: float, sd: float) -> Known | None:
        """Return a count, or None where it may be too small."""
        smallest = self._task.smallest_cell
        if smallest and mean - self._reach * sd < smallest:
            return None
        return Known(mean=float(mean), sd=float(sd))

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
        is_told = present.mean > max(_TOLD * present.sd, 1.0)
        is_told &= present.mean - self._reach * present.sd >= self._task.smallest_cell
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
