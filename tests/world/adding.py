"""Adds shares one by one, as the definition of a sharing scheme says."""

from collections.abc import Iterable

import numpy as np

from shoal_protocol.sharing import schemes, shamir, summation
from shoal_protocol.sharing.schemes import Sharing
from shoal_protocol.sharing.shares import Share, ShareKind
from shoal_protocol.wire.encoding import Uint64Vector


def added(sharing: Sharing, shares: Iterable[Share], dimension: int) -> Uint64Vector:
    """Return the sum, shape (d,), of some shares of one node, each expanded by itself."""
    expand = shamir.expand if sharing.scheme == "threshold" else schemes.expand
    total = np.zeros(dimension, np.uint64)
    for share in shares:
        is_seed = share.kind is ShareKind.SEED
        vector = (
            expand(share.payload, dimension) if is_seed else np.frombuffer(share.payload, "<u8")
        )
        total = summation.plus(sharing, total, vector)
    return total
