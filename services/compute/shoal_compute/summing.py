"""Adds up stored shares, part by part, in a thread of this process or on Dask.

A sum keeps in memory as many parts as can be worked on at once, and one more. If the cluster
fails, the sum is computed in this process, with the same result.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, Final

import numpy as np
import structlog
from pyroaring import BitMap

from shoal_compute.shares import Packed
from shoal_kit.startup import StartupRefused
from shoal_kit.web.logs import describe_exception
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing import summation
from shoal_protocol.sharing.schemes import Sharing
from shoal_protocol.wire.encoding import Uint64Vector
from shoal_service.work import Answer, Worker

log = structlog.get_logger()


_CLUSTER_SECONDS: Final = 10.0  # of a batch, which takes a hundredth of a second
_PAUSE_SECONDS: Final = 30.0  # after a failure
_BYTES_PER_COORDINATE: Final = 8

Opened = tuple[Executor, Callable[[], None]]
"""An executor, and what lets go of it."""


class Summing(Worker):
    """Adds up in one thread of this process."""

    at_once = 1

    def __init__(self) -> None:
        super().__init__("summing")


class Elsewhere(Summing):
    """Adds up in an executor that may fail, and in this process while that is unavailable.

    It is opened for the first work, and anew `_PAUSE_SECONDS` after a failure.
    """

    at_once = 8

    def __init__(self, open_: Callable[[], Opened]) -> None:
        """Open nothing yet; a piece of work that takes longer than `_CLUSTER_SECONDS` failed."""
        super().__init__()
        self._open = open_
        self._opened: Opened | None = None
        self._opening = asyncio.Lock()
        self._away_until = 0.0  # by the event loop's clock

    async def run(self, work: Callable[..., Answer], *arguments: object) -> Answer:
        """Return what `work(*arguments)` returns."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._away_until:
            opened = None
            try:
                async with asyncio.timeout(_CLUSTER_SECONDS):
                    opened = await self._connected()
                    future = opened[0].submit(work, *arguments)
                    return await asyncio.wrap_future(future)
            except Exception as error:  # noqa: BLE001 -- whatever an executor can raise
                log.error("shares are added up here", **describe_exception(error))
                self._away_until = loop.time() + _PAUSE_SECONDS
                if opened is self._opened:  # of several that failed at once, the first lets go
                    await asyncio.to_thread(self._let_go)
        return await super().run(work, *arguments)

    async def _connected(self) -> Opened:
        async with self._opening:
            if self._opened is None:
                self._opened = await asyncio.to_thread(self._open)
            return self._opened

    def _let_go(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened[1]()

    def close(self) -> None:
        """Do as `Summing.close`."""
        self._let_go()
        super().close()


def open_summing(scheduler: str | None) -> Summing:
    """Return what adds up here, or on the cluster of a Dask scheduler at this address.

    Raises:
        StartupRefused: an address, and Dask is not installed.
    """
    if scheduler is None:
        return Summing()
    try:
        from distributed import Client  # an operator without a cluster does without it
    except ImportError as error:
        raise StartupRefused(
            "SHOAL_SUMMING names a Dask scheduler, but this installation is without Dask"
        ) from error
    connect = partial(Client, scheduler, timeout=_CLUSTER_SECONDS, set_as_default=False)
    return Elsewhere(partial(_cluster, connect))


def _cluster(connect: Callable[[], Any]) -> Opened:
    client = connect()
    return client.get_executor(pure=False), partial(client.close, timeout=_CLUSTER_SECONDS)


class SharesMissing(Exception):
    """The store lacks the share of a holder in the cohort: its sum would be wrong."""


async def sum_shares(
    spec: RoundSpec,
    parts: Sequence[BitMap],
    read: Callable[[BitMap], Awaitable[list[Packed]]],
    summing: Summing,
) -> Uint64Vector:
    """Return the sum, shape (d,), of the shares of these holders; `read` returns those of a part.

    Raises:
        SharesMissing: not all of them are stored.
        StorageUnavailable: try again later.
    """
    scheme, dimension = spec.sharing, spec.dimension
    total = np.zeros(dimension, np.uint64)
    under_way: deque[asyncio.Task[Uint64Vector]] = deque()
    try:
        for holders in parts:
            shares = await read(holders)
            stored = sum(each.shares for each in shares)
            if stored != len(holders):
                raise SharesMissing
            if len(under_way) == summing.at_once:
                total = summation.plus(scheme, total, await under_way.popleft())
            size = stored * dimension * _BYTES_PER_COORDINATE
            added = summing.run_sized(size, add_up, scheme, shares, dimension)
            under_way.append(asyncio.create_task(added))
        while under_way:
            total = summation.plus(scheme, total, await under_way.popleft())
    finally:
        for task in under_way:
            task.cancel()
    return total


def add_up(scheme: Sharing, shares: Sequence[Packed], dimension: int) -> Uint64Vector:
    """Return the sum, shape (dimension,), of shares that are in memory."""
    total = np.zeros(dimension, np.uint64)
    for each in shares:
        added = summation.add_packed(scheme, each.kind, each.payloads, dimension)
        total = summation.plus(scheme, total, added)
    return total
