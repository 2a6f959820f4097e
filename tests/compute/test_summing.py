"""Sums over exactly the cohort, however shares are read and wherever they are added up."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import numpy as np
import pytest
from distributed import LocalCluster
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from shoal_compute import summing as summing_module
from shoal_compute.shares import Packed
from shoal_compute.summing import Elsewhere, SharesMissing, Summing, open_summing, sum_shares
from shoal_protocol.sharing.schemes import ADDITIVE
from shoal_protocol.sharing.shares import Share, ShareKind
from shoal_service import work
from tests.compute.test_gossip import known_round
from tests.world.adding import added
from tests.world.examples import DIMENSION, seed

SCHEME = ADDITIVE
CLIENTS = st.sets(st.integers(0, 11))
EVERYBODY = set(range(12))
SPEC = known_round(set()).spec.body


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
    """Holds these clients' shares: those below 4 are read together, the others by themselves."""

    def __init__(self, stored: set[int]) -> None:
        self.stored = stored

    def parts(self, holders: set[int]) -> list[BitMap]:
        together = BitMap(holders) & BitMap(range(4))
        singly = [BitMap([each]) for each in BitMap(holders) - together]
        return singly + ([together] if together else [])

    async def read(self, part: BitMap) -> list[Packed]:
        shares = [share(client) for client in part if client in self.stored]
        return [Packed(each.kind, 1, each.payload) for each in shares]


class Deaf(Executor):
    """Takes work and never does it."""

    def submit(self, work, /, *arguments, **named):
        return Future()


async def total_of(clients: set[int], summing: Summing) -> np.ndarray:
    store = Store(clients)
    return await sum_shares(SPEC, store.parts(clients), store.read, summing)


@given(clients=CLIENTS)
def test_a_sum_is_over_the_cohorts_shares(clients: set[int]) -> None:
    summing = Summing()
    assert np.array_equal(asyncio.run(total_of(clients, summing)), oracle(clients))
    summing.close()


@pytest.fixture(autouse=True)
def elsewhere_however_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "SMALL_BYTES", 0)


async def test_an_executor_that_never_answers_is_left_for_the_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(summing_module, "_CLUSTER_SECONDS", 0.05)
    opened = []

    def deaf() -> summing_module.Opened:
        opened.append(Deaf())
        return opened[-1], lambda: opened.append("let go")

    summing = Elsewhere(deaf)
    assert np.array_equal(await total_of(EVERYBODY, summing), oracle(EVERYBODY))
    assert len(opened) == 2 and opened[1] == "let go"
    summing.close()


async def test_an_executor_that_failed_is_opened_anew_after_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = []

    def fails_once() -> summing_module.Opened:
        opened.append(ThreadPoolExecutor(1))
        if len(opened) == 1:
            opened[0].shutdown()  # whoever submits to it is refused
        return opened[-1], opened[-1].shutdown

    summing = Elsewhere(fails_once)
    for number in range(2):
        assert await summing.run(abs, -number) == number
    assert len(opened) == 1  # the pause after a failure
    monkeypatch.setattr(summing, "_away_until", 0.0)
    assert await summing.run(abs, -2) == 2
    assert len(opened) == 2 and summing._opened is not None
    summing.close()


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
        assert np.array_equal(await total_of(EVERYBODY, cluster), oracle(EVERYBODY))
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
        assert np.array_equal(await total_of(EVERYBODY, cluster), oracle(EVERYBODY))
    finally:
        cluster.close()


async def test_a_missing_share_is_noticed() -> None:
    summing, store = Summing(), Store({1, 2})
    with pytest.raises(SharesMissing):
        await sum_shares(SPEC, store.parts({1, 2, 3}), store.read, summing)
    summing.close()
