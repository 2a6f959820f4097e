"""Tells whether a round can have a given total, by its query's bounds and its noise.

Shares of one client that come from different answers do not cancel: the total is then uniformly
random, and nothing else in a round would show it.
"""

import math
from typing import Final

import numpy as np

from shoal_protocol.privacy.mechanisms import NoisePart
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.encoding import Int64Vector

FALSE_ALARM: Final = 2.0**-40
"""Largest probability that a total of honest parties is called impossible, for each round."""

IMPOSSIBLE: Final = (
    "the total is larger than the query allows: probably shares of one client came from different "
    "answers. Let each data holder's key be used on one machine only, and no restored backup; then "
    "submit the job again"
)
"""What to say of a total that is not possible; it names no client, for none is known."""


def is_possible(spec: RoundSpec, total: Int64Vector, *, cohort_size: int) -> bool:
    """Tell whether `total`, shape (d,), can be the noisy sum over `cohort_size` clients.

    Demanded of each coordinate is |value| <= cohort_size largest_value + the noise's tail, which a
    round of honest clients fails with probability at most `FALSE_ALARM`. A total that is uniformly
    random passes with probability at most 4^-d, since `fits_modulus` keeps two bits spare, and
    nearly always with far less. `spec` must have passed `check_spec`, and `cohort_size` be at
    most its population.

    Raises:
        ValueError: `total` does not have the spec's dimension, or `cohort_size` is not positive.
    """
    if total.shape != (spec.dimension,):
        raise ValueError(f"expected a vector of {spec.dimension} coordinates")
    limits = np.concatenate(
        [
            np.full(coordinates, _limit(spec, part, cohort_size), np.int64)
            for coordinates, part in spec.noise_blocks()
        ]
    )
    return bool(np.all((-limits <= total) & (total <= limits)))  # |-2^63| would overflow


def _limit(spec: RoundSpec, part: NoisePart, cohort_size: int) -> int:
    # for all d coordinates in each block, so that the blocks' failures add up to FALSE_ALARM
    tail = part.tail(clients=cohort_size, dimension=spec.dimension, failure=FALSE_ALARM)
    return cohort_size * spec.query.largest_value + math.ceil(tail)
