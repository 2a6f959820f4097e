"""Draws integer noise of either mechanism, exactly.

Shares of the discrete Laplace are drawn in `shoal_holder.negative_binomial`; discrete Gaussians,
and a discrete Laplace that one answer has alone, by OpenDP, which samples both exactly (Canonne,
Kamath and Steinke 2020, arXiv:2004.00010). Randomness is the operating system's cryptographic
generator. No floating-point noise is ever drawn.
"""

import math

import numpy as np
from nacl.utils import random as system_random
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian, make_laplace
from opendp.metrics import l1_distance, l2_distance
from opendp.mod import enable_features

from shoal_holder.negative_binomial import laplace_shares
from shoal_protocol.privacy.mechanisms import (
    LARGEST_LAPLACE_SCALE,
    LARGEST_SCALE,
    GaussianPart,
    LaplacePart,
    NoisePart,
)
from shoal_protocol.wire.encoding import Int64Vector

enable_features("contrib")  # not opendp.prelude, which would load scikit-learn


def exact_noise(part: NoisePart, count: int) -> Int64Vector:
    """Draw `count` integers of an answer's noise on a coordinate, from the system's generator.

    Raises:
        ValueError: the scale is too large to draw, or `count` is not positive.
    """
    match part:
        case GaussianPart(scale=scale):
            return discrete_gaussian(scale, count)
        case LaplacePart(scale=scale, parties=parties, slots=slots) if slots == parties:
            return discrete_laplace(scale, count)
        case LaplacePart(scale=scale, parties=parties, slots=slots):
            return laplace_shares(
                scale=scale,
                parties=parties,
                slots=slots,
                count=count,
                random_bytes=system_random,
            )


def discrete_gaussian(scale: float, count: int) -> Int64Vector:
    """Draw `count` integers, each x with probability proportional to exp(-x^2 / (2 scale^2)).

    Raises:
        ValueError: `scale` is not within (0, 2^56], or `count` is not positive.
    """
    if not (math.isfinite(scale) and 0.0 < scale <= LARGEST_SCALE):
        raise ValueError("a noise scale must be positive, finite and at most 2^56")
    if count < 1:
        raise ValueError("a count of noise draws must be positive")
    # "i64" must be spelled out: for Python's int OpenDP takes 32 bits, and saturates there.
    mechanism = make_gaussian(
        vector_domain(atom_domain(T="i64"), size=count), l2_distance(T="f64"), scale
    )
    return np.array(mechanism([0] * count), dtype=np.int64)


def discrete_laplace(scale: float, count: int) -> Int64Vector:
    """Draw `count` integers, each x with probability proportional to exp(-|x| / scale).

    Raises:
        ValueError: `scale` is not within (0, 2^54], or `count` is not positive.
    """
    if not (math.isfinite(scale) and 0.0 < scale <= LARGEST_LAPLACE_SCALE):
        raise ValueError("a scale of Laplace noise must be positive, finite and at most 2^54")
    if count < 1:
        raise ValueError("a count of noise draws must be positive")
    mechanism = make_laplace(  # "i64" for the same reason
        vector_domain(atom_domain(T="i64"), size=count), l1_distance(T="i64"), scale
    )
    return np.array(mechanism([0] * count), dtype=np.int64)
