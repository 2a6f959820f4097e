"""Arithmetic in the ring of integers modulo 2**64."""

import numpy as np

from shoal_protocol.wire.encoding import Int64Vector, Uint64Vector


def to_ring(values: Int64Vector) -> Uint64Vector:
    """Map integers in [-2**63, 2**63), shape (d,), to their residues."""
    return values.astype(np.int64).view(np.uint64)


def from_ring(residues: Uint64Vector) -> Int64Vector:
    """Map residues, shape (d,), to the integers in [-2**63, 2**63) that they stand for."""
    return residues.astype(np.uint64).view(np.int64)
