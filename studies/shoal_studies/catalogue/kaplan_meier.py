"""Survival by Kaplan and Meier, and the log-rank test, from counts over intervals of time."""

import base64
import math
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Annotated, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.queries import Axis, EdgeCut, LevelCut, Table, Tables
from shoal_protocol.queries.columns import ColumnBounds, ColumnName
from shoal_protocol.queries.design import Floats
from shoal_protocol.trust.dictionary import Coding, codings_of_events
from shoal_protocol.wire.encoding import Base64, Finite, Place, Real, Size
from shoal_studies.catalogue.cells import TABLE_BITS, TabulatingStudy, indicator_of
from shoal_studies.catalogue.study import EventStudy, Labels, OneRoundStudy, called, spanning
from shoal_studies.posteriors.base import LEVEL, BasePosterior, require_level
from shoal_studies.posteriors.forms import DrawnPosterior, Known, Part
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


class LogRank(Part):
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


class GroupCurve(Part):
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

    variable = "survival"
    dimension = "time"

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
        return (*said, ("Intervals", "know of noise and sampling; bands hold whole curves"))

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
        staying = [group.at_risk[-1] for group in self.groups if group.shown == len(self.times)]
        if sum(risk.mean for risk in staying if risk is not None) >= _NEARLY_ALL * self.records:
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
