"""Numbers as noise in counts lets them be known, and posteriors that consist of such.

Intervals are of noise alone: what all of the cohort's records would show lies in them.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, Final, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.posteriors.base import BasePosterior, FloatMatrix, FloatVector
from shoal_protocol.queries import Mechanism
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.numbers import Finite, Size

REACHES: Final = np.linspace(-6.0, 6.0, 49)
"""Where a quantile's points are: in standard deviations of how many records are below."""

Tails = Literal["normal", "laplace"]


class Part(Model):
    """A part of a posterior."""


class Known(Part):
    """A number as noise lets it be known."""

    mean: Finite
    sd: Size


class KnownQuantile(Part):
    """The `level` quantile: its ends at `REACHES`, and in the middle where it probably is."""

    level: Annotated[float, Field(gt=0.0, lt=1.0)]
    points: Annotated[tuple[Finite, ...], Field(min_length=49, max_length=49)]

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if np.any(np.diff(self.points) < 0.0):
            raise ValueError("points must not fall")
        return self


@dataclass(frozen=True)
class Number:
    """A number of the card: normal within limits, a root of such a one, or by its points."""

    label: str
    known: Known
    limits: tuple[float, float]
    whole: Known | None = None
    is_root: bool = False
    points: tuple[float, ...] = ()

    @property
    def mean(self) -> float:
        """Where it most probably is, about."""
        if self.points:
            return self.points[len(REACHES) // 2]
        mean = min(max(self.known.mean, self.limits[0]), self.limits[1])
        return math.sqrt(mean) if self.is_root else mean

    @property
    def sd(self) -> float:
        """Half the distance of its ends at one standard deviation."""
        low, high = self.at(np.array([-1.0, 1.0]))
        return float(high - low) / 2.0

    def at(self, reaches: FloatVector) -> FloatVector:
        """Return the number so many standard deviations away, shape (n,)."""
        if self.points:
            return np.asarray(np.interp(reaches, REACHES, self.points))
        values = np.clip(self.known.mean + reaches * self.known.sd, *self.limits)
        return np.sqrt(values) if self.is_root else values


def tails_of(mechanism: Mechanism) -> Tails:
    """Return the tails of sums with the noise of a mechanism."""
    return "normal" if mechanism == "discrete_gaussian" else "laplace"


def reach_of(level: float, tails: Tails) -> float:
    """Return within how many standard deviations a number is with probability `level`.

    A sum of Laplace variables has lighter tails than one alone of that variance, and heavier ones
    than a normal.
    """
    normal = NormalDist().inv_cdf(0.5 + level / 2.0)
    return normal if tails == "normal" else max(normal, -math.log(1.0 - level) / math.sqrt(2.0))


class NumbersPosterior(BasePosterior):
    """A posterior of numbers that are each known by itself: so are draws.

    With Laplace `tails` intervals are as wide as a single Laplace variable's. `total` is how many
    records there are.
    """

    variable = "numbers"
    dimension = "number"

    tails: Tails
    total: Known

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
    def mean(self) -> FloatVector:
        return np.array([each.mean for each in self.numbers])

    @property
    def sd(self) -> FloatVector:
        return np.array([each.sd for each in self.numbers])

    def _quantiles(self, low: float, high: float) -> FloatMatrix:
        reach = reach_of(high - low, self.tails)
        return np.array([each.at(np.array([-reach, reach])) for each in self.numbers])

    def sample(self, count: int, generator: np.random.Generator) -> FloatMatrix:  # noqa: TID251
        """Return `count` draws of each number by itself, shape (count, k)."""
        reaches = generator.standard_normal((len(self.numbers), count))
        return np.column_stack(
            [each.at(row) for each, row in zip(self.numbers, reaches, strict=True)]
        )


def quantile_points(edges: FloatVector, below: FloatVector, sd: FloatVector) -> tuple[float, ...]:
    """Return where a quantile is at each of `REACHES`, for a `KnownQuantile`.

    `below` and `sd`, shapes (K + 1,), say of each edge how many more records are below it than
    below the quantile. The ends at z standard deviations are outside of all edges that might, by
    that many, be on the quantile's other side; so the quantile is between them as often as a normal
    variable within z, wherever in its bin.
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
