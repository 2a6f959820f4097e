"""Survival curves and the log-rank test from a noisy table of events and of last times seen.

Draws of the noise give draws of the true counts; each is made monotone in time, and hazards are
drawn given it. The test's law under its hypothesis is simulated, noise and all.
Explained in docs/mathematics.md, section 7.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.queries import Tables
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.sums import tables_from
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue.kaplan_meier import (
    MOST_NUMBERS,
    NULL_DRAWS,
    GroupCurve,
    KaplanMeierPosterior,
    KaplanMeierTask,
    LogRank,
    encoded,
    names_of,
)
from shoal_studies.catalogue.measurements import noisy_count, query_of
from shoal_studies.catalogue.study import called
from shoal_studies.families.one_round import OneRound, SummedNoise, generator_for, shown_count
from shoal_studies.posteriors.base import LEVEL
from shoal_studies.posteriors.forms import reach_of, tails_of

_DRAWS: Final = 1000
_MOST_RATE: Final = 20.0  # in one interval: all have the event
_EMPTY: Final = 3.0  # standard deviations from none: so many records may be noise alone
_SMALL: Final = 0.05  # of all records
_TOLD: Final = 6.0  # standard deviations from none: of fewer at risk no hazard is told


class KaplanMeier(OneRound[KaplanMeierTask, KaplanMeierPosterior]):
    """The learner of one `KaplanMeierTask`."""

    def posterior(self, released: ReleasedSum) -> KaplanMeierPosterior:
        table, generator = _NoisyTable.of(released), generator_for(released)
        known = _Monotone.of(table.counts[None])
        # true counts as they may have been; some are negative
        draws = _Monotone.of(table.counts - table.noises(_DRAWS, generator))
        reach = reach_of(LEVEL, tails_of(released.mechanism))
        labels, last = _labels(self.task), len(self.task.times) - 1
        groups, curves = [], []
        risk_sds = draws.at_risk.std(axis=0)
        survival = draws.survival(generator)
        for place, label in enumerate(labels):
            risks, sds = known.at_risk[0, place], risk_sds[place]
            shown = self._shown(risks[:last], sds[:last], reach)
            numbers = [
                shown_count(risk, sd, reach=reach, smallest=self.task.smallest_cell)
                for risk, sd in zip(risks.tolist(), sds.tolist(), strict=True)
            ][1 : shown + 1]
            groups.append(GroupCurve(label=label, shown=shown, at_risk=tuple(numbers)))
            curves.append(survival[:, place, :shown])
        times = self.task.times[1:]
        left_out = [
            shown_count(float(risk), float(sd), reach=reach, smallest=self.task.smallest_cell)
            for risk, sd in zip(
                known.at_risk[0, len(labels) :, 0], risk_sds[len(labels) :, 0], strict=True
            )
        ]
        drawn = np.concatenate(curves, axis=1)
        return KaplanMeierPosterior(
            names=names_of(groups, times),
            records=max(1, round(table.total - table.counts[len(labels) :].sum())),
            left_out=left_out[0] if left_out else None,
            columns=tuple(each.name for each in self.task.columns),
            start=self.task.times[0],
            times=times,
            groups=tuple(groups),
            curves=encoded(drawn[: MOST_NUMBERS // drawn.shape[1]]),
            log_rank=_log_rank(table, len(labels), generator),
        )

    def _shown(self, risks: Floats, sds: Floats, reach: float) -> int:
        """Return at how many times a group's curve is known: at the first in any case."""
        enough = (risks > _TOLD * sds) & (risks - reach * sds >= self.task.smallest_cell)
        return max(1, len(risks) if enough.all() else int(np.argmin(enough)))


def _labels(task: KaplanMeierTask) -> list[str]:
    if task.group is None:
        return ["all"]
    return [f"{task.group} {name}" for name in called(task.levels, task.labels)]


@dataclass(frozen=True)
class _NoisyTable:
    """Counts of groups, intervals, and event or none, shape (g, b, 2), moved to fit the total.

    Without a group there is one; with one the last is of all other levels. `noise` is each cell's,
    as it was before, and `total_noise` that of the number of all records.
    """

    counts: Floats
    noise: SummedNoise
    total: float
    total_noise: SummedNoise

    @classmethod
    def of(cls, released: ReleasedSum) -> "_NoisyTable":
        query = query_of(released, Tables)
        [cells] = tables_from(query, released.values.astype(np.float64))
        [sds] = tables_from(query, released.noise_sd)
        total, total_sd = noisy_count(released)
        noise, of_total = (
            SummedNoise(mechanism=released.mechanism, sd=sd, shape=released.surplus)
            for sd in (float(sds[0]), total_sd)
        )
        *others, intervals, events = query.shape(query.tables[0])
        table = cls(np.empty(0), noise, total, of_total)
        moved = table.fitted(cells[None], np.array([total]))[0, :-1]
        groups = others[0] if others else 1
        return cls(moved.reshape(groups, intervals, events), noise, total, of_total)

    def fitted(self, cells: Floats, totals: Floats) -> Floats:
        """Return tables of cells, shape (n, k), moved to fit their totals by least squares."""
        gap = totals - cells.sum(axis=1)
        size = cells.shape[1]
        share = self.noise.sd**2 / (size * self.noise.sd**2 + self.total_noise.sd**2)
        return np.asarray(cells + share * gap[:, None])

    def noises(self, count: int, generator: np.random.Generator) -> Floats:
        """Return so many draws of what is left of the noise, shape (count, g, b, 2)."""
        size = self.counts.size + 1
        drawn = self.noise.draw((count, size), generator)
        totals = self.total_noise.draw((count,), generator)
        fitted = self.fitted(drawn, totals)[:, :-1]
        return fitted.reshape(count, *self.counts.shape)


@dataclass(frozen=True)
class _Monotone:
    """Tables made possible: events, and all who leave, never fall as they add up over time.

    `events`, `leaving` and `at_risk` have shape (n, g, b).
    """

    events: Floats
    leaving: Floats
    at_risk: Floats

    @classmethod
    def of(cls, tables: Floats) -> "_Monotone":
        """Take tables, shape (n, g, b, 2)."""
        happened = np.maximum(_rising(np.cumsum(tables[..., 0], axis=-1)), 0.0)
        left = np.maximum(_rising(np.cumsum(tables.sum(axis=-1), axis=-1)), happened)
        leaving = np.diff(left, prepend=0.0, axis=-1)
        events = np.minimum(np.diff(happened, prepend=0.0, axis=-1), leaving)
        return cls(events, leaving, left[..., -1:] - left + leaving)

    @property
    def exposure(self) -> Floats:
        """For how many intervals in all one was at risk in each: who left it was for half of it."""
        return np.asarray(self.at_risk - self.leaving / 2.0)

    def survival(self, generator: np.random.Generator) -> Floats:
        """Return draws of the survival to the end of each interval, shape (n, g, b).

        A hazard given the counts has a Beta distribution, as of a prior worth no record.
        """
        censored = self.leaving - self.events  # of half of whom an event would have been seen
        happen = generator.standard_gamma(self.events)
        pass_by = generator.standard_gamma(
            np.maximum(self.at_risk - self.events - censored / 2.0, 0.0)
        )
        both = happen + pass_by
        hazards = np.divide(happen, both, out=np.zeros_like(happen), where=both > 0.0)
        return np.asarray(np.cumprod(1.0 - hazards, axis=-1))


def _rising(values: Floats) -> Floats:
    """Return values, shape (..., b), that never fall: between the least such above and below."""
    above = np.maximum.accumulate(values, axis=-1)
    below = np.minimum.accumulate(values[..., ::-1], axis=-1)[..., ::-1]
    return np.asarray((above + below) / 2.0)


def _log_rank(table: _NoisyTable, groups: int, generator: np.random.Generator) -> LogRank | None:
    """Return the test of whether those of the first `groups` that somebody is in have one hazard.

    None if there are not two of them. A group counts as empty where its number of records is
    within the noise of none, and a small part of all.
    Under the hypothesis each group's records are drawn with the event rates of all of them together
    and rates of leaving of its own, as the table has them, and get noise as the table did.
    """
    sizes = table.counts[:groups].sum(axis=(1, 2))
    empty = table.noise.sd * np.sqrt(table.counts[0].size) * _EMPTY
    is_there = sizes > min(empty, _SMALL * table.total)
    if is_there.sum() < 2:
        return None
    order = np.argsort(np.append(~is_there, np.ones(len(table.counts) - groups)), kind="stable")
    table, groups = replace(table, counts=table.counts[order]), int(is_there.sum())
    counts = table.counts
    known = _Monotone.of(counts[None, :groups])
    told = _told(table, groups)
    rates = _ratio(known.events.sum(axis=1), known.exposure.sum(axis=1), most=_MOST_RATE)[0]
    leaving = _ratio(known.leaving - known.events, known.exposure, most=_MOST_RATE)[0]
    starts = np.rint(known.at_risk[0, :, 0]).astype(np.int64)
    null = _null_tables(starts, rates, leaving, generator)
    rest = np.broadcast_to(counts[groups:], (NULL_DRAWS, *counts[groups:].shape))
    null = np.concatenate([null, rest], axis=1) + table.noises(NULL_DRAWS, generator)
    drawn = _excess(null[:, :groups], told)
    mean, freedom = drawn.mean(axis=0), groups - 1
    spread = np.atleast_2d(np.cov(drawn, rowvar=False)) + 1e-9 * np.eye(freedom)
    [seen] = _excess(counts[None, :groups], told)
    squares = [float(far @ np.linalg.solve(spread, far)) for far in (*(drawn - mean), seen - mean)]
    as_far = sum(each >= squares[-1] for each in squares)  # itself among them
    return LogRank(
        statistic=max(squares[-1], 0.0), freedom=freedom, p_value=as_far / (NULL_DRAWS + 1)
    )


def _told(table: _NoisyTable, groups: int) -> int:
    """Return in how many intervals enough of all groups together are at risk to tell a hazard."""
    pooled = _Monotone.of(table.counts[None, :groups].sum(axis=1, keepdims=True)).at_risk[0, 0]
    # what adds up over the cells of later intervals, at most
    cells = 2 * groups * np.arange(len(pooled), 0, -1)
    enough = pooled > _TOLD * table.noise.sd * np.sqrt(cells)
    return max(1, len(pooled) if enough.all() else int(np.argmin(enough)))


def _null_tables(
    starts: NDArray[np.int64], rates: Floats, leaving: Floats, generator: np.random.Generator
) -> Floats:
    """Return tables without noise, shape (n, g, b, 2), of groups with one event rate, shape (b,).

    They have rates of leaving of their own, shape (g, b). In the last interval all leave.
    """
    at_risk = np.broadcast_to(starts, (NULL_DRAWS, len(starts)))
    columns: list[NDArray[np.int64]] = []
    for rate, leave in zip(rates, leaving.T, strict=True):
        left = generator.binomial(at_risk, -np.expm1(-(rate + leave)))
        if len(columns) == len(rates) - 1:
            left = at_risk
        events = generator.binomial(left, _ratio(np.full_like(leave, rate), rate + leave))
        columns.append(np.stack([events, left - events], axis=-1))
        at_risk = at_risk - left
    return np.stack(columns, axis=2).astype(np.float64)


def _excess(tables: Floats, told: int) -> Floats:
    """Return how many more events each group but the last had than expected, shape (n, g - 1)."""
    each = _Monotone.of(tables)
    events, exposure = each.events[..., :told], each.exposure[..., :told]
    pooled = _ratio(events.sum(axis=1), exposure.sum(axis=1), most=_MOST_RATE)
    return np.asarray(np.sum(events - exposure * pooled[:, None], axis=-1)[:, :-1])


def _ratio(part: Floats, whole: Floats, *, most: float = 1.0) -> Floats:
    """Return part / whole, `most` at most, and 0 where there is no whole."""
    found = np.divide(part, whole, out=np.zeros_like(part), where=whole > 0.0)
    return np.asarray(np.clip(found, 0.0, most))
