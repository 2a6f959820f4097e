"""Turns records into bounded integer rows, and spreads a query's noise over its coordinates.

A row keeps to its box and its ball exactly, in integers, so the sensitivities of `queries` hold on
the lattice and not only up to rounding. Error messages never repeat a value.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
IntMatrix = NDArray[np.int64]


def squared_radius_limit(*, radius: float, grid_bits: int) -> int:
    """Return floor((radius 2^grid_bits)^2), computed without rounding."""
    numerator, denominator = radius.as_integer_ratio()
    return (numerator << grid_bits) ** 2 // denominator**2


def usable(records: Floats, names: Sequence[str], largest_count: int) -> Floats:
    """Return `records`, shape (r, len(names)), as floats: finite, and r <= largest_count.

    Raises:
        ValueError: they are not; the message names row and column, never the value.
    """
    records = np.asarray(records, dtype=np.float64)
    if records.ndim != 2 or records.shape[1] != len(names):
        raise ValueError(f"records must have shape (records, {len(names)}), one column per name")
    if records.shape[0] > largest_count:
        raise ValueError(
            f"a client contributes at most {largest_count} records, got {records.shape[0]}"
        )
    bad = np.argwhere(~np.isfinite(records))
    if bad.size:
        row, column = (int(index) for index in bad[0])
        raise ValueError(f"record {row}, column {names[column]!r} is not a finite number")
    return records


def to_box(records: Floats, centres: Floats, scales: Floats) -> Floats:
    """Return (records - centres) / scales, cut to [-1, 1]; shapes (r, m), (m,), (m,)."""
    with np.errstate(over="ignore"):  # a far outlier may overflow to infinity, and is cut to 1
        return np.clip((records - centres) / scales, -1.0, 1.0)


def to_lattice(rows: Floats, *, radius: float | None, grid_bits: int) -> IntMatrix:
    """Shrink each row of `rows`, entries in [-1, 1], into the ball and onto the grid 2^-grid_bits.

    Rounding is towards zero, so that no row grows. Afterwards every entry is within
    +-2^grid_bits and every squared norm at most `squared_radius_limit`. `radius` None: no ball.
    """
    grid = 2.0**grid_bits
    if radius is None:
        return np.trunc(rows * grid).astype(np.int64)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    shrunk = rows * (radius / np.maximum(norms, radius))
    lattice: IntMatrix = np.trunc(shrunk * grid).astype(np.int64)
    limit = squared_radius_limit(radius=radius, grid_bits=grid_bits)
    # A row on the sphere may be outside by the last bit of its norm: take it back by whole steps.
    while (outside := np.flatnonzero(np.sum(lattice * lattice, axis=1) > limit)).size:
        longest = np.argmax(np.abs(lattice[outside]), axis=1)
        lattice[outside, longest] -= np.sign(lattice[outside, longest])
    return lattice


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


def with_constant(rows: Floats, constant: float) -> Floats:
    """Return `rows`, shape (r, m), after a constant coordinate, if it is not 0."""
    if constant == 0.0:
        return rows
    return np.column_stack([np.full(len(rows), constant), rows])


def rounded_up(value: float) -> float:
    """Return `value`, or a little more where the floating-point operations before rounded down."""
    return value * (1.0 + 4e-16)
