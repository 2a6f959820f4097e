"""Sums over exactly the cohort, whatever was counted before and however it is read."""

import asyncio
from concurrent.futures import Executor, ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from shoal_compute.shares import AcceptedShare
from shoal_compute.summing import SharesMissing, sum_shares
from shoal_compute.tally import Tallies
from shoal_protocol.sharing import AdditiveSharing, Share, ShareKind
from tests.compute.test_gossip import known_round
from tests.protocol.examples import DIMENSION, seed

SCHEME = AdditiveSharing()
CLIENTS = st.sets(st.integers(0, 11))


def share(client: int) -> Share:
    if client % 3 == 0:
        vector = np.arange(DIMENSION, dtype="<u8") + np.uint64(2**64 - 3 * client - 1)
        return Share(ShareKind.VECTOR, vector.tobytes())
    return Share(ShareKind.SEED, seed(f"share {client}"))


def oracle(clients: set[int]) -> np.ndarray:
    total = [0] * DIMENSION
    for client in clients:
        for index, value in enumerate(SCHEME.add([share(client)], DIMENSION)):
            total[index] = (total[index] + int(value)) % 2**64
    return np.array(total, np.uint64)


def reader(stored: set[int]):
    async def read(clients: list[int]) -> list[Share]:
        return [share(client) for client in clients if client in stored]

    return read


class AtOnce(Executor):
    """Runs work when it is submitted."""

    def submit(self, work, /, *arguments, **named):
        with ThreadPoolExecutor(1) as threads:
            return threads.submit(work, *arguments, **named)


@given(counted=CLIENTS, cohort=CLIENTS)
def test_a_tally_and_the_store_together_give_the_cohorts_sum(
    counted: set[int], cohort: set[int]
) -> None:
    async def run() -> np.ndarray:
        tallies = Tallies(AtOnce())
        known = known_round(set())
        for client in counted:
            accepted = AcceptedShare(known.id, client, bytes(32), bytes(64), share(client))
            tallies.count(known, [accepted])
        return await tallies.total(known, BitMap(cohort), reader(counted | cohort))

    assert np.array_equal(asyncio.run(run()), oracle(cohort))


async def test_a_missing_share_is_noticed() -> None:
    with pytest.raises(SharesMissing), ThreadPoolExecutor(1) as executor:
        await sum_shares(
            reader({1, 2}),
            BitMap([1, 2, 3]),
            dimension=DIMENSION,
            scheme=SCHEME,
            executor=executor,
        )


async def test_long_vectors_are_read_a_few_at_a_time() -> None:
    dimension, sizes = 100_000, []

    async def read(clients: list[int]) -> list[Share]:
        sizes.append(len(clients))
        return [Share(ShareKind.SEED, seed(str(client))) for client in clients]

    with ThreadPoolExecutor(1) as executor:
        total = await sum_shares(
            read, BitMap(range(23)), dimension=dimension, scheme=SCHEME, executor=executor
        )
    expected = SCHEME.add([Share(ShareKind.SEED, seed(str(n))) for n in range(23)], dimension)
    assert np.array_equal(total, expected)
    assert sum(sizes) == 23
    assert max(sizes) * 8 * dimension <= 4 << 20
