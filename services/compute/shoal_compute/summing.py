"""Adds up stored shares, one place of the store at a time, in threads, processes or on Dask.

A small sum is added up in a thread, because starting other processes takes longer than the sum.
A large one keeps in memory as many places as can be worked on at once, and one more. If a process
or the cluster fails, the sum is computed in this process, with the same result.
"""

import asyncio
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

import numpy as np
import structlog
from pyroaring import BitMap

from shoal_compute.bulks import AcceptedShare, Packed, Place
from shoal_compute.rounds import Round
from shoal_hosting.server.logs import describe_exception
from shoal_hosting.startup import StartupRefused
from shoal_hosting.work import Answer, Worker
from shoal_protocol.sharing import summation
from shoal_protocol.sharing.schemes import Sharing
from shoal_protocol.wire.encoding import Uint64Vector

log = structlog.get_logger()


_MOST_PROCESSES: Final = 4
_CLUSTER_AT_ONCE: Final = 8
_STARTING_SECONDS: Final = 60.0  # of a batch, the start of its process included
_CLUSTER_SECONDS: Final = 10.0  # of a batch, which takes a hundredth of a second
_PAUSE_SECONDS: Final = 30.0  # after a failure

Opened = tuple[Executor, Callable[[], None]]
"""An executor, and what lets go of it."""


class Summing(Worker):
    """Runs work in one thread of this process, or in a given executor."""

    at_once = 1

    def __init__(self, executor: Executor | None = None) -> None:
        super().__init__("summing", executor=executor)


class Elsewhere(Summing):
    """Runs work in an executor that may fail, and in this process while that is unavailable.

    It is opened for the first work, and anew `_PAUSE_SECONDS` after a failure.
    """

    def __init__(self, open_: Callable[[], Opened], *, at_once: int, seconds: float) -> None:
        """Open nothing yet; a piece of work that takes longer than `seconds` has failed."""
        super().__init__()
        self.at_once = at_once
        self._open, self._seconds = open_, seconds
        self._opened: Opened | None = None
        self._opening = asyncio.Lock()
        self._away_until = 0.0  # by the event loop's clock

    async def run(self, work: Callable[..., Answer], *arguments: object) -> Answer:
        """Return what `work(*arguments)` returns."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._away_until:
            opened = None
            try:
                async with asyncio.timeout(self._seconds):
                    opened = await self._connected()
                    future = opened[0].submit(work, *arguments)
                    return await asyncio.wrap_future(future)
            except Exception as error:  # noqa: BLE001 -- whatever an executor can raise
                log.error("shares are added up here", **describe_exception(error))
                self._away_until = loop.time() + _PAUSE_SECONDS
                if opened is self._opened:  # of several that failed at once, the first lets go
                    await asyncio.to_thread(self._let_go)
        return await super().run(work, *arguments)

    async def run_sized(
        self, size_bytes: int, work: Callable[..., Answer], *arguments: object
    ) -> Answer:
        """Do what `run` does, whatever the size: who chose this chose it for a whole sum."""
        return await self.run(work, *arguments)

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


def open_summing(where: str) -> Summing:
    """Return what a setting asks for: `processes`, `threads` or a Dask scheduler's address.

    Raises:
        StartupRefused: an address, and Dask is not installed.
    """
    if where == "threads":
        return Summing()
    if where == "processes":
        count = min(_MOST_PROCESSES, os.cpu_count() or 1)
        return Elsewhere(partial(_processes, count), at_once=count, seconds=_STARTING_SECONDS)
    try:
        from distributed import Client  # an operator without a cluster does without it
    except ImportError as error:
        raise StartupRefused(
            "SHOAL_SUMMING names a Dask scheduler, but this installation is without Dask"
        ) from error
    connect = partial(Client, where, timeout=_CLUSTER_SECONDS, set_as_default=False)
    return Elsewhere(partial(_cluster, connect), at_once=_CLUSTER_AT_ONCE, seconds=_CLUSTER_SECONDS)


def _processes(count: int) -> Opened:
    """Return spawned processes: a fork would copy the locks of threads as they are."""
    pool = ProcessPoolExecutor(
        count, mp_context=multiprocessing.get_context("spawn"), initializer=_belong_to_parent
    )
    return pool, partial(pool.shutdown, wait=False, cancel_futures=True)


def _cluster(connect: Callable[[], Any]) -> Opened:
    client = connect()
    return client.get_executor(pure=False), partial(client.close, timeout=_CLUSTER_SECONDS)


def _belong_to_parent() -> None:
    """Leave signals to the parent, and end with it, even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


class StoredShares(Protocol):
    """The shares of a round that are stored."""

    async def places(self, holders: BitMap) -> list[Place]:
        """Return where the shares of these data holders are."""

    async def read(self, place: Place) -> list[Packed]:
        """Return the shares at a place, of those whose payload is stored."""


# Roughly what adding takes one thread. Sums below the limit stay in this process: other processes
# take a second or more to start, and then need about half the time.
_SECONDS_PER_SHARE: Final = 11e-6
_SECONDS_PER_COORDINATE: Final = 5e-9
_SMALL_SECONDS: Final = 2.0
_BYTES_PER_COORDINATE: Final = 8


class SharesMissing(Exception):
    """The store lacks the share of a holder in the cohort: its sum would be wrong."""


@dataclass(frozen=True)
class Adders:
    """Chooses the executor of a sum by the sum's size."""

    small: Summing
    large: Summing

    def for_sum(self, holders: int, dimension: int) -> Summing:
        """Return where to add up the shares of this many holders."""
        work = holders * (_SECONDS_PER_SHARE + dimension * _SECONDS_PER_COORDINATE)
        return self.small if work < _SMALL_SECONDS else self.large

    def close(self) -> None:
        """Let go of threads, processes and connections."""
        self.small.close()
        self.large.close()


@dataclass
class _Tally:
    total: Uint64Vector
    counted: BitMap = field(default_factory=BitMap)
    under_way: set[asyncio.Task[None]] = field(default_factory=set)


class Tallies:
    """One running sum for each round that has shares, so that the final sum is quick.

    A running sum records which data holders it includes, so it may be incomplete or lost. Once the
    cohort is decided, missing holders' shares are read from the store and added, and surplus ones
    are subtracted. For one event loop.
    """

    def __init__(self, adders: Adders) -> None:
        """Add up where `adders` say."""
        self._adders = adders
        self._tallies: dict[str, _Tally] = {}

    async def count(self, known: Round, stored: Sequence[AcceptedShare]) -> None:
        """Add shares of one kind, which were just stored, to the round's running sum.

        Waiting for it before more uploads are read bounds the memory in use.
        """
        if len(known.committees) > 1:
            return  # whose sums are weighted: they are added up apart, at the end
        tally = self._tallies.get(known.id)
        if tally is None:
            tally = _Tally(np.zeros(known.spec.body.dimension, np.uint64))
            self._tallies[known.id] = tally
        task = asyncio.get_running_loop().create_task(self._count(known, tally, stored))
        tally.under_way.add(task)
        task.add_done_callback(tally.under_way.discard)
        await asyncio.shield(task)

    async def _count(self, known: Round, tally: _Tally, stored: Sequence[AcceptedShare]) -> None:
        dimension, scheme = known.spec.body.dimension, known.spec.body.sharing
        shares = [
            Packed(stored[0].kind, len(stored), b"".join([share.payload for share in stored]))
        ]
        summing = self._adders.for_sum(len(stored), dimension)
        try:
            added = await add_shares(shares, dimension=dimension, scheme=scheme, summing=summing)
        except Exception as error:  # noqa: BLE001 -- uncounted shares are read from the store
            log.error("shares were not counted as they came", **describe_exception(error))
        else:
            tally.total = summation.plus(scheme, tally.total, added)
            tally.counted |= BitMap([share.holder for share in stored])

    async def total(self, known: Round, cohort: BitMap, stored: StoredShares) -> Uint64Vector:
        """Return the sum, shape (d,), of the shares of exactly the holders in `cohort`.

        Raises:
            SharesMissing: not all of them are stored.
            StorageUnavailable: try again later.
        """
        tally = self._tallies.get(known.id)
        if tally is not None and tally.under_way:
            await asyncio.wait(tally.under_way)

        async def over(holders: BitMap) -> Uint64Vector:
            dimension = known.spec.body.dimension
            return await sum_shares(
                stored,
                holders,
                dimension=dimension,
                scheme=known.spec.body.sharing,
                summing=self._adders.for_sum(len(holders), dimension),
            )

        if tally is None or len(tally.counted ^ cohort) >= len(cohort):
            return await over(cohort)
        counted, total, scheme = tally.counted, tally.total, known.spec.body.sharing
        lacking, beyond = await over(cohort - counted), await over(counted - cohort)
        return summation.minus(scheme, summation.plus(scheme, total, lacking), beyond)

    def drop(self, round_id: str) -> None:
        """Forget the running sum of a round that needs it no more."""
        self._tallies.pop(round_id, None)


async def sum_shares(
    stored: StoredShares,
    holders: BitMap,
    *,
    dimension: int,
    scheme: Sharing,
    summing: Summing,
) -> Uint64Vector:
    """Return the sum, shape (dimension,), of the shares of exactly these holders.

    Raises:
        SharesMissing: not all of them are stored.
        StorageUnavailable: try again later.
    """
    total = np.zeros(dimension, np.uint64)
    under_way: deque[asyncio.Task[Uint64Vector]] = deque()
    try:
        for place in await stored.places(holders) if holders else []:
            shares = await stored.read(place)
            if sum(each.shares for each in shares) != len(place.holders):
                raise SharesMissing
            if len(under_way) == summing.at_once:
                total = summation.plus(scheme, total, await under_way.popleft())
            added = add_shares(shares, dimension=dimension, scheme=scheme, summing=summing)
            under_way.append(asyncio.create_task(added))
        while under_way:
            total = summation.plus(scheme, total, await under_way.popleft())
    finally:
        for task in under_way:
            task.cancel()
    return total


async def add_shares(
    shares: Sequence[Packed], *, dimension: int, scheme: Sharing, summing: Summing
) -> Uint64Vector:
    """Return the sum, shape (dimension,), of shares that are in memory."""
    size = sum(each.shares for each in shares) * dimension * _BYTES_PER_COORDINATE
    return await summing.run_sized(size, _add, scheme, list(shares), dimension)


def _add(scheme: Sharing, shares: list[Packed], dimension: int) -> Uint64Vector:
    total = np.zeros(dimension, np.uint64)
    for each in shares:
        added = summation.add_packed(scheme, each.kind, each.payloads, dimension)
        total = summation.plus(scheme, total, added)
    return total
