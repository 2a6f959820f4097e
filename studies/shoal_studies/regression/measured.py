"""Centres and spreads of columns, from a round that measures them, and averages over priors.

Later rounds take rows in spreads from their centres. So bounds that are too wide or lopsided cost
precision, and change nothing else.

The effects of a factor's levels have one normal prior, whose spread is averaged over. The effects
say which spread is likely: it has a half-normal prior (Gelman 2006, Bayesian Analysis 1:515) on a
grid. One best value would claim more than a few levels tell.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from shoal_protocol.queries import Column, ColumnMoments
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.sums import in_units
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue.measurements import noisy_count, query_of
from shoal_studies.catalogue.regression import REACH, SMALLEST_SPREAD, PooledFactor, RegressionTask
from shoal_studies.posteriors.base import semidefinite, to_data_units
from shoal_studies.quasi_likelihood import averaged
from shoal_studies.regression.scores import NormalPrior

_BETWEEN: Final = 0.15  # what a variance lacks of the widest that there is, if all are at bounds
_OF_SQUARES: Final = 0.05  # what values between two classes take from a target's mean square
_SURELY: Final = 3.0  # standard deviations of noise
_CLEAR: Final = 4.0  # deviations of noise that the widest must have for that to show
_FARTHEST: Final = 0.98  # of a mean from the middle: some values are elsewhere
_HANDFUL: Final = 5.0  # records that are elsewhere than at a bound
_HARDLY: Final = 2.0  # standard deviations of noise in their number
_RARE: Final = 0.0103  # of records: what `_FARTHEST` lets be elsewhere, and a little
_LEAST_OF_CORRELATION: Final = 1e-14  # eigenvalue: smaller ones are rounding
_SPREADS: Final = np.geomspace(SMALLEST_SPREAD, 1.0, 80)


@dataclass(frozen=True)
class Measured:
    """Columns as a round measured them, in the units of the data, shapes (m,).

    `centres` are means and `spreads` standard deviations. `looseness` is how many times as small as
    measured a spread may well be: what a prior in spreads must be wider by. `shares` is of a column
    whose values are all at its bounds the share at the upper one, and NaN of any other. `one_bound`
    is 1 or -1 where nearly all values are at the upper or the lower bound, as if a handful of
    records were elsewhere, or fewer than noise lets be told; else 0. `errors` are the noise's
    standard deviations in means, over half the bounds' range.
    """

    centres: Floats
    spreads: Floats
    looseness: Floats
    shares: Floats
    one_bound: Floats
    errors: Floats

    def features(self, bounds: Sequence[ColumnBounds]) -> tuple[Column, ...]:
        """Return the first columns, those of `bounds`, so that one spread is 1 / `REACH`."""
        return tuple(
            Column(name=each.name, centre=centre, scale=REACH * spread, term=each.term)
            for each, centre, spread in zip(
                bounds, self.centres.tolist(), self.spreads.tolist(), strict=False
            )
        )

    def first(self, count: int) -> Self:
        """Return the first columns alone."""
        return type(self)(**{name: each[:count] for name, each in vars(self).items()})

    def to_data_units(self, unit: float = 1.0) -> Floats:
        """Return T: coefficients of constant and features in spreads to those of the data, (k, k).

        The target is the last column, and a slope of 1 is `unit` of it for one spread.
        """
        return to_data_units(self.centres[:-1], self.spreads[:-1], unit)


def records_of(sums: Sequence[ReleasedSum]) -> tuple[float, float]:
    """Return how many records there are, as all rounds tell, and with what standard deviation."""
    seen = [noisy_count(released) for released in sums]
    precisions = np.array([sd**-2 for _, sd in seen])
    counts = np.array([count for count, _ in seen])
    least = 1.0 + float(precisions.sum()) ** -0.5  # noise alone makes no division by nothing
    count = max(float(counts @ precisions / precisions.sum()), least)
    return count, float(precisions.sum() ** -0.5)


def measured(released: ReleasedSum, bounds: Sequence[ColumnBounds], records: float) -> Measured:
    """Return what the first round tells of columns with public `bounds`.

    Raises:
        ValueError: it is a sum of another query.
    """
    query = query_of(released, ColumnMoments)
    middles = np.array([each.centre for each in bounds])
    halves = np.array([each.half_range for each in bounds])
    sds = in_units(query, released.noise_sd) / records
    sd, of_squares = float(sds[0]), float(sds[-2])
    means, squares = in_units(query, released.values)[:-1].reshape(2, -1) / records
    elsewhere = records * (1.0 - np.abs(means)) / 2.0
    hidden = np.hypot(sd * records, records_of([released])[1]) / 2.0
    is_one = elsewhere <= np.minimum(_HANDFUL + _HARDLY * hidden, _RARE * records)
    one_bound = np.where(is_one, np.sign(means), 0.0)
    means = np.clip(means, -_FARTHEST, _FARTHEST)
    widest = 1.0 - means**2
    errors = np.hypot(of_squares, 2.0 * sd * means)
    variances, precisions = np.array(
        [_variance(*pair) for pair in zip(squares - means**2, errors, strict=True)]
    ).T
    at_bounds = (1.0 - squares <= _BETWEEN * widest) & (widest > _CLEAR * sd)
    variances = np.where(at_bounds, widest, np.minimum(variances, widest))
    variances = np.maximum(variances, SMALLEST_SPREAD**2)
    loose = np.sqrt(np.maximum(variances * precisions, 1.0))
    return Measured(
        centres=middles + halves * means,
        spreads=halves * np.sqrt(variances),
        looseness=np.where(at_bounds, 1.0, loose),
        shares=np.where(at_bounds, 0.5 + 0.5 * means, np.nan),
        one_bound=one_bound,
        errors=np.full(len(bounds), sd),
    )


def has_two_values(released: ReleasedSum, place: int) -> bool:
    """Tell whether the mean square of a column, by its place, may be of values at its bounds alone.

    Raises:
        ValueError: it is a sum of another query.
    """
    query = query_of(released, ColumnMoments)
    records, records_sd = records_of([released])
    place += len(query.columns)  # squares come after sums
    square = in_units(query, released.values)[place] / records
    noise = float(in_units(query, released.noise_sd)[place])
    error = _SURELY * math.hypot(noise, records_sd) / records
    return bool(square + error > 1.0 - _OF_SQUARES)


def _variance(seen: float, error: float) -> tuple[float, float]:
    """Return the means of a variance and of its inverse, seen with a normal `error`.

    Spreads are as likely as not on a logarithmic scale beforehand.
    """
    variances = _SPREADS**2
    weights = softmax(-0.5 * ((seen - variances) / error) ** 2)
    return float(weights @ variances), float(weights @ (1.0 / variances))


_EFFECT_SPREADS: Final = np.geomspace(0.01, 4.0, 25)
"""Standard deviations of effects: in those of a number, or on the scale of the logarithms."""


def inverted(covariance: Floats) -> Floats:
    """Return a covariance's inverse, both (p, p), also where nonsense sums made it singular."""
    sds = np.sqrt(np.diagonal(covariance))
    values, vectors = np.linalg.eigh(covariance / np.outer(sds, sds))
    roots = vectors / np.sqrt(np.maximum(values, _LEAST_OF_CORRELATION)) / sds[:, None]
    return np.asarray(roots @ roots.T)


@dataclass(frozen=True)
class PooledEstimate:
    """Coefficients with the covariance of their error, shapes (p,) and (p, p), and the factor.

    `prior_sd`, shape (p,), is the prior's, with the mean spread.
    """

    mean: Floats
    covariance: Floats
    prior_sd: Floats
    factor: PooledFactor


def pooled_estimate(
    task: RegressionTask,
    found: Measured,
    posterior: tuple[Floats, Floats],
    prior: NormalPrior,
    *,
    shared_sds: Sequence[float],
    data_unit: float,
) -> PooledEstimate:
    """Return coefficients in spreads whose pooled ones have one prior.

    `posterior` are mean and covariance, shapes (p,) and (p, p), under a wide `prior`, which is
    taken off again. Coefficients that are not pooled have a prior standard deviation that they
    share, one of `shared_sds`, or for the covariance that of `prior`. An effect of 1 is `data_unit`
    in the data.
    """
    columns = np.array(task.pooled_columns)
    whole, prior_sd = inverted(posterior[1]), prior.sd
    information = semidefinite(whole - prior.precision)
    weighted = whole @ posterior[0] - prior.precision @ prior.mean
    effects = _effects(found, columns, len(prior_sd))
    pooled = np.isin(np.arange(len(prior_sd)), columns + 1)
    slopes = ~pooled & (np.arange(len(prior_sd)) > 0)
    shared = [np.where(slopes, np.minimum(sd, prior_sd), prior_sd) for sd in shared_sds]
    candidates = [np.where(pooled, 0.0, sds) for sds in (prior_sd, *shared)]
    logs = np.empty((len(candidates), len(_EFFECT_SPREADS)))
    means = np.empty((*logs.shape, len(prior_sd)))
    covariances = np.empty((*means.shape, len(prior_sd)))
    hyperprior = -0.5 * _EFFECT_SPREADS**2 + np.log(_EFFECT_SPREADS)  # of a logarithmic grid
    for row, sds in enumerate(candidates):
        for place, spread in enumerate(_EFFECT_SPREADS.tolist()):
            wide = np.diag(sds**2) + spread**2 * effects @ effects.T
            precision = np.linalg.inv(wide)
            whole = precision + information
            covariance = np.linalg.inv(whole)
            mean = covariance @ (weighted + precision @ prior.mean)
            logs[row, place] = 0.5 * (
                float(mean @ whole @ mean - prior.mean @ precision @ prior.mean)
                - np.linalg.slogdet(wide)[1]
                - np.linalg.slogdet(whole)[1]
            )
            means[row, place], covariances[row, place] = mean, covariance
    logs = logs + hyperprior
    logs[0] += np.log(_EFFECT_SPREADS)  # errors are those of effects that spread rather more
    wide_mean, wide = averaged(logs[:1], means[:1], covariances[:1])
    best, _ = averaged(logs[1:], means[1:], covariances[1:])
    away = best - wide_mean
    shares = softmax(logs[1:]).sum(axis=0)
    spread = float(shares @ _EFFECT_SPREADS)
    return PooledEstimate(
        mean=best,
        covariance=wide + np.outer(away, away),
        prior_sd=np.sqrt(candidates[0] ** 2 + spread**2 * np.sum(effects**2, axis=1)),
        factor=PooledFactor(
            variable=task.pooled or "",
            columns=tuple(task.features[each].name for each in columns.tolist()),
            spreads=tuple((_EFFECT_SPREADS * data_unit).tolist()),
            shares=tuple(shares.tolist()),
        ),
    )


def _effects(found: Measured, columns: NDArray[np.intp], size: int) -> Floats:
    """Return T: effects of all levels, the reference last, to coefficients in spreads, (p, l).

    A level's column has the coefficient of its effect less the reference's; the constant is at the
    columns' means.
    """
    shares = found.centres[columns]
    effects = np.zeros((size, len(columns) + 1))
    effects[0] = np.append(shares, 1.0 - shares.sum())
    for place, column in enumerate(columns.tolist()):
        effects[column + 1, [place, -1]] = found.spreads[column], -found.spreads[column]
    return effects
