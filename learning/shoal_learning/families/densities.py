"""Summarises one parameter's posterior from its log density, on a grid fitted to the mass."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from shoal_learning.families.special import Floats
from shoal_protocol.posteriors.forms import QUANTILE_LEVELS

LogDensity = Callable[[Floats], Floats]

_SEARCH_POINTS: Final = 129
_SEARCHES: Final = 60
_NEGLIGIBLE: Final = -38.0  # in logarithms, relative to the peak: 3e-17
_POINTS: Final = 801


@dataclass(frozen=True)
class Summary:
    """Mean, standard deviation and quantiles at `QUANTILE_LEVELS` of one parameter."""

    mean: float
    sd: float
    quantiles: Floats


def bulk(log_density: LogDensity, low: float, high: float) -> tuple[float, float]:
    """Return an interval outside which a unimodal density on [low, high] is negligible."""
    for _ in range(_SEARCHES):
        points = np.linspace(low, high, _SEARCH_POINTS)
        logs = log_density(points)
        kept = np.flatnonzero(logs > logs.max() + _NEGLIGIBLE)
        first, last = max(kept[0] - 1, 0), min(kept[-1] + 1, _SEARCH_POINTS - 1)
        low, high = float(points[first]), float(points[last])
        if last - first > _SEARCH_POINTS // 2:
            break
    return low, high


def summarise(
    log_density: LogDensity,
    low: float,
    high: float,
    parameter: Callable[[Floats], Floats],
) -> Summary:
    """Return the summary of `parameter`(t), increasing in t, with t of density on [low, high].

    `log_density` need not be normalised. Trapezoidal rule on 801 points: for a density that
    vanishes at both ends its error falls faster than any power of their distance.
    """
    points = np.linspace(low, high, _POINTS)
    logs = log_density(points)
    density = np.exp(logs - logs.max())
    weights = density / density.sum()
    values = parameter(points)
    mean = float(weights @ values)
    sd = float(np.sqrt(weights @ (values - mean) ** 2))
    steps = (density[1:] + density[:-1]) / 2.0
    cumulative = np.concatenate([[0.0], np.cumsum(steps)]) / steps.sum()
    rising = np.concatenate([[True], np.diff(cumulative) > 0.0])
    places = np.interp(QUANTILE_LEVELS, cumulative[rising], points[rising])
    return Summary(mean, sd, parameter(places))
