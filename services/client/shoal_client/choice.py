"""Which of a client's records count, and in which order: a fixed choice that only its key makes.

Whether a client takes part depends on none of this: who has more records than may count gives as
many as may, who has none that is of use gives none. Pure: it knows no query and no peer.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.encoding import domain


def chosen_records(rows: NDArray[np.float64], seed: bytes, *, most: int) -> NDArray[np.float64]:
    """Return up to `most` of a client's `rows`, shape (r, m), that lack no value.

    They come in the order of a pseudo-random number for each place, which follows from `seed`,
    the client's signing key, alone. So every question about the same columns gets the same
    records, a larger `most` only adds some, and one row more or less moves one other at most.
    """
    places = np.flatnonzero(~np.isnan(rows).any(axis=1))
    stream = hashlib.shake_256(domain("choice-of-records") + seed).digest(8 * len(rows))
    order = np.argsort(np.frombuffer(stream, "<u8")[places], kind="stable")
    chosen: NDArray[np.float64] = rows[places[order[:most]]]
    return chosen
