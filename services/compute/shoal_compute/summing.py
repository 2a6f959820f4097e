"""Adds up stored shares on an executor, a batch at a time; knows no phase and signs nothing.

Any `concurrent.futures` executor will do: threads, processes, or a cluster's. Only two batches
are in memory at once, whatever the number of clients and the length of their vectors.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor
from typing import Final

import numpy as np
from pyroaring import BitMap

from shoal_protocol.encoding import Uint64Vector
from shoal_protocol.sharing import AdditiveSharing, Share

# Reads the shares of these clients, of those among them whose payload is stored.
ReadShares = Callable[[list[int]], Awaitable[list[Share]]]

_BATCH_BYTES: Final = 4 << 20
_LARGEST_BATCH: Final = 2_000


class SharesMissing(Exception):
    """The store lacks the share of a client in the cohort: its sum would be wrong."""


async def sum_shares(
    read: ReadShares,
    clients: BitMap,
    *,
    dimension: int,
    scheme: AdditiveSharing,
    executor: Executor,
) -> Uint64Vector:
    """Return the sum, shape (dimension,), of the shares of exactly these clients.

    Raises:
        SharesMissing: not all of them are stored.
        StorageUnavailable: try again later.
    """
    loop = asyncio.get_running_loop()
    total = np.zeros(dimension, np.uint64)
    under_way: asyncio.Future[Uint64Vector] | None = None
    for batch in _batches(clients, dimension):
        shares = await read(batch)
        if len(shares) != len(batch):
            raise SharesMissing
        if under_way is not None:
            total += await under_way
        under_way = loop.run_in_executor(executor, scheme.add, shares, dimension)
    if under_way is not None:
        total += await under_way
    return total


def _batches(clients: BitMap, dimension: int) -> Iterator[list[int]]:
    size = max(1, min(_LARGEST_BATCH, _BATCH_BYTES // (8 * dimension)))
    for start in range(0, len(clients), size):
        yield list(clients[start : start + size])
