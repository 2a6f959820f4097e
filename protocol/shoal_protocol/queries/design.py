"""How a query's noise is spread over its coordinates."""

import math
from dataclasses import dataclass
from typing import Final, Literal

Mechanism = Literal["discrete_gaussian", "discrete_laplace"]

_LEAST_GAUSSIAN: Final = 1.0 / 4.0  # of what a record adds to the rest: costs 3 % more noise
_LEAST_LAPLACE: Final = 1.0 / 16.0  # and 6 %


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


def with_count(
    mechanism: Mechanism,
    blocks: tuple[NoiseBlock, ...],
    *,
    changed: float,
    left_out: float,
    records: int,
    unit: int,
) -> NoiseDesign:
    """Return the design of sums with the number of records as one more coordinate, the last.

    One record in another's place moves the sums by `changed` at most, and leaves the number as it
    is; one left out moves them by `left_out`, and the number by `unit` lattice units. Both are
    after division by the scales of `blocks`. So the number costs nothing where its noise is wide
    enough for the second not to exceed the first; it is at most 4 records wide for each unit of
    1 / mu, 17 of 1 / epsilon, which costs 3 % and 6 % at most. A client has up to `records`.
    """
    if mechanism == "discrete_gaussian":
        room = math.sqrt(max(changed**2 - left_out**2, 0.0))
        reach = max(room, _LEAST_GAUSSIAN * left_out)
        whole = math.hypot(left_out, reach)
    else:
        reach = max(changed - left_out, _LEAST_LAPLACE * left_out)
        whole = left_out + reach
    sensitivity = rounded_up(max(changed, whole)) * records
    counting = NoiseBlock(coordinates=1, relative_scale=rounded_up(unit / reach))
    return NoiseDesign(sensitivity=rounded_up(sensitivity), blocks=(*blocks, counting))


def rounded_up(value: float) -> float:
    """Return `value`, or a little more where the floating-point operations before rounded down."""
    return value * (1.0 + 4e-16)
