"""The posterior of log hazard ratios and of a baseline hazard: a normal distribution."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.posteriors import plots
from shoal_protocol.posteriors.base import LEVEL, FloatMatrix, FloatVector
from shoal_protocol.posteriors.intervals import normal_intervals
from shoal_protocol.posteriors.rows import rows_of
from shoal_protocol.posteriors.summaries import Summary
from shoal_protocol.studies.regression.posterior import MeasuredCoefficients
from shoal_protocol.wire.numbers import Finite

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class SurvivalCurves(NamedTuple):
    """Survival of n rows at the ends of J intervals, shape (n, J), with `intervals`, (n, J, 2).

    `times`, shape (J + 1,), are the edges: at the first survival is 1. `bands` hold a whole curve.
    """

    times: FloatVector
    survival: FloatMatrix
    intervals: FloatMatrix
    bands: FloatMatrix


class PiecewiseExponentialPosterior(MeasuredCoefficients):
    """Log hazard ratios of the features, then baseline log hazards of the intervals of `edges`.

    The baseline is that of a record whose features are the `centres`. The `target` is the event.
    `scatter` is how many times as much as the model says scores scatter.
    """

    variable = "log_hazards"

    name: Literal["piecewise_exponential_regression"] = "piecewise_exponential_regression"
    time: str
    edges: Annotated[tuple[Finite, ...], Field(min_length=2)]
    centres: tuple[Finite, ...]

    @model_validator(mode="after")
    def _features_first(self) -> Self:
        due = names_of(self.features, self.edges)
        if self.names != due or len(self.centres) != len(self.spreads):
            raise ValueError("names must be the features and then the intervals")
        return self

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features, in order."""
        return self.names[: len(self.spreads)]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of a record: the features, then time and event."""
        return (*self.features, self.time, self.target)

    @property
    def title(self) -> str:
        return f"Piecewise exponential regression of {self.target} by {self.time}"

    @property
    def _scatter_of(self) -> str:
        return "Scatter over the model's"

    @property
    def units_drawn(self) -> FloatVector:
        return np.array([*self.spreads, *[1.0] * (len(self.edges) - 1)])

    @property
    def draws_ratios(self) -> bool:
        return True

    def hazard_ratios(self, level: float = LEVEL) -> FloatMatrix:
        """Return each feature's hazard ratio for one unit, and its interval: shape (q, 3).

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        return self.ratios(level)

    @property
    def slopes(self) -> list[int]:
        return list(range(len(self.features)))

    @property
    def ratio(self) -> str:
        return "hazard ratio"

    def summary(self, level: float = LEVEL) -> Summary:
        """Return the table of log hazards, with hazard ratios beside those of features.

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        found = super().summary(level)
        ratios = [tuple(f"{each:.4g}" for each in row) for row in self.hazard_ratios(level)]
        none = [("", "", "")] * (len(self.names) - len(ratios))
        rows = tuple(
            (*row[:5], *ratio, *row[5:])
            for row, ratio in zip(found.rows, [*ratios, *none], strict=True)
        )
        ends = [f"ratio {each.removeprefix('quantile ')}" for each in found.headings[3:5]]
        headings = (*found.headings[:5], "hazard ratio", *ends, *found.headings[5:])
        return Summary(found.title, headings, rows, found.facts)

    def plot(
        self,
        axes: "Axes | None" = None,
        *,
        level: float = LEVEL,
        names: Sequence[str] | None = None,
        caption: str | None = None,
        scale: plots.Scale | None = None,
    ) -> "Axes":
        """Draw hazard ratios for a standard deviation, on a logarithmic axis; else as the base's.

        On the `scale` "unit" they are logarithms.

        Raises:
            ValueError: `level` is not strictly between 0 and 1, or a name is none of `names`.
            ImportError: matplotlib is not installed.
        """
        names = names or self.features
        return super().plot(axes, level=level, names=names, caption=caption, scale=scale)

    def survival(self, rows: FloatMatrix, level: float = LEVEL) -> SurvivalCurves:
        """Return how likely records with features `rows`, shape (n, q), are without event.

        By a normal approximation of the cumulative hazard's logarithm (Kalbfleisch and Prentice
        2002, section 1.4.2). Bands are by Bonferroni's inequality.

        Raises:
            ValueError: `rows` does not have one column per feature; or `level` is not strictly
                between 0 and 1.
        """
        rows = rows_of(rows, self.features)
        away = rows - np.array(self.centres)
        slopes, logs = np.split(self.mean, [len(self.features)])
        hazards = np.exp(np.clip(logs, -700.0, 700.0)) * np.diff(self.edges)
        whole = np.cumsum(hazards)
        shares = np.tril(np.ones((len(hazards), len(hazards)))) * hazards / whole[:, None]
        middles = np.log(whole) + (away @ slopes)[:, None]
        gradients = np.concatenate(
            [
                np.broadcast_to(away[:, None, :], (*middles.shape, away.shape[1])),
                np.broadcast_to(shares, (*middles.shape, len(hazards))),
            ],
            axis=2,
        )
        spreads = np.einsum("njk,kl,njl->nj", gradients, self.covariance_matrix, gradients)
        sds = np.sqrt(np.maximum(spreads, 0.0))
        ends = [
            normal_intervals(middles.ravel(), sds.ravel(), each).reshape(*middles.shape, 2)
            for each in (level, 1.0 - (1.0 - level) / len(hazards))
        ]
        intervals, bands = (_surviving(each)[..., ::-1] for each in ends)
        return SurvivalCurves(np.array(self.edges), _surviving(middles), intervals, bands)

    def plot_survival(
        self,
        rows: FloatMatrix,
        axes: "Axes | None" = None,
        *,
        level: float = LEVEL,
        labels: Sequence[str] | None = None,
        caption: str | None = None,
    ) -> "Axes":
        """Draw the curve of each of `rows`, shape (n, q), as `survival` has it, with its `labels`.

        Raises:
            ValueError: as `survival`; or there is not one label for each row.
            ImportError: matplotlib is not installed.
        """
        found = self.survival(rows, level)
        named = labels or [f"row {number}" for number in range(len(found.survival))]
        if len(named) != len(found.survival):
            raise ValueError("labels are one for each row")
        one = np.ones((1, 2))
        return plots.curves(
            axes,
            [
                plots.Curve(
                    label=label,
                    places=found.times,
                    values=np.append(1.0, curve),
                    intervals=np.vstack([one, ends]),
                    bands=np.vstack([one, band]),
                )
                for label, curve, ends, band in zip(named, *found[1:], strict=True)
            ],
            title=self.title,
            across=self.time,
            up="without event",
            caption=self.caption_below(caption),
        )


def names_of(features: Sequence[str], edges: Sequence[float]) -> tuple[str, ...]:
    """Return the names of features and of the intervals' baseline log hazards, in order."""
    spans = (f"log hazard from {low:.6g} to {high:.6g}" for low, high in pairwise(edges))
    return (*features, *spans)


def _surviving(logs: FloatMatrix) -> FloatMatrix:
    return np.asarray(np.exp(-np.exp(np.clip(logs, -700.0, 700.0))))
