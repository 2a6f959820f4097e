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

_KEPT_LAPS: Final = 8  # of jobs that run at the same time; a lap of a million clients takes seconds


def choose_batch(
    participation: Participation, enrolled: BitMap, *, job: str, size: int, most: int
) -> BitMap | None:
    """Return the `size` clients whom the job's next round asks; None if there are too few.

    Those are asked who joined the job, are in `enrolled` and were asked in the fewest of its
    rounds so far, fewer than `most`. Of those with equally many the ones come first whose SHA-256
    digest of the job, that number and their index is smallest. So in T rounds over N clients who
    all stay nobody is asked more than ceil(T size / N) times.

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
    order = tied[np.argsort(_ranks(job, lap, participation.population.serialize())[tied])]
    clients = np.asarray(participation.population.to_array())
    return BitMap(clients[np.concatenate([chosen, order[: size - len(chosen)]])])


def check_batch(
    batch: BitMap,
    participation: Participation,
    gone: BitMap,
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
        expected = choose_batch(participation, stayed, job=job, size=size, most=most)
        if expected == batch:
            return left
        missing = BitMap() if expected is None else expected - batch
        if not may_leave or not missing:
            raise RefusedSpec("its population is not the batch that the public rule chooses")
        left = left | missing


@lru_cache(_KEPT_LAPS)
def _ranks(job: str, lap: int, population: bytes) -> NDArray[np.int64]:
    """Return each client's place in a lap over the population, shape (population,)."""
    prefix = domain("batch-order") + bytes.fromhex(job) + lap.to_bytes(4, "little")
    clients = np.asarray(BitMap.deserialize(population).to_array(), dtype="<u4")
    digests = [hashlib.sha256(prefix + client.tobytes()).digest() for client in clients]
    order = sorted(range(len(digests)), key=digests.__getitem__)
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return ranks
