"""Sums over exactly the cohort, whatever was counted before and however it is read."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import numpy as np
import pytest
from distributed import LocalCluster
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from shoal_compute import summing as summing_module
from shoal_compute.bulks import AcceptedShare, Packed, Place
from shoal_compute.summing import (
    Adders,
    Elsewhere,
    SharesMissing,
    Summing,
    Tallies,
    open_summing,
    sum_shares,
)
from shoal_protocol.sharing.schemes import ADDITIVE
from shoal_protocol.sharing.shares import Share, ShareKind
from tests.compute.test_gossip import known_round
from tests.world.adding import added
from tests.world.examples import DIMENSION, seed

SCHEME = ADDITIVE
CLIENTS = st.sets(st.integers(0, 11))


def share(client: int) -> Share:
    if client % 3 == 0:
        vector = np.arange(DIMENSION, dtype="<u8") + np.uint64(2**64 - 3 * client - 1)
        return Share(ShareKind.VECTOR, vector.tobytes())
    return Share(ShareKind.SEED, seed(f"share {client}"))


def oracle(clients: set[int]) -> np.ndarray:
    total = [0] * DIMENSION
    for client in clients:
        for index, value in enumerate(added(SCHEME, [share(client)], DIMENSION)):
            total[index] = (total[index] + int(value)) % 2**64
    return np.array(total, np.uint64)


class Store:
    """Holds these clients' shares: those below 4 in one row, the others by themselves."""

    def __init__(self, stored: set[int]) -> None:
        self.stored = stored

    async def places(self, holders: BitMap) -> list[Place]:
        together = holders & BitMap(range(4))
        singly = [Place(None, BitMap([each])) for each in holders - together]
        return singly + ([Place(1, together)] if together else [])

    async def read(self, place: Place) -> list[Packed]:
        shares = [share(client) for client in place.holders if client in self.stored]
        return [Packed(each.kind, 1, each.payload) for each in shares]


class AtOnce(Executor):
    """Runs work when it is submitted."""

    def submit(self, work, /, *arguments, **named):
        with ThreadPoolExecutor(1) as threads:
            return threads.submit(work, *arguments, **named)


class Deaf(Executor):
    """Takes work and never does it."""

    def submit(self, work, /, *arguments, **named):
        return Future()


@given(counted=CLIENTS, cohort=CLIENTS)
def test_a_tally_and_the_store_together_give_the_cohorts_sum(
    counted: set[int], cohort: set[int]
) -> None:
    async def run() -> np.ndarray:
        tallies = Tallies(Adders(Summing(AtOnce()), Summing(AtOnce())))
        known = known_round(set())
        for client in counted:
            content = share(client).kind, share(client).payload
            accepted = AcceptedShare(known.id, client, bytes(16), bytes(32), bytes(64), *content)
            await tallies.count(known, [accepted])
        return await tallies.total(known, BitMap(cohort), Store(counted | cohort))

    assert np.array_equal(asyncio.run(run()), oracle(cohort))


async def total_of(clients: range, summing: Summing, dimension: int = DIMENSION) -> np.ndarray:
    return await sum_shares(
        Store(set(clients)),
        BitMap(clients),
        dimension=dimension,
        scheme=SCHEME,
        summing=summing,
    )


def test_a_small_sum_stays_in_the_process_and_a_large_one_does_not() -> None:
    adders = Adders(Summing(AtOnce()), Summing(AtOnce()))
    assert adders.for_sum(10_000, 66) is adders.small
    assert adders.for_sum(10_000, 10_011) is adders.small
    assert adders.for_sum(100_000, 10_011) is adders.large
    assert adders.for_sum(1_000_000, 66) is adders.large


@pytest.fixture
def processes() -> Iterator[Elsewhere]:
    opened = open_summing("processes")
    assert isinstance(opened, Elsewhere)
    yield opened
    opened.close()


@pytest.mark.slow
async def test_work_that_waits_for_killed_processes_is_done_here_and_later_in_others(
    processes: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.kill(await processes.run(os.getpid), signal.SIGKILL)
    many = (total_of(range(12), processes) for _ in range(4))
    for total in await asyncio.gather(*many):
        assert np.array_equal(total, oracle(set(range(12))))
    assert await processes.run(os.getpid) == os.getpid()  # the pause after a failure
    monkeypatch.setattr(processes, "_away_until", 0.0)
    assert await processes.run(os.getpid) != os.getpid()


async def test_an_executor_that_never_answers_is_left_for_the_thread() -> None:
    opened = []

    def deaf() -> summing_module.Opened:
        opened.append(Deaf())
        return opened[-1], lambda: opened.append("let go")

    summing = Elsewhere(deaf, at_once=2, seconds=0.05)
    assert np.array_equal(await total_of(range(12), summing), oracle(set(range(12))))
    assert len(opened) == 2 and opened[1] == "let go"
    summing.close()


@pytest.mark.slow
def test_the_processes_end_with_their_parent_even_if_it_is_killed() -> None:
    script = (
        "import asyncio, os, signal\n"
        "from shoal_compute.summing import open_summing\n"
        "if __name__ == '__main__':\n"
        "    print(asyncio.run(open_summing('processes').run(os.getpid)), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    # its standard output is the processes' too, and ends when the last of them does
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=120)
    assert done.returncode == -signal.SIGKILL
    assert int(done.stdout) > 0


@pytest.fixture
def dask() -> Iterator[LocalCluster]:
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=False,
        protocol="tcp://",
        dashboard_address=None,
    ) as cluster:
        yield cluster


@pytest.mark.slow
async def test_a_dask_cluster_adds_up_to_the_same(dask: LocalCluster) -> None:
    assert dask.scheduler_address.startswith("tcp://")
    cluster = open_summing(dask.scheduler_address)
    assert isinstance(cluster, Elsewhere)
    try:
        assert np.array_equal(await total_of(range(12), cluster), oracle(set(range(12))))
        assert cluster._opened is not None
    finally:
        cluster.close()


@pytest.mark.slow
async def test_without_its_cluster_a_node_adds_up_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(summing_module, "_CLUSTER_SECONDS", 0.2)
    cluster = open_summing("tcp://127.0.0.1:9")  # where nothing listens
    try:
        assert np.array_equal(await total_of(range(12), cluster), oracle(set(range(12))))
    finally:
        cluster.close()


async def test_a_missing_share_is_noticed() -> None:
    with pytest.raises(SharesMissing), ThreadPoolExecutor(1) as executor:
        await sum_shares(
            Store({1, 2}),
            BitMap([1, 2, 3]),
            dimension=DIMENSION,
            scheme=SCHEME,
            summing=Summing(executor),
        )
