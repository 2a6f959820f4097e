"""Measures from the sums of a linear regression how prior, bounds and noise affect it."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal_learning.quasi_likelihood import NoisyMoments
from shoal_protocol.posteriors.grounds import Grounds
from shoal_protocol.queries import SecondMomentMatrix, UnitRowMatrix
from shoal_protocol.studies.linear_regression import LinearRegressionTask

FloatVector = NDArray[np.float64]
FloatMatrix = NDArray[np.float64]

_SURELY: Final = 2.0  # standard deviations of noise
_SMALLEST_SHARE: Final = 0.4  # of the constant's moment, that a ball leaves


def grounds_of(
    task: LinearRegressionTask,
    query: SecondMomentMatrix | UnitRowMatrix,
    moments: NoisyMoments,
    prior_sd: FloatVector,
    to_data_units: tuple[FloatVector, FloatMatrix],
    spreads: FloatVector | None,
) -> Grounds:
    """Return what the last round's `moments` and an earlier one's `spreads` show.

    `prior_sd`, shape (k,), is of normalised coefficients, which c + Tb of `to_data_units` takes to
    those of the posterior. `spreads`, shape (m,), are the columns' root mean squares about the
    middle of their bounds in data units, where a round measured them.
    """
    offset, transform = to_data_units
    prior_variance = (transform**2) @ prior_sd**2
    signals = _signals(moments)[-len(task.features) :]
    unit_rows = isinstance(query, UnitRowMatrix)
    means, deviations = _measured(task, query, moments, spreads)
    return Grounds(
        prior_mean=tuple(offset.tolist()),
        prior_sd=tuple(np.sqrt(prior_variance).tolist()),
        spreads=tuple(
            None if unit_rows and place < len(task.features) else each
            for place, each in enumerate(deviations)
        ),
        middles=tuple(
            None if unit_rows and place < len(task.features) else each
            for place, each in enumerate(means)
        ),
        signals=tuple(signals.tolist()),
        kept=_kept(query, moments),
        mismeasured=_mismeasured(query, moments, spreads),
    )


def _measured(
    task: LinearRegressionTask,
    query: SecondMomentMatrix | UnitRowMatrix,
    moments: NoisyMoments,
    spreads: FloatVector | None,
) -> tuple[list[float | None], list[float | None]]:
    """Return means less the bounds' middles, and standard deviations, over half the bounds' range.

    None where there is no constant, from which alone means are known, or where noise hides them.
    """
    constant = query.constant / query.grid
    if constant == 0.0:
        return [None] * len(query.columns), [None] * len(query.columns)
    matrix, records = moments.matrix, float(moments.records)
    rows = float(np.clip(matrix[0, 0] / constant**2, _SMALLEST_SHARE * records, records))
    half = np.array([column.half_range for column in task.columns])
    units = np.array([column.scale for column in query.columns]) / half
    away = matrix[0, 1:] / (constant * rows)
    squares = np.diagonal(matrix)[1:] / rows
    error = moments.diagonal_sd / rows * units**2
    variances = (squares - away**2) * units**2
    if spreads is not None:
        variances = np.minimum((spreads / half) ** 2, 1.0) - (away * units) ** 2
    centres = np.array([column.centre for column in query.columns])
    middles = np.array([column.centre for column in task.columns])
    means = (centres - middles) / half + away * units
    mean_error = moments.off_diagonal_sd / (constant * rows) * units
    # Noise alone neither makes a column narrow nor takes it off the middle.
    deviations = np.sqrt(np.maximum(variances, 0.0) + error + mean_error**2)
    told = np.sign(means) * np.maximum(np.abs(means) - mean_error, 0.0)
    # Centres that a round measured are where columns are, whatever their bounds.
    centred = task.centring == "private"
    return [None if centred else each for each in told.tolist()], list(deviations.tolist())


def _kept(query: SecondMomentMatrix | UnitRowMatrix, moments: NoisyMoments) -> float:
    """Return the mean squared factor that the ball left of rows, or more as noise has it."""
    whole = moments.records * (query.constant / query.grid) ** 2
    if whole == 0.0 or query.squared_norm_limit is None or isinstance(query, UnitRowMatrix):
        return 1.0
    return max(0.0, float(moments.matrix[0, 0] + _SURELY * moments.diagonal_sd) / whole)


def _mismeasured(
    query: SecondMomentMatrix | UnitRowMatrix, moments: NoisyMoments, spreads: FloatVector | None
) -> float:
    """Return how many times more than `spreads` had it a column's mean square is, at most, or 1.

    The least that noise allows. It may be less: columns are cut and shrunk on purpose.
    """
    if spreads is None:
        return 1.0
    units = np.array([column.scale for column in query.columns])
    wholes = moments.records * (spreads / units) ** 2
    squares, error = np.diagonal(moments.matrix)[-len(units) :], _SURELY * moments.diagonal_sd
    more = np.maximum(squares - error, 0.0) / wholes
    return float(max(1.0, more.max()))


def _signals(moments: NoisyMoments) -> FloatVector:
    """Return of each design coordinate its own sum of squares over that of the noise, shape (k,).

    Its own is what is left after regression on the others: v'Wv with v_j = 1, the reciprocal of
    W^-1's diagonal. With noise E on W, v'Ev has variance diag^2 sum v^4 + 2 off^2 ((sum v^2)^2 -
    sum v^4). It is 0 of a W that noise made indefinite.
    """
    gram = moments.matrix[:-1, :-1]
    if float(np.linalg.eigvalsh(gram)[0]) <= 0.0:
        return np.zeros(len(gram))
    inverse = np.linalg.inv(gram)
    own = 1.0 / np.diagonal(inverse)
    squares = (inverse * own) ** 2
    fourths, whole = (squares**2).sum(axis=0), squares.sum(axis=0) ** 2
    noise = moments.diagonal_sd**2 * fourths + 2.0 * moments.off_diagonal_sd**2 * (whole - fourths)
    signals: FloatVector = np.maximum(own, 0.0) / np.sqrt(noise)
    return signals
