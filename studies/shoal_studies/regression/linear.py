"""Linear regressions of one column of released moments on others, and what noise lets norms tell.

The mean is that under a prior whose standard deviation all slopes share, unknown. Intervals are the
mean square about it if slopes are as likely alike as each by itself.
"""

import math
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from shoal_protocol.queries import Column, NormCounts, WeightedRowMatrix
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.moments import MomentMatrix
from shoal_protocol.queries.sums import in_units, largest_norms
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue import regression as rules
from shoal_studies.catalogue.measurements import noise_ratio, query_of
from shoal_studies.catalogue.regression import RegressionTask
from shoal_studies.quasi_likelihood import (
    Coefficients,
    NoisyMoments,
    averaged,
    noise_aware_posterior,
)
from shoal_studies.regression.measured import Measured

_SHARED_SDS: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
_BY_ITSELF: Final = 0.5  # probability that a slope is unlike the others, for intervals
_ABSENT_SD: Final = 1e-3
_LEAST_KEPT: Final = 0.4


def regressed_columns(task: RegressionTask, found: Measured, reach: float) -> tuple[Column, ...]:
    """Return features in spreads, and the target cut at `reach` of them, for the last round."""
    target, centre = task.target, float(found.centres[-1])
    farthest = max(target.upper - centre, centre - target.lower)  # that a value can be
    scale = min(reach * float(found.spreads[-1]), farthest)
    last = Column(name=target.name, centre=centre, scale=scale, term=target.term)
    return (*found.features(task.features), last)


def sure_norms(counted: ReleasedSum, *, surely: float) -> tuple[Floats, Floats]:
    """Return counts of rows in bins of norms, without those that noise alone may have made.

    Then the largest norm of each bin; shapes (27,). Above a bin that is kept are more rows than
    `surely` standard deviations of the noise.

    Raises:
        ValueError: it is a sum of another query.
    """
    query = query_of(counted, NormCounts)
    counts = in_units(query, counted.values)[:-1]
    sd = float(counted.noise_sd[0]) / query.grid**2
    tails = np.cumsum(counts[::-1])[::-1]
    sure = np.flatnonzero(tails > surely * sd * np.sqrt(np.arange(len(tails), 0, -1)))
    counts[(int(sure[-1]) if sure.size else 0) + 1 :] = 0.0
    return counts, largest_norms(query)


def noise_sd(query: MomentMatrix, earlier: ReleasedSum, *, part: float, block: int = 0) -> float:
    """Return the noise on products, in squared spreads, of a round that is to ask `query`.

    `part` is the share of the `earlier` round over its own. `block` 0 is of squares, 1 of others.
    """
    design = query.design(earlier.mechanism)
    scale = design.sensitivity * design.blocks[block].relative_scale
    return noise_ratio(earlier, part=part) * scale * rules.REACH**2 / query.grid**2


def _under_each(
    moments: NoisyMoments, unit: float, is_there: NDArray[np.bool_]
) -> list[Coefficients]:
    """Return what is learned under each standard deviation that slopes may share, (k - 1,)."""
    return [
        noise_aware_posterior(moments, unit * np.append(1.0, np.where(is_there, sd, _ABSENT_SD)))
        for sd in _SHARED_SDS
    ]


def under_shared_priors(moments: NoisyMoments, unit: float) -> Coefficients:
    """Return what is learned under a prior whose standard deviation all slopes share, unknown.

    `unit` is a slope of one spread of the target for one of the feature. `log_evidence` is of the
    likeliest of six shared priors.
    """
    fits = _under_each(moments, unit, np.ones(len(moments.matrix) - 2, np.bool_))
    logs = np.array([one.log_evidence for one in fits])
    mean, covariance = averaged(
        logs, np.array([one.mean for one in fits]), np.array([one.covariance for one in fits])
    )
    squares = np.array([one.residual_sd**2 for one in fits])
    likely = np.sqrt(squares - np.array([one.residual_sd_sd**2 for one in fits]))
    variance = float(softmax(logs) @ squares)
    return Coefficients(
        mean=mean,
        covariance=covariance,
        residual_sd=variance**0.5,
        residual_sd_sd=max(variance - float(softmax(logs) @ likely) ** 2, 0.0) ** 0.5,
        log_evidence=float(logs.max()),
    )


def coefficients_of(moments: NoisyMoments, unit: float, own: Floats) -> Coefficients:
    """Return the mean under a shared prior, with the mean square error about it.

    `unit` is as in `under_shared_priors`, and `own`, shape (k,), the standard deviations of a prior
    for each slope by itself.
    """
    shared, wide = under_shared_priors(moments, unit), noise_aware_posterior(moments, own)
    away = shared.mean - wide.mean
    apart = wide.covariance + np.outer(away, away)
    covariance = _BY_ITSELF * apart + (1.0 - _BY_ITSELF) * shared.covariance
    return replace(shared, covariance=covariance)


def log_evidence(moments: NoisyMoments, unit: float, is_there: NDArray[np.bool_]) -> float:
    """Return the log evidence of the model with slopes where `is_there`, shape (k - 1,).

    Up to a constant of the moments. The slopes share a prior's standard deviation, which is as
    likely each of six; the others are 0, but for what no moments tell.
    """
    logs = [one.log_evidence for one in _under_each(moments, unit, is_there)]
    return float(np.logaddexp.reduce(logs) - math.log(len(logs)))


def kept_squares(query: WeightedRowMatrix, moments: NoisyMoments) -> float:
    """Return the mean square of rows' weights, from the constant's moment."""
    whole = moments.records * (query.constant / query.grid / query.target_limit) ** 2
    return min(max(float(moments.matrix[0, 0]) / whole, _LEAST_KEPT), 1.0)
