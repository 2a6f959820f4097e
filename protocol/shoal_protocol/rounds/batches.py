"""The public rule by which each round of a job with mini-batches asks its clients.

The trainer follows the rule and readers of a certificate check it. It depends only on who joined,
who is still enrolled, who was asked before, and a hash.
"""

import hashlib
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from shoal_protocol.privacy.participation import Participation
from shoal_protocol.wire.encoding import domain
from shoal_protocol.wire.errors import RefusedSpec

Owners = NDArray[np.uint32]
"""The data holder of each client of a job's population, ascending, shape (population,)."""

_KEPT_LAPS: Final = 8  # of jobs that run at the same time; a lap of a million clients takes seconds


def choose_batch(
    participation: Participation,
    enrolled: BitMap,
    owners: Owners,
    *,
    job: str,
    size: int,
    most: int,
) -> BitMap | None:
    """Return the `size` clients whom the job's next round asks; None if there are too few.

    Those are asked who joined the job, are in `enrolled` and were asked in the fewest of its
    rounds so far, fewer than `most`. Of those with equally many, each data holder's come at even
    distances (`_ranks`), so that a batch asks it for about its part of the population. In T rounds
    over N clients who all stay nobody is asked more than ceil(T size / N) times.

    Raises:
        ValueError: `size` is not positive.
    """
    if size < 1:
        raise ValueError("a batch has at least one client")
    candidates = participation.places(participation.population & enrolled)
    candidates = candidates[participation.rounds[candidates] < most]
    if len(candidates) < size:
        return None
    before = participation.rounds[candidates]
    lap = int(np.partition(before, size - 1)[size - 1])  # of whom only some are asked
    chosen, tied = candidates[before < lap], candidates[before == lap]
    population = participation.population.serialize()
    order = tied[np.argsort(_ranks(job, lap, population, owners.tobytes())[tied])]
    clients = np.asarray(participation.population.to_array())
    return BitMap(clients[np.concatenate([chosen, order[: size - len(chosen)]])])


def check_batch(
    batch: BitMap,
    participation: Participation,
    gone: BitMap,
    owners: Owners,
    *,
    job: str,
    size: int,
    most: int,
    may_leave: bool,
) -> BitMap:
    """Refuse a batch that is not the rule's; return which of the population have left by now.

    Clients whom the rule would have asked and the trainer did not must have left, which is possible
    only if `may_leave`. Clients in `gone` are not asked again.

    Raises:
        RefusedSpec
    """
    left = gone
    while True:
        stayed = participation.population - left
        expected = choose_batch(participation, stayed, owners, job=job, size=size, most=most)
        if expected == batch:
            return left
        missing = BitMap() if expected is None else expected - batch
        if not may_leave or not missing:
            raise RefusedSpec("its population is not the batch that the public rule chooses")
        left = left | missing


@lru_cache(_KEPT_LAPS)
def _ranks(job: str, lap: int, population: bytes, owners: bytes) -> NDArray[np.int64]:
    """Return each client's place in a lap over the population, shape (population,).

    Of a data holder's n clients, ordered by the SHA-256 digest of the job, the lap and their index,
    the i-th from 0 comes at (i + u) / n of the lap, u in [0, 1) the last four bytes of its digest.
    """
    prefix = domain("batch-order") + bytes.fromhex(job) + lap.to_bytes(4, "little")
    clients = np.asarray(BitMap.deserialize(population).to_array(), dtype="<u4")
    digests = np.array(
        [hashlib.sha256(prefix + client.tobytes()).digest() for client in clients], "S32"
    )
    holders = np.frombuffer(owners, np.uint32)
    order = np.lexsort((digests, holders))
    _, first, counts = np.unique(holders[order], return_index=True, return_counts=True)
    place = np.empty(len(clients), np.uint64)
    place[order] = np.arange(len(clients)) - np.repeat(first, counts)
    of = np.empty(len(clients), np.uint64)
    of[order] = np.repeat(counts, counts)
    last = digests.view(np.uint8).reshape(-1, 32)[:, 28:].copy().view("<u4")[:, 0]
    moment = (((place << np.uint64(32)) + last) << np.uint64(11)) // of
    ranks = np.empty(len(clients), dtype=np.int64)
    ranks[np.lexsort((digests, moment))] = np.arange(len(clients))
    return ranks
