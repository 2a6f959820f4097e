"""Chooses starting points and coordinates for the chains of a regression given the design."""

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal_learning.design_moments import DesignMoments, model
from shoal_learning.quasi_likelihood import NoisyMoments, noise_aware_posterior
from shoal_learning.refusals import NoReliablePosterior

if TYPE_CHECKING:
    from shoal_learning.design_model import Coordinates

FloatVector = NDArray[np.float64]
FloatMatrix = NDArray[np.float64]

_POINTS: Final = 64  # that the coordinates are chosen by
_REACH: Final = 2.0  # of a chain's start from the middle, in the units of its coordinates


class Start(NamedTuple):
    """Where one data set's chains start, with one more axis in front, and in which coordinates."""

    coordinates: "Coordinates"
    positions: dict[str, FloatMatrix]


def starts(design: DesignMoments, chains: int, generator: np.random.Generator) -> Start:
    """Return starts about the noisy moments, as far apart as the noise is wide.

    Coordinates are scaled by how far the noise alone would move them: the sampler's own adaptation
    begins near what it would find, however weak or strong the noise.

    Raises:
        NoReliablePosterior: the moments are too large or too small for a float.
    """
    kind, moments = design.kind, design.moments
    size = len(design.prior_sd)
    try:
        guess = noise_aware_posterior(moments, design.prior_sd)
    except (ArithmeticError, np.linalg.LinAlgError) as error:
        raise NoReliablePosterior("the sums are out of the range of floats") from error
    grams = _plausible_grams(moments, generator)
    squares = np.diagonal(grams, axis1=1, axis2=2)
    location: dict[str, FloatMatrix] = {}
    scale: dict[str, FloatMatrix] = {}

    def add(name: str, values: FloatMatrix) -> None:
        location[name] = values.mean(axis=0)
        scale[name] = np.clip(values.std(axis=0), 1e-9, 1.0)

    shrinkage = np.ones(len(grams))
    least = design.least_fraction
    rows = moments.records + moments.records_sd * generator.standard_normal(len(grams))
    share = np.clip((rows / design.most - least) / (1.0 - least), 0.005, 0.995)
    add("fraction", _logit(share))
    rows = design.most * (least + (1.0 - least) * share)
    if kind.shrunk:
        left = np.full(len(grams), 0.8)
        if kind.constant:
            left = squares[:, 0] / (rows * design.constant**2)
        shrinkage = np.clip(left, 0.05, 0.99)
        add("shrinkage", _logit(shrinkage))
    if size > kind.constant:
        add("mean_squares", np.log(squares[:, int(kind.constant) :] / rows[:, None]))
    if size > 1:
        correlations = grams / np.sqrt(squares[:, :, None] * squares[:, None, :])
        add("directions", model().unconstrained_directions(np.linalg.cholesky(correlations)))
    before = guess.residual_sd / np.sqrt(np.mean(shrinkage))
    residual = moments.records * guess.residual_sd**2
    wide = moments.diagonal_sd * (1.0 + guess.mean @ guess.mean) / residual
    location["residual_sd"] = np.log(before)
    scale["residual_sd"] = np.clip(np.hypot(wide, (2.0 / moments.records) ** 0.5) / 2.0, 0.0, 1.0)
    for name, shape in (("b", (size,)), ("e", (size,)), ("q", ())):
        location[name], scale[name] = np.zeros(shape), np.ones(shape)
    positions = {
        name: np.clip(generator.standard_normal((chains, *np.shape(value))), -_REACH, _REACH)
        for name, value in location.items()
    }
    coordinates: Coordinates = model().Coordinates(location, scale)
    return Start(coordinates, positions)


def _plausible_grams(moments: NoisyMoments, generator: np.random.Generator) -> FloatMatrix:
    """Return positive definite matrices that X'X might be, shape (points, k, k)."""
    noisy = moments.matrix[:-1, :-1]
    size = len(noisy)
    drawn = moments.off_diagonal_sd * generator.standard_normal((_POINTS, size, size))
    noise = np.triu(drawn, 1)
    noise += np.swapaxes(noise, 1, 2)
    diagonal = np.arange(size)
    noise[:, diagonal, diagonal] = moments.diagonal_sd * generator.standard_normal((_POINTS, size))
    values, vectors = np.linalg.eigh(noisy + noise)
    floor = max(1e-4 * moments.records, moments.off_diagonal_sd)
    raised = np.maximum(values, floor)
    grams: FloatMatrix = (vectors * raised[:, None, :]) @ np.swapaxes(vectors, 1, 2)
    return grams


def _logit(share: FloatVector) -> FloatVector:
    logit: FloatVector = np.log(share / (1.0 - share))
    return logit
