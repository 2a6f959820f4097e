"""Forms of posteriors that several studies share.

`DrawnPosterior` has joint draws; `StoredDraws` has them as little-endian doubles in base64.

`NumbersPosterior` has numbers about the records that took part. Its intervals account for the
noise in the counts, and not for the choice of records.
"""

import base64
import math
from abc import abstractmethod
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from shoal_protocol.queries import Mechanism
from shoal_protocol.queries.design import Floats
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import Base64, Finite, Size
from shoal_studies.posteriors.base import LEVEL, BasePosterior, require_level
from shoal_studies.posteriors.summaries import Summary, quantile_headings

MOST_VALUES: Final = 1 << 16
"""Most numbers in one posterior: half a mebibyte, which every limit on documents allows."""


class DrawnPosterior(BasePosterior):
    """Base of the posteriors that consist of joint draws."""

    @property
    @abstractmethod
    def draws(self) -> Floats:
        """All draws, shape (draws, k)."""

    @property
    def mean(self) -> Floats:
        return np.asarray(self.draws.mean(axis=0))

    @property
    def sd(self) -> Floats:
        return np.asarray(self.draws.std(axis=0, ddof=1))

    def _quantiles(self, low: float, high: float) -> Floats:
        return np.asarray(np.quantile(self.draws, [low, high], axis=0).T)

    def sample(self, count: int, generator: np.random.Generator) -> Floats:
        """Return `count` of the draws at random, with replacement, shape (count, k)."""
        return np.asarray(self.draws[generator.integers(0, len(self.draws), count)])


def encoded(draws: NDArray[np.float64]) -> str:
    """Return an array's numbers as little-endian doubles in base64, the last axis fastest."""
    return base64.b64encode(np.ascontiguousarray(draws, dtype="<f8").tobytes()).decode()


def decoded_numbers(values: str) -> Floats:
    """Return the numbers, shape (k,), of a string that `encoded` made.

    Raises:
        ValueError: the string has no whole doubles, too many, or some that are not finite.
    """
    raw = base64.b64decode(values)
    if len(raw) > 8 * MOST_VALUES:
        raise ValueError(f"a posterior holds at most {MOST_VALUES} numbers")
    if len(raw) % 8:
        raise ValueError("values must be doubles")
    numbers: Floats = np.frombuffer(raw, "<f8")
    if not np.all(np.isfinite(numbers)):
        raise ValueError("values must be finite")
    return numbers


class StoredDraws(DrawnPosterior):
    """Base of the posteriors whose draws are stored as they are.

    `values` are the doubles of an array of shape (draws, k).
    """

    columns: tuple[str, ...]
    values: Base64

    @model_validator(mode="after")
    def _are_whole(self) -> Self:
        numbers = decoded_numbers(self.values)
        if not numbers.size or numbers.size % len(self.names):
            raise ValueError("values must be doubles of an array of shape (draws, names)")
        return self

    @property
    def draws(self) -> Floats:
        """All draws, shape (draws, k), read-only."""
        return decoded_numbers(self.values).reshape(-1, len(self.names))


REACHES: Final = np.linspace(-6.0, 6.0, 49)
"""A quantile's points: standard deviations of the noise in the number of records below it."""


class Known(Model):
    """A number with normal noise."""

    mean: Finite
    sd: Size


class KnownQuantile(Model):
    """The `level` quantile: its interval's ends at `REACHES`, and its likely value at 0."""

    level: Annotated[float, Field(gt=0.0, lt=1.0)]
    points: Annotated[tuple[Finite, ...], Field(min_length=49, max_length=49)]

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if np.any(np.diff(self.points) < 0.0):
            raise ValueError("points must not fall")
        return self


@dataclass(frozen=True)
class Number:
    """A number that is shown: normal within limits, the root of one, or given by points."""

    label: str
    known: Known
    limits: tuple[float, float]
    whole: Known | None = None
    is_root: bool = False
    points: tuple[float, ...] = ()

    @property
    def mean(self) -> float:
        """The most probable value, approximately."""
        if self.points:
            return self.points[len(REACHES) // 2]
        mean = min(max(self.known.mean, self.limits[0]), self.limits[1])
        return math.sqrt(mean) if self.is_root else mean

    @property
    def sd(self) -> float:
        """Half the width of the interval of one standard deviation."""
        low, high = self.at(np.array([-1.0, 1.0]))
        return float(high - low) / 2.0

    def at(self, reaches: Floats) -> Floats:
        """Return the number at each of `reaches`, in standard deviations, shape (n,)."""
        if self.points:
            return np.asarray(np.interp(reaches, REACHES, self.points))
        values = np.clip(self.known.mean + reaches * self.known.sd, *self.limits)
        return np.sqrt(values) if self.is_root else values


def reach_of(level: float, mechanism: Mechanism) -> float:
    """Return how many standard deviations of noise contain a number with probability `level`.

    A sum of Laplace variables has lighter tails than one Laplace variable of the same variance, and
    heavier tails than a normal variable; the wider of the two is returned.

    Raises:
        ValueError: `level` is not strictly between 0 and 1.
    """
    require_level(level)
    normal = NormalDist().inv_cdf(0.5 + level / 2.0)
    if mechanism == "discrete_gaussian":
        return normal
    return max(normal, -math.log(1.0 - level) / math.sqrt(2.0))


class NumbersPosterior(BasePosterior):
    """A posterior of numbers that are treated as independent, in draws, too.

    With Laplace noise intervals are as wide as those of a single Laplace variable. `total` is the
    number of records.
    """

    mechanism: Mechanism
    total: Known

    @classmethod
    def of(cls, **fields: Any) -> Self:
        """Return the posterior with these fields; its `names` follow from them."""
        names = tuple(each.label for each in cls.model_construct(**fields).numbers)
        return cls(names=names, **fields)

    @property
    @abstractmethod
    def numbers(self) -> list[Number]:
        """The numbers, in the order of `names`."""

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.names != tuple(each.label for each in self.numbers):
            raise ValueError("names must be those of the numbers that are shown, in order")
        return self

    @property
    def mean(self) -> Floats:
        return np.array([each.mean for each in self.numbers])

    @property
    def sd(self) -> Floats:
        return np.array([each.sd for each in self.numbers])

    @property
    def _listed(self) -> list[Number]:
        """Those of the numbers that a summary lists: none of a histogram's."""
        return self.numbers

    def summary(self, level: float = LEVEL) -> Summary:
        """Return a table of the numbers, with intervals of that level.

        There are no standard deviations: intervals of quantiles, and within limits, are not normal.

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        reach, rows = reach_of(level, self.mechanism), []
        for each in self._listed:
            low, high = each.at(np.array([-reach, reach]))
            is_long = each.points or (each.whole is None and abs(each.mean) >= 1e4)
            form = "{:,.6g}" if is_long else "{:,.4g}" if each.whole is None else "{:,.0f}"
            value = form.format(each.mean)
            if each.whole is not None and each.whole.mean >= 1.0:
                value += f" ({min(each.mean / each.whole.mean, 1.0):.1%})"
            rows.append((each.label, value, form.format(low), form.format(high)))
        headings = ("", "value", *quantile_headings(level))
        caution = () if self.caution is None else (("Caution", self.caution),)
        return Summary(self.title, headings, tuple(rows), (*self.facts, *caution))

    def _quantiles(self, low: float, high: float) -> Floats:
        reach = reach_of(high - low, self.mechanism)
        return np.array([each.at(np.array([-reach, reach])) for each in self.numbers])

    def sample(self, count: int, generator: np.random.Generator) -> Floats:
        """Return `count` draws, each number independent of the others, shape (count, k)."""
        reaches = generator.standard_normal((len(self.numbers), count))
        return np.column_stack(
            [each.at(row) for each, row in zip(self.numbers, reaches, strict=True)]
        )


def quantile_points(edges: Floats, below: Floats, sd: Floats) -> tuple[float, ...]:
    """Return a quantile's value at each of `REACHES`, for a `KnownQuantile`.

    For each edge, `below` is how many more records are below the edge than below the quantile, and
    `sd` its noise; both have the shape (K + 1,). An edge may be on either side of the quantile if
    `below` is less than z standard deviations from zero. The interval's ends at z lie outside of
    all such edges, so the quantile is between them at least as often as a normal variable is within
    z standard deviations, wherever in its bin it is.
    """
    size = len(edges) - 1
    rising = (np.maximum.accumulate(below) + np.minimum.accumulate(below[::-1])[::-1]) / 2.0
    at = int(np.clip(np.searchsorted(rising, 0.0, side="right") - 1, 0, size - 1))
    step = rising[at + 1] - rising[at]
    part = min(max(-rising[at] / step, 0.0), 1.0) if step > 0.0 else 0.5
    middle = float(edges[at] + part * (edges[at + 1] - edges[at]))
    reach = REACHES[len(REACHES) // 2 + 1 :, None]
    first = np.argmax((below + reach * sd)[:, 1:] >= 0.0, axis=1)  # bins that may hold it
    may_rise = (below + reach * sd)[:, -1] < 0.0
    lows = edges[np.where(may_rise, size - 1, first)]
    is_below = (below - reach * sd)[:, :-1] <= 0.0
    last = size - 1 - np.argmax(is_below[:, ::-1], axis=1)
    highs = edges[np.where(is_below.any(axis=1), last, 0) + 1]
    lows, highs = np.minimum(lows, middle), np.maximum(highs, middle)
    return (*lows[::-1].tolist(), middle, *highs.tolist())
