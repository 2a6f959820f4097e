"""How a query's noise is spread over its coordinates; knows no query and no budget."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Mechanism = Literal["discrete_gaussian", "discrete_laplace"]


@dataclass(frozen=True, kw_only=True)
class NoiseBlock:
    """`coordinates` consecutive coordinates with `relative_scale` times the round's noise scale."""

    coordinates: int
    relative_scale: float


@dataclass(frozen=True, kw_only=True)
class NoiseDesign:
    """How noise is spread over a query's coordinates, and the sensitivity against it.

    `sensitivity` is in lattice units after division of each coordinate by its block's relative
    scale: in the L2 norm for the discrete Gaussian, in the L1 norm for the discrete Laplace.
    """

    sensitivity: float
    blocks: tuple[NoiseBlock, ...]

    @property
    def total_variance(self) -> float:
        """Noise variance summed over the coordinates, where scale and sensitivity are equal."""
        spread = sum(block.coordinates * block.relative_scale**2 for block in self.blocks)
        return self.sensitivity**2 * spread


def rounded_up(value: float) -> float:
    """Return `value`, or a little more where the floating-point operations before rounded down."""
    return value * (1.0 + 4e-16)


def require_length(values: NDArray[np.int64], dimension: int) -> None:
    """Refuse, by a ValueError, a sum that is not of `dimension` coordinates."""
    if values.shape != (dimension,):
        raise ValueError(f"expected a vector of {dimension} coordinates")
