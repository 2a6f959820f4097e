"""Survival by Kaplan and Meier, and the log-rank test, from counts over intervals of time.

The learner draws the noise on events and on last times seen, and so the true counts. It makes each
draw monotone in time, and draws hazards given it. It simulates the test's law under its hypothesis,
noise and all. Explained in docs/mathematics.md, section 7.
"""

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Annotated, ClassVar, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from shoal_protocol.queries import Axis, EdgeCut, LevelCut, Table, Tables
from shoal_protocol.queries.columns import ColumnBounds, ColumnName
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.sums import tables_from
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.trust.dictionary import Coding, codings_of_events
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import Base64, Finite, Place, Real, Size
from shoal_studies.catalogue.measurements import noisy_count, query_of
from shoal_studies.catalogue.one_round import SummedNoise, generator_for
from shoal_studies.catalogue.study import EventStudy, Labels, OneRoundStudy, called, spanning
from shoal_studies.catalogue.tabulated import (
    TABLE_BITS,
    TabulatingStudy,
    fitted,
    indicator_of,
)
from shoal_studies.posteriors.base import LEVEL, BasePosterior, require_level
from shoal_studies.posteriors.forms import DrawnPosterior, Known, reach_of
from shoal_studies.posteriors.summaries import Summary, quantile_headings

MOST_NUMBERS: Final = 200_000
"""In all draws: a report is at most a mebibyte."""
NULL_DRAWS: Final = 1999
"""Simulations of the log-rank test's statistic: no p-value is below one in one more."""
_FEWEST: Final = 100  # draws
_HANDFUL: Final = 5.0  # records or events
_RARE: Final = 0.01  # of all records
_FEW_EVENTS: Final = 0.05  # of records, or all that noise lets be seen
_NEARLY_ALL: Final = 0.9  # of all records
_UNIT: Final = 65_535.0  # a survival of 1


class LogRank(Model):
    """A test of whether all groups have the same hazard at all times.

    `statistic` is chi-square about, with `freedom` degrees; it is weighed by how much it varies
    under the hypothesis, privacy noise included. `p_value` is how often it is as large then, of
    simulations: no smaller one is told than one in their number.
    """

    statistic: Size
    freedom: Place
    p_value: Annotated[float, Field(gt=0.0, le=1.0)]

    def __str__(self) -> str:
        degrees = "1 degree" if self.freedom == 1 else f"{self.freedom} degrees"
        least = 1.0 / (NULL_DRAWS + 1)
        p = f"p < {least:.3g}" if self.p_value <= least else f"p {self.p_value:.3g}"
        return f"chi-square {self.statistic:.4g} with {degrees} of freedom, {p}"


class GroupCurve(Model):
    """A group's curve: known at `shown` of the times, and how many are at risk at each.

    A number at risk is None where it may be too small to be shown.
    """

    label: str
    shown: Place
    at_risk: tuple[Known | None, ...]

    @model_validator(mode="after")
    def _one_for_each(self) -> Self:
        if len(self.at_risk) != self.shown:
            raise ValueError("there is one number at risk for each time")
        return self


class KaplanMeierPosterior(DrawnPosterior):
    """How likely one is without an event from `start` until just before each of `times`.

    `curves` are the draws, shape (draws, k), as little-endian integers of 16 bits, 65,535 for 1.
    They know of privacy noise and of sampling. A curve ends where too few are at risk to tell.
    `records` are those of the groups; `left_out` says how many are of other levels: None without
    groups, or where they may be too few to be shown.
    """

    name: Literal["kaplan_meier"] = "kaplan_meier"
    columns: tuple[str, ...]
    start: Finite
    times: Annotated[tuple[Finite, ...], Field(min_length=1)]
    groups: Annotated[tuple[GroupCurve, ...], Field(min_length=1)]
    curves: Base64
    left_out: Known | None = None
    log_rank: LogRank | None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if any(group.shown > len(self.times) for group in self.groups):
            raise ValueError("a curve is shown at no more than all times")
        if self.names != names_of(self.groups, self.times):
            raise ValueError("names must be those of the curves' times, in order")
        numbers = len(base64.b64decode(self.curves)) / 2
        if numbers % len(self.names) or not _FEWEST * len(self.names) <= numbers <= MOST_NUMBERS:
            raise ValueError(f"curves are at least {_FEWEST} draws of each time, and not too many")
        return self

    @cached_property
    def draws(self) -> Floats:
        """All draws, shape (draws, k)."""
        integers = np.frombuffer(base64.b64decode(self.curves), "<u2")
        return np.asarray(integers.reshape(-1, len(self.names)) / _UNIT)

    def bands(self, level: float = LEVEL) -> Floats:
        """Return bands that hold a group's whole curve with probability `level`, shape (k, 2).

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        require_level(level)
        angles = np.arcsin(np.sqrt(self.draws))  # their spread hardly depends on the mean
        mean, sd = angles.mean(axis=0), np.maximum(angles.std(axis=0), 1.0 / _UNIT)
        far = np.abs((angles - mean) / sd)
        reach = np.empty_like(mean)
        for part in self.parts:
            reach[part] = np.quantile(far[:, part].max(axis=1), level) * sd[part]
        ends = np.clip([mean - reach, mean + reach], 0.0, np.pi / 2.0)
        return np.asarray(np.sin(ends).T ** 2)

    def medians(self, level: float = LEVEL) -> Floats:
        """Return when half have had their event, and its interval, shape (groups, 3).

        Infinite where that is later than the curve is known, or may be.

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        require_level(level)
        quantiles = [0.5, 0.5 - level / 2.0, 0.5 + level / 2.0]
        rows = []
        for group, part in zip(self.groups, self.parts, strict=True):
            times = np.array([self.start, *self.times[: group.shown]])
            crossed = np.array([_crossing(times, curve) for curve in self.draws[:, part]])
            middle, low, high = np.quantile(crossed, quantiles, method="higher").tolist()
            rows.append([middle, min(low, float(times[-1])), high])
        return np.array(rows)

    @property
    def parts(self) -> list[slice]:
        """Where in `names` each group's times are."""
        ends = np.cumsum([0, *(group.shown for group in self.groups)]).tolist()
        return [slice(low, high) for low, high in pairwise(ends)]

    @property
    def title(self) -> str:
        return f"Survival by {self.columns[0]}"

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        said = []
        for group, row in zip(self.groups, self.medians().tolist(), strict=True):
            middle, low, high = ("later" if math.isinf(each) else f"{each:.4g}" for each in row)
            said.append((f"Median{_of(group)}", f"{middle} ({LEVEL:.0%} interval {low} to {high})"))
        if self.log_rank is not None:
            tested = self.log_rank.freedom + 1
            of = f", of {tested} groups: hardly any record is of the others"
            is_of_all = tested == len(self.groups)
            said.append(("Log-rank test", f"{self.log_rank}{'' if is_of_all else of}"))
        if self.left_out is not None and self.left_out.mean > 2.0 * self.left_out.sd:
            said.insert(0, ("Left out", f"about {self.left_out.mean:,.0f} records of other levels"))
        return (
            *said,
            ("Intervals", "account for noise and sampling; a band holds the whole curve"),
        )

    @property
    def caution(self) -> str | None:
        """Say what looks as if events, groups or times were coded, or bounded, otherwise."""
        first, last = self.times[0], self.times[-1]
        found = [
            f"hardly any record{_of(group)} is at risk at {first:g}: are groups coded, and is the "
            "unit of time, as the records have them?"
            for group in self.groups
            if (risk := group.at_risk[0]) is not None
            and risk.mean <= min(_HANDFUL + 2.0 * risk.sd, _RARE * self.records)
        ]
        ends = [part.stop - 1 for part in self.parts]
        surely = float((1.0 - self.interval(LEVEL)[ends, 1]).max()) * self.records
        if surely <= _HANDFUL and float((1.0 - self.mean[ends]).max()) <= _FEW_EVENTS:
            found.append("hardly any event was counted: is it coded 1, or is its value named?")
            # with events they would be of records that were followed up to the end
            risks = [group.at_risk[-1] for group in self.groups if group.shown == len(self.times)]
            staying = sum(risk.mean for risk in risks if risk is not None)
            if staying >= _NEARLY_ALL * self.records:
                found.append(f"nearly all times are at or beyond {last:g}: is the unit right?")
        return "; ".join(found) or None

    def summary(self, level: float = LEVEL) -> Summary:
        """Return a table of survival at each time, with intervals, bands and numbers at risk.

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        risks = [risk for group in self.groups for risk in group.at_risk]
        parts = (self.names, self.mean, self.interval(level), self.bands(level), risks)
        rows = tuple(
            (
                *(name, f"{mean:.3f}"),
                *(f"{each:.3f}" for each in (*ends, *band)),
                "not shown" if risk is None else f"{max(risk.mean, 0.0):,.0f}",
            )
            for name, mean, ends, band, risk in zip(*parts, strict=True)
        )
        ends, bands = quantile_headings(level), quantile_headings(level, "band")
        headings = ("", "mean", *ends, *bands, "at risk")
        records = ("Records", f"about {self.records:,}")
        caution = () if self.caution is None else (("Caution", self.caution),)
        return Summary(self.title, headings, rows, (records, *self.facts, *caution))


def names_of(groups: Sequence[GroupCurve], times: Sequence[float]) -> tuple[str, ...]:
    """Return the names of the numbers of all curves, in order."""
    return tuple(f"{group.label}: {time:.6g}" for group in groups for time in times[: group.shown])


def encoded(draws: Floats) -> str:
    """Return draws, shape (n, k), as a posterior holds them."""
    integers = np.rint(np.clip(draws, 0.0, 1.0) * _UNIT).astype("<u2")
    return base64.b64encode(integers.tobytes()).decode()


def _crossing(times: Floats, curve: Floats) -> float:
    """Return when a curve, shape (n,), which starts at 1, is first at a half or less."""
    values = np.append(1.0, curve)
    at = int(np.argmax(values <= 0.5))
    if at == 0:
        return math.inf
    part = (values[at - 1] - 0.5) / (values[at - 1] - values[at])
    return float(times[at - 1] + part * (times[at] - times[at - 1]))


def _of(group: GroupCurve) -> str:
    return f" of {group.label}" if group.label != "all" else ""


MOST_INTERVALS: Final = 128


class KaplanMeierTask(TabulatingStudy, EventStudy, OneRoundStudy):
    """How many are without an event until when, and whether groups differ.

    A record's `time` is that of its event where `event` is 1, or is `event_value`, else when it was
    last seen without one. It is counted in `intervals` of one width between the bounds of `time`,
    or between `edges`, and beyond the last: more intervals tell times apart better, and add noise.
    With `group` there is a curve for each of its `levels`, which `labels` may name, and a test of
    whether they are one. Who lacks a value is in no curve; values of `indicators` are missing where
    the column NAME_missing is 1. A client has one record at most.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (KaplanMeierPosterior,)
    example: ClassVar[str] = """\
[task]
name = "kaplan_meier"
event = "died"                 # 1 where the time is that of an event, or
# event_value = 2              # what it is there
group = "treatment"            # optional, with its levels
levels = [0, 1]
intervals = 24
smallest_cell = 5              # nothing is shown from when on fewer may be at risk

[time]                         # with its public bounds, never from the data
weeks = [0, 120]

"""

    name: Literal["kaplan_meier"] = "kaplan_meier"
    records_per_client: Annotated[int, Field(ge=1, le=1, strict=True)] = 1
    group: ColumnName | None = None
    levels: Annotated[tuple[Real, ...], Field(max_length=8)] = ()
    labels: Labels = ()
    intervals: Annotated[int, Field(ge=2, le=MOST_INTERVALS, strict=True)] = 24
    edges: (
        Annotated[tuple[Real, ...], Field(min_length=3, max_length=MOST_INTERVALS + 1)] | None
    ) = None
    indicators: tuple[ColumnName, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.group is None) != (not self.levels) or len(self.levels) == 1:
            raise ValueError("a group has two levels or more, and levels are of a group")
        called(self.levels, self.labels)
        if not set(self.indicators) <= {self.time.name, self.event, self.group}:
            raise ValueError("indicators are names of time, event or group")
        self.query()
        return self

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """Time, event, group, and the indicators of their missing values."""
        value = self._happened
        event = ColumnBounds(name=self.event, lower=min(value, 0.0), upper=max(value, 1.0))
        group = () if self.group is None else (spanning(self.group, self.levels),)
        return (self.time, event, *group, *map(indicator_of, self.indicators))

    @property
    def codings(self) -> tuple[Coding, ...]:
        group = () if self.group is None else (Coding(self.group, "levels", self.levels),)
        return (*codings_of_events(self.time, self.event, self.event_value), *group)

    @property
    def _happened(self) -> float:
        return 1.0 if self.event_value is None else self.event_value

    def query(self) -> Tables:
        """Return the query of the only round: one table of group, interval and event."""
        names = [each.name for each in self.columns]

        def indicator(name: str) -> int | None:
            return names.index(f"{name}_missing") if name in self.indicators else None

        beyond = self.time.upper + (self.time.upper - self.time.lower)
        cuts: list[EdgeCut | LevelCut] = [
            EdgeCut(column=0, indicator=indicator(self.time.name), edges=(*self.times, beyond)),
            LevelCut(column=1, indicator=indicator(self.event), levels=(self._happened,)),
        ]
        axes = [Axis(cut=0), Axis(cut=1)]
        if self.group is not None:
            cuts.append(LevelCut(column=2, indicator=indicator(self.group), levels=self.levels))
            axes.insert(0, Axis(cut=2))
        return Tables(
            columns=self._query_columns(),
            cuts=tuple(cuts),
            tables=(Table(axes=tuple(axes)),),
            grid_bits=TABLE_BITS,
            records_per_client=self.records_per_client,
        )

    def posterior_from(self, released: ReleasedSum) -> KaplanMeierPosterior:
        table, generator = _NoisyTable.of(released), generator_for(released)
        known = _Monotone.of(table.counts[None])
        # true counts as they may have been; some are negative
        draws = _Monotone.of(table.counts - table.noises(_DRAWS, generator))
        reach = reach_of(LEVEL, released.mechanism)
        labels, last = _labels(self), len(self.times) - 1
        groups, curves = [], []
        risk_sds = draws.at_risk.std(axis=0)
        survival = draws.survival(generator)
        for place, label in enumerate(labels):
            risks, sds = known.at_risk[0, place], risk_sds[place]
            shown = self._shown(risks[:last], sds[:last], reach)
            numbers = [
                self.shown(risk, sd, reach=reach)
                for risk, sd in zip(risks.tolist(), sds.tolist(), strict=True)
            ][1 : shown + 1]
            groups.append(GroupCurve(label=label, shown=shown, at_risk=tuple(numbers)))
            curves.append(survival[:, place, :shown])
        times = self.times[1:]
        left_out = [
            self.shown(float(risk), float(sd), reach=reach)
            for risk, sd in zip(
                known.at_risk[0, len(labels) :, 0], risk_sds[len(labels) :, 0], strict=True
            )
        ]
        drawn = np.concatenate(curves, axis=1)
        return KaplanMeierPosterior(
            names=names_of(groups, times),
            records=max(1, round(table.total - table.counts[len(labels) :].sum())),
            left_out=left_out[0] if left_out else None,
            columns=tuple(each.name for each in self.columns),
            start=self.times[0],
            times=times,
            groups=tuple(groups),
            curves=encoded(drawn[: MOST_NUMBERS // drawn.shape[1]]),
            log_rank=_log_rank(table, len(labels), generator),
        )

    def _shown(self, risks: Floats, sds: Floats, reach: float) -> int:
        """Return at how many times a group's curve is known: at the first in any case."""
        enough = (risks > _TOLD * sds) & (risks - reach * sds >= self.smallest_cell)
        return max(1, len(risks) if enough.all() else int(np.argmin(enough)))


_DRAWS: Final = 1000
_MOST_RATE: Final = 20.0  # in one interval: all have the event
_EMPTY: Final = 3.0  # standard deviations from none: so many records may be noise alone
_SMALL: Final = 0.05  # of all records
_TOLD: Final = 6.0  # standard deviations from none: of fewer at risk no hazard is told


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
        *_, intervals, events = query.shape(query.tables[0])
        moved, _ = fitted(cells, noise.sd, total, total_sd)
        return cls(moved[:-1].reshape(-1, intervals, events), noise, total, of_total)

    def noises(self, count: int, generator: np.random.Generator) -> Floats:
        """Return so many draws of what is left of the noise, shape (count, g, b, 2)."""
        size = self.counts.size + 1
        drawn = self.noise.draw((count, size), generator)
        totals = self.total_noise.draw((count,), generator)
        left, _ = fitted(drawn, self.noise.sd, totals, self.total_noise.sd)
        return left[:, :-1].reshape(count, *self.counts.shape)


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
