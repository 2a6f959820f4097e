"""What speaks against the intervals of a regression in measured units, from its own sums."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.queries.columns import ColumnBounds, Level
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.scores import class_probabilities
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue.regression import SMALLEST_SPREAD, RegressionTask, Verdict, misplaced
from shoal_studies.posteriors.base import PRIOR_DECIDES
from shoal_studies.quasi_likelihood import NoisyMoments
from shoal_studies.regression import constants
from shoal_studies.regression.measured import Measured, has_two_values
from shoal_studies.regression.plausible_designs import DesignRows, ReleasedDesign
from shoal_studies.regression.scores import Scores

_SURELY: Final = 2.0  # standard deviations of noise
_LEAST_VALUE: Final = 1e-3  # eigenvalue of noisy covariances, over the largest
_FEW_COMPLETE: Final = 0.1  # of clients
_NARROWEST: Final = 1.5 * SMALLEST_SPREAD  # of a spread that is told, over half the bounds
_UNSURE: Final = 1.2  # looseness
_NO_WEIGHT: Final = 0.0103  # mean over largest: as small as is told, and a little
_UNTOLD: Final = 0.25  # half ranges: noise in a mean
_PART: Final = 0.3  # of an eigenvector
_COLLINEAR: Final = 0.1  # variance of a combination of features over its variance were they not

NOISE_OUTWEIGHS: Final = (
    "noise outweighs what the features tell: the mean may predict as well, and slopes may be "
    "anything within their intervals"
)
_LEVEL_IS_OFF: Final = (
    "predictions are off in the mean by more than they differ: the target scatters in another way "
    "than the model says"
)
_NEARLY_APART: Final = (
    "the classes are nearly apart: few records of one seem to be of the other, so that slopes have "
    "no upper end"
)
NOT_ENDED: Final = "the last round was asked far from where it led: the path had not ended"


def judged_linear(
    task: RegressionTask,
    found: Measured,
    moments: NoisyMoments,
    slopes: Floats,
    covariance: Floats,
    *,
    target_varies: bool,
) -> Verdict:
    """Return the verdict on the slopes of a linear regression that was read from moments.

    `slopes`, shape (q,), and their `covariance`, shape (q, q), are in spreads. Unless the
    `target_varies`, the last round had next to nothing of its variance.
    """
    target = task.target
    reasons = beyond_bounds(task.columns, found)
    if not target_varies:
        reasons.append(
            f"{target.name} hardly varies, or few records far out make up most of it: is the unit "
            "right?"
        )
    reasons += crowded(target, found)
    products, sums = moments.matrix[1:-1, 1:-1], moments.matrix[0, 1:-1]
    whole = float(moments.matrix[0, 0])
    within = products - np.outer(sums, sums) / whole if whole > moments.diagonal_sd else products
    if not predicts_better(slopes, covariance, within):
        reasons.append(NOISE_OUTWEIGHS)
    if reasons:
        return Verdict(kind="doubtful", reasons=tuple(reasons))
    are_decided = np.diagonal(covariance) >= PRIOR_DECIDES * task.prior_sd**2
    decided = [each.name for each, it_is in zip(task.features, are_decided, strict=True) if it_is]
    if not decided:
        return Verdict(kind="trustworthy")
    named = ", ".join(decided[:5]) + (" and others" if len(decided) > 5 else "")
    advice = "drop what hardly varies or nearly is a sum of others, take more clients, or a larger"
    return Verdict(kind="prior", reasons=(f"it decides {named}: {advice} epsilon",))


@dataclass(frozen=True, kw_only=True)
class RegressionEvidence:
    """What a verdict on a regression is made from; slopes are for spreads of the features.

    `slopes`, shape (k, q), are of k predictors, and have the covariance `noise`, (k q, k q), by
    noise and prior. `predictors`, shape (n, k), are those of the first of the plausible `designs`.
    `lost`, shape (q,), is what part of features' mean squares the last round lost by shrinking
    rows, and `moved` the root mean square change of a predictor since its point. `pulled`, shape
    (k q,), is how far shrinking and cutting pull slopes. `covariance`, of the shape of `noise`, is
    by all of these and by scatter. `unevenness`, shape (q,) or none, is by what part the variances
    of slopes by scatter are above those of records that all scatter alike, times the part of
    squares that narrow balls lose. `level_error` is how far predictors are off in the mean.
    `large_error` is the probability that all designs are far off. `cut` is by how much the share of
    residuals that were cut is above the one expected, with noise of `cut_sd`. `mean_weight` is the
    mean over the largest weight that a record may have.
    """

    columns: Measured
    sums: Sequence[ReleasedSum]
    records: float
    designs: Sequence[DesignRows]
    lost: Floats
    slopes: Floats
    noise: Floats
    predictors: Floats
    moved: float
    prior_sd: float
    pulled: Floats
    covariance: Floats
    large_error: float
    unevenness: Floats = field(default_factory=lambda: np.zeros(0))
    level_error: float = 0.0
    mean_weight: float = 1.0
    cut: float = 0.0
    cut_sd: float = 0.0

    @property
    def complete(self) -> tuple[float, int]:
        """How many records there are of how many clients."""
        return self.records, self.sums[-1].cohort_size


def judged_regression(task: RegressionTask, seen: RegressionEvidence) -> Verdict:
    """Return the verdict on the intervals of a regression."""
    if said := unweighed(task, seen.mean_weight) or _hardly_varies(task, seen):
        return one_class(said)
    target, found = task.target, seen.columns
    reasons = few_complete(seen.complete) or beyond_bounds(task.columns, found)
    if task.family == "normal" or (
        task.family != "logistic" and float(found.centres[-1]) > target.centre
    ):
        reasons += crowded(target, found)
    if task.family == "logistic" and not has_two_values(seen.sums[0], len(found.centres) - 1):
        reasons.append(
            f"many values of {target.name} are neither {target.lower:g} nor {target.upper:g}, as "
            "those of two classes are: those above the middle count as the upper one"
        )
    if seen.cut - _SURELY * seen.cut_sd > constants.CUT_SHARE:
        reasons.append(
            f"about {seen.cut:.0%} more of the residuals were cut than the model expects: "
            f"{target.name} scatters more than it says, or its bounds are too wide"
        )
    if task.family == "logistic":
        reasons += nearly_apart(seen.predictors)
    names = [each.name for each in task.features]
    reasons += _uneven(task.features, seen.unevenness)
    return judged_slopes(task.features, names, reasons, seen, pooled=task.pooled_columns)


def judged_slopes(
    features: Sequence[ColumnBounds],
    names: Sequence[str],
    reasons: Sequence[str],
    seen: RegressionEvidence,
    *,
    pooled: Sequence[int] = (),
) -> Verdict:
    """Return the verdict on slopes `names`, those of each predictor after those of the one before.

    `reasons` are those that are known already, and `pooled` which features have a prior of their
    own: that few records have them is what it is for.
    """
    reasons = list(reasons)
    most = min(constants.MOST_OF_FAR, constants.FAR_BY_RECORDS / math.sqrt(seen.records))
    lost = seen.lost.copy()
    lost[list(pooled)] = 0.0
    reasons += far_out(features, lost, seen.columns, most=most)
    rows, weights = seen.designs[0].rows[:, 1:], seen.designs[0].weights
    count, width = seen.slopes.shape
    among = among_predictors(count)
    products = np.kron(among, np.einsum("ni,n,nj->ij", rows, weights, rows)).astype(np.float64)
    decided, rest = _by_direction(names, seen, np.delete(np.arange(width), list(pooled)), products)
    covariance = seen.covariance if rest is None else rest @ seen.covariance @ rest.T
    error = float(np.sum(products * covariance))
    away = seen.predictors - weights @ seen.predictors
    variance = float(weights @ np.sum((away @ among) * away, axis=1))
    if seen.level_error**2 > constants.OUTWEIGHED * variance:
        reasons.append(_LEVEL_IS_OFF)
    elif error + seen.level_error**2 > constants.OUTWEIGHED * variance:
        reasons += [NOISE_OUTWEIGHS] if rest is None else decided
    if seen.moved > constants.MOVED:
        reasons.append(NOT_ENDED)
    apart = seen.pulled**2 > np.diagonal(seen.covariance) / 2.0  # of which it is a part
    apart &= ~np.tile(_are_of_two_values(features, seen.columns), count)
    pulled = [name for name, it_is in zip(names, apart.tolist(), strict=True) if it_is]
    if pulled:
        reasons.append(
            f"records far out have other slopes of {', '.join(pulled[:5])} than those nearer: take "
            "logarithms, squares or narrower bounds"
        )
    if seen.large_error > constants.CONTRADICT / (1.0 + constants.CONTRADICT):
        reasons.append(
            "the rounds contradict each other, however the features may be distributed: noise "
            "hides how they hang together, or few records make up most of it; take fewer features, "
            "more clients, or a larger epsilon"
        )
    if seen.designs[0].noise_error > constants.MOST_OF_NOISE:
        reasons.append(
            "noise hides how so many features hang together, and whether some are nearly the same: "
            "take fewer features, more clients, or a larger epsilon"
        )
    if reasons:
        return Verdict(kind="doubtful", reasons=tuple(reasons))
    return Verdict(kind="prior" if decided else "trustworthy", reasons=tuple(decided))


def _hardly_varies(task: RegressionTask, seen: RegressionEvidence) -> str | None:
    """Return that the target is the same in nearly all records; None if it is not."""
    target, at_bound = task.target, float(seen.columns.one_bound[-1])
    if at_bound and task.family == "logistic":
        return (
            f"nearly all records are of one class of {target.name}: is it coded {target.lower:g} "
            f"and {target.upper:g}, as its bounds are?"
        )
    if at_bound and target.lower == 0.0 and task.family != "normal":
        return (
            f"nearly all values of {target.name} are at or beyond its bound "
            f"{target.upper if at_bound > 0.0 else target.lower:g}: is the unit right?"
        )
    return None


def lost_squares(
    features: Sequence[ColumnBounds],
    found: Measured,
    released: ReleasedDesign,
    designs: Sequence[DesignRows],
    scores: Scores,
) -> tuple[Floats, Floats]:
    """Return what part of features' mean squares a round loses by shrinking rows, shapes (q,).

    It is what rows of `designs` lose, and what lies farther out than these: as seen, and then as
    expected. Of features of two values it is none: all that are far out are alike.
    """
    kept = []
    for design in designs:
        squares = (design.rows[:, 1:] - design.means) ** 2
        whole = np.maximum(design.weights @ squares, 1e-12)
        kept.append((design.weights * scores.kept(design)) @ squares / whole)
    two = _are_of_two_values(features, found)
    seen, expected = (
        np.where(two, 0.0, 1.0 - np.mean(kept, axis=0) * (1.0 - each))
        for each in released.beyond(designs)
    )
    return seen, expected


def _uneven(features: Sequence[ColumnBounds], unevenness: Floats) -> list[str]:
    """Return the reason that records far out scatter so much more that they decide slopes."""
    far = np.flatnonzero(unevenness > constants.UNEVEN).tolist()
    if not far:
        return []
    return [
        "records far out scatter more, and decide the slopes of "
        f"{', '.join(features[place].name for place in far[:5])}: take logarithms, or narrower "
        "bounds"
    ]


def _are_of_two_values(features: Sequence[ColumnBounds], found: Measured) -> NDArray[np.bool_]:
    """Tell of each feature whether it has two values, shape (q,)."""
    levels = np.array([is_level(each) for each in features])
    return np.asarray(levels | ~np.isnan(found.shares[: len(features)]))


def among_predictors(count: int) -> Floats:
    """Return the prior precision among predictors of classes, (k, k), where each has variance 1.

    They are those of classes but the first, less the first's: as if each class's were alike and
    independent before the first's are taken off. So the prior is the same whichever is first.
    """
    return np.asarray(2.0 * (np.eye(count) - 1.0 / (count + 1)))


def _by_direction(
    names: Sequence[str], seen: RegressionEvidence, kept: NDArray[np.intp], products: Floats
) -> tuple[list[str], Floats | None]:
    """Return the reason that the prior decides a combination of slopes, or none; a projection.

    The projection, shape (k q, k q), takes errors along the combination away. There is one only
    where columns are nearly collinear by their `products`, of the same shape: predictions hardly
    hang on the combination. Slopes of features but those `kept`, shape (w,), are left out: a prior
    decides them as it is to.
    """
    count, width = len(seen.slopes), len(kept)
    places = np.add.outer(np.arange(count) * seen.slopes.shape[1], kept).ravel()
    noise = seen.noise[np.ix_(places, places)]
    scales, turn = np.linalg.eigh(among_predictors(count))
    root = np.kron((turn * np.sqrt(scales)) @ turn.T, np.eye(width)) / seen.prior_sd
    values, vectors = np.linalg.eigh(root @ noise @ root)
    if not places.size or values[-1] < PRIOR_DECIDES:
        return [], None
    slopes = root @ vectors[:, -1]
    parts = [
        f"{part:+.1f} {names[place]}"
        for part, place in zip(slopes / slopes[np.argmax(np.abs(slopes))], places, strict=True)
        if abs(part) > _PART
    ]
    said = f"the prior decides {' '.join(parts[:6]).removeprefix('+1.0 ')}: noise hides it"
    if len(parts) == 1:
        return [f"{said}; take more clients, or a larger epsilon"], None
    said += "; drop or combine these, or take more clients"
    along = np.linalg.solve(root, vectors[:, -1])
    if along @ products[np.ix_(places, places)] @ along > _COLLINEAR * (along @ along):
        return [said], None
    rest = np.eye(len(seen.noise))
    rest[np.ix_(places, places)] -= np.outer(along, slopes)
    return [said], rest


def few_complete(complete: tuple[float, int]) -> list[str]:
    """Return the reason that few of so many clients have a complete record; or none."""
    if complete[0] >= _FEW_COMPLETE * complete[1]:
        return []
    return [
        f"only about {complete[0]:,.0f} of {complete[1]:,} clients have a complete record: are "
        "values missing, and are all levels listed that records have?"
    ]


def unweighed(task: RegressionTask, mean_weight: float) -> str | None:
    """Return that weights are so small that no record counts; None if not, or of no weights."""
    if task.weights is None or mean_weight > _NO_WEIGHT:
        return None
    return (
        f"the weights {task.weights.name} are 0, or far below their bound {task.weights.upper:g}, "
        "in nearly all records: is the unit right?"
    )


def is_level(feature: ColumnBounds) -> bool:
    """Tell whether a feature says of which levels a record is."""
    factors = () if feature.term is None else feature.term.factors
    return bool(factors) and all(isinstance(each, Level) for each in factors)


def beyond_bounds(columns: Sequence[ColumnBounds], found: Measured) -> list[str]:
    """Return which of the first `columns` that were `found` seem to be cut nearly everywhere.

    A level's column is 1 where a record is of it: no bounds cut it. Means that noise makes tell
    nothing.
    """
    measured = zip(
        columns,
        found.centres.tolist(),
        found.spreads.tolist(),
        found.looseness.tolist(),
        (~np.isnan(found.shares)).tolist(),
        (found.errors < _UNTOLD).tolist(),
        strict=False,
    )
    said = [
        misplaced(
            each.name,
            (each.lower, each.upper),
            centre=centre,
            spread=spread,
            looseness=looseness,
            is_binary=is_binary,
        )
        for each, centre, spread, looseness, is_binary, is_told in measured
        if is_told and not is_level(each)
    ]
    return [each for each in said if each is not None]


def crowded(target: ColumnBounds, found: Measured) -> list[str]:
    """Return the reason that the target, which was `found` last, is at its bounds; or none."""
    is_wide = float(found.spreads[-1]) >= constants.CROWDED * target.half_range
    if not is_wide or not np.isnan(found.shares[-1]):
        return []
    return [
        f"values of {target.name} crowd at their bounds: if these cut values, slopes are pulled "
        "towards 0; ask again with wider bounds unless no value can lie outside"
    ]


def predicts_better(slopes: Floats, covariance: Floats, products: Floats) -> bool:
    """Tell whether predictions by `slopes` probably err less than the mean alone.

    With features' covariances G, shape (q, q), true slopes b err by (m - b)'G(m - b) where those
    that are learned are m, and b'Gb where they are 0. The first is less where m'Gb > m'Gm / 2. Of
    b about m with covariance C, m'Gb has the mean m'Gm and the variance m'GCGm.
    """
    values, vectors = np.linalg.eigh(products)
    raised = np.maximum(values, _LEAST_VALUE * np.abs(values).max())
    through = (vectors * raised) @ vectors.T @ slopes
    return float(slopes @ through) > constants.BETTER * math.sqrt(
        float(through @ covariance @ through)
    )


def nearly_apart(predictors: Floats) -> list[str]:
    """Return the reason that two of K classes are nearly apart, or none.

    `predictors`, shape (s, K - 1), are those of all but the first, whose own is 0. A record's
    likelier class of the two is what it seems to be of.
    """
    probabilities = class_probabilities(np.pad(predictors, ((0, 0), (1, 0))))
    one, other = np.triu_indices(probabilities.shape[1], 1)
    mistaken = np.minimum(probabilities[:, one], probabilities[:, other]).sum(axis=0)
    records = probabilities.sum(axis=0)
    shares = mistaken / np.minimum(records[one], records[other])
    return [_NEARLY_APART] if float(shares.min()) < constants.APART else []


def one_class(reason: str) -> Verdict:
    """Return the verdict where an outcome hardly varies: whatever else was measured follows."""
    return Verdict(kind="doubtful", reasons=(reason,))


def far_out(
    features: Sequence[ColumnBounds],
    shares: Floats,
    found: Measured,
    *,
    most: float = constants.MOST_OF_FAR,
) -> list[str]:
    """Return the reasons that rounds lack more than `most` of mean squares, (q,); or none.

    Few rows far out have them, or the column has no spread but that of the noise.
    """
    said: dict[str, list[str]] = {}
    for place in np.flatnonzero(shares > most).tolist():
        each = features[place]
        narrow = found.spreads[place] <= _NARROWEST * each.half_range
        is_indicator = (each.lower, each.upper) == (0.0, 1.0) or not np.isnan(found.shares[place])
        if is_level(each):
            what = "few records are of {}: merge levels"
        elif is_indicator and each.term is None:
            what = (
                "nearly all records have about the same value of {}: drop it, or take more clients"
            )
        elif narrow or found.looseness[place] > _UNSURE:
            what = "{} hardly varies, or few records far out make up most of it: drop it, or take "
            what += "its logarithm or narrower bounds"
        else:
            what = "few records far out make up most of {}, and count less: take its logarithm, or "
            what += "narrower bounds"
        said.setdefault(what, []).append(each.name)
    return [what.format(", ".join(names[:5])) for what, names in said.items()]
