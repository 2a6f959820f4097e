"""Computes when a client's answer may leave, independent of its records and its noise.

The time of an exact sampler depends on the draw, and that of encoding on number and content of the
records. So nothing is sealed or sent before a time that follows from public numbers alone, and is
long enough for nearly every draw and all records. Pure: it reads no clock and does not wait.
"""

import math
from collections.abc import Sequence
from typing import Final

from shoal_holder.choice import MOST_ROWS
from shoal_protocol.privacy.mechanisms import GaussianPart, NoisePart

GRID_SECONDS: Final = 0.25
"""Answers leave at whole multiples of this since they began to be prepared."""

MOST_DRAWS: Final = 1 << 18
"""Coordinates of noise that are drawn before anything leaves, unless one client has more."""

PORTION_SECONDS: Final = 5.0
"""How long preparing several clients' answers together may be expected to take at most."""

MOST_SECONDS: Final = 30.0
"""How long it may take for one client; a round that asks for more is refused."""

# Measured on one core of a 2 GHz server, and a quarter added. A slower machine is late: below.
_GAUSSIAN_DRAW_SECONDS: Final = 14e-6
_LAPLACE_STEP_SECONDS: Final = 7e-6
_LAPLACE_SHARE_SECONDS: Final = 0.5e-6
_CLIENT_SECONDS: Final = 250e-6  # to choose and encode one client's records, at least
_ENTRY_SECONDS: Final = 60e-9  # more, for each column and each coordinate of each record
_CHOICE_SECONDS: Final = 4e-9  # more, for each column of each row among which records are chosen
_SURPRISE: Final = 42 * math.log(2.0)  # two such events together are rarer than 2^-40


def sampling_seconds(blocks: Sequence[tuple[int, NoisePart]], clients: int) -> float:
    """Return how long drawing the noise of so many clients may take.

    `blocks` are (coordinates, one client's noise on each). It is longer with probability at most
    2^-40 on a machine as fast as the constants say: a draw takes a geometric number of trials at
    worst, and a sum of n of these exceeds n + sqrt(2 n t) + t times their mean with probability
    at most exp(-t) (Janson 2018, arXiv:1709.08157, Theorem 2.1); Poisson numbers stay below too.

    Raises:
        ValueError: `clients` is not positive.
    """
    if clients < 1:
        raise ValueError("clients must be positive")
    seconds = 0.0
    for coordinates, part in blocks:
        draws = coordinates * clients
        if isinstance(part, GaussianPart):
            seconds += _GAUSSIAN_DRAW_SECONDS * _most(draws)
        else:
            # proposals of the Poisson process that shoal_holder.negative_binomial draws
            proposals = 2.0 * draws / part.parties * (math.log2(max(2.0, part.scale)) + 2.0)
            seconds += _LAPLACE_STEP_SECONDS * _most(_most(proposals))
            seconds += _LAPLACE_SHARE_SECONDS * draws
    return seconds


def encoding_seconds(*, columns: int, coordinates: int, records: int) -> float:
    """Return how long choosing and encoding a client's records may take, however many there are.

    `records` is the most that count, `coordinates` the length of what they become. Models that are
    not built in may take longer, but as long for any records: they are always handed as many.
    """
    choosing = _CHOICE_SECONDS * MOST_ROWS * columns
    return _CLIENT_SECONDS + choosing + _ENTRY_SECONDS * records * (1 + columns + coordinates)


def portion(
    blocks: Sequence[tuple[int, NoisePart]], clients: int, *, encoding: float, seconds: float
) -> int:
    """Return how many of `clients` to prepare together; 0 if one would leave too late.

    `encoding` is `encoding_seconds`. They take at most `MOST_DRAWS` draws and `PORTION_SECONDS`,
    unless one client takes more; and their answers leave less than `seconds` after the beginning.
    """

    def takes(count: int) -> float:
        return sampling_seconds(blocks, count) + count * encoding

    def leaves(count: int) -> float:
        return release_time(began=0.0, ready=0.0, allowed_seconds=takes(count))

    if leaves(1) >= seconds:
        return 0
    most = max(1, MOST_DRAWS // sum(coordinates for coordinates, _ in blocks))
    fitting, excess = 1, 1 + min(clients, most)
    while excess - fitting > 1:
        count = (fitting + excess) // 2
        fits = takes(count) <= PORTION_SECONDS and leaves(count) < seconds
        fitting, excess = (count, excess) if fits else (fitting, count)
    return fitting


def release_time(*, began: float, ready: float, allowed_seconds: float) -> float:
    """Return when answers leave that were begun at `began`, and encoded and noised at `ready`.

    The first moment of the grid that is `allowed_seconds` after `began`, whatever the answers hold;
    answers that took longer leave at the grid's next moment.
    """
    took = max(allowed_seconds, ready - began)
    return began + GRID_SECONDS * max(1, math.ceil(took / GRID_SECONDS))


def _most(mean: float) -> float:
    return mean + math.sqrt(2.0 * mean * _SURPRISE) + _SURPRISE
