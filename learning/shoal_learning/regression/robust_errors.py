"""What errors of slopes have beside noise: how records scatter, and what pulls."""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal_learning.regression.design_sample import DesignSample

Floats = NDArray[np.float64]

_PULL_FAR_OUT: Final = 0.8  # of a slope, over the share of its feature's square that is far out
_PULL_OF_OFFSETS: Final = 0.03  # over what offsets change with a spread of a feature
_CURVED: Final = 2.0  # standard deviation of a logit from which what curves pulls more
_UNEVEN: Final = 0.3  # relative differences of scatter between coordinates that are expected
_PRIOR_SCATTER_SD: Final = 0.7
_TAIL: Final = (2.0, 1.0)
"""Excess of cut residuals over an exponential tail's, mean and standard deviation.

It is 1 of Poisson's counts, 2 of gamma's, 3 of visits to doctors, where .005 to .1 are cut.
"""
_LOST_TWICE: Final = 1.2  # a lower mean makes residuals larger, of which more are cut
_FEWEST_CUT: Final = 1e-3
_MOST_LOST: Final = 0.5
_MOST_BEYOND: Final = 10.0  # of residuals' scatter over what is seen of cut ones
_LEAST_SCATTER: Final = 0.25


def part_pulled(part: float, predictors_sd: float) -> float:
    """Return by what `part` of it a slope may be pulled: more where classes are nearly apart.

    There scores hang on how features are distributed, which the sample has by moments alone.
    """
    return part * max(1.0, predictors_sd / _CURVED) ** 2


def pulled(sample: DesignSample, far: Floats, part: float, slopes: Floats) -> Floats:
    """Return by how much `slopes` may be pulled, shape (q,): by `part`, and by values far out.

    `far`, shape (q,), is the share of each feature's mean square that is far out. A feature has
    another slope there than where most rows are, which moves those of features
    that it correlates with. So do offsets that are not distributed as the sample's.
    """
    features, offsets = sample.rows[:, 1:], sample.offsets
    correlations = np.atleast_2d(np.corrcoef(features.T))
    along = _PULL_OF_OFFSETS * (offsets - offsets.mean()) @ features / len(features)
    far_out = correlations**2 @ (_PULL_FAR_OUT * far * slopes) ** 2
    return np.asarray(np.sqrt((part * slopes) ** 2 + far_out + along**2))


def scatter_seen(expected: Floats, squares: Floats, squares_sd: float) -> tuple[float, Floats]:
    """Return how many times more than expected scores scatter: in all, and each, shape (p,).

    `expected`, shape (p, p), is what the family says, and `squares`, shape (p,), what was seen,
    with noise of `squares_sd`.
    """
    whole, error = float(np.trace(expected)), squares_sd * math.sqrt(len(squares))
    precision = (whole / error) ** 2
    pooled = float(squares.sum()) / whole * precision + _PRIOR_SCATTER_SD**-2.0
    pooled = max(pooled / (precision + _PRIOR_SCATTER_SD**-2.0), _LEAST_SCATTER)
    own = np.diagonal(expected)
    trusted = 1.0 / (1.0 + (squares_sd / own / (_UNEVEN * pooled)) ** 2)
    each = pooled + trusted * (squares / own - pooled)
    return pooled, np.maximum(each, _LEAST_SCATTER)


def lost_with_cut(share: float, error: float, limit: float) -> tuple[float, float]:
    """Return what share of targets' mean is lost with cut residuals, and its deviation.

    `share` of them were cut, with noise of `error`, at `limit` over their mean. Only those of
    targets far above their mean are cut. Of a tail that falls like exp(-r / t), of which a share s
    is beyond c, it is s c / log(1 / s).
    """
    share *= share**2 / (share**2 + error**2)  # noise alone is no cut residuals
    each = limit / -math.log(min(max(share, _FEWEST_CUT), _MOST_LOST)) * _LOST_TWICE
    lost = min(_TAIL[0] * each * share, _MOST_LOST)
    return lost, each * math.hypot(_TAIL[1] * share, _TAIL[0] * error)


def beyond_cut(sample: DesignSample, point: Floats, spread: float, seen: float) -> float:
    """Return by how much more relative residuals scatter than those do, `seen`, that are cut.

    What is cut would move slopes, too. `spread` is the target's variance over its squared mean,
    less what is neither seen nor beyond the cut. Less that of means, by coefficients `point`, it is
    of all residuals. Noise that hides it makes more of it, within reason.
    """
    means, sizes = np.exp(sample.predictors(point)), sample.sizes
    uneven = np.average(means**2, weights=sizes) / np.average(means, weights=sizes) ** 2
    own = (spread + 1.0) / float(uneven) - 1.0
    return min(max(1.0, own / seen), _MOST_BEYOND)
