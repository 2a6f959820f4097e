"""A public sample of rows that stands for the records' rows, made from measured moments.

What scores are expected to be depends on how the features are distributed. The sample has their
measured means, spreads and correlations; a feature whose values are all at its bounds has two
values in it, any other is normal. It has nothing of any record but released moments.
"""

import math
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist
from typing import Final

import numpy as np

from shoal_protocol.queries.design import Floats

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
) -> DesignSample:
    """Return the sample for features with `correlations`, shape (q, q), and a `constant`.

    `shares`, shape (q,), is of a feature of two values the share of the upper one, else NaN;
    `scales`, shape (q,), are standard deviations, 1 without them.
    """
    count = len(correlations)
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
    if scales is not None:
        values = values * scales
    rows = np.column_stack([np.full(SIZE, constant), values])
    squares = np.sum(rows**2, axis=1)
    weights = np.sqrt(np.minimum(1.0, squared_radius / squares))
    whole = np.minimum(1.0, squared_radius / squares)
    return DesignSample(rows, weights, whole, np.full(SIZE, records / SIZE), np.zeros(SIZE))


def sample_of_moments(
    gram: Floats,
    noise_sd: float,
    *,
    shares: Floats,
    looseness: Floats,
    squared_radius: float,
    records: float,
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
