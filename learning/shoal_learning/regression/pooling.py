"""Effects of a factor's levels under one normal prior, whose spread is averaged over.

Which spread is likely the effects themselves say: a half-normal prior (Gelman 2006, Bayesian
Analysis 1:515) on a grid, never one best value, which few levels do not tell.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from shoal_learning.regression.measured import Measured
from shoal_learning.regression.mixtures import averaged, weights_of
from shoal_protocol.studies.regression import PooledFactor, RegressionTask

Floats = NDArray[np.float64]

_SPREADS: Final = np.geomspace(0.01, 4.0, 25)
"""Standard deviations of effects: in those of a number, or on the scale of the logarithms."""


@dataclass(frozen=True)
class Likelihood:
    """What data tell of coefficients b: exp(-b' `information` b / 2 + `weighted`' b).

    Shapes (p, p) and (p,).
    """

    information: Floats
    weighted: Floats

    @classmethod
    def of(cls, mean: Floats, covariance: Floats, prior_mean: Floats, prior_sd: Floats) -> Self:
        """Return that of a posterior under independent normal priors, shapes (p,) and (p, p)."""
        whole, precision = np.linalg.inv(covariance), prior_sd**-2.0
        values, vectors = np.linalg.eigh(whole - np.diag(precision))
        information = (vectors * np.maximum(values, 0.0)) @ vectors.T
        return cls(information, whole @ mean - precision * prior_mean)

    def scattered(self, covariance: Floats) -> "Likelihood":
        """Return that of coefficients of which the former were a sample's, with this error."""
        shrunk = self.information @ np.linalg.inv(self.information + np.linalg.inv(covariance))
        return Likelihood(
            self.information - shrunk @ self.information, self.weighted - shrunk @ self.weighted
        )


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
    likelihood: Likelihood,
    *,
    prior_mean: Floats,
    prior_sd: Floats,
    shared_sds: Sequence[float],
    unit: float,
    data_unit: float,
) -> PooledEstimate:
    """Return coefficients in spreads whose pooled ones have one prior.

    Others have a prior standard deviation that they share, one of `shared_sds`, or for the
    covariance `prior_sd` for each, shape (p,), the constant first. An effect of 1 is `unit` in the
    likelihood, and `data_unit` in the data.
    """
    columns = np.array(task.pooled_columns)
    effects = unit * _effects(found, columns, len(prior_sd))
    pooled = np.isin(np.arange(len(prior_sd)), columns + 1)
    slopes = ~pooled & (np.arange(len(prior_sd)) > 0)
    shared = [np.where(slopes, np.minimum(sd, prior_sd), prior_sd) for sd in shared_sds]
    candidates = [np.where(pooled, 0.0, sds) for sds in (prior_sd, *shared)]
    logs = np.empty((len(candidates), len(_SPREADS)))
    means = np.empty((*logs.shape, len(prior_sd)))
    covariances = np.empty((*means.shape, len(prior_sd)))
    hyperprior = -0.5 * _SPREADS**2 + np.log(_SPREADS)  # of a logarithmic grid
    for row, sds in enumerate(candidates):
        for place, spread in enumerate(_SPREADS.tolist()):
            prior = np.diag(sds**2) + spread**2 * effects @ effects.T
            precision = np.linalg.inv(prior)
            whole = precision + likelihood.information
            covariance = np.linalg.inv(whole)
            mean = covariance @ (likelihood.weighted + precision @ prior_mean)
            logs[row, place] = 0.5 * (
                float(mean @ whole @ mean - prior_mean @ precision @ prior_mean)
                - np.linalg.slogdet(prior)[1]
                - np.linalg.slogdet(whole)[1]
            )
            means[row, place], covariances[row, place] = mean, covariance
    logs = logs + hyperprior
    logs[0] += np.log(_SPREADS)  # errors are those of effects that spread rather more
    wide_mean, wide = averaged(logs[:1], means[:1], covariances[:1])
    best, _ = averaged(logs[1:], means[1:], covariances[1:])
    away = best - wide_mean
    shares = weights_of(logs[1:]).sum(axis=0)
    spread = float(shares @ _SPREADS)
    return PooledEstimate(
        mean=best,
        covariance=wide + np.outer(away, away),
        prior_sd=np.sqrt(candidates[0] ** 2 + spread**2 * np.sum(effects**2, axis=1)),
        factor=PooledFactor(
            variable=task.pooled or "",
            columns=tuple(task.features[each].name for each in columns.tolist()),
            spreads=tuple((_SPREADS * data_unit).tolist()),
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
