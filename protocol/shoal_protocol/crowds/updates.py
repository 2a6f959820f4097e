"""One step of a crowd's model on one record, in integers.

A step is within +-lattice_clip on every coordinate, whatever the record and the weights are; the
noise is calibrated to that. Shapes may have leading axes, so that a simulation of many crowds takes
the same steps as clients.
"""

import math

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.crowds.tasks import LARGEST_WEIGHT, CrowdTask
from shoal_protocol.queries import quantisation
from shoal_protocol.queries.columns import design_of
from shoal_protocol.queries.models.regressions import probability
from shoal_protocol.wire.encoding import Int64Vector

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def first_weights(task: CrowdTask) -> IntArray:
    """Return `start`, or zero, rounded to the lattice, shape (p,): every instance begins with it.

    Raises:
        ValueError: a weight is too large for the lattice.
    """
    start = np.zeros(task.dimension) if task.start is None else np.array(task.start)
    on_lattice = np.rint(start * task.grid)  # the product is exact
    if np.any(np.abs(on_lattice) > LARGEST_WEIGHT):
        raise ValueError("a weight of start is too large for its lattice: lower grid_bits")
    return on_lattice.astype(np.int64)


def design_rows(task: CrowdTask, records: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return rows x, shape (r, p), and targets y, shape (r,), of `records`, shape (r, variables).

    Records' columns are `task.column_names`; each of the task's is cut to its bounds. Targets: a
    linear model's in [-1, 1]; a logistic model's 0 or 1, the nearer one; a Poisson model's in its
    own units.

    Raises:
        ValueError: another shape, no record, or a number that is not finite.
    """
    records = np.asarray(records, dtype=np.float64)
    quantisation.refuse_unusable(records, task.column_names, max(1, len(records)))
    return _normalised(task, design_of(task.columns, records))


def _normalised(task: CrowdTask, columns: FloatArray) -> tuple[FloatArray, FloatArray]:
    centres = np.array([each.centre for each in task.columns])
    scales = np.array([each.half_range for each in task.columns])
    boxed = quantisation.to_box(columns, centres, scales)
    rows = boxed[:, :-1]
    if task.intercept:
        rows = np.column_stack([np.ones(len(rows)), rows])
    targets = boxed[:, -1]
    if task.family == "logistic":
        targets = (targets > 0.0).astype(np.float64)
    elif task.family == "poisson":
        targets = (targets + 1.0) * (task.target.upper / 2.0)
    return rows, targets


def feature_rows(task: CrowdTask, features: FloatArray) -> FloatArray:
    """Return rows x, shape (r, p), as `design_rows` does, of features alone, shape (r, m).

    Raises:
        ValueError: as `design_rows`.
    """
    features = np.asarray(features, dtype=np.float64)
    if features.ndim != 2 or features.shape[1] != len(task.features):
        raise ValueError(f"rows must have shape (n, {len(task.features)}): one per feature")
    names = [each.name for each in task.features]
    quantisation.refuse_unusable(features, names, max(1, len(features)))
    whole = np.column_stack([features, np.full(len(features), task.target.upper)])
    return _normalised(task, whole)[0]


def means(task: CrowdTask, predictors: FloatArray) -> FloatArray:
    """Return the model's mean at linear predictors x'b, of any shape, on the scale of targets.

    A Poisson model's is at most the target's upper bound, so that no weight makes a step infinite.
    """
    if task.family == "linear":
        return predictors
    if task.family == "logistic":
        return probability(predictors)
    return np.exp(np.minimum(predictors, math.log(task.target.upper)))


def steps(task: CrowdTask, weights: IntArray, rows: FloatArray, targets: FloatArray) -> IntArray:
    """Return the clipped steps, shape (..., p), in lattice units, each within +-lattice_clip.

    `weights`, shape (..., p), are on the lattice; `rows`, shape (..., p), and `targets`, shape
    (...), are those of `design_rows`. Rounding is towards zero.
    """
    predictors = np.sum(rows * (weights / task.grid), axis=-1)
    scores = task.learning_rate * (targets - means(task, predictors))
    if task.clipping == "residual":
        scores = np.clip(scores, -task.clip, task.clip)
    exact = scores[..., None] * rows * task.grid
    limit = float(task.lattice_clip)
    # clipped as floats first: what is far outside has no int64
    return np.trunc(np.clip(exact, -limit, limit)).astype(np.int64)


def contribute(
    task: CrowdTask,
    weights: Int64Vector,
    step: Int64Vector,
    *,
    coordinate: int | None,
    noise: Int64Vector,
) -> Int64Vector:
    """Return what a client sends, shape (p,): the drawn weights with one noised step taken.

    `step` is one record's, shape (p,). `coordinate`, uniform on 0, ..., p - 1 and independent of
    all data, is the one that the variant "one" touches; None for the others. `noise` is exact
    discrete Laplace noise of `task.noise_scale`, shape (touched,).

    Raises:
        ValueError: a shape does not fit, or `coordinate` is missing or one too many.
    """
    if weights.shape != (task.dimension,) or step.shape != (task.dimension,):
        raise ValueError("weights and step must have one number for each weight")
    if noise.shape != (task.touched,):
        raise ValueError("noise must have one number for each coordinate that is touched")
    if (coordinate is None) == (task.variant == "one"):
        raise ValueError("the variant one, and no other, touches a single coordinate")
    touched = slice(None) if coordinate is None else slice(coordinate, coordinate + 1)
    sent = weights.copy()
    moved = decayed(task, weights[touched]) + step[touched]
    # noise is far below 2^62, and so is the sum
    sent[touched] = np.clip(moved + noise, -LARGEST_WEIGHT, LARGEST_WEIGHT)
    return sent


def decayed(task: CrowdTask, weights: IntArray) -> IntArray:
    """Return the weights that a step starts from: public, and for all the same to the last bit."""
    if task.l2 == 0.0:
        return weights
    kept: IntArray = np.trunc(weights * task.decay).astype(np.int64)
    return kept
