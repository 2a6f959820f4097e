"""A public sample of rows that stands for the records' rows, made from measured moments.

What scores are expected to be depends on how the features are distributed. The sample has their
measured means, spreads and correlations; a feature whose values are all at its bounds has two
values in it, any other is normal. Of the levels of one variable a row has one at most. It has
nothing of any record but released moments.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.queries.columns import ColumnBounds, Level
from shoal_protocol.queries.design import Floats

Levels = tuple[tuple[int, ...], ...]
"""Places of features, shape (q,), of which a row has at most one."""

SIZE: Final = 2000
_SEED: Final = 1703_01106
_RAREST: Final = 0.01  # share of a value of two
_LEAST: Final = 0.02  # eigenvalue of correlations
_STRONGEST: Final = 0.97  # correlation of two latent normals
_USUALLY_FAR: Final = (0.3, 0.2)  # share of a mean square, where it is not seen: mean and deviation
_CORRECTIONS: Final = 3  # of spreads: rows' weights hang on them
_SCALES: Final = (0.3, 3.0)  # of a spread over what the first round measured
_NORMAL: Final = NormalDist()


@dataclass(frozen=True)
class DesignSample:
    """`rows`, shape (s, p), in spreads, the constant first.

    `weights`, shape (s,), are f, and `moment_weights` the f^2 of the round of moments. `sizes`,
    shape (s,), is how many records a row stands for, each by its weight; `offsets`, shape (s,), are
    what predictors have beside coefficients.
    """

    rows: Floats
    weights: Floats
    moment_weights: Floats
    sizes: Floats
    offsets: Floats

    def predictors(self, point: Floats) -> Floats:
        """Return the rows' predictors by coefficients, shape (p,): shape (s,)."""
        return np.asarray(self.rows @ point + self.offsets)

    def gram(self, factors: Floats) -> Floats:
        """Return the sum over records of `factors`, shape (s,), times x x', shape (p, p)."""
        return np.asarray((self.rows * (factors * self.sizes)[:, None]).T @ self.rows)

    def total(self, factors: Floats) -> Floats:
        """Return the sum over records of `factors`, shape (s,), times x, shape (p,)."""
        return np.asarray((factors * self.sizes) @ self.rows)


def design_sample(
    correlations: Floats,
    shares: Floats,
    *,
    constant: float,
    squared_radius: float,
    records: float,
    scales: Floats | None = None,
    aside: float = 0.0,
    levels: Levels = (),
) -> DesignSample:
    """Return the sample for features with `correlations`, shape (q, q), and a `constant`.

    `shares`, shape (q,), is of a feature of two values the share of the upper one, else NaN;
    `scales`, shape (q,), are standard deviations, 1 without them. `aside` is the squared norm of
    what else a row has in the round of moments, whose ball is so much larger. Of `levels` of one
    variable a row has one at most.
    """
    count = len(correlations)
    levels = _seen(levels, shares)
    correlations, shares = _in_turn(correlations, shares, levels)
    generator = np.random.default_rng([_SEED, count])
    half = generator.standard_normal((SIZE // 2, count))
    normals = np.vstack([half, -half])
    own = np.linalg.cholesky(normals.T @ normals / SIZE)  # theirs by chance, taken out
    normals = np.linalg.solve(own, normals.T).T
    latent = _proper(_latent(_proper(correlations), shares))
    values = normals @ np.linalg.cholesky(latent).T
    for place, share in enumerate(shares.tolist()):
        if not math.isnan(share):
            upper = min(max(share, _RAREST), 1.0 - _RAREST)
            above = values[:, place] > _NORMAL.inv_cdf(1.0 - upper)
            values[:, place] = (above - upper) / math.sqrt(upper * (1.0 - upper))
    for group in levels:
        values[:, group] = _one_at_most(values[:, group] > 0.0)
    if scales is not None:
        values = values * scales
    rows = np.column_stack([np.full(SIZE, constant), values])
    squares = np.sum(rows**2, axis=1)
    weights = np.sqrt(np.minimum(1.0, squared_radius / squares))
    whole = np.minimum(1.0, (squared_radius + aside) / (squares + aside))
    return DesignSample(rows, weights, whole, np.full(SIZE, records / SIZE), np.zeros(SIZE))


def sample_of_moments(
    gram: Floats,
    noise_sd: float,
    *,
    shares: Floats,
    looseness: Floats,
    squared_radius: float,
    records: float,
    aside: float = 0.0,
    levels: Levels = (),
) -> tuple[DesignSample, Floats]:
    """Return the sample of rows with the correlations of a Gram matrix of features, (q, q).

    Their spreads are those of the first round, of `looseness`, corrected by what the matrix tells
    of them. Then what share of each feature's mean square is lacking, shape (q,): rows far out,
    which count less, have it.
    """
    make = partial(
        design_sample,
        correlations_of(gram, noise_sd, records),
        shares,
        constant=1.0,
        squared_radius=squared_radius,
        records=records,
        aside=aside,
        levels=levels,
    )
    sample = make()
    error = looseness**2 - 1.0  # about the variance of squares, measured
    scales = np.ones(len(gram))
    squares = np.diagonal(sample.gram(sample.moment_weights))[1:]
    ratios = np.diagonal(gram) / squares
    far = _far(1.0 - ratios, error * ratios**2 + 2.0 * (noise_sd / squares) ** 2, shares)
    for _ in range(_CORRECTIONS):
        squares = np.diagonal(sample.gram(sample.moment_weights))[1:]
        trusted = error / (error + 2.0 * (noise_sd / squares) ** 2)
        ratios = 1.0 + trusted * (np.diagonal(gram) / squares - 1.0)
        scales = np.clip(scales * np.sqrt(np.maximum(ratios, 0.0)), *_SCALES)
        sample = make(scales=scales)
    return sample, far


def _far(lacking: Floats, variances: Floats, shares: Floats) -> Floats:
    """Return what share of mean squares is far out, shape (q,), if `lacking` has `variances`.

    Where noise hides it, bounds are wide, and so may be tails. A feature of two values has none.
    """
    usual, sd = _USUALLY_FAR
    found = usual + (lacking - usual) * sd**2 / (sd**2 + variances)
    return np.where(np.isnan(shares), np.clip(found, 0.0, 1.0), 0.0)


def correlations_of(gram: Floats, noise_sd: float, records: float) -> Floats:
    """Return correlations, shape (q, q), from a noisy Gram matrix of features in spreads.

    They are shrunk towards none by James and Stein's factor, as far as noise may have made them.
    """
    count = len(gram)
    lengths = np.maximum(np.diagonal(gram), 0.2 * records)
    found = np.asarray(gram / np.sqrt(np.outer(lengths, lengths)))
    np.fill_diagonal(found, 0.0)
    expected = (noise_sd / lengths.mean()) ** 2 * count * (count - 1)
    return np.asarray(np.eye(count) + shrunk(found, expected))


def shrunk(values: Floats, expected: float) -> Floats:
    """Return values shrunk towards none by James and Stein's factor.

    Noise alone has squares that are `expected` in sum.
    """
    return values * max(0.0, 1.0 - expected / max(float(np.sum(values**2)), 1e-300))


def levels_of(features: Sequence[ColumnBounds]) -> Levels:
    """Return, by variable, the places of features that are its levels, where there are several."""
    found: dict[str, list[int]] = {}
    for place, each in enumerate(features):
        factors = () if each.term is None else each.term.factors
        if len(factors) == 1 and isinstance(factors[0], Level):
            found.setdefault(factors[0].variable, []).append(place)
    return tuple(tuple(places) for places in found.values() if len(places) > 1)


def _seen(levels: Levels, shares: Floats) -> Levels:
    """Return which levels, of those of several, are seen to have two values."""
    found = (tuple(each for each in group if not math.isnan(shares[each])) for group in levels)
    return tuple(group for group in found if len(group) > 1)


def _in_turn(correlations: Floats, shares: Floats, levels: Levels) -> tuple[Floats, Floats]:
    """Return correlations, shape (q, q), and shares, (q,), where levels are drawn one by one.

    A level's share is then of the rows that have none before it, whatever their latent normals are.
    """
    correlations, shares = correlations.copy(), shares.copy()
    for group in levels:
        correlations[np.ix_(group, group)] = np.eye(len(group))
        left = 1.0
        for place in group:
            share = float(shares[place])
            shares[place] = share / max(left, share, _RAREST)
            left -= share
    return correlations, shares


def _one_at_most(drawn: NDArray[np.bool_]) -> Floats:
    """Return levels, shape (s, l), of which each row has the first that it drew, in spreads.

    One that no row would have is left as it was drawn.
    """
    first = drawn & (np.cumsum(drawn, axis=1) == 1)
    found = np.where(first.any(axis=0), first, drawn).astype(np.float64)
    return np.asarray((found - found.mean(axis=0)) / np.maximum(found.std(axis=0), 1.0 / SIZE))


def _latent(correlations: Floats, shares: Floats) -> Floats:
    """Return correlations of normals that, cut in two where shares say, have `correlations`.

    To first order in the correlation (Pearson 1900): a normal and its indicator correlate by the
    density at the threshold over the indicator's standard deviation.
    """
    factors = np.array([_attenuation(share) for share in shares.tolist()])
    return np.clip(correlations / np.outer(factors, factors), -_STRONGEST, _STRONGEST)


def _attenuation(share: float) -> float:
    if math.isnan(share):
        return 1.0
    upper = min(max(share, _RAREST), 1.0 - _RAREST)
    return _NORMAL.pdf(_NORMAL.inv_cdf(upper)) / math.sqrt(upper * (1.0 - upper))


def _proper(correlations: Floats) -> Floats:
    """Return the matrix with ones on its diagonal and no eigenvalue near or below 0."""
    whole = correlations.copy()
    np.fill_diagonal(whole, 1.0)
    values, vectors = np.linalg.eigh(whole)
    raised = (vectors * np.maximum(values, _LEAST)) @ vectors.T
    roots = np.sqrt(np.diagonal(raised))
    return np.asarray(raised / np.outer(roots, roots))


_PULL_FAR_OUT: Final = 0.8  # of a slope, over the share of its feature's square that is far out
_PULL_OF_OFFSETS: Final = 0.03  # over what offsets change with a spread of a feature
_CURVED: Final = 2.0  # standard deviation of a logit from which what curves pulls more
_UNEVEN: Final = 0.3  # relative differences of scatter between coordinates that are expected
_PRIOR_SCATTER_SD: Final = 0.7
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


def scatter_seen(
    expected: Floats, squares: Floats, squares_sd: float
) -> tuple[float, float, Floats]:
    """Return how many times more than expected scores scatter: in all, and each, shape (p,).

    Between them is the standard deviation of the first, by noise. `expected`, shape (p, p), is what
    the family says, and `squares`, shape (p,), what was seen, with noise of `squares_sd`.
    """
    whole, error = float(np.trace(expected)), squares_sd * math.sqrt(len(squares))
    precision = (whole / error) ** 2
    pooled = float(squares.sum()) / whole * precision + _PRIOR_SCATTER_SD**-2.0
    precision += _PRIOR_SCATTER_SD**-2.0
    pooled = max(pooled / precision, _LEAST_SCATTER)
    own = np.diagonal(expected)
    trusted = 1.0 / (1.0 + (squares_sd / own / (_UNEVEN * pooled)) ** 2)
    each = pooled + trusted * (squares / own - pooled)
    return pooled, precision**-0.5, np.maximum(each, _LEAST_SCATTER)
