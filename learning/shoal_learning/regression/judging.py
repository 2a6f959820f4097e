"""What speaks against the intervals of a regression in measured units, from its own sums."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal_learning.quasi_likelihood import NoisyMoments
from shoal_learning.regression.measured import Measured
from shoal_learning.regression.score_likelihood import ScoreModel
from shoal_protocol.posteriors.grounds import CROWDED, PRIOR_DECIDES
from shoal_protocol.studies.regression import RegressionTask, Verdict

Floats = NDArray[np.float64]

DROWNED: Final = "noise outweighs what the features tell: the mean may predict as well"
NOT_ENDED: Final = "the last round was asked far from where it led: the path had not ended"

_CUT: Final = 0.02  # share of residuals that may be cut
_SURELY: Final = 2.0  # standard deviations of noise
_STRONG: Final = 2.2  # standard deviation of a logit: classes are nearly apart
OUTWEIGHED: Final = 0.6  # mean square error of predictors over their variance
FAR: Final = 1.0  # mean square change of a predictor since the last round's point


def judged_linear(
    task: RegressionTask,
    found: Measured,
    moments: NoisyMoments,
    covariance: Floats,
    prior_sd: Floats,
) -> Verdict:
    """Return the verdict on coefficients with `covariance`, (k, k), and priors of `prior_sd`."""
    target = task.target
    reasons = []
    if task.purpose == "prediction":
        reasons.append("values are pulled so that predictions err less, which no interval knows")
    crowd = found.spreads[-1] / target.half_range
    if np.isnan(found.shares[-1]) and crowd >= CROWDED:
        reasons.append(
            f"values of {target.name} crowd at their bounds: if these cut values, slopes are "
            "pulled towards 0; ask again with wider ones unless none can lie outside"
        )
    return _verdict(reasons, task, found, covariance, prior_sd)


def judged_scores(
    task: RegressionTask,
    found: Measured,
    model: ScoreModel,
    *,
    mean: Floats,
    covariance: Floats,
    expected: Floats,
    asked_at: Floats,
    cut: tuple[float, float],
) -> Verdict:
    """Return the verdict on coefficients `mean` with `covariance`, in spreads, (p,) and (p, p).

    The last round asked at `asked_at`, shape (p,); `cut` is the share of its residuals that were
    cut, and the noise in it. `expected` is the covariance by noise if coefficients are alike.
    """
    reasons = []
    seen, sd = cut
    if seen - _SURELY * sd > _CUT:
        reasons.append(
            f"about {seen:.0%} of the residuals were cut: {task.target.name} scatters more than "
            "the model says, or its bounds are too wide"
        )
    far = [each.name for each, there in zip(task.features, model.far, strict=True) if there]
    reasons += far_out(far)
    rows = model.sample.rows
    predictors = rows @ mean
    error = float(np.mean(np.sum((rows @ expected) * rows, axis=1)))
    if error > OUTWEIGHED * float(predictors.var()):
        reasons.append(DROWNED)
    if model.family == "logistic" and float(predictors.std()) > _STRONG:
        reasons.append("the classes are nearly apart, so that slopes have no upper end")
    if float(np.sqrt(np.mean((predictors - rows @ asked_at) ** 2))) > FAR:
        reasons.append(NOT_ENDED)
    return _verdict(reasons, task, found, covariance, model.precision() ** -0.5)


def _verdict(
    reasons: Sequence[str],
    task: RegressionTask,
    found: Measured,
    covariance: Floats,
    prior_sd: Floats,
) -> Verdict:
    # as narrow as if spreads were surely those measured: a wider one is no knowledge of the data's
    own = prior_sd[1:] / found.looseness[:-1]
    names = [each.name for each in task.features]
    return verdict(reasons, names, np.diagonal(covariance)[1:] / own**2)


def far_out(names: Sequence[str]) -> list[str]:
    """Return the reason that features of these names have few records far out; none of none."""
    if not names:
        return []
    return [
        f"few records far out make up most of {', '.join(names[:5])}, and count less: "
        "take its logarithm, or narrower bounds"
    ]


def verdict(reasons: Sequence[str], names: Sequence[str], shares: Floats) -> Verdict:
    """Return the verdict for `reasons`, or by the prior's `shares` in the slopes' variances."""
    if reasons:
        return Verdict(kind="doubtful", reasons=tuple(reasons))
    decided = [
        name for name, share in zip(names, shares.tolist(), strict=True) if share >= PRIOR_DECIDES
    ]
    if not decided:
        return Verdict(kind="trustworthy")
    named = ", ".join(decided[:5]) + (" and others" if len(decided) > 5 else "")
    return Verdict(
        kind="prior",
        reasons=(f"it decides {named}: take more clients, or a larger epsilon",),
    )
