"""Adds up stored shares on an executor, a batch at a time; knows no phase and signs nothing.

Any `concurrent.futures` executor will do: threads, processes, or a cluster's. Only two batches
are in memory at once, whatever the number of clients and the length of their vectors.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor
from typing import Final

import numpy as np
from pyroaring import BitMap

from shoal_protocol.encoding import Uint64Vector
from shoal_protocol.sharing import AdditiveSharing, Share

# Reads up to `most` shares beyond `after_client`, in order of client.
ReadShares = Callable[[int, int], Awaitable[list[tuple[int, Share]]]]

_BATCH_BYTES: Final = 4 << 20
_LARGEST_BATCH: Final = 2_000


class SharesMissing(Exception):
    """The store lacks the share of a client in the cohort: its sum would be wrong."""


async def sum_shares(
    read: ReadShares,
    cohort: BitMap,
    *,
    dimension: int,
    scheme: AdditiveSharing,
    executor: Executor,
) -> Uint64Vector:
    """Return the sum, shape (dimension,), of the shares of exactly the clients in `cohort`.

    Raises:
        SharesMissing: not all of them are stored.
        StorageUnavailable: try again later.
    """
    loop = asyncio.get_running_loop()
    total = np.zeros(dimension, np.uint64)
    added = 0
    under_way: asyncio.Future[Uint64Vector] | None = None
    async for shares in _batches(read, cohort, dimension):
        if under_way is not None:
            total += await under_way
        under_way = loop.run_in_executor(executor, scheme.add, shares, dimension)
        added += len(shares)
    if under_way is not None:
        total += await under_way
    if added != len(cohort):
        raise SharesMissing
    return total


async def _batches(read: ReadShares, cohort: BitMap, dimension: int) -> AsyncIterator[list[Share]]:
    most = max(1, min(_LARGEST_BATCH, _BATCH_BYTES // (8 * dimension)))
    after_client = -1
    while rows := await read(after_client, most):
        after_client = rows[-1][0]
        yield [share for client, share in rows if client in cohort]
