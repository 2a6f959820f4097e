"""Converts weights between normalised columns and the units of the data."""

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.crowds import updates
from shoal_protocol.crowds.tasks import CrowdTask

FloatVector = NDArray[np.float64]
FloatMatrix = NDArray[np.float64]


def to_data_units(task: CrowdTask, weights: FloatMatrix) -> FloatMatrix:
    """Return coefficients, shape (..., 1 + m), of normalised weights, shape (..., p)."""
    centres, scales = _bounds(task)
    intercept = weights[..., 0] if task.intercept else np.zeros(weights.shape[:-1])
    slopes = weights[..., -len(scales) :] / scales
    constant = intercept - slopes @ centres
    if task.family == "linear":
        slopes = slopes * task.target.half_range
        constant = task.target.centre + constant * task.target.half_range
    return np.concatenate([constant[..., None], slopes], axis=-1)


def to_normalised(task: CrowdTask, coefficients: FloatVector) -> FloatVector:
    """Return the normalised weights, shape (p,), of coefficients, shape (1 + m,), in data units.

    Raises:
        ValueError: the task has no intercept, but these coefficients need one.
    """
    centres, scales = _bounds(task)
    constant, slopes = coefficients[0] + coefficients[1:] @ centres, coefficients[1:] * scales
    if task.family == "linear":
        constant = (constant - task.target.centre) / task.target.half_range
        slopes = slopes / task.target.half_range
    if task.intercept:
        return np.concatenate([[constant], slopes])
    if abs(constant) > 1e-9:
        raise ValueError("the task has no intercept, and these weights need one at its bounds")
    return np.asarray(slopes)


def _bounds(task: CrowdTask) -> tuple[FloatVector, FloatVector]:
    centres = np.array([bounds.centre for bounds in task.features])
    return centres, np.array([bounds.half_range for bounds in task.features])


def predicted(task: CrowdTask, predictors: FloatVector) -> FloatVector:
    """Return the mean in the target's units at normalised linear predictors, of any shape."""
    found: FloatVector = updates.means(task, predictors)
    if task.family != "linear":
        return found
    return task.target.centre + task.target.half_range * found
