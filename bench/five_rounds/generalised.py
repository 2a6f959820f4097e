"""Generalised linear models in five rounds: columns, moments, and scores at three points.

The moments of weighted rows are the first scores, at no slope at all, and say how the features are
distributed; each round of scores is asked where those before it lead to.
"""

import math
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.five_rounds.design_sample import DesignSample, correlations_of, design_sample
from bench.five_rounds.families import Family
from bench.five_rounds.linear import Fit
from bench.five_rounds.measured import Measured, measured
from bench.five_rounds.rounds import Price, Scores, scores, weighted_moments
from bench.five_rounds.score_likelihood import (
    Measurement,
    ScoreModel,
    best_point,
    curvature,
    estimate,
    scatter,
)

Floats = NDArray[np.float64]

SHARES: Final = (0.1, 0.2, 0.2, 0.2, 0.3)
"""Shares of mu^2 of the five rounds."""
PRIOR_SD: Final = 2.5
"""Of a coefficient, for a change by one standard deviation of the feature."""

_LONG: Final = 1.3  # squared norm of a row's features that is not shrunk, over the number of them
_REACH: Final = 4.0  # spreads to which a count is cut in the round of moments
_LIMIT: Final = 0.7  # of the target's coordinate, over the radius
_CUTS: Final = {"poisson": 3.0, "negative_binomial": 4.0}  # of residuals, in standard deviations
_DISPERSIONS: Final = (0.05, 5.0)  # by which residuals are weighted
_CONSTANT_SD: Final = 5.0
_BOUND: Final = 0.003  # share of a class, or mean of a count over its bound: at least
_PULL: Final = 0.1  # of a slope, by rows far out, which count less, and by what curves
_UNEVEN: Final = 0.3  # relative differences of scatter between coordinates that are expected
_PRIOR_SCATTER_SD: Final = 0.7
_LEAST_SCATTER: Final = 0.25


def fit(family: Family, values: Floats, bounds: Floats, price: Price) -> Fit:
    """Return the fit of the last of the columns, shape (n, m), on the others; `bounds` (m, 2)."""
    found = measured(values, bounds, price, SHARES[0])
    target = np.clip(values[:, -1], *bounds[-1])
    level, spread = _level(family, found, float(bounds[-1, 1]))
    rows = np.column_stack([np.ones(len(values)), found.rows(values[:, :-1])])
    squared_radius = 1.0 + _LONG * (rows.shape[1] - 1)
    dispersion = _working(family, level, spread)
    cut = _cut(family, level, spread, dispersion)
    first, sample = _moments(family, rows, target, found, level, spread, squared_radius, price)
    model = ScoreModel(
        family=family,
        sample=sample,
        measurements=(first,),
        dispersion=dispersion,
        centre=math.log(level / (1.0 - level)) if family == "logistic" else math.log(level),
        prior_sd=PRIOR_SD,
        constant_sd=_CONSTANT_SD,
        looseness=found.looseness[:-1],
    )
    taken: list[Scores] = []
    for share in SHARES[2:]:
        point = best_point(model)
        last = scores(
            family,
            rows,
            target,
            point=point,
            dispersion=dispersion,
            squared_radius=squared_radius,
            cut=cut,
            price=price,
            share=share,
        )
        taken.append(last)
        measurement = Measurement(scores=last.scores, sd=last.sd, point=point)
        model = replace(model, measurements=(*model.measurements, measurement))
    return _in_data_units(model, found, taken[-1])


def _moments(
    family: Family,
    rows: Floats,
    target: Floats,
    found: Measured,
    level: float,
    spread: float,
    squared_radius: float,
    price: Price,
) -> tuple[Measurement, DesignSample]:
    """Return the first scores, at no slope, and the sample of rows."""
    scale = 1.0 if family == "logistic" else _REACH * spread
    limit = _LIMIT * math.sqrt(squared_radius)
    released = weighted_moments(
        rows,
        np.clip((target - level) / scale, -1.0, 1.0),
        squared_radius=squared_radius,
        limit=limit,
        price=price,
        share=SHARES[1],
    )
    over = scale / limit
    first = Measurement(released.values[:-1, -1] * over, released.sd * over, level=level)
    sample = design_sample(
        correlations_of(released.values[1:-1, 1:-1], released.sd, float(len(rows))),
        found.shares[:-1],
        constant=1.0,
        squared_radius=squared_radius,
        records=float(len(rows)),
    )
    return first, sample


def _in_data_units(model: ScoreModel, found: Measured, last: Scores) -> Fit:
    """Return the estimate with noise, prior, and the records' own scatter in its covariance."""
    estimated = estimate(model)
    at = model.measurements[-1].point
    if at is None:
        raise ValueError("the last round asked for scores at no point")
    expected = scatter(model, estimated.mean, at=at, dispersion=model.dispersion)
    whole, error = float(np.trace(expected)), last.squares_sd * math.sqrt(len(at))
    precision = (whole / error) ** 2
    pooled = float(last.squares.sum()) / whole * precision + _PRIOR_SCATTER_SD**-2.0
    pooled = max(pooled / (precision + _PRIOR_SCATTER_SD**-2.0), _LEAST_SCATTER)
    own = np.diagonal(expected)
    trusted = 1.0 / (1.0 + (last.squares_sd / own / (_UNEVEN * pooled)) ** 2)
    roots = np.sqrt(np.maximum(pooled + trusted * (last.squares / own - pooled), _LEAST_SCATTER))
    inverse = np.linalg.inv(curvature(model, estimated.mean))
    through = estimated.influence @ inverse
    pulled = _PULL * estimated.mean
    pulled[0] = 0.0
    covariance = (
        estimated.covariance
        + through @ (expected * np.outer(roots, roots)) @ through.T
        + np.diag(pulled**2)
    )
    slopes = 1.0 / found.spreads[:-1]
    transform = np.diag(np.append(1.0, slopes))
    transform[0, 1:] = -found.centres[:-1] * slopes
    return Fit(transform @ estimated.mean, transform @ covariance @ transform.T)


def _level(family: Family, found: Measured, highest: float) -> tuple[float, float]:
    """Return the target's mean, kept away from where its link ends, and standard deviation."""
    centre, spread = float(found.centres[-1]), float(found.spreads[-1])
    if family == "logistic":
        share = min(max(centre, _BOUND), 1.0 - _BOUND)
        return share, math.sqrt(share * (1.0 - share))
    return max(centre, _BOUND * highest), spread


def _working(family: Family, level: float, spread: float) -> float:
    """Return the dispersion by which residuals are weighted: from the target alone."""
    if family != "negative_binomial":
        return level
    return min(max((spread**2 - level) / level**2, _DISPERSIONS[0]), _DISPERSIONS[1])


def _cut(family: Family, level: float, spread: float, dispersion: float) -> float:
    """Return where weighted residuals are cut: beyond what nearly all of them are."""
    if family == "logistic":
        return 1.0
    if family == "negative_binomial":
        spread = math.sqrt(level + dispersion * level**2) / (1.0 + dispersion * level)
    return _CUTS[family] * max(spread, math.sqrt(level) if family == "poisson" else 0.0)
