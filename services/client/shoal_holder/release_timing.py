"""Computes when an answer may leave, independent of its records and its noise.

The time of an exact sampler depends on how many trials fail, and that of encoding on number and
content of the records. So nothing is sealed or sent before a time that follows from public numbers
alone, and is long enough for nearly every draw and all records. Pure: it reads no clock and does
not wait.
"""

import math
from collections.abc import Sequence
from typing import Final

from shoal_holder.records import MOST_ROWS
from shoal_protocol.privacy.mechanisms import GaussianPart, NoisePart

GRID_SECONDS: Final = 0.05
"""Answers leave at whole multiples of this since they began to be prepared."""

MOST_SECONDS: Final = 30.0
"""How long drawing an answer's noise may take; a round that asks for more is refused."""

# Measured on one core of a 2 GHz server, and a quarter added. A slower machine is late: below.
_BLOCK_SECONDS: Final = 2e-3  # whatever is drawn: to find the cells, a few passes
_DRAW_SECONDS: Final = 60e-9
_LAPLACE_STEP_SECONDS: Final = 150e-9
_LAPLACE_SHARE_SECONDS: Final = 10e-9
_SLOT_SECONDS: Final = 60e-6  # to choose and encode one slot's records, at least
_ENTRY_SECONDS: Final = 60e-9  # more, for each column, factor and coordinate of each record
_CHOICE_SECONDS: Final = 2e-9  # more, for each column of each row among which records are chosen
_PASS_SECONDS: Final = 1e-3  # for slots that are worked out at once, whatever they hold
_PASS_COLUMN_SECONDS: Final = 40e-6  # more, for each column
_PASS_FACTOR_SECONDS: Final = 200e-6  # more, for each factor: a spline takes a hundred steps
_SURPRISE: Final = 42 * math.log(2.0)  # two such events together are rarer than 2^-40


def sampling_seconds(blocks: Sequence[tuple[int, NoisePart]]) -> float:
    """Return how long drawing the noise of an answer may take.

    `blocks` are (coordinates, noise on each). It is longer with probability at most
    2^-40 on a machine as fast as the constants say: a draw takes a geometric number of trials at
    worst, and a sum of n of these exceeds n + sqrt(2 n t) + t times their mean with probability
    at most exp(-t) (Janson 2018, arXiv:1709.08157, Theorem 2.1); Poisson numbers stay below too.
    """
    seconds = 0.0
    for draws, part in blocks:
        seconds += _BLOCK_SECONDS
        if isinstance(part, GaussianPart):
            seconds += _DRAW_SECONDS * _most(draws)
        else:
            # proposals of the Poisson process that shoal_holder.noise draws
            share = part.slots / part.parties
            proposals = 2.0 * draws * share * (math.log2(max(2.0, part.scale)) + 2.0)
            seconds += _LAPLACE_STEP_SECONDS * _most(_most(proposals))
            seconds += _LAPLACE_SHARE_SECONDS * draws
    return seconds


def encoding_seconds(
    *, columns: int, factors: int, coordinates: int, records: int, slots: int, passes: int
) -> float:
    """Return how long choosing and encoding slots' records may take, however many these are.

    `records` is the most that count of a slot, `factors` how many terms have, `coordinates` the
    length of what each record becomes; `passes` is how often slots are worked out at once. Models
    that are not built in may take longer, but as long for any records: they are always handed as
    many. `bench.allowances` compares it with what it takes.
    """
    choosing = _CHOICE_SECONDS * MOST_ROWS * columns
    entries = 1 + columns + factors + coordinates
    of_slot = _SLOT_SECONDS + choosing + _ENTRY_SECONDS * records * entries
    of_pass = _PASS_SECONDS + _PASS_COLUMN_SECONDS * columns + _PASS_FACTOR_SECONDS * factors
    return slots * of_slot + passes * of_pass


def release_time(*, began: float, ready: float, allowed_seconds: float) -> float:
    """Return when answers leave that were begun at `began`, and encoded and noised at `ready`.

    The first moment of the grid that is `allowed_seconds` after `began`, whatever the answers hold;
    answers that took longer leave at the grid's next moment.
    """
    took = max(allowed_seconds, ready - began)
    return began + GRID_SECONDS * max(1, math.ceil(took / GRID_SECONDS))


def _most(mean: float) -> float:
    return mean + math.sqrt(2.0 * mean * _SURPRISE) + _SURPRISE
